//! Questions how well images are covered, and how much of the link their checks may take.
//!
//! A question is open for a minute. A person who only looks may ask every second, on each machine
//! of a room, while all of them read. So the checks for that take a small share of the link. Data
//! only; [`crate::node`] checks.

use crate::speed::bytes_in;
use crate::time::Time;
use std::time::Duration;

/// How long a question is open: longer than the pause between two questions of a person.
const OPEN_FOR: Duration = Duration::from_secs(60);
/// The part of the link that checks take while somebody looks. A room of twenty on links of
/// 50 Mbit/s that was watched on each machine took 16 % longer without a bound, 3.5 % at a 64th,
/// and less than 2 % at this part.
const SHARE: u64 = 128;
/// Unused shares are saved up for so long: a first look at a small field is answered at once.
const SAVED_FOR: Duration = Duration::from_secs(4);
/// The link's rate while none was measured, in bytes a second: 100 Mbit/s.
const UNMEASURED: u64 = 12_500_000;

/// What hangs on the answer to a question for coverage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing: somebody looks, perhaps every second. Checks take a small share of the link.
    Look,
    /// Somebody waits for it. Checks take as much of the link as a fill does.
    Wait,
    /// This node leaves or drops an image: the question is what would be lost. Claims are verified
    /// anew, and even while they do not cover an image.
    Leave,
}

/// All open questions at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The wanted number of holders of each chunk; 0 if nobody asks.
    pub times: u64,
    /// Somebody waits for the answer.
    pub waits: bool,
    /// Claims count even if together they do not cover an image.
    pub parts: bool,
}

/// The open questions: the last one of each purpose.
#[derive(Debug, Default)]
pub struct Inquiries {
    /// Until when, and the wanted number of holders.
    asked: [(Time, u64); 3],
}

impl Inquiries {
    /// Somebody asks whether each chunk has `times` holders.
    pub fn ask(&mut self, times: u64, purpose: Purpose, now: Time) {
        self.asked[purpose as usize] = (now + OPEN_FOR, times.max(self.times(purpose, now)));
    }

    /// All that is asked now.
    pub fn wanted(&self, now: Time) -> Wanted {
        let [look, wait, leave] =
            [Purpose::Look, Purpose::Wait, Purpose::Leave].map(|purpose| self.times(purpose, now));
        Wanted { times: look.max(wait).max(leave), waits: wait.max(leave) > 0, parts: leave > 0 }
    }

    fn times(&self, purpose: Purpose, now: Time) -> u64 {
        let (until, times) = self.asked[purpose as usize];
        if until > now { times } else { 0 }
    }
}

/// What checks may take from the link while somebody looks. A chunk may take more than is left;
/// then there is a debt.
#[derive(Debug, Default)]
pub struct Allowance {
    bytes: i64,
    /// Until when shares were added.
    at: Time,
}

impl Allowance {
    /// How many chunks of this length may be asked for now, on a link of this rate in bytes a
    /// second.
    pub fn chunks(&mut self, chunk_bytes: u64, rate: Option<u64>, now: Time) -> usize {
        let share = rate.unwrap_or(UNMEASURED) / SHARE;
        let (most, earned) = (bytes_in(share, SAVED_FOR), bytes_in(share, now - self.at));
        if earned > 0 {
            let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            (self.bytes, self.at) = (self.bytes.saturating_add(signed(earned)).min(signed(most)), now);
        }
        let left = u64::try_from(self.bytes).unwrap_or(0);
        usize::try_from(left.div_ceil(chunk_bytes.max(1))).unwrap_or(usize::MAX)
    }

    /// A chunk of this length is asked for.
    pub fn take(&mut self, chunk_bytes: u64) {
        self.bytes = self.bytes.saturating_sub_unsigned(chunk_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 1 << 16;
    /// A share of this is a chunk a second.
    const RATE: Option<u64> = Some(CHUNK * SHARE);

    fn at(seconds: u64) -> Time {
        Time::after_start(Duration::from_secs(seconds))
    }

    #[test]
    fn each_purpose_has_a_question_of_its_own() {
        let mut inquiries = Inquiries::default();
        assert_eq!(inquiries.wanted(at(1)), Wanted::default());
        inquiries.ask(3, Purpose::Wait, at(1));
        inquiries.ask(1, Purpose::Leave, at(2));
        assert_eq!(inquiries.wanted(at(3)), Wanted { times: 3, waits: true, parts: true });
        // To go on looking is not to go on waiting.
        for second in 4..200 {
            inquiries.ask(1, Purpose::Look, at(second));
        }
        assert_eq!(inquiries.wanted(at(200)), Wanted { times: 1, waits: false, parts: false });
        assert_eq!(inquiries.wanted(at(300)), Wanted::default());
    }

    #[test]
    fn a_share_of_the_link_is_allowed_and_some_is_saved_up() {
        let mut allowance = Allowance::default();
        for second in [100, 200] {
            assert_eq!(allowance.chunks(CHUNK, RATE, at(second)), 4);
            (0..4).for_each(|_| allowance.take(CHUNK));
            assert_eq!(allowance.chunks(CHUNK, RATE, at(second)), 0);
            assert_eq!(allowance.chunks(CHUNK, RATE, at(second + 2)), 2);
        }
    }

    #[test]
    fn a_chunk_that_takes_more_than_is_left_is_a_debt() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.chunks(16 * CHUNK, RATE, at(100)), 1);
        allowance.take(16 * CHUNK);
        assert_eq!(allowance.chunks(CHUNK, RATE, at(112)), 0);
        assert_eq!(allowance.chunks(CHUNK, RATE, at(113)), 1);
    }
}
