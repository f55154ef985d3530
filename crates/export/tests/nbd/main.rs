//! The NBD server: byte by byte, and with the clients that people use.

mod clients;
mod codec;
mod conformance;
mod protocol;
mod server;
mod support;
mod tls;
mod writes;
