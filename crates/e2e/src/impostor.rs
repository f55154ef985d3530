//! A local user in the place of a daemon's control socket, who takes down the orders.

use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::JoinHandle;

/// Somebody at a socket; takes one connection, says nothing, and hangs up after an order.
#[derive(Debug)]
pub struct Impostor(JoinHandle<io::Result<String>>);

impl Impostor {
    /// User `uid` at a path in a directory of his. Needs root.
    ///
    /// # Errors
    /// If he cannot listen there.
    ///
    /// # Panics
    /// If a thread of this process cannot be that user.
    pub fn at(path: &Path, uid: u32) -> io::Result<Self> {
        let (path, uid) = (path.to_owned(), Uid::from_raw(uid));
        // A thread of its own is that user; the others stay who they are.
        let listen = std::thread::spawn(move || {
            set_thread_res_uid(uid, uid, uid)?;
            UnixListener::bind(path)
        });
        let listener = listen.join().expect("it does not panic")?;
        let listen = move || {
            let mut heard = String::new();
            BufReader::new(listener.accept()?.0).read_line(&mut heard)?;
            Ok(heard)
        };
        Ok(Self(std::thread::spawn(listen)))
    }

    /// The order that he has been told, if any was, once the other side or he has hung up.
    ///
    /// # Errors
    /// If the connection broke.
    ///
    /// # Panics
    /// Never.
    pub fn heard(self) -> io::Result<String> {
        self.0.join().expect("it does not panic")
    }
}
