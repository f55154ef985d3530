//! The daemon: sockets, connection pool, hashing, store memory; drives core.
