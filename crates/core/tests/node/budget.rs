//! A store whose disk takes in so many bytes a day: the fill waits, and readers do not.

use crate::one_origin::{IMAGE, ME, identity, origin_says};
use crate::signed::keys;
use std::num::NonZeroU64;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::Token;
use vfield_core::image::Header;
use vfield_core::node::{Commitment, ImageConfig, Input, Keep, Node, Notice, Output};
use vfield_core::speed::Transit;
use vfield_core::time::Time;

const CHUNKS: u64 = 600;
const EACH_DAY: u64 = 200;
/// Chunks that a slow fill has under way at once, and pages.
const MORE: u64 = 40;
const HOUR: Duration = Duration::from_secs(3600);

fn header() -> Header {
    let chunk = ChunkSize::MIN;
    Header::new(CHUNKS * chunk.bytes(), chunk, CHUNKS).expect("a header")
}

/// A node that is to hold all of an image, and an origin that answers at once.
struct Bench {
    node: Node,
    now: Time,
    said: u64,
    /// Chunks that were to be stored when they were asked for.
    kept: u64,
    /// Chunks that the shell was told to keep.
    stored: u64,
    answered: Vec<Token>,
    told: u64,
}

impl Bench {
    fn new() -> Self {
        let chunk = ChunkSize::MIN;
        let each_day = NonZeroU64::new(EACH_DAY * chunk.bytes());
        let config = Config { join_boost: 0, stored_bytes_each_day: each_day, ..Config::default() };
        let now = Time::after_start(Duration::from_secs(1));
        let mut node = Node::new(identity(ME), keys(ME), config, 2, now);
        node.handle(now, origin_says(header(), 1));
        let (id, names, kept) = (IMAGE, "image".into(), Some(Commitment { start: 0, from: 0 }));
        let capacity_bytes = 2 * CHUNKS * chunk.bytes();
        node.add_image(now, ImageConfig { id, names, header: header(), origin: false, capacity_bytes, kept });
        let mut bench = Self { node, now, said: 1, kept: 0, stored: 0, answered: Vec::new(), told: 0 };
        bench.settle();
        bench
    }

    fn input(&mut self, input: Input) {
        self.node.handle(self.now, input);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Request { request, keep, .. } => {
                    self.kept += u64::from(keep == Keep::Stored);
                    let (waited, transit, zeros) = (Duration::ZERO, Transit::default(), Vec::new());
                    self.node.handle(self.now, Input::Arrived { request, waited, transit, zeros });
                }
                Output::Stored(..) => self.stored += 1,
                Output::Notice(Notice::Spent) => self.told += 1,
                Output::Answer(token, Ok(())) => self.answered.push(token),
                _ => {}
            }
        }
    }

    /// The origin says twice a second that it lives.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_millis(500);
            self.said += 1;
            self.input(origin_says(header(), self.said));
            self.input(Input::Wake);
        }
    }

    fn held(&self) -> u64 {
        self.node.images()[0].stored
    }
}

#[test]
fn a_fill_waits_for_the_days_budget_and_readers_do_not() {
    let mut bench = Bench::new();
    // What an earlier process left costs nothing.
    bench.input(Input::Found { image: IMAGE, chunks: (0..100).map(Chunk).collect(), zeros: Vec::new() });
    bench.input(Input::Surveyed(IMAGE));
    bench.pass(Duration::from_secs(20));
    let held = bench.held();
    assert!((100 + EACH_DAY..=100 + EACH_DAY + MORE).contains(&held), "{held} are held");
    let kept = bench.kept;
    // A chunk that it would store comes, and passes through.
    bench.input(Input::Read { token: Token(1), image: IMAGE, chunks: 590..591 });
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.answered.as_slice(), bench.held(), bench.kept), (&[Token(1)][..], held, kept));
    // The others come as they are paid.
    bench.pass(8 * HOUR);
    let more = bench.held() - held;
    assert_eq!(bench.told, 1);
    assert!((EACH_DAY / 3 - MORE..=EACH_DAY / 3 + 1).contains(&more), "{more} more are held");
}
