//! Clients that ask for one thing at a time.
//!
//! Such a client asks again some microseconds after each answer.
//! Where processors are idle, it takes longer to fall asleep and be woken than to answer.
//! So its task looks again for a moment, and all other tasks and sockets have their turn in
//! between. If nothing comes, it sleeps, and lets more and more answers pass before it does so
//! again. So it does if other clients ask meanwhile, since they keep the server awake.
//!
//! Invariant: nothing is spent on a client that does not ask, and one connection of a server looks
//! at a time. The connection calls it.

use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How long a task looks. Clients of this machine need 10 to 30 us from an answer to the next
/// request, and being woken takes 20 to 40 us. A longer time costs pausing clients more.
const LOOK: Duration = Duration::from_micros(50);

/// Longer answers take longer than being woken does.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// Most answers that pass before a task looks again: a client that always pauses costs 50 us of a
/// processor in so many requests.
const PASS_MAX: u32 = 1024;

/// The right to look, of all connections of a server.
#[derive(Debug)]
pub(super) struct Turn {
    is_taken: AtomicBool,
    /// How often a client of the server asked.
    came: AtomicU64,
    /// False on a machine with one processor: the client waits for this one.
    is_of_use: bool,
}

impl Default for Turn {
    fn default() -> Self {
        let is_of_use = available_parallelism().is_ok_and(|processors| processors.get() > 1);
        Self { is_taken: AtomicBool::new(false), came: AtomicU64::new(0), is_of_use }
    }
}

/// A connection that looks.
#[derive(Debug)]
struct Looking<'a> {
    turn: &'a Turn,
    since: Instant,
    /// [`Turn::came`] at the beginning.
    came: u64,
}

impl<'a> Looking<'a> {
    fn begin(turn: &'a Turn) -> Option<Self> {
        let is_mine = turn.is_of_use && !turn.is_taken.swap(true, Ordering::Relaxed);
        is_mine.then(|| Self { turn, since: Instant::now(), came: turn.came.load(Ordering::Relaxed) })
    }

    /// True if there is still hope.
    fn goes_on(&self) -> bool {
        self.since.elapsed() < LOOK && self.turn.came.load(Ordering::Relaxed) == self.came
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.turn.is_taken.store(false, Ordering::Relaxed);
    }
}

/// What one connection knows of its client.
#[derive(Debug)]
pub(super) struct LockStep<'a> {
    turn: &'a Turn,
    looking: Option<Looking<'a>>,
    /// Bytes sent when the task had nothing to do last.
    sent_bytes: u64,
    /// Answers that are to pass.
    pass: u32,
    /// As many pass if nothing comes the next time.
    next_pass: u32,
}

impl<'a> LockStep<'a> {
    /// For a client that has not asked yet.
    pub(super) fn new(turn: &'a Turn) -> Self {
        Self { turn, looking: None, sent_bytes: 0, pass: 0, next_pass: 1 }
    }

    /// Something came from the client.
    pub(super) fn came(&mut self) {
        if self.looking.take().is_some_and(|looking| looking.goes_on()) {
            self.next_pass = 1;
        }
        self.turn.came.fetch_add(1, Ordering::Relaxed);
    }

    /// The task has nothing to do until the client asks; it has sent so many bytes by now. Wakes it
    /// after all others if it should look again.
    pub(super) fn rest(&mut self, sent_bytes: u64, cx: &mut Context<'_>) {
        let answered = sent_bytes - std::mem::replace(&mut self.sent_bytes, sent_bytes);
        match &self.looking {
            Some(looking) if looking.goes_on() => {}
            Some(_) => {
                self.looking = None;
                self.pass = self.next_pass;
                self.next_pass = (self.next_pass * 2).min(PASS_MAX);
                return;
            }
            None if !(1..=ANSWER_BYTES_MAX).contains(&answered) => return,
            None if self.pass > 0 => {
                self.pass -= 1;
                return;
            }
            None => {
                self.looking = Looking::begin(self.turn);
                if self.looking.is_none() {
                    return;
                }
            }
        }
        // The runtime looks at all sockets before it wakes those who yield.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client, and how often its task was woken.
    struct Client<'a> {
        lock_step: LockStep<'a>,
        wakes: Arc<Wakes>,
        sent_bytes: u64,
    }

    impl<'a> Client<'a> {
        fn of(turn: &'a Turn) -> Self {
            Self { lock_step: LockStep::new(turn), wakes: Arc::default(), sent_bytes: 0 }
        }

        /// True if the task is to look again after `answered` bytes.
        fn looks(&mut self, answered: u64) -> bool {
            self.sent_bytes += answered;
            let before = self.wakes.0.load(Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&self.wakes));
            self.lock_step.rest(self.sent_bytes, &mut Context::from_waker(&waker));
            self.wakes.0.load(Ordering::Relaxed) > before
        }

        fn looks_in_vain(&mut self, answered: u64) -> bool {
            let looks = self.looks(answered);
            while self.looks(0) {
                std::hint::spin_loop();
            }
            looks
        }
    }

    fn turn() -> Turn {
        Turn { is_taken: AtomicBool::new(false), came: AtomicU64::new(0), is_of_use: true }
    }

    #[test]
    fn a_client_in_lock_step_is_looked_at_for_each_answer() {
        let turn = turn();
        let mut client = Client::of(&turn);
        assert!(!client.looks(0), "nothing was answered");
        for _ in 0..5000 {
            assert!(client.looks(4124));
            client.lock_step.came();
        }
        assert!(!client.looks(0), "a wake-up without a request");
        assert!(!client.looks(1 << 20), "long answers");
    }

    #[test]
    fn a_client_that_pauses_is_soon_left_alone() {
        let turn = turn();
        let mut client = Client::of(&turn);
        let mut looks = |answers: u32| (0..answers).filter(|_| client.looks_in_vain(4124)).count();
        assert_eq!(looks(1024), 10);
        assert!(looks(10 * 1024) <= 10);
        // If it keeps step again, so does its task.
        while !client.looks(4124) {}
        client.lock_step.came();
        assert!(client.looks(4124));
    }

    #[test]
    fn one_connection_looks_at_a_time() {
        let turn = turn();
        let (mut first, mut second) = (Client::of(&turn), Client::of(&turn));
        assert!(first.looks(4124) && !second.looks(4124));
        first.lock_step.came();
        assert!(second.looks(4124) && !first.looks(4124));
        drop(second);
        assert!(first.looks(4124), "the other left while it looked");
    }

    #[test]
    fn other_clients_keep_the_server_awake() {
        let turn = turn();
        let (mut first, mut second) = (Client::of(&turn), Client::of(&turn));
        let looks = (0..1024).filter(|_| {
            let looks = first.looks(4124);
            second.lock_step.came();
            assert!(!first.looks(0), "it looks although the other asks");
            first.lock_step.came();
            looks
        });
        assert_eq!(looks.count(), 10);
    }

    #[test]
    fn one_processor_is_the_clients() {
        let turn = Turn { is_of_use: false, ..turn() };
        assert!(!Client::of(&turn).looks(4124));
    }
}
