//! The kernel's ublk interface as numbers and bytes: commands, flags, and the layout of what they
//! carry.
//!
//! Owns every number that the kernel defines; written after `include/uapi/linux/ublk_cmd.h` of
//! Linux 6.12, whose layouts later kernels keep. All fields are in the machine's byte order. Does
//! no I/O.

/// The device that takes control commands.
pub(super) const CONTROL_PATH: &str = "/dev/ublk-control";

/// Bytes copied by pread and pwrite on the character device instead of through a registered buffer.
pub(super) const USER_COPY: u64 = 1 << 7;
/// The device outlives its server, and requests wait meanwhile.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// Requests that a dead server left unanswered are issued again.
pub(super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;

/// Where the requests of the first queue are described, as an offset for mmap.
const DESCRIPTORS_OFFSET: u64 = 0;
/// Where the bytes of requests begin, as an offset for pwrite.
const BUFFERS_OFFSET: u64 = 0x8000_0000;
/// Room for each request's bytes there, as a power of two.
const BUFFER_BITS: u32 = 25;
/// Room for the numbers of requests in an offset.
const TAG_BITS: u32 = 16;
/// The most requests that a queue may have; decides where the descriptions of the next queue begin.
const DEPTH_MAX: u64 = 4096;

/// "Any device", or "no queue".
pub(super) const ANY: u32 = u32::MAX;

/// Commands of the control device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Control {
    Info = control(READ, 0x02),
    Add = control(READ_WRITE, 0x04),
    Delete = control(READ_WRITE, 0x05),
    Start = control(READ_WRITE, 0x06),
    Stop = control(READ_WRITE, 0x07),
    SetParameters = control(READ_WRITE, 0x08),
    StartRecovery = control(READ_WRITE, 0x10),
    EndRecovery = control(READ_WRITE, 0x11),
    Features = control(READ, 0x13),
    /// Does not wait until the device is closed.
    DeleteSoon = control(READ, 0x14),
}

/// Commands of a device's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Io {
    /// "Give me a request."
    Fetch = encode(READ_WRITE, IO_COMMAND_BYTES, 0x20),
    /// "This one is answered; give me the next."
    Commit = encode(READ_WRITE, IO_COMMAND_BYTES, 0x21),
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;
const CONTROL_COMMAND_BYTES: u32 = 32;
const IO_COMMAND_BYTES: u32 = 16;

const fn control(direction: u32, number: u32) -> u32 {
    encode(direction, CONTROL_COMMAND_BYTES, number)
}

/// The `_IOC` of the kernel's headers, with 'u' for ublk.
const fn encode(direction: u32, size_bytes: u32, number: u32) -> u32 {
    direction << 30 | size_bytes << 16 | (b'u' as u32) << 8 | number
}

/// The payload of a control command: a device, a buffer (address and length in bytes) and one
/// number.
pub(super) fn control_command(device: u32, buffer: (u64, u16), data: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[0..4].copy_from_slice(&device.to_ne_bytes());
    bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    bytes[6..8].copy_from_slice(&buffer.1.to_ne_bytes());
    bytes[8..16].copy_from_slice(&buffer.0.to_ne_bytes());
    bytes[16..24].copy_from_slice(&data.to_ne_bytes());
    bytes
}

/// The payload of a queue's command. `result` is the number of bytes or a negative errno.
pub(super) fn io_command(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// What state a device is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not started, or stopped.
    Dead,
    /// A server answers its requests.
    Live,
    /// Its server died; requests wait for the next one.
    Quiesced,
    /// Something that later kernels have.
    Other(u16),
}

/// What the kernel knows of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Info {
    pub queues: u16,
    /// Requests under way in each queue.
    pub depth: u16,
    pub state: State,
    /// Longest request in bytes.
    pub request_bytes_max: u32,
    /// Number of the device, or [`ANY`].
    pub device: u32,
    /// Process id of its server, as that told it.
    pub server: i32,
    pub flags: u64,
    /// The server's own 64 bits, which the kernel only keeps.
    pub mark: u64,
}

impl Info {
    pub const BYTES: usize = 64;

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.request_bytes_max.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let state = match u16::from_ne_bytes(part(bytes, 4)) {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Quiesced,
            other => State::Other(other),
        };
        Self {
            queues: u16::from_ne_bytes(part(bytes, 0)),
            depth: u16::from_ne_bytes(part(bytes, 2)),
            state,
            request_bytes_max: u32::from_ne_bytes(part(bytes, 8)),
            device: u32::from_ne_bytes(part(bytes, 12)),
            server: i32::from_ne_bytes(part(bytes, 16)),
            flags: u64::from_ne_bytes(part(bytes, 24)),
            mark: u64::from_ne_bytes(part(bytes, 32)),
        }
    }
}

/// What a block device looks like to those who use it. All sizes in sectors of 512 bytes, or as a
/// power of two of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    pub sectors: u64,
    pub request_sectors_max: u32,
    pub logical_block_shift: u8,
    pub physical_block_shift: u8,
    /// Shortest read that does not cost more than its share.
    pub io_min_shift: u8,
    /// The length of reads that costs least.
    pub io_opt_shift: u8,
    /// What it can be asked to change; nothing of a device that is read-only.
    pub changes: Option<Changes>,
}

/// How a device that can be written takes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changes {
    /// Writes are durable only after a flush.
    pub cached: bool,
    /// The unit in which room is given back.
    pub granule_bytes: u32,
    /// Longest discard, and longest run of zeros.
    pub discard_sectors_max: u32,
}

impl Parameters {
    /// The basic parameters, and those of discards; without the latter the device gets no discards.
    pub const BYTES: usize = 60;
    const BASIC: u32 = 1;
    const DISCARD: u32 = 1 << 1;
    const READ_ONLY: u32 = 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&(Self::BYTES as u32).to_ne_bytes());
        let (types, attributes) = match self.changes {
            None => (Self::BASIC, Self::READ_ONLY),
            Some(Changes { cached: false, .. }) => (Self::BASIC | Self::DISCARD, 0),
            Some(Changes { cached: true, .. }) => (Self::BASIC | Self::DISCARD, Self::VOLATILE_CACHE | Self::FUA),
        };
        bytes[4..8].copy_from_slice(&types.to_ne_bytes());
        bytes[8..12].copy_from_slice(&attributes.to_ne_bytes());
        bytes[12] = self.logical_block_shift;
        bytes[13] = self.physical_block_shift;
        bytes[14] = self.io_opt_shift;
        bytes[15] = self.io_min_shift;
        bytes[16..20].copy_from_slice(&self.request_sectors_max.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.sectors.to_ne_bytes());
        if let Some(changes) = self.changes {
            bytes[44..48].copy_from_slice(&changes.granule_bytes.to_ne_bytes());
            bytes[48..52].copy_from_slice(&changes.discard_sectors_max.to_ne_bytes());
            bytes[52..56].copy_from_slice(&changes.discard_sectors_max.to_ne_bytes());
            // Segments of a discard: the kernel takes no other number.
            bytes[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        }
        bytes
    }
}

/// Requests of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    /// Zeros are to be read from now on.
    Zero,
    /// Something that only other devices are asked.
    Other(u8),
}

/// One request, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub operation: Operation,
    /// A change that is durable when it is answered.
    pub durable: bool,
    pub sectors: u32,
    pub first_sector: u64,
}

impl Descriptor {
    pub const BYTES: usize = 24;
    /// Above the operation's eight bits.
    const FUA: u32 = 1 << 13;

    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let asked = u32::from_ne_bytes(part(bytes, 0));
        let operation = match asked as u8 {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::Zero,
            other => Operation::Other(other),
        };
        let sectors = u32::from_ne_bytes(part(bytes, 4));
        Self { operation, durable: asked & Self::FUA != 0, sectors, first_sector: u64::from_ne_bytes(part(bytes, 8)) }
    }
}

/// Where a queue's descriptors lie in the character device: offset and length for mmap, in bytes.
pub(super) fn descriptors_place(queue: u16, depth: u16, page_bytes: u64) -> (u64, usize) {
    let most = (DEPTH_MAX * Descriptor::BYTES as u64).next_multiple_of(page_bytes);
    let length = (u64::from(depth) * Descriptor::BYTES as u64).next_multiple_of(page_bytes);
    // Below 2^17.
    (DESCRIPTORS_OFFSET + u64::from(queue) * most, length as usize)
}

/// Where the bytes of a request go, as an offset for pwrite.
pub(super) const fn buffer_place(queue: u16, tag: u16) -> u64 {
    BUFFERS_OFFSET + ((queue as u64) << (BUFFER_BITS + TAG_BITS)) + ((tag as u64) << BUFFER_BITS)
}

/// The bytes from `at` on.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernels_header() {
        // What a C program prints that includes the header of 6.12.
        assert_eq!(Control::Add as u32, 0xc020_7504);
        assert_eq!(Control::Info as u32, 0x8020_7502);
        assert_eq!(Control::Features as u32, 0x8020_7513);
        assert_eq!((Io::Fetch as u32, Io::Commit as u32), (0xc010_7520, 0xc010_7521));
        assert_eq!(buffer_place(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
        assert_eq!(descriptors_place(1, 128, 4096), (98304, 4096));
    }

    #[test]
    fn what_is_known_of_a_device_survives_the_way_there_and_back() {
        let info = Info {
            queues: 3,
            depth: 128,
            state: State::Dead,
            request_bytes_max: 1 << 20,
            device: 7,
            server: 0,
            flags: USER_COPY | USER_RECOVERY,
            mark: 0x0123_4567_89ab_cdef,
        };
        assert_eq!(Info::from_bytes(&info.to_bytes()), info);
        let mut bytes = info.to_bytes();
        bytes[4] = 2;
        bytes[16..20].copy_from_slice(&4711_i32.to_ne_bytes());
        let told = Info::from_bytes(&bytes);
        assert_eq!((told.state, told.server), (State::Quiesced, 4711));
    }

    #[test]
    fn flags_of_a_request_are_no_part_of_its_operation() {
        let mut bytes = [0; Descriptor::BYTES];
        bytes[0..4].copy_from_slice(&(1_u32 << 8).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&16_u64.to_ne_bytes());
        let read = Descriptor::from_bytes(&bytes);
        assert_eq!(read, Descriptor { operation: Operation::Read, durable: false, sectors: 8, first_sector: 16 });
        bytes[0..4].copy_from_slice(&(1_u32 << 13 | 1).to_ne_bytes());
        let write = Descriptor::from_bytes(&bytes);
        assert_eq!((write.operation, write.durable), (Operation::Write, true));
        bytes[0] = 4;
        assert_eq!(Descriptor::from_bytes(&bytes).operation, Operation::Other(4));
    }
}
