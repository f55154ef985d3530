//! Standing: a peer's record of faults, and until when it is avoided for them.
//!
//! [`crate::peers`] owns one for each peer. A peer that lied, or timed out, is banned for a while.
//! A peer that refuses announced chunks is not believed: it is asked only if there is no other. All
//! these times double with each offence. They start small where an honest peer may be slow, or its
//! news out of date.

use crate::reach::Reach;
use crate::time::Time;
use std::time::Duration;

/// The first lie costs a minute, each later one twice as long, up to a day.
const LIE: Ban = Ban { first: Duration::from_secs(60), longest: Duration::from_secs(86_400) };
/// A peer that times out may have a bad link, which gets better.
const TIMEOUT: Ban = Ban { first: Duration::from_secs(1), longest: Duration::from_secs(300) };
/// A peer with false claims may have moved its store a moment ago: the news takes some tenths of a
/// second.
pub const CLAIM: Ban = Ban { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// Time within which a holder has to deliver something whole, plus that of [`RATE_MIN`]. It is
/// above what chains and busy machines take, and as long as the wait for a hedge.
const WHOLE_WITHIN: Duration = Duration::from_secs(2);
/// The same for a relaying peer, which may wait for others, and they for others.
const RELAYED_WITHIN: Duration = Duration::from_secs(8);
/// Bytes a second, below which a peer is of no use: half a megabit.
const RATE_MIN: u64 = 64 << 10;
/// On each of two lanes a chunk may be under way.
const AT_ONCE: u64 = 2;

/// Net refusals of announced chunks that make a peer's claims false. News of a moved store is late
/// by some tenths of a second; in that time a reader requests no more on most links.
const FALSE_CLAIMS: u32 = 32;

/// Announced chunks that a peer with false claims has to deliver before it counts as a holder
/// again: as many as the refusals that make claims false.
const DELIVERIES_TO_PROVE: u32 = FALSE_CLAIMS;
/// Time after which it counts again without them: an honest peer whose store has moved may not be
/// asked again. Longer than the longest [`CLAIM`], or an empty peer would count whenever it is not
/// asked.
const UNPROVEN_FOR: Duration = Duration::from_secs(600);

const _: () = assert!(UNPROVEN_FOR.as_secs() > CLAIM.longest.as_secs());

/// The length of a ban: the first, doubled each time, and the longest.
#[derive(Debug)]
pub struct Ban {
    /// Of the first offence.
    pub first: Duration,
    /// The most that it grows to.
    pub longest: Duration,
}

/// One kind of offence: how often, and until when it counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offence {
    times: u32,
    until: Option<Time>,
}

impl Offence {
    /// Notes one more offence. Returns the length of its ban.
    pub fn again(&mut self, ban: &Ban, now: Time) -> Duration {
        let ban = (ban.first * 2u32.saturating_pow(self.times.min(16))).min(ban.longest);
        self.times = self.times.saturating_add(1);
        self.until = Some(now + ban);
        ban
    }

    /// True while the ban of the last offence lasts.
    pub fn lasts(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

/// The faults of one peer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    lies: Offence,
    timeouts: Offence,
    claims: Offence,
    /// Refusals of announced chunks, less deliveries of them.
    false_claims: u32,
    /// Since when its claims are known to be false, and how many chunks it is to deliver before
    /// they count.
    unproven: Option<(Time, u32)>,
}

impl Standing {
    /// Notes wrong bytes or a broken protocol. Returns the length of the ban.
    pub fn lied(&mut self, now: Time) -> Duration {
        self.lies.again(&LIE, now)
    }

    /// Notes that it delivered nothing whole for [`whole_within`]. Returns the length of the ban.
    pub fn timed_out(&mut self, now: Time) -> Duration {
        self.timeouts.again(&TIMEOUT, now)
    }

    /// Notes the refusal of an announced chunk; true if the peer's claims are not believed from now
    /// on.
    pub fn claimed_falsely(&mut self, now: Time) -> bool {
        self.false_claims += 1;
        let too_often = self.false_claims >= FALSE_CLAIMS && !self.claims.lasts(now);
        if too_often {
            self.false_claims = 0;
            self.claims.again(&CLAIM, now);
            self.unproven = Some((now, DELIVERIES_TO_PROVE));
        }
        too_often
    }

    /// Notes the delivery of an announced chunk.
    pub fn delivered_as_claimed(&mut self) {
        self.false_claims = self.false_claims.saturating_sub(1);
        let left = self.unproven.and_then(|(since, words)| Some((since, words.checked_sub(1)?)));
        self.unproven = left.filter(|(_, words)| *words > 0);
    }

    /// True while the peer is banned.
    pub fn is_banned(&self, now: Time) -> bool {
        self.lies.lasts(now) || self.timeouts.lasts(now)
    }

    /// True if the peer's announcements are believed.
    pub fn is_believed(&self, now: Time) -> bool {
        !self.claims.lasts(now)
    }

    /// True if the peer's announced holding counts: it did not lie recently, and made up for its
    /// refusals of announced chunks.
    pub fn counts(&self, now: Time) -> bool {
        !self.is_blamed(now) && self.unproven.is_none_or(|(since, _)| now - since >= UNPROVEN_FOR)
    }

    /// True if it lied not long ago.
    pub fn is_blamed(&self, now: Time) -> bool {
        self.lies.lasts(now)
    }

    /// True if it has ever lied.
    pub const fn has_lied(&self) -> bool {
        self.lies.times > 0
    }

    /// The state for display: `blamed`, `dragging` (timed out), `doubted`, or `None`.
    pub fn trouble(&self, now: Time) -> Option<&'static str> {
        let troubles = [(self.lies, "blamed"), (self.timeouts, "dragging"), (self.claims, "doubted")];
        troubles.into_iter().find(|(offence, _)| offence.lasts(now)).map(|(_, name)| name)
    }
}

/// Time within which a peer that was asked for `bytes` with this reach has to deliver something
/// whole.
pub fn whole_within(reach: Reach, bytes: u64) -> Duration {
    let base = if reach == Reach::HOLDER { WHOLE_WITHIN } else { RELAYED_WITHIN };
    base + Duration::from_millis(AT_ONCE * bytes * 1000 / RATE_MIN)
}
