//! Values in configuration files: the text of an option, or a number that is read as its text.
//!
//! Owns the table of values that a file may hold. Each is parsed by its own `FromStr`, so a file
//! and a command line refuse the same texts. Called by [`crate::settings`].

use super::access::Access;
use super::address::Address;
use super::boost::Boost;
use super::duration::{Retry, Timeout};
use super::endpoint::Endpoint;
use super::image::{ImageName, Wanted};
use super::overlay::OverlayPlace;
use super::size::Size;
use super::store::Store;
use super::threads::Threads;
use super::until::Until;
use super::user::UserName;
use super::zone::ZoneChoice;
use crate::failure::BadValue;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Each value with the words for an expected value, for a file that has another type.
macro_rules! written {
    ($($value:ty: $expected:literal,)+) => {$(
        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Written { expected: $expected, value: PhantomData })
            }
        }
    )+};
}

written! {
    Access: "a network such as \"192.168.1.0/24\"",
    Address: "an address such as \"192.168.1.1:4440\"",
    Boost: "0 to 9, or \"random\"",
    Endpoint: "\"unix:PATH\" or \"tcp:ADDR\"",
    ImageName: "the name of an image",
    OverlayPlace: "\"ram\" or a directory",
    Retry: "a duration such as \"30s\"",
    Size: "a size such as \"128M\"",
    Store: "a size such as \"128M\", a share such as \"30%\", \"all\" or 0",
    Threads: "a number of threads",
    Timeout: "a duration such as \"30s\"",
    Until: "a condition such as \"ready\"",
    UserName: "the name or number of a user",
    Wanted: "the name or id of an image",
    ZoneChoice: "the name of a zone",
}

struct Written<T> {
    expected: &'static str,
    value: PhantomData<T>,
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
