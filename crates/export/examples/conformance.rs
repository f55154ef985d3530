//! Checks a file as a source: `conformance FILE`. Put a source of your own in its place.

use vfield_export::{FileSource, conformance};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: conformance FILE")?;
    let source = FileSource::open(path.as_ref())?;
    conformance::check_source(&source).await?;
    println!("the source keeps every rule");
    Ok(())
}
