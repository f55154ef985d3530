//! `--store`: how much of an image a node holds, as a size, a share, `all` or `0`.

use std::str::FromStr;
use vfield_console::failure::{BadValue, Failure};
use vfield_console::values::size::{Size, human};
use vfield_core::chunk::ChunkSize;
use vfield_node::config::StoreSize;

const HINT: &str = "give a size such as 128M, a share such as 30%, all, or 0";

/// A store size; it may exceed the machine's memory until [`Store::within`] checks it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Store(pub StoreSize);

impl FromStr for Store {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let trimmed = text.trim();
        if trimmed == "all" {
            return Ok(Self(StoreSize::All));
        }
        if trimmed.starts_with('-') {
            return Err(BadValue::new(format!("a store cannot be negative: {text:?}"), HINT));
        }
        if let Some(number) = trimmed.strip_suffix('%') {
            return percent(number.trim()).map(Self).ok_or_else(|| {
                BadValue::new(format!("{text:?} is not a share of an image"), "shares go from 0% to 100%; all is 100%")
            });
        }
        let Size(bytes) = trimmed.parse().map_err(|bad: BadValue| BadValue::new(bad.fact, HINT))?;
        if bytes > 0 && bytes < ChunkSize::MIN.bytes() {
            let fact = format!("a store of {bytes} bytes cannot hold one chunk");
            return Err(BadValue::new(fact, format!("sizes have units: --store {bytes}M is {bytes} MiB")));
        }
        Ok(Self(StoreSize::Bytes(bytes)))
    }
}

fn percent(number: &str) -> Option<StoreSize> {
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let share: f64 = if plain { number.parse().ok()? } else { return None };
    (0.0..=100.0).contains(&share).then_some(StoreSize::Percent(share))
}

impl Store {
    /// Refuses more than `memory_bytes`, the memory that the daemon may have.
    pub fn within(self, memory_bytes: u64) -> Result<StoreSize, Failure> {
        match self.0 {
            StoreSize::Bytes(wanted) if wanted > memory_bytes => {
                let (wanted, memory) = (human(wanted), human(memory_bytes));
                let fact = format!("--store: {wanted} is more than this daemon's memory of {memory}");
                Err(Failure::usage(fact).hint("choose a smaller store; 0 holds no chunk"))
            }
            store => Ok(store),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shares_all_and_nothing() {
        for (text, want) in [
            ("128M", StoreSize::Bytes(128 << 20)),
            ("1GiB", StoreSize::Bytes(1 << 30)),
            ("30%", StoreSize::Percent(30.0)),
            ("12.5 %", StoreSize::Percent(12.5)),
            ("100%", StoreSize::Percent(100.0)),
            ("all", StoreSize::All),
            ("0", StoreSize::Bytes(0)),
        ] {
            assert_eq!(text.parse(), Ok(Store(want)), "{text}");
        }
    }

    #[test]
    fn what_is_no_store_is_refused() {
        for text in ["", "-1", "-30%", "101%", "%", "nan%", "inf%", "much", "128", "0.5", "1.5.2M", "everything"] {
            assert!(text.parse::<Store>().is_err(), "{text}");
        }
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let store: Store = "2G".parse().unwrap();
        assert!(store.within(1 << 30).is_err());
        assert_eq!(store.within(2 << 30), Ok(StoreSize::Bytes(2 << 30)));
    }
}
