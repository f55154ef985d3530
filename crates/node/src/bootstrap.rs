//! Entering a field through any of its members, and finding the images one wants in it.

use crate::config::ImageSelector;
use crate::driver::Driver;
use crate::entry::Patience;
use crate::event::Event;
use crate::greet::{self, GreetError};
use crate::node::StartError;
use crate::whereabouts;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use vfield_core::image::{Header, ImageId};
use vfield_core::node::Input;
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, FrameHeader, HEADER, Kind, WireError};

/// How long a member may take to tell what it knows.
const SNAPSHOT: Duration = Duration::from_secs(5);
/// How long an image may take to show up: whoever has it may have joined a moment ago too.
const IMAGE: Duration = Duration::from_secs(3);
/// An image is looked for again this often meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Meets one member: both learn what the other knows.
pub async fn meet(driver: &Arc<Driver>, addr: SocketAddr) -> Result<(), GreetError> {
    let me = driver.look(|core| *core.me());
    let (mut connection, greeting) = greet::dial(addr, me, driver.keys.ring()).await?;
    let exchange = async {
        let frame = wire::snapshot_frame(Kind::Sync, 0, driver.look(|core| core.snapshot(&greeting.identity)));
        connection.send(&frame).await?;
        let head = connection.receive(HEADER).await?;
        let header = FrameHeader::decode(head.first_chunk().expect("as long as was asked for"))?;
        if header.kind != Kind::Synced {
            return Err(WireError::Field("kind").into());
        }
        let body = connection.receive(header.length as usize).await?;
        Ok::<Snapshot, GreetError>(wire::decode_snapshot(&body)?)
    };
    let snapshot = timeout(SNAPSHOT, exchange).await.map_err(|_| GreetError::TimedOut)??;
    whereabouts::check_member(driver, addr, greeting.identity).await;
    driver.apply(Input::Answered { addr, identity: greeting.identity });
    driver.apply(Input::Learned(snapshot));
    Ok(())
}

/// Meets whoever is at an address, if anybody is.
pub async fn call(driver: Arc<Driver>, addr: SocketAddr) {
    if let Err(error) = meet(&driver, addr).await {
        tracing::debug!(%addr, %error, "called in vain");
    }
}

/// The address of this machine that leads to `peer`; no packet is sent to find out.
pub fn local_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// An image that the field has.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its id.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// Its header.
    pub header: Header,
}

/// All images that the field has, by id.
pub fn known_images(driver: &Driver) -> Vec<Known> {
    let records = driver.look(|core| core.known_images());
    let sound = records.into_iter().filter_map(|record| {
        let header = Header::decode(&record.subject.header).ok()?;
        Some(Known { id: record.image(), name: record.subject.name.clone(), header })
    });
    sound.collect()
}

/// Finds the wanted images; without a wish the field's only one. Waits a little for them to show up, unless `alone`; those
/// that nobody has are looked for among what is `held` here. A field without any image is waited for with `patience`.
pub async fn find_images(
    driver: &Driver,
    wanted: &[ImageSelector],
    held: &[Known],
    alone: bool,
    patience: Patience,
) -> Result<Vec<Known>, StartError> {
    let end = Instant::now() + if alone { Duration::ZERO } else { IMAGE };
    let mut said = false;
    loop {
        let known = known_images(driver);
        match choose(&known, wanted) {
            Ok(images) => return Ok(images),
            // Whoever brings the first one may be about to start.
            Err(_) if !alone && known.is_empty() && !patience.is_over() => {
                if Instant::now() >= end && !std::mem::replace(&mut said, true) {
                    driver.event(Event::NoImages);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(error) if Instant::now() >= end => return choose(held, wanted).map_err(|_| error),
            Err(error @ StartError::ChooseImage { .. }) => return Err(error),
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// The wanted ones of these; without a wish the only one.
pub fn choose(known: &[Known], wanted: &[ImageSelector]) -> Result<Vec<Known>, StartError> {
    let names = || known.iter().map(|image| image.name.clone()).collect();
    if wanted.is_empty() {
        return match known {
            [one] => Ok(vec![one.clone()]),
            [] => Err(StartError::UnknownImage { wanted: "at all".to_owned(), known: Vec::new() }),
            _ => Err(StartError::ChooseImage { known: names() }),
        };
    }
    let find = |selector: &ImageSelector| {
        let (matches, text): (Vec<&Known>, String) = match selector {
            ImageSelector::Name(name) => (known.iter().filter(|image| image.name == *name).collect(), name.clone()),
            ImageSelector::Id(id) => (known.iter().filter(|image| image.id == *id).collect(), id.to_string()),
        };
        match matches[..] {
            [one] => Ok(one.clone()),
            [] => Err(StartError::UnknownImage { wanted: text, known: names() }),
            _ => Err(StartError::ChooseImage {
                known: matches.iter().map(|image| format!("{} ({})", image.name, image.id)).collect(),
            }),
        }
    };
    wanted.iter().map(find).collect()
}
