//! A trace on its way to the client, who writes the file: parts, at short intervals, until the time
//! is over or the client has gone.
//!
//! Bounded in time, in events, and by the node's list of events between two parts. A client that
//! does not read loses events, which the next part counts, and holds up nobody.

use super::message::Reply;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use vfield_node::trace::Recorded;

/// Longest recording: a person looks at seconds, and viewers become slow.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Events of a recording, after which it ends: a file of some 100 MB, as much as viewers open.
pub const EVENTS_MAX: usize = 500_000;
/// Time between two parts.
const EVERY: Duration = Duration::from_millis(50);
/// A client that has not taken all parts so long after the last one is cut off, since a node that
/// is recorded does more work.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// What gives the part since the last one. The recording ends with it.
pub type Recording = Box<dyn FnMut() -> Recorded + Send>;

/// Sends a recording, and its end.
pub(crate) async fn send(
    recording: Recording,
    duration: Duration,
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let end = Instant::now() + duration;
    tokio::time::timeout_at(end + TAKEN_WITHIN, parts(recording, end, writer)).await?
}

async fn parts(mut recording: Recording, end: Instant, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut sent = 0;
    // The client may begin with what it wants to see.
    writer.write_all(&Reply::Recorded(Recorded::default()).line()).await?;
    loop {
        tokio::time::sleep_until(end.min(Instant::now() + EVERY)).await;
        let is_over = Instant::now() >= end;
        let mut part = recording();
        let surplus = (sent + part.events.len()).saturating_sub(EVENTS_MAX);
        part.events.truncate(part.events.len() - surplus);
        part.missed += surplus as u64;
        sent += part.events.len();
        writer.write_all(&Reply::Recorded(part).line()).await?;
        if is_over || sent == EVENTS_MAX {
            return writer.write_all(&Reply::Done.line()).await;
        }
    }
}

/// The refusal of a length of time that is none; the end of a daemon is not put off for it.
pub(crate) fn refusal(duration: Duration) -> Option<Reply> {
    let fits = !duration.is_zero() && duration <= LONGEST;
    let fact = || format!("a trace of {} s", duration.as_secs_f64());
    (!fits).then(|| Reply::refused(fact(), format!("record for more than 0 s, and {} s at most", LONGEST.as_secs())))
}
