//! Values in configuration files: the text of an option, or a number that is read as its text.
//!
//! Owns the one shape of reading them: [`crate::written!`] lists a crate's values, and each is
//! parsed by its own `FromStr`, so a file and a command line refuse the same texts.

use crate::failure::BadValue;
use serde::de::{Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Reads each value from a configuration file as from a command line; the words are for a file that
/// has another type.
#[macro_export]
macro_rules! written {
    ($($value:ty: $expected:literal,)+) => {$(
        impl<'de> serde::Deserialize<'de> for $value {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($crate::values::written::Written::new($expected))
            }
        }
    )+};
}

/// Reads a value from text or from a number, by the value's own `FromStr`.
pub struct Written<T> {
    expected: &'static str,
    value: PhantomData<T>,
}

impl<T> Written<T> {
    /// A reader that tells `expected` where a file has another type.
    pub const fn new(expected: &'static str) -> Self {
        Self { expected, value: PhantomData }
    }
}

impl<T: FromStr<Err = BadValue>> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
