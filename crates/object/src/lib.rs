//! Objects on web servers, in buckets and in registries, read by ranges over HTTP/1.1 and TLS.
//!
//! A [`Place`] is what a command line names: `https://`, `http://`, `s3://`, `gs://`,
//! `az://` or `oci:`. It opens
//! objects as [`vfield_block::object::Object`]s. Invariant: bytes are given out only if the answer
//! is a part of the object, of the asked position and length; anything else is an error in words.
//! A [`Bucket`] is written to as well, and a repository of a registry, by a [`Push`].
//! Everything that comes from a server is hostile until parsed: heads are bounded by hyper, bodies
//! by the asked length, redirects by [`redirect`]. It keeps no bytes and knows neither chunks nor
//! nodes. [`Mirrors`] are several places of one object as one; all other retries are the node's.

mod address;
mod answer;
mod azure;
mod bucket;
mod client;
mod connection;
mod credentials;
mod deadline;
mod listing;
mod mirrors;
mod object;
mod place;
mod proxies;
mod push;
mod redirect;
mod registry;
mod s3;
mod signing;
mod text;
mod tokens;
mod trust;

pub use bucket::{Bucket, Range, When, Whole, WriteError};
pub use client::{Over, read_over};
pub use listing::{Listed, Listing};
pub use mirrors::Mirrors;
pub use place::{BadPlace, Place};
pub use push::{Push, Upload};
