//! Standing: a peer's record of faults, and until when it is avoided for them.
//!
//! [`crate::peers`] owns one for each peer. A peer that lied, or timed out, is banned for a while.
//! A peer that refuses announced chunks is not believed: it is asked only if there is no other. All
//! these times double with each offence. They start small where an honest peer may be slow, or its
//! news out of date.

use crate::doubling::Doubling;
use crate::reach::Reach;
use crate::time::Time;
use crate::tuning::field::{DELIVERIES_TO_PROVE, FALSE_CLAIMS, RATE_MIN};
use crate::tuning::{AT_ONCE, CLAIM, LIE, RELAYED_WITHIN, TIMEOUT, UNPROVEN_FOR, WHOLE_WITHIN};
use std::time::Duration;

/// One kind of offence: how often, and until when it counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offence {
    times: u32,
    until: Option<Time>,
}

impl Offence {
    /// Notes one more offence. Returns the length of its ban.
    pub fn again(&mut self, bans: &Doubling, now: Time) -> Duration {
        let ban = bans.pause(self.times);
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

    /// Notes the refusal of a chunk that others announced for the peer; true once there are as many
    /// as make claims false.
    pub const fn contradicted(&mut self) -> bool {
        self.false_claims += 1;
        let too_often = self.false_claims >= FALSE_CLAIMS;
        if too_often {
            self.false_claims = 0;
        }
        too_often
    }

    /// Notes the refusal of a chunk that the peer announced; true if the peer's claims are not
    /// believed from now on.
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
