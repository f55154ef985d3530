//! What this machine's link carries, kept over a restart: on the next morning the room knows its
//! slow machines before the first byte.
//!
//! A number for each address of the machine, in the place for lasting state of a service manager.
//! It is a hint: a new measurement counts more, and a damaged file is none.

use crate::lasting;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfield_console::failure::plain;
use vfield_node::{Node, apart};

/// The beginning of a file's name.
const NAME: &str = "link-";
/// How often it is looked whether the measurement has changed. It does only when it was wrong by a
/// factor of two.
const EVERY: Duration = Duration::from_secs(10);
/// Most bytes of a file: the digits of the largest number, and a line's end.
const BYTES_MAX: u64 = 21;

/// Bytes a second that an earlier daemon with this address in its field has measured.
pub fn remembered(ip: IpAddr) -> Option<u64> {
    lasting::has_place().then(|| read(&lasting::usual_dir(), ip)).flatten()
}

/// Keeps what the node measures, while it is polled.
pub async fn keep(node: Arc<Node>) {
    let (dir, mut kept, mut has_warned) = (lasting::usual_dir(), None, false);
    loop {
        tokio::time::sleep(EVERY).await;
        let Some((ip, bytes_per_s)) = node.measured_link().filter(|now| kept != Some(*now)) else { continue };
        kept = Some((ip, bytes_per_s));
        let place = dir.clone();
        let write = move || lasting::replace(&place, &name(ip), format!("{bytes_per_s}\n").as_bytes());
        if let Err(error) = apart::run(write).await
            && !std::mem::replace(&mut has_warned, true)
        {
            tracing::warn!("what the link carries cannot be kept in {}: {}", dir.display(), plain(&error));
        }
    }
}

fn name(ip: IpAddr) -> String {
    format!("{NAME}{ip}")
}

fn read(dir: &Path, ip: IpAddr) -> Option<u64> {
    let text = String::from_utf8(lasting::read(dir, &name(ip), BYTES_MAX)?).ok()?;
    text.trim_end().parse().ok().filter(|bytes_per_s| *bytes_per_s > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_and_rubbish_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let ip: IpAddr = "198.18.0.1".parse().unwrap();
        assert_eq!(read(dir.path(), ip), None);
        for (text, number) in [
            ("12500000\n", Some(12_500_000)),
            ("18446744073709551615\n", Some(u64::MAX)),
            ("184467440737095516150\n", None),
            ("0\n", None),
            ("-1", None),
            ("fast", None),
            ("", None),
        ] {
            lasting::replace(dir.path(), &name(ip), text.as_bytes()).unwrap();
            assert_eq!(read(dir.path(), ip), number, "{text:?}");
        }
        std::fs::write(dir.path().join(name(ip)), [0xFF; 9]).unwrap();
        assert_eq!(read(dir.path(), ip), None);
        assert_eq!(read(dir.path(), "198.18.0.2".parse().unwrap()), None, "another network");
    }
}
