//! Long waits of local reads: the log gets one line at the beginning, and one at the end.
//!
//! One pair of lines for each image, whatever the number of reads and chunks.

use crate::driver::Driver;
use crate::event::{Event, Holder};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfield_core::image::ImageId;
use vfield_core::node::LongestWait;

/// Waiting time of a read from which it is logged and shown: most deaths are handled by then.
pub const LONG: Duration = Duration::from_secs(10);
/// Interval of checks for waiting reads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reports waits for as long as it is polled.
pub async fn tell(driver: Arc<Driver>) {
    let mut reported: BTreeMap<ImageId, (String, Instant)> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let waits = driver.look(|core| core.longest_waits(LONG));
        reported.retain(|id, (image, since)| {
            let waits = waits.iter().any(|longest| longest.image == *id);
            if !waits {
                driver.event(Event::ReadGoesOn { image: image.clone(), for_s: since.elapsed().as_secs() });
            }
            waits
        });
        for LongestWait { image: id, chunk, wait, held_up, holder } in waits {
            let Some(image) = driver.image(id).filter(|_| !reported.contains_key(&id)) else {
                continue;
            };
            let name = image.name().to_owned();
            reported.insert(id, (name.clone(), Instant::now().checked_sub(wait).unwrap_or_else(Instant::now)));
            let holder = holder.map(|(former, ago)| Holder {
                addr: former.identity.addr,
                how: former.how,
                ago_s: ago.as_secs(),
            });
            let (chunk, for_s, why) = (chunk.0, wait.as_secs(), held_up.to_string());
            driver.event(Event::ReadWaits { image: name, chunk, for_s, why, holder });
        }
    }
}
