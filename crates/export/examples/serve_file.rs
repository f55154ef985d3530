//! Serves a file over NBD until Ctrl-C: `serve_file unix:PATH|tcp:ADDRESS FILE`.

use std::sync::Arc;
use vfield_export::FileSource;
use vfield_export::nbd::{Address, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve_file unix:PATH|tcp:ADDRESS FILE".into());
    };
    let source = Arc::new(FileSource::open(path.as_ref())?);
    let server = Server::bind(&address.parse::<Address>()?, vec![source])?;
    println!("{}", server.address().uri(""));
    server.run(async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}
