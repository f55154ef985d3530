//! The pages of stores in memory, large or small, and what the kernel has to give for them.

use vfield_console::failure::Failure;
use vfield_node::config::StoreSize;
use vfield_node::store::{large_pages, pages_are_small};

/// The kernel's setting for both.
const SETTING: &str = "as root: echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Refuses large pages for a store that evicts, and on a kernel that gives none.
pub fn are_large(store: StoreSize) -> Result<(), Failure> {
    if store != StoreSize::All {
        let failure =
            Failure::usage("--huge: a store of a part evicts chunks, and large pages are given back as a whole");
        return Err(failure.hint("hold the whole image with --store all, or leave --huge out"));
    }
    if !large_pages::are_given() {
        return Err(Failure::failed("--huge: this kernel gives no large pages to memory files").hint(SETTING));
    }
    Ok(())
}

/// Refuses compressed chunks on a kernel that gives large pages to files which do not ask: the
/// holes behind the chunks would take memory as well.
pub fn are_small() -> Result<(), Failure> {
    if !pages_are_small() {
        let failure = Failure::failed("--compress-store: this kernel keeps memory files in large pages");
        return Err(failure.hint(SETTING));
    }
    Ok(())
}
