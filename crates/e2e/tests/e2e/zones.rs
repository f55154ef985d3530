//! Zones behind thin links: a chunk comes into each about once, and they do without the origin and
//! without each other.

use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::{Daemon, Lab, LabError, Link, client};

const ZONES: usize = 3;
const SIZE: usize = 4;
/// So many of a zone are gateways.
const GATEWAYS: usize = 3;
/// A host's link and a zone's uplink: over these a zone needs 3.4 s for the image, and twelve
/// daemons little of the processor.
const LINK: Link = Link::mbit(40);
/// Large against what gossip says meanwhile.
const IMAGE_BYTES: u64 = 16 * MIB + 777;
/// For twelve daemons, while the machine is busy with other things.
const SOON: Duration = Duration::from_secs(60);
/// A zone may take in so many images, headers and gossip included.
const CAME_MAX: f64 = 1.3;
/// The origin may send so many.
const SENT_MAX: f64 = 1.3;
/// Without zones each of a zone's nodes would fetch most of the image from outside, whatever else
/// happens. With them, more comes than has to only when a machine that is busy with other things
/// lets daemons seem dead to each other. So the least of so many rounds counts.
const ROUNDS: usize = 6;

/// Three zones; the origin is the first host of the first.
struct Field {
    daemons: Vec<Daemon>,
    image: PathBuf,
    lab: Lab,
}

impl Field {
    /// All are switched on at once.
    fn start(store: &str) -> Result<Self, LabError> {
        let lab = Lab::zones(ZONES, SIZE, LINK, LINK)?;
        let image = random_file(&lab.dir().join("disk.img"), IMAGE_BYTES, 1)?;
        let vfield = vfield();
        let zone = &["--zone", "subnet"];
        let origin = vfield.serve(lab.host(0), &[&image]).args(zone).ready()?;
        let (through, mut daemons) = (origin.addr(), vec![origin]);
        for host in &lab.hosts()[1..] {
            daemons.push(vfield.join(host, through).store(store).args(zone).spawn()?);
        }
        daemons.iter_mut().try_for_each(|daemon| daemon.wait_ready(SOON))?;
        Ok(Self { daemons, image, lab })
    }

    /// Some hosts read everything at the same time; every byte is compared.
    fn read(&self, hosts: impl Iterator<Item = usize>) -> Result<(), LabError> {
        std::thread::scope(|scope| {
            let read = |host| client::compare_all(self.lab.host(host), &self.daemons[host], &self.image);
            let readers: Vec<_> = hosts.map(|host| scope.spawn(move || read(host))).collect();
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
        })
    }

    fn kill(&mut self, hosts: Range<usize>) {
        self.daemons[hosts].iter_mut().for_each(Daemon::kill);
    }

    /// Images that the origin has sent, and those that came into each other zone.
    fn traffic(&self) -> Result<Vec<f64>, LabError> {
        let sent = self.lab.counters(self.lab.host(0))?.sent_bytes;
        let came = (1..ZONES).map(|zone| Ok(self.lab.uplink(zone)?.received_bytes));
        let bytes = std::iter::once(Ok(sent)).chain(came).collect::<Result<Vec<_>, LabError>>()?;
        Ok(bytes.into_iter().map(|bytes| bytes as f64 / IMAGE_BYTES as f64).collect())
    }
}

/// The hosts of a zone.
const fn zone(zone: usize) -> Range<usize> {
    zone * SIZE..(zone + 1) * SIZE
}

/// In each zone all but one are gateways, the origin's is the one in the first: they know all
/// others, and the rest those of its own zone.
fn told_of_zones(field: &Field) -> Outcome {
    let mut gateways = [0; ZONES];
    for host in 1..ZONES * SIZE {
        let name = format!("198.18.{}.0/24", host / SIZE);
        let told = |gateway: bool| {
            let known = if gateway { ZONES * GATEWAYS } else { GATEWAYS };
            json!({"name": name, "gateway": gateway, "zones": ZONES, "gateways": known})
        };
        let settled = |status: &Value| [true, false].map(told).contains(&status["zone"]);
        field.daemons[host].wait_status("all zones are known", SOON, settled)?;
        let status = field.daemons[host].status()?;
        gateways[host / SIZE] += usize::from(status["zone"] == told(true));
        let nodes = status["nodes"].as_array().into_iter().flatten();
        let near = nodes.filter(|node| node["zone"] == name.as_str()).count();
        assert_eq!(near, SIZE, "{status:#}");
    }
    assert_eq!(gateways, [GATEWAYS; ZONES]);
    Ok(())
}

#[test]
fn a_chunk_comes_into_a_zone_about_once() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let bounds = [SENT_MAX, CAME_MAX, CAME_MAX];
    let (mut least, mut rounds) = ([f64::MAX; ZONES], Vec::new());
    while rounds.len() < ROUNDS && least.iter().zip(bounds).any(|(least, most)| *least > most) {
        let field = Field::start("40%")?;
        field.read(0..ZONES * SIZE)?;
        let traffic = field.traffic()?;
        // All that they read has come by some link.
        assert!(traffic.iter().all(|images| *images >= 1.0), "{traffic:?}");
        least = std::array::from_fn(|link| least[link].min(traffic[link]));
        rounds.push(traffic);
    }
    let fits = least.iter().zip(bounds).all(|(least, most)| *least <= most);
    assert!(fits, "images that the origin sent and that came into each zone, by round: {rounds:.2?}");
    Ok(())
}

#[test]
fn zones_outlive_the_origin_and_each_other() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    // What the first zone has left without its origin is not all of the image. The others have a
    // fifth more than it, and arcs that may first come to lie so that no single move covers all.
    let mut field = Field::start("30%")?;
    for host in 1..ZONES * SIZE {
        let condition = if zone(0).contains(&host) { "filled" } else { "covered" };
        field.daemons[host].wait(condition, SOON)?;
    }
    told_of_zones(&field)?;
    field.kill(0..1);
    field.read(zone(1))?;
    field.kill(zone(1));
    // None of these has read anything yet, so none has it at hand.
    field.read(zone(0).skip(1).chain(zone(2)))?;
    Ok(())
}
