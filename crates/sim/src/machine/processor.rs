//! The processor of a busy machine, which messages wait for; other machines are infinitely fast.

use std::time::Duration;
use vfield_core::time::Time;

/// Processor time of a message, whatever its length. Together with [`KIB`] it is 3 s for each GB
/// that comes and goes on in chunks of 64 KiB. A real node takes as much in the laboratory if it
/// has a hundredth of a processor. With too little a busy machine does not show.
const MESSAGE: Duration = Duration::from_micros(10);
/// Processor time of each KiB of a message, in or out.
const KIB: Duration = Duration::from_nanos(1_100);

/// What a machine's node has of one processor.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    divisor: u32,
    /// Until when it works on what it has.
    free: Time,
}

impl Processor {
    /// An idle processor, divided by this.
    pub const fn new(divisor: u32) -> Self {
        Self { divisor, free: Time::ZERO }
    }

    /// Works on one more message after all others. Returns when it is done.
    pub fn work(&mut self, bytes: u32, now: Time) -> Time {
        let alone = MESSAGE + KIB * bytes.div_ceil(1024);
        self.free = self.free.max(now) + alone * self.divisor;
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_for_each_other() {
        let (now, later) = (Time::after_start(Duration::from_secs(1)), Time::after_start(Duration::from_secs(9)));
        let alone = Processor::new(1).work(65_536, now) - now;
        let mut busy = Processor::new(20);
        assert_eq!(busy.work(65_536, now) - now, alone * 20);
        assert_eq!(busy.work(65_536, now) - now, alone * 40);
        assert_eq!(busy.work(65_536, later) - later, alone * 20, "it has been idle");
    }

    /// A chunk comes and goes on, each with its request.
    #[test]
    fn a_gigabyte_takes_what_it_takes_a_real_node() {
        let (mut processor, now) = (Processor::new(1), Time::ZERO);
        for bytes in [65_600, 65_600, 100, 100] {
            processor.work(bytes, now);
        }
        let seconds = (processor.work(0, now) - now - MESSAGE).as_secs_f64() * 1e9 / 65_536.0;
        assert!((2.7..3.3).contains(&seconds), "{seconds} s for each GB");
    }
}
