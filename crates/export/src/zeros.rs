//! Zeros to send: what a client reads of a hole.

use std::sync::LazyLock;

/// As many as fit into a core's own cache with room to spare.
const ZEROS_BYTES: usize = 64 << 10;

/// Bytes of value 0, always the same ones. Made at first use: as a constant they would be a part of
/// the program, which an initramfs carries about.
pub fn zeros() -> &'static [u8] {
    static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; ZEROS_BYTES]);
    &ZEROS
}
