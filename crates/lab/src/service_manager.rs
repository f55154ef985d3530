//! A service manager, as far as a daemon sees one: it hears of it (`sd_notify(3)`), keeps a file
//! for it, and passes that to the next one that it starts (`sd_listen_fds(3)`).

use crate::LabError;
use crate::lab::Host;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Standard input becomes the first passed file, of a process with the id that it is told to have.
const PASS: &str = r#"export LISTEN_PID=$$; exec "$0" "$@" 3<&0 </dev/null"#;

/// The daemon's events, which it leaves with its manager too. Only the file of a store is kept.
const EVENTS: &str = "vfield-events";

/// A service manager's socket for one daemon.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    path: PathBuf,
    kept: Option<(String, File)>,
    /// Processes that said anything, and those that said that they are ready.
    senders: BTreeSet<u32>,
    ready: BTreeSet<u32>,
}

/// What a process is started with.
#[derive(Debug)]
pub struct Passed {
    socket: PathBuf,
    file: Option<(String, File)>,
}

impl ServiceManager {
    /// One that listens in a directory, and has nothing yet.
    ///
    /// # Errors
    /// If it cannot.
    pub fn new(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).map_err(LabError::at(&path))?;
        set_socket_passcred(&socket, true).map_err(|error| LabError::at(&path)(error.into()))?;
        Ok(Self { socket, path, kept: None, senders: BTreeSet::new(), ready: BTreeSet::new() })
    }

    /// Takes in what it was told so far; the file that it keeps, if there is one.
    pub fn kept(&mut self) -> Option<&File> {
        let (mut text, flags) = (vec![0; 4096], RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC);
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags);
            let Ok(received) = received else { break };
            let told = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
            let name = told.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default().to_owned();
            let mut file = None;
            for message in control.drain() {
                match message {
                    RecvAncillaryMessage::ScmRights(mut files) => file = files.next(),
                    RecvAncillaryMessage::ScmCredentials(sender) => {
                        let pid = sender.pid.as_raw_nonzero().get().cast_unsigned();
                        self.senders.insert(pid);
                        self.ready.extend(told.lines().any(|line| line == "READY=1").then_some(pid));
                    }
                    _ => {}
                }
            }
            match file {
                Some(file) if name != EVENTS && told.lines().any(|line| line == "FDSTORE=1") => {
                    self.kept = Some((name, file.into()));
                }
                None if told.lines().any(|line| line == "FDSTOREREMOVE=1") => {
                    self.kept = self.kept.take().filter(|(kept, _)| *kept != name);
                }
                _ => {}
            }
        }
        self.kept.as_ref().map(|(_, file)| file)
    }

    /// The processes that have said anything so far, and those that have said to be ready.
    pub fn heard(&mut self) -> (&BTreeSet<u32>, &BTreeSet<u32>) {
        self.kept();
        (&self.senders, &self.ready)
    }

    /// What a process that it starts now is to have.
    ///
    /// # Errors
    /// If the file cannot be passed on.
    pub fn pass(&mut self) -> Result<Passed, LabError> {
        self.kept();
        let file = self.kept.as_ref().map(|(name, file)| Ok((name.clone(), file.try_clone()?)));
        Ok(Passed { socket: self.path.clone(), file: file.transpose().map_err(LabError::at(&self.path))? })
    }
}

impl Passed {
    /// A command of a host that is started with it.
    pub(crate) fn command(self, host: &Host, program: &Path) -> Command {
        let mut command = host.command("sh");
        command.args(["-c", PASS]).arg(program).env("NOTIFY_SOCKET", self.socket);
        if let Some((name, file)) = self.file {
            command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name).stdin(Stdio::from(file));
        }
        command
    }
}
