//! The HTTP connections: those that are served, wait, or make room.
//!
//! Owns the bounds of a site: connections served at once, connections of one address, and the
//! time that a client may take nothing of its answer. Invariant: clients that take their answers
//! wait only for each other. If no place is free, the site ends a connection slower than any
//! machine, else the slowest of an address with more places than a machine needs; else the new
//! connection waits. Called by [`super::server`].

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// A visitor that took not a byte of its answer for so long is cut off. A link that is lost for
/// shorter is no reason to let a machine boot again.
pub const TAKES_NOTHING: Duration = Duration::from_secs(20);
/// As many places as a machine may need: firmware, its loader and a try that was broken off.
pub const OF_A_MACHINE: usize = 4;
/// Bytes that one has to take in a second of those in which it is waited for, if others wait. A
/// hundred megabytes would take it two hours; 48 machines on a link of 10 Mbit/s have more.
const SLOW: u128 = 16 << 10;
/// How fast somebody is can be said after it was waited for so long.
const JUDGED: Duration = Duration::from_secs(2);
/// Between two looks whether somebody has become slow, while others wait.
const LOOK: Duration = Duration::from_millis(500);

/// The connections of HTTP clients, within bounds.
#[derive(Debug)]
pub struct Visitors {
    max: usize,
    of_one_max: usize,
    present: Mutex<Present>,
    /// Somebody has gone.
    room: Notify,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    visitors: BTreeMap<u64, Arc<Visitor>>,
}

/// State of one connection.
#[derive(Debug)]
struct Visitor {
    ip: IpAddr,
    pace: Mutex<Pace>,
    shown_out: Notify,
}

/// How fast one takes what there is for it.
#[derive(Debug, Default)]
struct Pace {
    taken_bytes: u64,
    /// For how long it was waited for, and since when it is.
    waited: Duration,
    since: Option<Instant>,
}

/// A visitor's place, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    visitors: Arc<Visitors>,
    number: u64,
    visitor: Arc<Visitor>,
}

/// The decision about a new visitor.
#[derive(Debug)]
enum Door {
    Open(Place),
    /// There is no room yet.
    Full,
    /// Its address has all that it may have.
    Closed,
}

impl Visitors {
    /// Nobody yet; at most `max` at once, `of_one_max` of them of one address, and no more.
    pub fn new(max: usize, of_one_max: usize) -> Arc<Self> {
        Arc::new(Self { max, of_one_max, present: Mutex::default(), room: Notify::new() })
    }

    /// Lets one in as soon as there is room, for which others may have to go; `None` if its address
    /// has too many places.
    pub async fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        loop {
            match self.knock(ip, Instant::now()) {
                Door::Open(place) => return Some(place),
                Door::Closed => return None,
                // Either is a reason to look again.
                Door::Full => drop(timeout(LOOK, self.room.notified()).await),
            }
        }
    }

    fn knock(self: &Arc<Self>, ip: IpAddr, now: Instant) -> Door {
        let ip = ip.to_canonical();
        let mut present = self.present();
        let of_each = present.of_each();
        let own = of_each.get(&ip).copied().unwrap_or_default();
        if own >= self.of_one_max {
            return Door::Closed;
        }
        if present.visitors.len() >= self.max {
            let Some(slow) = present.who_goes(own, &of_each, now).and_then(|number| present.visitors.remove(&number))
            else {
                return Door::Full;
            };
            tracing::debug!(ip = %slow.ip, "shown out for another");
            slow.shown_out.notify_one();
        }
        let visitor = Arc::new(Visitor { ip, pace: Mutex::default(), shown_out: Notify::new() });
        let number = present.next;
        present.next += 1;
        present.visitors.insert(number, Arc::clone(&visitor));
        Door::Open(Place { visitors: Arc::clone(self), number, visitor })
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn of_each(&self) -> BTreeMap<IpAddr, usize> {
        let mut of_each = BTreeMap::new();
        self.visitors.values().for_each(|visitor| *of_each.entry(visitor.ip).or_default() += 1);
        of_each
    }

    /// Who makes room for one whose address has `own` places.
    fn who_goes(&self, own: usize, of_each: &BTreeMap<IpAddr, usize>, now: Instant) -> Option<u64> {
        let paces = self.visitors.iter().map(|(number, visitor)| (visitor.pace().speed(now), *number, visitor.ip));
        let paces: Vec<(u128, u64, IpAddr)> = paces.collect();
        let slowest = paces.iter().min().filter(|(speed, ..)| *speed < SLOW);
        let crowd = of_each.iter().max_by_key(|(_, count)| **count);
        let crowd = crowd.filter(|(_, count)| **count > OF_A_MACHINE.max(own + 1)).map(|(ip, _)| *ip);
        let of_crowd = || paces.iter().filter(|(.., ip)| Some(*ip) == crowd).min();
        slowest.or_else(of_crowd).map(|(_, number, _)| *number)
    }
}

impl Visitor {
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    /// Bytes that it takes in a second of those in which it is waited for; more than anybody before
    /// that can be said.
    fn speed(&self, now: Instant) -> u128 {
        let waited = self.waited + self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        if waited < JUDGED { u128::MAX } else { u128::from(self.taken_bytes) * 1000 / waited.as_millis() }
    }

    /// It has taken something, or does not at the moment.
    fn note(&mut self, taken_bytes: Option<usize>, now: Instant) {
        match taken_bytes {
            None => drop(self.since.get_or_insert(now)),
            Some(bytes) => {
                self.taken_bytes += bytes as u64;
                self.waited += self.since.take().map_or(Duration::ZERO, |since| now.duration_since(since));
            }
        }
    }
}

impl Place {
    /// Returns when the visitor has to make room.
    pub async fn shown_out(&self) {
        self.visitor.shown_out.notified().await;
    }

    /// The visitor's connection, with an error as soon as it has taken nothing for `patience`
    /// although there was something.
    pub fn watch(&self, stream: TcpStream, patience: Duration) -> Watched {
        Watched { stream, visitor: Arc::clone(&self.visitor), patience, stuck: None }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.visitors.present().visitors.remove(&self.number);
        self.visitors.room.notify_one();
    }
}

/// A stream under [`Place::watch`].
#[derive(Debug)]
pub struct Watched {
    stream: TcpStream,
    visitor: Arc<Visitor>,
    patience: Duration,
    /// The end of patience, since the socket took nothing.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    /// Takes note of how a write went.
    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let taken = match &written {
            Poll::Ready(result) => Some(result.as_ref().map_or(0, |bytes| *bytes)),
            Poll::Pending => None,
        };
        self.visitor.pace().note(taken, Instant::now());
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let patience = self.patience;
        ready!(self.stuck.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 168, 1, last])
    }

    fn open(visitors: &Arc<Visitors>, from: u8) -> Place {
        match visitors.knock(ip(from), Instant::now()) {
            Door::Open(place) => place,
            other => panic!("{other:?}"),
        }
    }

    /// It has taken so many bytes a second.
    fn takes(place: &Place, speed: u64) {
        *place.visitor.pace() = Pace { taken_bytes: 2 * speed, waited: JUDGED, since: None };
    }

    fn is_out(place: &Place) -> bool {
        !place.visitors.present().visitors.contains_key(&place.number)
    }

    #[test]
    fn an_address_with_more_than_a_machine_needs_makes_room_by_its_slowest() {
        let visitors = Visitors::new(8, 7);
        let crowd: Vec<Place> = (0..6).map(|_| open(&visitors, 9)).collect();
        let machines = [open(&visitors, 1), open(&visitors, 2)];
        // The machines are slower than any of the crowd.
        machines.iter().for_each(|place| takes(place, 20_000));
        crowd.iter().zip([5, 9, 4, 8, 7, 6]).for_each(|(place, speed)| takes(place, speed * 100_000));
        let (_third, _fourth) = (open(&visitors, 3), open(&visitors, 4));
        let out: Vec<bool> = crowd.iter().map(is_out).collect();
        assert_eq!(out, [true, false, true, false, false, false]);
        assert!(!machines.iter().any(is_out));
        // All of them keep a machine's pace: a new visitor waits, from any address.
        for from in [5, 9] {
            assert!(matches!(visitors.knock(ip(from), Instant::now()), Door::Full));
        }
    }

    #[test]
    fn who_takes_less_than_any_machine_makes_room_first() {
        let visitors = Visitors::new(4, 4);
        let places = [1, 2, 3, 4].map(|from| open(&visitors, from));
        takes(&places[0], 17_000);
        takes(&places[1], 16_000);
        takes(&places[2], 5);
        // This one waits for the daemon, and that one has just come: neither is slow.
        let _one = open(&visitors, 5);
        assert_eq!([false, false, true, false], [0, 1, 2, 3].map(|at| is_out(&places[at])));
        let _other = open(&visitors, 6);
        assert!(is_out(&places[1]));
        assert!(matches!(visitors.knock(ip(7), Instant::now()), Door::Full));
        let now = Instant::now();
        places[3].visitor.pace().note(None, now);
        assert!(matches!(visitors.knock(ip(7), now + JUDGED), Door::Open(_)));
        assert!(is_out(&places[3]));
    }

    #[tokio::test]
    async fn who_waits_comes_in_when_somebody_goes() {
        let visitors = Visitors::new(2, 2);
        let (one, _other) = (open(&visitors, 1), open(&visitors, 2));
        let waiting = tokio::spawn({
            let visitors = Arc::clone(&visitors);
            async move { visitors.admit(ip(3)).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(one);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn an_address_has_so_many_places_and_no_more() {
        let visitors = Visitors::new(100, 3);
        let [one, _two, _three] = [open(&visitors, 1), open(&visitors, 1), open(&visitors, 1)];
        let mapped: IpAddr = "::ffff:192.168.1.1".parse().unwrap();
        assert!(matches!(visitors.knock(mapped, Instant::now()), Door::Closed));
        let _another = open(&visitors, 2);
        drop(one);
        assert!(matches!(visitors.knock(mapped, Instant::now()), Door::Open(_)));
    }

    #[tokio::test]
    async fn who_takes_nothing_is_cut_off() {
        use tokio::io::AsyncWriteExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, addr) = listener.accept().await.unwrap();
        let place = Visitors::new(1, 1).admit(addr.ip()).await.unwrap();
        let mut stream = place.watch(stream, Duration::from_millis(50));
        let error = loop {
            if let Err(error) = stream.write_all(&[0; 1 << 16]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(place.visitor.pace().taken_bytes > 0 && place.visitor.pace().since.is_some());
    }
}
