//! Ports for servers that are to listen later, or in another process.
//!
//! A socket that was bound to find one is no way: a process that another thread forks has it too,
//! until it is a program. Meanwhile the port is in use: one of a hundred, beside four such threads.

use crate::LabError;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel gives away ports from 32 768 on to sockets that name none, ip(7).
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// Processes that start one after another begin far from each other.
const BETWEEN_PROCESSES: u32 = 251;
/// The sockets of this thread's network namespace, proc(5).
const TABLES: [&str; 4] = ["tcp", "tcp6", "udp", "udp6"];

/// A port that no socket has, on no address, and that this process was not given before.
///
/// # Errors
/// If all are taken, or the kernel does not tell.
pub fn free() -> Result<u16, LabError> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let tables = Path::new("/proc/thread-self/net");
    let taken = taken(tables).map_err(LabError::at(tables))?;
    let own = std::process::id().wrapping_mul(BETWEEN_PROCESSES);
    let ports = (0..COUNT).map(|_| FIRST + own.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let mut free = ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| !taken.contains(port));
    free.next().ok_or_else(|| LabError::System {
        what: format!("no port from {FIRST} to {} is free", FIRST + COUNT - 1),
        source: ErrorKind::AddrInUse.into(),
    })
}

fn taken(tables: &Path) -> io::Result<HashSet<u16>> {
    let mut taken = HashSet::new();
    for table in TABLES {
        match std::fs::read_to_string(tables.join(table)) {
            Ok(text) => taken.extend(text.lines().filter_map(local_port)),
            // A kernel without IPv6.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// The local port of a line; its second field is an address and a port in hexadecimal digits.
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};

    #[test]
    fn a_port_is_nobodys() {
        let tcp = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = taken(Path::new("/proc/thread-self/net")).unwrap();
        let used = [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()];
        assert!(used.iter().all(|port| taken.contains(port)), "{used:?}, not in {taken:?}");
        let (one, other) = (free().unwrap(), free().unwrap());
        assert_ne!(one, other);
        TcpListener::bind((Ipv4Addr::LOCALHOST, one)).unwrap();
        assert_eq!(local_port("  sl  local_address rem_address   st"), None);
    }
}
