//! The reader of a host: attaches to an export, reads it, and checks every byte.
//!
//! A whole image is read in order, with a fixed number of requests in flight, and hashed; blocks at
//! random places are compared with the image's file. With vfield it starts the host's node itself:
//! before the race where nodes are warmed, at the start where they are cold, so that joining and
//! filling count.

use super::nbd::{Client, Target};
use super::plan::PIECE_BYTES;
use super::role::{Outcome, Word, await_end, await_go, seconds_since};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Pauses between two attempts to attach: the first, and the longest. Short against a start, long
/// against its cost.
const ATTACH_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// An export that is not there after so long never will be; the race has a bound of its own.
const ATTACH_LIMIT: Duration = Duration::from_secs(600);

/// What a reader is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Address of the export.
    #[serde(with = "super::nbd::text")]
    pub target: Target,
    /// The image that it must be equal to.
    pub image: PathBuf,
    /// Length of the image in bytes.
    pub size_bytes: u64,
    /// BLAKE3 of it, in hexadecimal.
    pub hash: String,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Requests in flight.
    pub depth: usize,
    /// The time that it works on each block before it reads on.
    pub think: Duration,
    /// How many blocks at random places; `None`: all of it, in order.
    pub random: Option<Random>,
    /// The node to start, and how.
    pub node: Option<Node>,
}

/// Reads at random places.
#[derive(Debug, Serialize, Deserialize)]
pub struct Random {
    /// Number of blocks.
    pub count: usize,
    /// The same seed, the same places.
    pub seed: u64,
    /// One block after the other instead.
    pub in_order: bool,
    /// One piece of so many has bytes; see [`super::plan::Plan::sparse`].
    pub sparse: u64,
}

/// A node on the reader's host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its command line.
    pub command: Vec<String>,
    /// A command that returns when it is warm; `None`: the node is started in the race.
    pub warm: Option<Vec<String>>,
}

/// Runs the order and reports the outcome.
pub(super) fn play(order: &Order) -> io::Result<()> {
    if let Some(Node { command, warm: Some(warm) }) = &order.node {
        start_node(command)?;
        attach(&order.target)?;
        let done = words(warm).output()?;
        if !done.status.success() {
            return Err(io::Error::other(format!("not warm: {}", String::from_utf8_lossy(&done.stderr))));
        }
    }
    let start_ns = await_go()?;
    let mut outcome = Outcome::default();
    outcome.error = read(order, start_ns, &mut outcome).err().map(|error| error.to_string());
    outcome.seconds = seconds_since(start_ns);
    Word::Done(outcome).say()?;
    await_end()
}

fn words(line: &[String]) -> Command {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).stdin(Stdio::null());
    command
}

/// Starts the node, with its output in a file of the host's directory, and says which process it
/// is.
fn start_node(line: &[String]) -> io::Result<()> {
    let log = File::options().create(true).append(true).open("node.log")?;
    let node = words(line).stdout(log.try_clone()?).stderr(log).spawn()?;
    // Nobody waits for it: what its processor time was can be read until this process ends.
    Word::Node { pid: node.id() }.say()
}

/// Connects as soon as somebody listens.
fn attach(target: &Target) -> io::Result<Client> {
    let (mut pause, longest) = ATTACH_PAUSES;
    let start = Instant::now();
    loop {
        match Client::connect(target) {
            Ok(client) => return Ok(client),
            Err(error) if start.elapsed() > ATTACH_LIMIT => return Err(error),
            Err(_) => std::thread::sleep(pause),
        }
        pause = (pause * 3 / 2).min(longest);
    }
}

fn read(order: &Order, start_ns: u64, outcome: &mut Outcome) -> io::Result<()> {
    if let Some(Node { command, warm: None }) = &order.node {
        start_node(command)?;
    }
    let client = attach(&order.target)?;
    outcome.attach_s = seconds_since(start_ns);
    let mut window = Window::new(client, order);
    let (read, gap) = match &order.random {
        None => {
            let mut hash = blake3::Hasher::new();
            let read = window.run(in_order(order), |_, bytes, took| {
                hash.update(bytes);
                outcome.bytes += bytes.len() as u64;
                outcome.slowest_read_s = outcome.slowest_read_s.max(took.as_secs_f64());
                std::thread::sleep(order.think);
                Ok(())
            });
            let right = *hash.finalize().to_hex() == *order.hash;
            (read.and_then(|()| right.then_some(()).ok_or_else(wrong_bytes)), window.client.longest_gap())
        }
        Some(random) => {
            let image = File::open(&order.image)?;
            let mut right = vec![0; usize_of(order.block_bytes)];
            let read = window.run(at_random(order, random), |offset, bytes, took| {
                image.read_exact_at(&mut right, offset)?;
                outcome.bytes += bytes.len() as u64;
                outcome.slowest_read_s = outcome.slowest_read_s.max(took.as_secs_f64());
                outcome.latencies_us.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
                std::thread::sleep(order.think);
                (right == bytes).then_some(()).ok_or_else(wrong_bytes)
            });
            (read, window.client.longest_gap())
        }
    };
    outcome.longest_gap_s = gap.as_secs_f64();
    read
}

fn wrong_bytes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bytes are not the image's")
}

/// Offsets and lengths of a whole image.
fn in_order(order: &Order) -> impl Iterator<Item = (u64, u32)> + use<> {
    let (size, block) = (order.size_bytes, order.block_bytes);
    let length = move |offset| u32::try_from(size - offset).map_or(block, |left| left.min(block));
    (0..size).step_by(usize_of(block)).map(move |offset| (offset, length(offset)))
}

/// Offsets of blocks that lie within the image, and at multiples of their length. Those of a sparse
/// image lie in its pieces.
fn at_random(order: &Order, random: &Random) -> impl Iterator<Item = (u64, u32)> + use<> {
    let (block, sparse) = (order.block_bytes, random.sparse);
    let bytes = if sparse == 1 { order.size_bytes } else { order.size_bytes / (PIECE_BYTES * sparse) * PIECE_BYTES };
    let (blocks, in_order) = (bytes / u64::from(block), random.in_order);
    let place = move |number: u64| {
        let at = number % blocks * u64::from(block);
        (at / PIECE_BYTES * PIECE_BYTES * sparse + at % PIECE_BYTES, block)
    };
    let mut state = random.seed;
    (0..random.count as u64).map(move |number| {
        if in_order {
            return place(number);
        }
        // splitmix64 (Steele and others, 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        place(word ^ (word >> 31))
    })
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).expect("a pointer has at least 32 bits")
}

/// The requests in flight.
struct Window {
    client: Client,
    slots: Vec<Slot>,
    /// Bytes are given in the order in which they were asked for, as to a program that reads a
    /// file.
    ordered: bool,
}

struct Slot {
    buffer: Vec<u8>,
    offset: u64,
    length: usize,
    asked: Instant,
    took: Option<Duration>,
}

impl Window {
    fn new(client: Client, order: &Order) -> Self {
        let slot = || Slot {
            buffer: vec![0; usize_of(order.block_bytes)],
            offset: 0,
            length: 0,
            asked: Instant::now(),
            took: None,
        };
        let slots = std::iter::repeat_with(slot).take(order.depth.max(1)).collect();
        Self { client, slots, ordered: order.random.is_none() }
    }

    /// Makes all requests of a plan and gives each answer on, with its offset and the time that it
    /// took.
    fn run(
        &mut self,
        mut plan: impl Iterator<Item = (u64, u32)>,
        mut take: impl FnMut(u64, &[u8], Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut free: VecDeque<_> = (0..self.slots.len()).collect();
        let mut asked = VecDeque::new();
        loop {
            while let Some(&index) = free.front()
                && let Some((offset, length)) = plan.next()
            {
                free.pop_front();
                let slot = &mut self.slots[index];
                (slot.offset, slot.length, slot.asked, slot.took) = (offset, usize_of(length), Instant::now(), None);
                asked.push_back(index);
                self.client.ask(index as u64, offset, length)?;
            }
            if asked.is_empty() {
                return Ok(());
            }
            let cookie = self.client.answer()?;
            let waits = |index: &usize| *index as u64 == cookie && self.slots[*index].took.is_none();
            let place = asked.iter().position(waits).ok_or_else(|| io::Error::other("an answer nobody asked for"))?;
            let slot = &mut self.slots[asked[place]];
            self.client.fill(&mut slot.buffer[..slot.length])?;
            slot.took = Some(slot.asked.elapsed());
            if !self.ordered {
                asked.swap(0, place);
            }
            while let Some(slot) = asked.front().map(|first| &self.slots[*first])
                && let Some(took) = slot.took
            {
                take(slot.offset, &slot.buffer[..slot.length], took)?;
                free.extend(asked.pop_front());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(size_bytes: u64, block_bytes: u32) -> Order {
        let target = Target::Unix(PathBuf::new());
        let (image, hash) = (PathBuf::new(), String::new());
        let think = Duration::ZERO;
        Order { target, image, size_bytes, hash, block_bytes, depth: 1, think, random: None, node: None }
    }

    #[test]
    fn a_whole_image_is_all_of_it_once() {
        let plan: Vec<_> = in_order(&order(10, 4)).collect();
        assert_eq!(plan, [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(in_order(&order(8, 4)).count(), 2);
        assert_eq!(in_order(&order(u64::from(u32::MAX) + 2, u32::MAX)).last(), Some((u64::from(u32::MAX), 2)));
    }

    /// An NBD server for one client, which answers each two requests in the wrong order.
    fn serve_backwards(listener: &std::net::TcpListener, image: &[u8]) -> io::Result<()> {
        use std::io::{Read as _, Write as _};
        let (mut client, _) = listener.accept()?;
        client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        let mut asked = [0; 4 + 16 + 6];
        client.read_exact(&mut asked)?;
        // An information, and the end.
        for (kind, data) in [(3_u32, &[0; 12][..]), (1, &[])] {
            client.write_all(&0x0003_e889_0455_65a9_u64.to_be_bytes())?;
            for word in [7, kind, u32::try_from(data.len()).unwrap()] {
                client.write_all(&word.to_be_bytes())?;
            }
            client.write_all(data)?;
        }
        for _ in 0..image.len() / 8 {
            let mut requests = [[0; 28]; 2];
            for request in &mut requests {
                client.read_exact(request)?;
            }
            for request in requests.iter().rev() {
                let offset = usize::try_from(u64::from_be_bytes(request[16..24].try_into().unwrap())).unwrap();
                client.write_all(b"\x67\x44\x66\x98\0\0\0\0")?;
                client.write_all(&request[8..16])?;
                client.write_all(&image[offset..offset + 4])?;
            }
        }
        Ok(())
    }

    #[test]
    fn answers_in_any_order_are_read_in_order_and_every_byte_counts() {
        let image: Vec<u8> = (0..64).collect();
        let right = blake3::hash(&image).to_hex().to_string();
        let mut other = image.clone();
        other[63] ^= 1;
        for (image, expected) in [(image, None), (other, Some("the bytes are not the image's"))] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let target = Target::Tcp(listener.local_addr().unwrap());
            let order = Order { target, hash: right.clone(), depth: 2, ..order(64, 4) };
            let mut outcome = Outcome::default();
            let read = std::thread::scope(|scope| {
                scope.spawn(|| serve_backwards(&listener, &image));
                read(&order, super::super::role::now_ns(), &mut outcome)
            });
            assert_eq!(read.err().map(|error| error.to_string()).as_deref(), expected);
            assert_eq!(outcome.bytes, 64);
        }
    }

    #[test]
    fn random_places_are_blocks_of_the_image_and_repeatable() {
        let order = order(1000, 64);
        let random = |seed| Random { count: 100, seed, in_order: false, sparse: 1 };
        let places = |seed| at_random(&order, &random(seed)).collect::<Vec<_>>();
        assert!(places(1).iter().all(|(offset, length)| offset % 64 == 0 && offset + u64::from(*length) <= 1000));
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }

    #[test]
    fn blocks_of_a_sparse_image_lie_in_its_pieces() {
        let (order, block) = (order(8 * PIECE_BYTES, 512 << 10), 512 << 10);
        let random = |in_order| Random { count: 50, seed: 1, in_order, sparse: 4 };
        let drawn: Vec<_> = at_random(&order, &random(false)).collect();
        assert!(drawn.iter().all(|(offset, _)| offset % (4 * PIECE_BYTES) < PIECE_BYTES), "{drawn:?}");
        let ordered: Vec<_> = at_random(&order, &random(true)).map(|(offset, _)| offset).take(5).collect();
        assert_eq!(ordered, [0, block, 4 * PIECE_BYTES, 4 * PIECE_BYTES + block, 0]);
    }
}
