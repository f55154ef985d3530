//! The fuzzer: libFuzzer around one target, which `VFIELD_FUZZ` names. Built and run by scripts/fuzz.
#![no_main]

use std::sync::LazyLock;
use vfield_fuzz::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("VFIELD_FUZZ").expect("VFIELD_FUZZ names a target");
    vfield_fuzz::named(&name).expect("VFIELD_FUZZ names one of the targets")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.run(bytes));
