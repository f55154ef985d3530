//! End-to-end tests: real processes in network namespaces; see `tests/`.
