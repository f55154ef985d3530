//! Publishes a file and says how fast: `publish FILE [THREADS [CHUNK_KIB]]`.
//!
//! For comparison with `b3sum --num-threads THREADS FILE`.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vfield_core::chunk::ChunkSize;
use vfield_node::origin::Origin;

fn main() {
    if let Err(message) = run() {
        eprintln!("publish: {message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rest @ ..] = arguments.as_slice() else { return Err("which file?".into()) };
    let threads: NonZeroUsize = rest.first().map_or(Ok(NonZeroUsize::MIN), |text| text.parse())?;
    let chunk_kib: u32 = rest.get(1).map_or(Ok(64), |text| text.parse())?;
    let chunk_size = ChunkSize::new(chunk_kib.saturating_mul(1024))?;
    let hashed_bytes = AtomicU64::new(0);
    let start = Instant::now();
    let origin = Origin::publish(Path::new(path), None, chunk_size, threads, &|progress| {
        hashed_bytes.fetch_max(progress.hashed_bytes, Ordering::Relaxed);
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let hashed_bytes = hashed_bytes.into_inner();
    println!("id        {}", origin.id());
    println!("length    {} bytes, {} chunks with data", origin.header().length_bytes(), origin.header().populated());
    println!("state     {:?}", origin.state());
    println!("hashed    {hashed_bytes} bytes in {seconds:.3} s, {:.2} GB/s", hashed_bytes as f64 / seconds / 1e9);
    println!("hashes    {} bytes of pages", origin.tree().resident_bytes());
    let status = std::fs::read_to_string("/proc/self/status")?;
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    Ok(())
}
