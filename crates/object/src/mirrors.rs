//! One object at one or several places, as one: a place that fails or is slow costs a moment.
//!
//! A read goes to the preferred place: the first one, or the last that delivered while the first
//! did not. If it fails there, the next place is asked at once. If it takes much longer than usual,
//! the next place is asked besides, and the first answer counts. A single place is then asked once
//! more, over another connection. Invariant: all objects have one length; the node compares their
//! bytes with its hashes. There are no other retries: those are the node's.

use crate::deadline::within;
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectOpening, ObjectReading, ObjectStore};

/// A read is slow after so many times the usual one. With less, a store that is busy for everybody
/// would be asked for much twice.
const SLOW_TIMES: u32 = 4;
/// No read is slow before this time. A machine that is busy for a moment takes less.
const SLOW_MIN: Duration = Duration::from_secs(1);
/// Before any read has shown the usual time, a read is slow below this rate in bytes per second. On
/// a slow link the first 4 MiB take longer than [`SLOW_MIN`], and asking twice would double that.
const SLOW_RATE: u64 = 1 << 20;
/// A read moves the usual time by this part of its difference.
const USUAL_PART: u32 = 8;
/// A single place may be asked once more for this part of its reads, which is what it costs.
const AGAIN_PART: f64 = 0.05;
/// Most reads for which it may be asked once more in a row.
const AGAIN_MAX: f64 = 4.0;
/// The first place is tried again after this time. Until then another one is preferred.
const BACK_AFTER: Duration = Duration::from_secs(30);

/// The places of one object.
#[derive(Debug)]
pub struct Mirrors {
    places: Arc<[Arc<dyn ObjectStore>]>,
}

impl Mirrors {
    /// The address of the first place is shown.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(places: Vec<Arc<dyn ObjectStore>>) -> Self {
        assert!(!places.is_empty(), "an object has a place");
        Self { places: places.into() }
    }
}

impl ObjectStore for Mirrors {
    fn address(&self) -> &str {
        self.places[0].address()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.places.iter().flat_map(|place| place.files()).collect()
    }

    fn image(&self) -> Option<[u8; 32]> {
        self.places.iter().find_map(|place| place.image())
    }

    fn open(&self, suffix: &str) -> ObjectOpening<'_> {
        let suffix = suffix.to_owned();
        Box::pin(async move {
            let mut failures = Vec::new();
            for (index, place) in self.places.iter().enumerate() {
                match place.open(&suffix).await {
                    Ok(object) => {
                        let places = Arc::clone(&self.places);
                        return Ok(Box::new(Mirrored::new(places, suffix, index, object)) as Box<dyn Object>);
                    }
                    Err(failure) => failures.push(failure),
                }
            }
            Err(all_of(failures))
        })
    }
}

/// An object that was opened at one of its places at least.
struct Mirrored {
    places: Arc<[Arc<dyn ObjectStore>]>,
    suffix: String,
    length_bytes: u64,
    objects: Vec<OnceCell<Box<dyn Object>>>,
    state: Mutex<State>,
}

struct State {
    preferred: usize,
    /// When a read was last given to the first place, if that is not the preferred one.
    tried: Instant,
    usual: Option<Usual>,
    /// For so many reads a single place may be asked once more.
    again: f64,
}

/// A usual read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usual {
    took: Duration,
    bytes: u64,
}

impl Usual {
    /// Before a read of so many bytes has shown it.
    fn guess(bytes: u64) -> Self {
        let longest = SLOW_MIN + Duration::from_secs_f64(bytes as f64 / SLOW_RATE as f64);
        Self { took: longest / SLOW_TIMES, bytes }
    }

    /// After another read.
    fn after(self, other: Self) -> Self {
        let took = (self.took * (USUAL_PART - 1) + other.took) / USUAL_PART;
        let bytes = (self.bytes * u64::from(USUAL_PART - 1) + other.bytes) / u64::from(USUAL_PART);
        Self { took, bytes }
    }

    /// A read of so many bytes is slow from then on. A longer one takes longer by as much at most.
    fn slow(self, bytes: u64) -> Duration {
        let longer = bytes as f64 / self.bytes.max(1) as f64;
        (self.took * SLOW_TIMES).mul_f64(longer.max(1.0)).max(SLOW_MIN)
    }
}

impl Mirrored {
    fn new(places: Arc<[Arc<dyn ObjectStore>]>, suffix: String, index: usize, object: Box<dyn Object>) -> Self {
        let length_bytes = object.length_bytes();
        let mut objects: Vec<OnceCell<Box<dyn Object>>> = places.iter().map(|_| OnceCell::new()).collect();
        objects[index] = OnceCell::new_with(Some(object));
        let state = State { preferred: index, tried: Instant::now(), usual: None, again: 1.0 };
        Self { places, suffix, length_bytes, objects, state: Mutex::new(state) }
    }

    /// Reads at one place, which is opened first if it was not.
    async fn attempt(&self, index: usize, extent: Extent) -> Result<Bytes, ObjectError> {
        let place = &self.places[index];
        let opening = || async {
            let object = place.open(&self.suffix).await?;
            if object.length_bytes() != self.length_bytes {
                let (other, length) = (object.length_bytes(), self.length_bytes);
                let why = format!("{} has {other} bytes in place of {length}", place.address());
                return Err(ObjectError::lasting(why));
            }
            Ok(object)
        };
        self.objects[index].get_or_try_init(opening).await?.read(extent).await
    }

    async fn read_somewhere(&self, extent: Extent) -> Result<Bytes, ObjectError> {
        let begun = Instant::now();
        let (mut ahead, slow) = self.begin(begun, extent.len());
        let (mut running, mut failures): (Vec<(usize, ObjectReading<'_>)>, _) = (Vec::new(), Vec::new());
        let mut next = ahead.pop_front();
        loop {
            if let Some(index) = next.take() {
                running.push((index, Box::pin(self.attempt(index, extent))));
            }
            let may_go_on = !ahead.is_empty() || self.places.len() == 1 && running.len() == 1;
            let limit = if may_go_on { slow } else { Duration::MAX };
            let (index, read) = match within(limit, first_of(&mut running)).await {
                Ok(first) => first,
                Err(_) => {
                    next = ahead.pop_front().or_else(|| self.lock().take_again());
                    // Without leave to ask once more, there is nothing else to wait for.
                    if let Some(index) = next {
                        let (bytes, address) = (extent.len(), self.places[index].address());
                        tracing::info!("{bytes} bytes have not come within {slow:?}; asked besides: {address}");
                        continue;
                    }
                    first_of(&mut running).await
                }
            };
            match read {
                Ok(bytes) => {
                    self.delivered(index, begun, extent.len());
                    return Ok(bytes);
                }
                Err(failure) => failures.push(failure),
            }
            next = ahead.pop_front();
            if next.is_none() && running.is_empty() {
                return Err(all_of(failures));
            }
        }
    }

    /// The places in the order in which they are asked for so many bytes, and the time after which
    /// each is slow.
    fn begin(&self, now: Instant, bytes: u64) -> (VecDeque<usize>, Duration) {
        let mut state = self.lock();
        let is_trial = state.preferred != 0 && now.saturating_duration_since(state.tried) >= BACK_AFTER;
        if is_trial {
            state.tried = now;
        }
        let first = if is_trial { 0 } else { state.preferred };
        let mut order = vec![first, state.preferred];
        order.extend(0..self.places.len());
        let is_changed = |index: &usize| self.objects[*index].get().is_some_and(|object| object.changed().is_some());
        // An object that is another one now has the same bytes, at best.
        let (changed, same): (Vec<usize>, Vec<usize>) = order.into_iter().partition(is_changed);
        let mut ahead: VecDeque<usize> = VecDeque::new();
        for index in same.into_iter().chain(changed) {
            if !ahead.contains(&index) {
                ahead.push_back(index);
            }
        }
        (ahead, state.usual.unwrap_or_else(|| Usual::guess(bytes)).slow(bytes))
    }

    fn delivered(&self, index: usize, begun: Instant, bytes: u64) {
        let (now, mut state) = (Instant::now(), self.lock());
        let read = Usual { took: now.saturating_duration_since(begun), bytes };
        state.usual = Some(state.usual.map_or(read, |usual| usual.after(read)));
        state.again = (state.again + AGAIN_PART).min(AGAIN_MAX);
        let before = std::mem::replace(&mut state.preferred, index);
        if before != index {
            state.tried = now;
            let [before, address] = [before, index].map(|index| self.places[index].address());
            tracing::warn!("{address} delivers in place of {before}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The single place, if it may be asked once more.
    fn take_again(&mut self) -> Option<usize> {
        let may = self.again >= 1.0;
        self.again -= if may { 1.0 } else { 0.0 };
        may.then_some(0)
    }
}

impl Object for Mirrored {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn compression(&self) -> u64 {
        self.objects.iter().find_map(OnceCell::get).map_or(1, |object| object.compression())
    }

    fn read(&self, extent: Extent) -> ObjectReading<'_> {
        Box::pin(self.read_somewhere(extent))
    }

    fn changed(&self) -> Option<String> {
        self.objects.iter().find_map(|object| object.get()?.changed())
    }
}

/// The first of some reads that ends, which is taken out; never, if there is none.
async fn first_of(running: &mut Vec<(usize, ObjectReading<'_>)>) -> (usize, Result<Bytes, ObjectError>) {
    poll_fn(|context| {
        for at in 0..running.len() {
            if let Poll::Ready(read) = running[at].1.as_mut().poll(context) {
                return Poll::Ready((running.swap_remove(at).0, read));
            }
        }
        Poll::Pending
    })
    .await
}

/// The failures of all places as one: it passes if one of them does, and as soon.
fn all_of(mut failures: Vec<ObjectError>) -> ObjectError {
    if failures.len() == 1 || failures.iter().all(|failure| matches!(failure, ObjectError::Changed(_))) {
        return failures.swap_remove(0);
    }
    let why = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let pause = |failure: &ObjectError| match failure {
        ObjectError::Failed { after, lasting: false, .. } => Some(after.unwrap_or_default()),
        ObjectError::Failed { .. } | ObjectError::Changed(_) => None,
    };
    let pauses = failures.iter().filter_map(pause);
    let soonest = pauses.min();
    ObjectError::Failed { why, after: soonest.filter(|pause| !pause.is_zero()), lasting: soonest.is_none() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_read_is_not_slow_after_many_short_ones() {
        let short = Usual { took: Duration::from_secs(1), bytes: 1 << 19 };
        assert_eq!(short.slow(1 << 22), Duration::from_secs(32));
        let long = Usual { took: Duration::from_secs(8), bytes: 1 << 22 };
        assert_eq!((long.slow(1 << 19), long.slow(0)), (Duration::from_secs(32), Duration::from_secs(32)));
        assert_eq!(short.after(long), Usual { took: Duration::from_millis(1875), bytes: 983_040 });
        assert_eq!(Usual { took: Duration::ZERO, bytes: 0 }.slow(1), SLOW_MIN);
    }

    #[test]
    fn the_first_read_is_not_slow_on_a_slow_link() {
        assert_eq!(Usual::guess(0).slow(0), SLOW_MIN);
        assert_eq!(Usual::guess(4 << 20).slow(4 << 20), Duration::from_secs(5));
        // One such read shows the usual time, also if it was fast.
        let read = Usual { took: Duration::from_millis(40), bytes: 4 << 20 };
        assert_eq!(read.slow(4 << 20), SLOW_MIN);
    }
}
