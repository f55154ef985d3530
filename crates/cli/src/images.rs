//! `vfield add` and `vfield drop`: images that come and go while the daemon runs.
//!
//! A file is opened here and handed over: a daemon opens none that others name.

use crate::args::{AddOptions, DropOptions};
use crate::signature;
use crate::source_file;
use std::fs::File;
use std::path::Path;
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_console::text::clean;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request, Serve};
use vfield_daemon::trees;
use vfield_daemon::values::image::{ImageName, Wanted};
use vfield_daemon::values::store::Store;
use vfield_node::config::StoreSize;
use vfield_pack::chunks::Chunks;

/// Runs `vfield add`.
pub fn add(options: &AddOptions) -> Result<(), Failure> {
    let path = Path::new(&options.target);
    let names_file = options.target.contains('/') || (path.is_file() && options.store.is_none());
    let (mut client, verb) = if names_file || options.name.is_some() || options.chunk_size.is_some() {
        if options.store.is_some() {
            let fact = format!("--store: {} is a file, which is served from where it is", path.display());
            return Err(Failure::usage(fact).hint("leave --store out, or give the name of an image of the field"));
        }
        (send_file(path, options.name.as_ref(), options.chunk_size, options.control.control.as_deref())?, "serves")
    } else {
        (send_wish(options)?, "has joined")
    };
    let Reply::Added { names, id } = client.reply()? else { return Err(client.unexpected()) };
    let id = id.get(..12).unwrap_or(&id);
    output::put(format!("the daemon {verb} {} (id {})\n", clean(&names.join(", ")), clean(id)).as_bytes())
}

/// Hands a file over to the daemon that answers then.
pub fn send_file(
    path: &Path,
    name: Option<&ImageName>,
    chunks: Option<Chunks>,
    control: Option<&Path>,
) -> Result<Client, Failure> {
    source_file::check(path)?;
    source_file::remark(path).iter().for_each(|remark| output::say(&clean(remark)));
    let failed = |error: std::io::Error| {
        Failure::failed(format!("{}: {}", path.display(), plain(&error)))
            .hint("the file must be readable for the user who runs vfield")
    };
    let file = File::open(path).map_err(failed)?;
    let name = match name {
        Some(ImageName(name)) => name.clone(),
        None => source_file::name_of(path)?,
    };
    // As it is called, and not what it leads to: who replaces a link replaces the image.
    let absolute = std::path::absolute(path).map_err(failed)?;
    let serve = Serve {
        path: absolute.to_string_lossy().into_owned(),
        name,
        chunk_bytes: chunks.unwrap_or_default().of_image(path).bytes(),
        proof: signature::beside(path)?,
    };
    let mut client = Client::connect(control)?;
    match trees::open_for(path) {
        Some(hashes) => client.send_with_both(&Request::Serve(serve), &hashes, &file)?,
        None => client.send_with(&Request::Serve(serve), &file)?,
    }
    Ok(client)
}

/// Says which image is wanted.
fn send_wish(options: &AddOptions) -> Result<Client, Failure> {
    // Contradictions are refused before a daemon is asked.
    let _: Wanted = options
        .target
        .parse()
        .map_err(|bad: vfield_console::failure::BadValue| Failure::usage(bad.fact).hint(bad.hint))?;
    // Whether it fits the daemon knows: its stores may lie on a disk.
    let store = options.store.map(|Store(size)| match size {
        StoreSize::All => "all".to_owned(),
        StoreSize::Percent(share) => format!("{share}%"),
        StoreSize::Bytes(bytes) => bytes.to_string(),
    });
    let mut client = Client::connect(options.control.control.as_deref())?;
    client.send(&Request::Add { image: options.target.clone(), store })?;
    Ok(client)
}

/// Runs `vfield drop`.
pub fn drop(options: &DropOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    client.send(&Request::Drop { image: options.image.clone(), force: options.force })?;
    match client.reply()? {
        Reply::Done => Ok(()),
        _ => Err(client.unexpected()),
    }
}
