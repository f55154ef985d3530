//! NBD servers: one at each place of `--nbd`.

use super::{Export, Job, Kind, Made, Offer, Starting, counted, explain};
use crate::estate::Estate;
use crate::plan::Places;
use std::future::ready;
use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_control::place::Occupant;
use vfield_export::fuse::Removed;
use vfield_export::nbd::{Address, BindError, Handed, Server, Serving};

pub(super) const KIND: Kind = Kind { check, start };

/// The servers; all have the same images.
#[derive(Debug)]
struct Servers(Vec<Serving>);

/// The name of a listening socket among the kept files.
fn kept_name(number: usize) -> String {
    format!("nbd-{number}")
}

fn check(places: &Places, estate: &Estate) -> Result<(), Failure> {
    for (number, place) in places.nbd.iter().enumerate() {
        if estate.has(&kept_name(number)) {
            continue;
        }
        match place {
            Address::Unix(path) => check_socket(path)?,
            Address::Tcp(addr) => {
                TcpListener::bind(addr).map_err(|error| explain::bind(&BindError::Tcp(*addr, error)))?;
            }
        }
    }
    Ok(())
}

fn check_socket(path: &Path) -> Result<(), Failure> {
    let failed = |cause| explain::bind(&BindError::Unix { path: path.to_owned(), cause });
    match Occupant::at(path).map_err(failed)? {
        Occupant::Live => return Err(explain::bind(&BindError::InUse(path.to_owned()))),
        Occupant::NotASocket => return Err(explain::bind(&BindError::NotASocket(path.to_owned()))),
        Occupant::Dead | Occupant::Nobody => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(failed(Error::from(ErrorKind::NotADirectory))),
        Err(error) => Err(failed(error)),
    }
}

/// Whether a server at one place is where the other wants it; any port will do for port 0.
fn is_at(place: &Address, wanted: &Address) -> bool {
    match (place, wanted) {
        (Address::Tcp(place), Address::Tcp(wanted)) if wanted.port() == 0 => place.ip() == wanted.ip(),
        _ => place == wanted,
    }
}

fn start(offer: Offer<'_>) -> Starting<'_> {
    let Offer { places, access, sources, estate, .. } = offer;
    Box::pin(async move {
        let bind = |(number, place): (usize, &Address)| {
            let name = kept_name(number);
            let adopted = estate.pick(&name).map(|socket| Server::adopt(place, sources.clone(), socket));
            let server = match adopted {
                Some(Ok(server)) => {
                    estate.stays("NBD", server.address(), place, is_at(server.address(), place));
                    server
                }
                // Its file was removed, for example.
                Some(Err(_)) | None => Server::bind(place, sources.clone())?,
            };
            estate.keep_with_guard(&name, server.socket());
            Ok(server.with_tls(places.tls.clone()).with_access(access.to_vec()))
        };
        let bound: Result<Vec<Server>, BindError> = places.nbd.iter().enumerate().map(bind).collect();
        let bound = bound.map_err(|error| explain::bind(&error))?;
        let servers = Servers(bound.into_iter().map(Server::start).collect());
        Ok((!servers.0.is_empty()).then(|| Box::new(servers) as Box<dyn Export>))
    })
}

impl Export for Servers {
    fn places(&self) -> Vec<ExportStatus> {
        let place = |serving: &Serving| ExportStatus::of_all(ExportKind::Nbd, serving.uri(""));
        self.0.iter().map(place).collect()
    }

    fn add(&mut self, source: Arc<dyn BlockSource>, _: Made) -> Result<(), Failure> {
        // All servers have the same names: an image that one of them takes, all take.
        let added = self.0.iter().try_for_each(|serving| serving.add(Arc::clone(&source)));
        added.map_err(|error| explain::bind(&error))
    }

    fn remove<'a>(&'a mut self, name: &'a str, _: &'a Console) -> Job<'a, Option<Removed>> {
        self.take_back(name);
        Box::pin(ready(None))
    }

    fn take_back(&mut self, name: &str) {
        self.0.iter().for_each(|serving| serving.remove(name));
    }

    fn shut(&self, is_shut: bool) {
        self.0.iter().for_each(|serving| serving.shut(is_shut));
    }

    fn lead(&self, tag: &str, image: &str) {
        self.0.iter().for_each(|serving| serving.lead(tag, image));
    }

    fn users(&self, name: &str) -> Vec<String> {
        counted(self.0.iter().map(|serving| serving.users(name)).sum(), "NBD client").into_iter().collect()
    }

    fn hand_over(self: Box<Self>) -> Job<'static, Vec<Vec<Handed>>> {
        Box::pin(async move {
            let stopping: Vec<_> = self.0.into_iter().map(|serving| tokio::spawn(serving.hand_over())).collect();
            let mut clients = Vec::new();
            for stopped in stopping {
                clients.push(stopped.await.unwrap_or_default());
            }
            clients
        })
    }

    fn resume(&self, clients: &mut dyn Iterator<Item = Vec<Handed>>) {
        self.0.iter().zip(clients).for_each(|(serving, clients)| serving.resume(clients));
    }

    fn stop<'a>(self: Box<Self>, _: &'a Console) -> Job<'a, ()> {
        Box::pin(async move {
            let stopping: Vec<_> = self.0.into_iter().map(|serving| tokio::spawn(serving.shutdown())).collect();
            for stopped in stopping {
                // A failure in there is logged by the server itself.
                let _ = stopped.await;
            }
        })
    }
}
