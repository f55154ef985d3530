//! Who is being answered, and who makes room for others.
//!
//! Owns the bounds of the site: how many are answered at once, how many of one address, and how long one may take nothing
//! of its answer. Invariant: nobody waits for a place. Who comes when all are taken gets that of the slowest, first
//! among those of the address that has the most places: so a machine that boots keeps its one or two, whatever another
//! address does. Called by [`super::http`].

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

/// Who can be answered at once: each has a thread while it loads, of which tokio has 512.
pub const VISITORS_MAX: usize = 256;
/// Of one address: a machine that boots needs two, a room behind one router as many as it has machines.
pub const OF_ONE_MAX: usize = 64;
/// One that has taken not a byte of its answer for so long is cut off. A link that is lost for shorter is no reason to let a
/// machine boot again.
pub const TAKES_NOTHING: Duration = Duration::from_secs(20);
/// How fast somebody is can be said after so long: connecting, asking and the first bytes over a busy link.
const NEW: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct Visitors {
    max: usize,
    of_one_max: usize,
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    visitors: BTreeMap<u64, Arc<Visitor>>,
}

/// One connection.
#[derive(Debug)]
pub struct Visitor {
    ip: IpAddr,
    since: Instant,
    taken_bytes: AtomicU64,
    shown_out: Notify,
}

/// A visitor's place, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    visitors: Arc<Visitors>,
    number: u64,
    visitor: Arc<Visitor>,
}

impl Visitors {
    /// Nobody yet; at most `max` at once, `of_one_max` of them of one address.
    pub fn new(max: usize, of_one_max: usize) -> Arc<Self> {
        Arc::new(Self { max, of_one_max, present: Mutex::default() })
    }

    /// Lets one in, and another one out if there is no room.
    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Place {
        self.admit_at(ip, Instant::now())
    }

    fn admit_at(self: &Arc<Self>, ip: IpAddr, now: Instant) -> Place {
        let (taken_bytes, shown_out) = (AtomicU64::new(0), Notify::new());
        let visitor = Arc::new(Visitor { ip: ip.to_canonical(), since: now, taken_bytes, shown_out });
        let mut present = self.present();
        if let Some(number) = present.who_goes(visitor.ip, now, self)
            && let Some(slow) = present.visitors.remove(&number)
        {
            tracing::debug!(ip = %slow.ip, "shown out for another");
            slow.shown_out.notify_one();
        }
        let number = present.next;
        present.next += 1;
        present.visitors.insert(number, Arc::clone(&visitor));
        Place { visitors: Arc::clone(self), number, visitor }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    /// Who makes room for one of `ip`, if there is none.
    fn who_goes(&self, ip: IpAddr, now: Instant, bounds: &Visitors) -> Option<u64> {
        let mut of_each = BTreeMap::<IpAddr, usize>::new();
        for visitor in self.visitors.values() {
            *of_each.entry(visitor.ip).or_default() += 1;
        }
        let among: Vec<IpAddr> = if of_each.get(&ip).is_some_and(|count| *count >= bounds.of_one_max) {
            vec![ip]
        } else if self.visitors.len() >= bounds.max {
            let most = of_each.values().max()?;
            of_each.iter().filter(|(_, count)| *count == most).map(|(ip, _)| *ip).collect()
        } else {
            return None;
        };
        let candidates = self.visitors.iter().filter(|(_, visitor)| among.contains(&visitor.ip));
        candidates.min_by_key(|(number, visitor)| (visitor.speed(now), **number)).map(|(number, _)| *number)
    }
}

impl Visitor {
    /// Bytes that it takes a second; more than all others while it is new.
    fn speed(&self, now: Instant) -> u128 {
        let here = now.duration_since(self.since);
        if here < NEW {
            return u128::MAX;
        }
        u128::from(self.taken_bytes.load(Ordering::Relaxed)) * 1000 / here.as_millis()
    }
}

impl Place {
    /// Returns when the visitor has to make room.
    pub async fn shown_out(&self) {
        self.visitor.shown_out.notified().await;
    }

    /// The visitor's connection, with an error as soon as it has taken nothing for `patience` although there was something.
    pub fn watch(&self, stream: TcpStream, patience: Duration) -> Watched {
        Watched { stream, visitor: Arc::clone(&self.visitor), patience, stuck: None }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.visitors.present().visitors.remove(&self.number);
    }
}

/// See [`Place::watch`].
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
        if let Poll::Ready(result) = written {
            self.stuck = None;
            let bytes = result.as_ref().map_or(0, |bytes| *bytes);
            self.visitor.taken_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            return Poll::Ready(result);
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

    fn takes(place: &Place, bytes: u64) {
        place.visitor.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_out(place: &Place) -> bool {
        !place.visitors.present().visitors.contains_key(&place.number)
    }

    #[test]
    fn the_slowest_of_the_address_with_the_most_makes_room() {
        let (visitors, start) = (Visitors::new(6, 4), Instant::now());
        let crowd: Vec<Place> = (0..4).map(|_| visitors.admit_at(ip(9), start)).collect();
        let machines = [visitors.admit_at(ip(1), start), visitors.admit_at(ip(2), start)];
        // The machines are slower than any of the crowd.
        crowd.iter().zip([5000, 9000, 4000, 8000]).for_each(|(place, bytes)| takes(place, bytes));
        let _third = visitors.admit_at(ip(3), start + NEW);
        assert_eq!([false, false, true, false], [0, 1, 2, 3].map(|at| is_out(&crowd[at])));
        let _fourth = visitors.admit_at(ip(4), start + NEW);
        assert_eq!([true, false, true, false], [0, 1, 2, 3].map(|at| is_out(&crowd[at])));
        // Where all have one, it is the slowest of all.
        let _fifth = visitors.admit_at(ip(5), start + NEW);
        let _sixth = visitors.admit_at(ip(6), start + NEW);
        assert!(is_out(&crowd[3]) && !is_out(&crowd[1]) && is_out(&machines[0]) && !is_out(&machines[1]));
    }

    #[test]
    fn an_address_has_so_many_and_the_new_are_not_judged() {
        let (visitors, start) = (Visitors::new(100, 3), Instant::now());
        let (old, fast) = (visitors.admit_at(ip(1), start), visitors.admit_at(ip(1), start));
        takes(&fast, 1 << 20);
        let new = visitors.admit_at(ip(1), start + NEW);
        let _newer = visitors.admit_at(ip(1), start + NEW);
        assert_eq!((is_out(&old), is_out(&fast), is_out(&new)), (true, false, false));
        let mapped: IpAddr = "::ffff:192.168.1.1".parse().unwrap();
        let _newest = visitors.admit_at(mapped, start + NEW);
        assert_eq!((is_out(&fast), is_out(&new)), (true, false));
        drop(new);
        assert_eq!(visitors.present().visitors.len(), 2);
    }

    #[tokio::test]
    async fn who_takes_nothing_is_cut_off() {
        use tokio::io::AsyncWriteExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, addr) = listener.accept().await.unwrap();
        let place = Visitors::new(1, 1).admit(addr.ip());
        let mut stream = place.watch(stream, Duration::from_millis(50));
        let error = loop {
            if let Err(error) = stream.write_all(&[0; 1 << 16]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(place.visitor.taken_bytes.load(Ordering::Relaxed) > 0);
    }
}
