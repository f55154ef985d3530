//! The fuzzer: libFuzzer around the target that `VFIELD_FUZZ` named when it was built. See
//! scripts/fuzz.
//!
//! One target, because libFuzzer looks at all code of its program after each run, reached or not.
#![no_main]

use vfield_fuzz::{Target, named};

const TARGET: Target = match named(env!("VFIELD_FUZZ")) {
    Some(target) => target,
    None => panic!("VFIELD_FUZZ names none of the targets"),
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.run(bytes));
