//! Every way to negotiate that libnbd and QEMU have, and every request that they can be made to
//! send, right or wrong. docs/reference/nbd-conformance.md has the table.

use crate::support::{Image, Served, have, output, run};
use std::sync::Arc;
use vfield_block::source::BlockSource;
use vfield_core::image::ImageId;
use vfield_export::nbd::{Address, Server};
use vfield_overlay::Overlay;

const LENGTH: usize = 5 * (1 << 20) + 700;
const DEVICE: u64 = (LENGTH as u64).next_multiple_of(512);

/// What all scripts begin with: where the exports are, how long they are, and what fails with what.
const PRELUDE: &str = r#"
import errno
def fails(expected, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert expected is None or error.errnum == expected, (expected, error.errnum, error)
    else:
        raise AssertionError("no error")
def client():
    new = nbd.NBD()
    new.set_strict_mode(0)
    return new
"#;

/// Two exports: `plain`, which is read-only, and `changed`, which has an overlay.
fn serve() -> Served {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let address = Address::Unix(folder.path().join("nbd.sock"));
    let changed = Overlay::in_memory(Image::new("changed", LENGTH), ImageId([1; 32]), 1 << 30).expect("memory");
    let sources: Vec<Arc<dyn BlockSource>> = vec![Image::new("plain", LENGTH), Arc::new(changed)];
    let serving = Server::bind(&address, sources).expect("a free path").start();
    Served { serving, folder }
}

/// Runs a script of nbdsh that may use `PATH` and `SIZE`, against a server of its own that nobody
/// is connected to in the end.
async fn nbdsh(script: &str) {
    if !have("nbdsh") {
        return;
    }
    let served = serve();
    let path = served.path().display().to_string();
    let script = format!("{PRELUDE}\nPATH, SIZE = {path:?}, {DEVICE}\n{script}");
    run("nbdsh", &["-c", &script]).await;
    served.until_connected(0).await;
    served.serving.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_begin_leads_to_the_same_bytes() {
    nbdsh(
        r#"
seen = set()
# Without fixed newstyle there is EXPORT_NAME only, without NO_ZEROES 124 zeros follow.
for flags in (0, nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE, nbd.HANDSHAKE_FLAG_NO_ZEROES, 3):
    for structured in (False, True):
        for name in ("", "plain", "changed"):
            h = client()
            h.set_handshake_flags(flags)
            h.set_request_structured_replies(structured)
            h.set_export_name(name)
            h.add_meta_context("base:allocation")
            h.connect_unix(PATH)
            fixed = bool(flags & nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE)
            assert h.get_protocol() == ("newstyle-fixed" if fixed else "newstyle")
            assert h.get_structured_replies_negotiated() == (structured and fixed)
            assert h.can_meta_context("base:allocation") == (structured and fixed)
            assert h.can_df() == (structured and fixed)
            assert h.get_size() == SIZE and h.is_read_only() == (name != "changed")
            seen.add(bytes(h.pread(SIZE, 0)))
            h.shutdown()
assert len(seen) == 1
"#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_may_come_in_any_order_and_again() {
    nbdsh(
        r#"
h = client()
h.set_opt_mode(True)
h.connect_unix(PATH)
for turn in range(3):
    names = []
    h.opt_list(lambda name, description: names.append(name))
    assert names == ["plain", "changed"], names
    for name, read_only in (("plain", True), ("changed", False), ("", True)):
        h.set_export_name(name)
        h.opt_info()
        assert h.is_read_only() == read_only and h.get_size() == SIZE
        assert [h.get_block_size(which) for which in (0, 1, 2)] == [1, 65536 if read_only else 4096, 1 << 25]
    for name in ("none", "n" * 4096):
        h.set_export_name(name)
        fails(errno.ENOENT, h.opt_info)
        fails(errno.ENOENT, h.opt_go)
    h.set_export_name("changed")
    for query, found in (("base:", 1), ("base:allocation", 1), ("base:alloc", 0), ("qemu:", 0), ("x-none:y", 0)):
        h.clear_meta_contexts()
        h.add_meta_context(query)
        contexts = []
        h.opt_list_meta_context(lambda name: contexts.append(name))
        assert contexts == ["base:allocation"][:found], (query, contexts)
# Contexts of one export are void for another, and it is no error to ask for none that there is.
h.clear_meta_contexts()
h.add_meta_context("x-none:y")
h.opt_go()
assert not h.can_meta_context("base:allocation")
fails(errno.EINVAL, lambda: h.block_status(512, 0, lambda *arguments: 0))
h.shutdown()
h = client()
h.set_opt_mode(True)
h.connect_unix(PATH)
h.opt_abort()
# The newer libnbd can say single options, in orders that make no sense.
if hasattr(h, "opt_starttls"):
    h = client()
    h.set_opt_mode(True)
    h.set_request_structured_replies(False)
    h.set_request_meta_context(False)
    h.set_export_name("changed")
    h.connect_unix(PATH)
    contexts = []
    heard = lambda name: contexts.append(name)
    fails(None, h.opt_set_meta_context_queries, ["base:allocation"], heard)
    assert not h.opt_starttls()
    assert h.opt_structured_reply()
    h.opt_structured_reply()
    if hasattr(h, "opt_extended_headers"):
        assert not h.opt_extended_headers()
    h.opt_list_meta_context_queries([], heard)
    h.opt_set_meta_context_queries(["base:allocation"] * 3, heard)
    h.opt_set_meta_context_queries([], heard)
    assert not h.can_meta_context("base:allocation")
    h.opt_set_meta_context_queries(["x-none:y", "base:allocation"], heard)
    assert h.can_meta_context("base:allocation") and contexts == ["base:allocation"] * 3, contexts
    h.opt_go()
    assert h.can_meta_context("base:allocation")
    h.shutdown()
"#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_edges_have_the_right_answer_and_the_connection_lives_on() {
    nbdsh(
        r#"
nothing = lambda *arguments: 0
for structured in (True, False):
    for name in ("plain", "changed"):
        h = client()
        h.set_request_structured_replies(structured)
        h.set_export_name(name)
        h.add_meta_context("base:allocation")
        h.connect_unix(PATH)
        writable = name == "changed"
        refused = None if writable else errno.EPERM
        # Nothing, at the ends and past them.
        for at in (0, 1, SIZE):
            assert h.pread(0, at) == b""
            h.cache(0, at)
            for change in (lambda: h.pwrite(b"", at), lambda: h.trim(0, at), lambda: h.zero(0, at)):
                fails(refused, change) if refused else change()
        fails(errno.EINVAL, h.pread, 0, SIZE + 1)
        # One byte, at odd places.
        for at in (0, 1, 511, SIZE - 1):
            h.pread(1, at)
        # Past the end, as far as numbers go; too long; with flags that were not agreed on.
        for length, at in ((1, SIZE), (2, SIZE - 1), (SIZE + 1, 0), (512, (1 << 63) - 512), (1 << 20, (1 << 63) - 1)):
            fails(errno.EINVAL, h.pread, length, at)
            fails(errno.EINVAL, h.cache, length, at)
            fails(errno.EINVAL if writable else errno.EPERM, h.trim, length, at)
            fails(errno.ENOSPC if writable else errno.EPERM, h.zero, length, at)
            fails(errno.ENOSPC if writable else errno.EPERM, h.pwrite, b"x" * length, at)
        # Fast zeroes are not promised; do-not-fragment needs structured replies.
        fails(errno.EINVAL if writable else errno.EPERM, h.zero, 512, 0, nbd.CMD_FLAG_FAST_ZERO)
        if structured:
            assert len(h.pread(70000, 1, nbd.CMD_FLAG_DF)) == 70000
            fails(errno.EINVAL, h.block_status, 0, 0, nothing)
            fails(errno.EINVAL, h.block_status, 512, SIZE, nothing)
        else:
            fails(errno.EINVAL, h.pread, 512, 0, nbd.CMD_FLAG_DF)
            fails(None, h.block_status, 512, 0, nothing)
        # Durable, with everything that it may come with.
        h.flush()
        if writable:
            h.pwrite(b"abc", 7, nbd.CMD_FLAG_FUA)
            h.zero(5000, 4095, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
            h.trim(9000, 3, nbd.CMD_FLAG_FUA)
            assert h.pread(5000, 4095) == bytes(5000)
        assert len(h.pread(SIZE, 0)) == SIZE
        h.shutdown()
"#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_status_follows_changes() {
    nbdsh(
        r#"
h = client()
h.set_export_name("changed")
h.add_meta_context("base:allocation")
h.connect_unix(PATH)
def zeros(flags=0):
    """The ranges that are told to be zeros, by asking again for as long as something was left out."""
    at, found = 0, []
    while at < SIZE:
        entries = []
        h.block_status(SIZE - at, at, lambda context, offset, got, error: entries.extend(got), flags)
        assert entries and (not flags or len(entries) == 2), entries
        for length, state in zip(entries[::2], entries[1::2]):
            assert state in (0, 3), state
            # A server may cut a run in two when it is asked in parts.
            if state:
                if found and found[-1][1] == at:
                    found[-1][1] = at + length
                else:
                    found.append([at, at + length])
            at += length
    assert at == SIZE
    return found
before = zeros()
assert before == zeros(nbd.CMD_FLAG_REQ_ONE)
assert [196608, 262144] in before, before
data = h.pread(SIZE, 0)
assert all(data[start:end] == bytes(end - start) for start, end in before)
h.zero(65536, 0)
h.pwrite(b"x", 200000)
h.trim(8192, 270336)
after = zeros()
assert [0, 65536] in after and [270336, 278528] in after, after
# The granule that was written to is no hole any more; the rest of that hole is.
assert [200704, 262144] in after and [196608, 262144] not in after, after
data = h.pread(SIZE, 0)
assert all(data[start:end] == bytes(end - start) for start, end in after)
h.shutdown()
"#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_go_in_the_middle_leave_nothing_behind() {
    nbdsh(
        r#"
import os
for turn in range(20):
    child = os.fork()
    if child == 0:
        h = client()
        h.set_export_name("changed")
        h.connect_unix(PATH)
        buffers = [nbd.Buffer(1 << 20) for number in range(16)]
        for number, buffer in enumerate(buffers):
            h.aio_pread(buffer, number * 1000)
            h.aio_pwrite(buffer, number * 1000)
        for poll in range(turn):
            h.poll(0)
        # Without a word.
        os._exit(0)
    os.waitpid(child, 0)
h.set_export_name("changed")
h.connect_unix(PATH)
assert len(h.pread(SIZE, 0)) == SIZE
h.shutdown()
"#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemus_tools_list_and_cannot_resize() {
    if !have("qemu-nbd") || !have("qemu-img") || !have("qemu-io") {
        return;
    }
    let served = serve();
    let list = run("qemu-nbd", &["--list", "-k", &served.path().display().to_string()]).await;
    for expected in [
        "exports available: 2",
        "export: 'plain'",
        "export: 'changed'",
        "size:  5243904",
        "( readonly flush df multi cache )",
        "( flush fua trim zeroes df multi cache )",
        "min block: 1",
        "max block: 33554432",
        "base:allocation",
    ] {
        assert!(list.contains(expected), "no {expected} in {list}");
    }
    let uri = served.serving.address().uri("changed");
    run("qemu-img", &["resize", "-f", "raw", &uri, &DEVICE.to_string()]).await;
    let grown = output("qemu-img", &["resize", "-f", "raw", &uri, "8M"]).await;
    assert!(!grown.status.success() && String::from_utf8_lossy(&grown.stderr).contains("Cannot resize NBD nodes"));
    let commands =
        ["write -z 0 64k", "write -f -P 7 70k 4k", "aio_write -P 8 1M 128k", "aio_flush", "flush", "discard 1M 4k"];
    let reads = ["read -P 0 0 64k", "read -P 7 70k 4k", "read -P 8 1028k 124k", "read -P 0 1M 4k", "map"];
    let words: Vec<&str> = commands.iter().chain(&reads).flat_map(|command| ["-c", command]).collect();
    let said = run("qemu-io", &[&["-f", "raw"][..], &words, &[&uri]].concat()).await;
    assert!(!said.contains("ailed") && !said.contains("rror"), "{said}");
    // Zeros that must be fast are not offered, so QEMU does not ask for them.
    let fast = output("qemu-io", &["-f", "raw", "-c", "write -z -n 0 64k", &uri]).await;
    let fast = String::from_utf8_lossy(&[fast.stdout, fast.stderr].concat()).into_owned();
    assert!(fast.contains("Operation not supported"), "{fast}");
    assert_eq!(served.serving.counts().refused, 0, "QEMU asks for nothing that it was not offered");
    served.serving.shutdown().await;
}
