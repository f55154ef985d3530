//! Outbidding: the highest number about another node that is believed.
//!
//! Generations only grow, and the highest counts. Any node may claim any number at the address of
//! another. So a number is believed only if the other can answer with a higher one that is believed
//! too. Clocks may have any value up to [`CLAIM_MAX`]. Beyond it a number grows by at most [`STEP`]
//! from the known one: no single message reaches the end.
//!
//! [`crate::membership`] uses it.

/// The highest number that any node may claim at once: half of [`FIRST_MAX`]. As a generation, in
/// milliseconds, it is the year 144 683.
pub const CLAIM_MAX: u64 = 1 << 52;
/// Largest believed growth beyond [`CLAIM_MAX`]. A node answers with one more each time. With a
/// larger step the end is nearer: from `CLAIM_MAX` to `FIRST_MAX` there are 2^36 steps of one
/// message each. With a smaller one a node that has missed many answers believes the next one late.
pub const STEP: u64 = 1 << 16;
/// The highest number of a node of which nothing is known, or that is dead: a newcomer has to
/// believe numbers that have grown.
pub const FIRST_MAX: u64 = 1 << 53;

/// The highest number that is believed of a live node of which `known` is known. One below is
/// answered by this one.
pub const fn latest_believed(known: u64) -> u64 {
    (if known > CLAIM_MAX { known } else { CLAIM_MAX }) + STEP
}

/// The highest number that is believed of a node that is not alive, of which `known` is remembered,
/// if anything is.
pub fn latest_believed_anew(known: Option<u64>) -> u64 {
    FIRST_MAX.max(known.map_or(0, latest_believed))
}

const _: () = assert!(CLAIM_MAX + STEP < FIRST_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_believed_can_be_outbid() {
        for known in [0, 1, CLAIM_MAX - 1, CLAIM_MAX, CLAIM_MAX + 1, FIRST_MAX - 1, FIRST_MAX, FIRST_MAX + 7 * STEP] {
            let said = latest_believed(known);
            assert!(said < latest_believed(said), "by those who believed {said}");
            let anew = latest_believed_anew(Some(known));
            assert!(anew < latest_believed_anew(Some(anew)) && anew < latest_believed(anew));
        }
        assert_eq!(latest_believed_anew(None), FIRST_MAX);
    }
}
