//! Standing: what a peer has done that it should not have, and until when it is put aside for it.
//!
//! Owned by [`crate::peers`], one for each peer. Who lied is not asked at all; nor is, for a while, who drags. Who claims
//! to have what it refuses is only not believed: it is asked when there is nobody else. All these times double with each
//! offence, and start small where an honest peer may be slow, or its word out of date.

use crate::reach::Reach;
use crate::time::Time;
use std::time::Duration;

/// The first lie costs a minute, each later one twice as long, up to a day.
const LIE: Pause = Pause { first: Duration::from_secs(60), longest: Duration::from_secs(86_400) };
/// Who drags may have a bad link, which gets better.
const DRAG: Pause = Pause { first: Duration::from_secs(1), longest: Duration::from_secs(300) };
/// Whose claims are false may have moved its store a moment ago.
const CLAIM: Pause = Pause { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// A peer that says that it has a chunk is to deliver something whole within this and [`RATE_MIN`]: above what crowds and
/// busy machines take (a hedge waits as long).
const WHOLE_WITHIN: Duration = Duration::from_secs(2);
/// One that has to get it first may wait for others, and they for others.
const RELAYED_WITHIN: Duration = Duration::from_secs(8);
/// Bytes a second, below which a peer is of no use: half a megabit.
const RATE_MIN: u64 = 64 << 10;
/// On each of two lanes a chunk may be under way.
const AT_ONCE: u64 = 2;

/// So many more refusals than chunks, of what a peer says that it has, make its claims false. News of a store that moved
/// is late by some tenths of a second, in which a reader asks for no more on most links.
const FALSE_CLAIMS: u32 = 32;

/// A peer whose claims were false does not count as a holder before it has delivered so many chunks that it says it has, as
/// many as refusals make its claims false ...
const WORDS_TO_KEEP: u32 = FALSE_CLAIMS;
/// ... or for so long: an honest peer whose store has moved may not be asked again. Longer than [`CLAIM`] at its longest, or
/// one that holds nothing would count whenever nobody asks it.
const UNPROVEN_FOR: Duration = Duration::from_secs(600);

const _: () = assert!(UNPROVEN_FOR.as_secs() > CLAIM.longest.as_secs());

/// How long an offence puts a peer aside.
#[derive(Debug)]
struct Pause {
    first: Duration,
    longest: Duration,
}

/// One kind of offence.
#[derive(Debug, Clone, Copy, Default)]
struct Offence {
    times: u32,
    until: Option<Time>,
}

impl Offence {
    fn again(&mut self, pause: &Pause, now: Time) -> Duration {
        let pause = (pause.first * 2u32.saturating_pow(self.times.min(16))).min(pause.longest);
        self.times += 1;
        self.until = Some(now + pause);
        pause
    }

    fn lasts(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    lies: Offence,
    drags: Offence,
    claims: Offence,
    /// Refusals of what it says that it has, less what it delivered of that.
    false_claims: u32,
    /// Since when its claims are known to be false, and how many chunks it is to deliver before they count.
    unproven: Option<(Time, u32)>,
}

impl Standing {
    /// It sent wrong bytes, or broke the protocol. Returns for how long it is put aside.
    pub fn lied(&mut self, now: Time) -> Duration {
        self.lies.again(&LIE, now)
    }

    /// It delivered nothing whole for [`whole_within`]. Returns for how long it is put aside.
    pub fn dragged(&mut self, now: Time) -> Duration {
        self.drags.again(&DRAG, now)
    }

    /// It refused what it says that it has; true if its claims are not believed from now on.
    pub fn claimed_falsely(&mut self, now: Time) -> bool {
        self.false_claims += 1;
        let too_often = self.false_claims >= FALSE_CLAIMS && !self.claims.lasts(now);
        if too_often {
            self.false_claims = 0;
            self.claims.again(&CLAIM, now);
            self.unproven = Some((now, WORDS_TO_KEEP));
        }
        too_often
    }

    /// It delivered what it says that it has.
    pub fn kept_its_word(&mut self) {
        self.false_claims = self.false_claims.saturating_sub(1);
        let left = self.unproven.and_then(|(since, words)| Some((since, words.checked_sub(1)?)));
        self.unproven = left.filter(|(_, words)| *words > 0);
    }

    /// True if it is to be asked at all.
    pub fn is_good(&self, now: Time) -> bool {
        !self.lies.lasts(now) && !self.drags.lasts(now)
    }

    /// True if it is believed to have what it says.
    pub fn is_believed(&self, now: Time) -> bool {
        !self.claims.lasts(now)
    }

    /// True if what it says that it holds counts: it did not lie lately, nor has it refused what it says that it has without
    /// making up for it.
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

    /// The state for people: `blamed`, `dragging`, `doubted`, or nothing special.
    pub fn trouble(&self, now: Time) -> Option<&'static str> {
        let troubles = [(self.lies, "blamed"), (self.drags, "dragging"), (self.claims, "doubted")];
        troubles.into_iter().find(|(offence, _)| offence.lasts(now)).map(|(_, name)| name)
    }
}

/// Within so long a peer that was asked for `bytes` with this reach is to have delivered something whole.
pub fn whole_within(reach: Reach, bytes: u64) -> Duration {
    let base = if reach == Reach::HOLDER { WHOLE_WITHIN } else { RELAYED_WITHIN };
    base + Duration::from_millis(AT_ONCE * bytes * 1000 / RATE_MIN)
}

/// How often peers did what they should not have, all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Wrong bytes, and broken protocols.
    pub lies: u64,
    /// Times that somebody was put aside for delivering nothing whole.
    pub drags: u64,
    /// Refusals of what somebody says that it has.
    pub false_claims: u64,
    /// False words of this node's own death, or of another at its address, that it had to deny.
    pub denials: u64,
}
