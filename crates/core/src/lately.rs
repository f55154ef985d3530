//! A value that is gathered for a while and then forgotten: that of this span of time, and that of
//! the one before it.

use crate::time::Time;
use std::time::Duration;

/// A value gathered within the last one to two spans.
#[derive(Debug, Default)]
pub struct Lately<T> {
    since: Time,
    /// Since then, and in the span before.
    spans: [T; 2],
}

impl<T: Copy + Default> Lately<T> {
    /// Adds to the value of this span.
    pub fn gather(&mut self, span: Duration, now: Time, add: impl FnOnce(&mut T)) {
        self.spans = self.spans(span, now);
        if now - self.since >= span {
            self.since = now;
        }
        add(&mut self.spans[0]);
    }

    /// The values of this span and of the one before.
    pub fn spans(&self, span: Duration, now: Time) -> [T; 2] {
        match now - self.since {
            age if age < span => self.spans,
            age if age < span * 2 => [T::default(), self.spans[0]],
            _ => [T::default(); 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_forgotten_after_one_to_two_spans() {
        let at = |seconds| Time::after_start(Duration::from_secs(seconds));
        let span = Duration::from_secs(10);
        let mut lately: Lately<u32> = Lately::default();
        assert_eq!(lately.spans(span, at(100)), [0, 0]);
        lately.gather(span, at(100), |value| *value += 3);
        lately.gather(span, at(109), |value| *value += 4);
        assert_eq!(lately.spans(span, at(109)), [7, 0]);
        assert_eq!(lately.spans(span, at(110)), [0, 7]);
        lately.gather(span, at(115), |value| *value += 1);
        assert_eq!(lately.spans(span, at(124)), [1, 7]);
        assert_eq!(lately.spans(span, at(134)), [0, 1]);
        assert_eq!(lately.spans(span, at(135)), [0, 0]);
    }
}
