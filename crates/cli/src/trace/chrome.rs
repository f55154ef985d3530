//! Events as spans in the trace format of Chrome, which Perfetto reads as well.
//!
//! Each span is a pair of nestable asynchronous events. A group of spans ("process" in the viewers)
//! is: the reads of this machine, the fetches with their stages, the requests to each peer, and the
//! requests of each peer. A span that began before the recording has no beginning and is left
//! out. At the end of the recording each open span is closed, and says so.
//!
//! The number of a span is that of its lane within its group: the lowest in which no other span is
//! open. Perfetto draws a row for each number, and would draw one for each span.

use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::net::SocketAddr;
use vfield_node::trace::{Did, Place, TraceEvent};

/// A group of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    Reads,
    Fetches,
    Asks(SocketAddr),
    Serves(SocketAddr),
}

/// What a span is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Read(u64),
    Fetch(String, u64),
    Request(u64),
    PeersRequest(u64, u64),
}

/// A span that has not ended.
#[derive(Debug)]
struct Span {
    group: Group,
    lane: u64,
    name: String,
    /// The name of the span within it that has not ended.
    inner: Option<String>,
}

/// Writes a trace.
#[derive(Debug)]
pub struct Chrome<W> {
    out: W,
    lines: u64,
    open: HashMap<Subject, Span>,
    /// The numbers of groups that were named.
    groups: HashMap<Group, u64>,
    lanes: HashMap<Group, Lanes>,
    last_us: u64,
}

/// The lanes of a group.
#[derive(Debug, Default)]
struct Lanes {
    free: BTreeSet<u64>,
    count: u64,
}

impl Lanes {
    fn take(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count
        })
    }
}

impl<W: Write> Chrome<W> {
    /// A trace without events so far.
    pub fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { out, lines: 0, open: HashMap::new(), groups: HashMap::new(), lanes: HashMap::new(), last_us: 0 })
    }

    /// Adds an event.
    pub fn add(&mut self, event: &TraceEvent) -> io::Result<()> {
        let at = event.at_us;
        self.last_us = self.last_us.max(at);
        let of = event.of.as_ref();
        match &event.did {
            Did::ReadBegan { read } => self.open(at, Subject::Read(*read), Group::Reads, of, json!({})),
            Did::ReadEnded { read, how } => self.close(at, &Subject::Read(*read), json!({ "ended": how })),
            Did::Fetch { stage, peer } => {
                let Some(place) = of else { return Ok(()) };
                let subject = Subject::Fetch(place.image.clone(), place.chunk);
                let Some(stage) = stage else { return self.close(at, &subject, json!({})) };
                if !self.open.contains_key(&subject) {
                    self.open(at, subject.clone(), Group::Fetches, of, json!({}))?;
                }
                self.step(at, &subject, stage, peer.map_or(json!({}), |peer| json!({ "peer": peer })))
            }
            Did::Asked { request, peer, priority, slice } => {
                let args = json!({ "peer": peer, "priority": priority, "slice": slice });
                self.open(at, Subject::Request(*request), Group::Asks(*peer), of, args)
            }
            Did::Came { request, bytes, took_us, check_us, peer_waited_ms } => {
                let (subject, checked) = (Subject::Request(*request), at.saturating_sub(*check_us));
                let args = json!({ "bytes": bytes, "peer_waited_ms": peer_waited_ms });
                self.step(checked.saturating_sub(*took_us), &subject, "arrives", args)?;
                self.step(checked, &subject, "is verified", json!({}))?;
                self.end_inner(at, &subject)
            }
            Did::Answered { request, how } => self.close(at, &Subject::Request(*request), json!({ "ended": how })),
            Did::PeerAsks { connection, request, peer, priority } => {
                let args = json!({ "peer": peer, "priority": priority });
                self.open(at, Subject::PeersRequest(*connection, *request), Group::Serves(*peer), of, args)
            }
            Did::Sending { connection, request } => {
                self.step(at, &Subject::PeersRequest(*connection, *request), "is sent", json!({}))
            }
            Did::Sent { connection, request, bytes } => {
                self.close(at, &Subject::PeersRequest(*connection, *request), json!({ "bytes": bytes }))
            }
            Did::Stored => self.moment(at, "stored", of),
            Did::Evicted => self.moment(at, "evicted", of),
        }
    }

    /// Closes all spans, and the trace. `missed` events are not in it.
    pub fn end(mut self, missed: u64) -> io::Result<W> {
        let (at, open) = (self.last_us, self.open.keys().cloned().collect::<Vec<_>>());
        for subject in open {
            self.close(at, &subject, json!({ "ended": "not before the trace did" }))?;
        }
        write!(self.out, "\n],\"otherData\":{{\"program\":\"vfield\",\"missed_events\":{missed}}}}}\n")?;
        Ok(self.out)
    }

    fn open(&mut self, at: u64, subject: Subject, group: Group, of: Option<&Place>, mut args: Value) -> io::Result<()> {
        // A subject that is open already has lost its end.
        self.close(at, &subject, json!({}))?;
        let lane = self.lanes.entry(group).or_default().take();
        let name = of.map_or_else(|| "an image that has gone".to_owned(), name);
        if let (Some(place), Some(args)) = (of, args.as_object_mut()) {
            about(place, args);
        }
        self.put(("b", at), group, lane, &name, args)?;
        self.open.insert(subject, Span { group, lane, name, inner: None });
        Ok(())
    }

    /// Ends the span within the span of a subject, and begins the next one.
    fn step(&mut self, at: u64, subject: &Subject, name: &str, args: Value) -> io::Result<()> {
        self.end_inner(at, subject)?;
        let Some(span) = self.open.get_mut(subject) else { return Ok(()) };
        span.inner = Some(name.to_owned());
        let (group, lane) = (span.group, span.lane);
        self.put(("b", at), group, lane, name, args)
    }

    fn end_inner(&mut self, at: u64, subject: &Subject) -> io::Result<()> {
        let inner = self.open.get_mut(subject).and_then(|span| Some((span.inner.take()?, span.group, span.lane)));
        inner.map_or(Ok(()), |(name, group, lane)| self.put(("e", at), group, lane, &name, json!({})))
    }

    fn close(&mut self, at: u64, subject: &Subject, args: Value) -> io::Result<()> {
        self.end_inner(at, subject)?;
        let Some(Span { group, lane, name, .. }) = self.open.remove(subject) else { return Ok(()) };
        self.lanes.entry(group).or_default().free.insert(lane);
        self.put(("e", at), group, lane, &name, args)
    }

    fn moment(&mut self, at: u64, what: &str, of: Option<&Place>) -> io::Result<()> {
        let Some(place) = of else { return Ok(()) };
        let (pid, mut args) = (self.pid(Group::Fetches)?, Map::new());
        about(place, &mut args);
        let name = format!("{what}: {}", name(place));
        self.line(&json!({ "ph": "i", "s": "p", "ts": at, "pid": pid, "tid": 0, "name": name, "args": args }))
    }

    fn put(&mut self, (ph, at): (&str, u64), group: Group, lane: u64, name: &str, args: Value) -> io::Result<()> {
        let pid = self.pid(group)?;
        let cat = match group {
            Group::Reads => "read",
            Group::Fetches => "fetch",
            Group::Asks(_) => "ask",
            Group::Serves(_) => "serve",
        };
        // Without "local" the number is one of all groups, and Perfetto shows no group.
        let id = json!({ "local": format!("{lane:#x}") });
        self.line(&json!({
            "ph": ph, "ts": at, "pid": pid, "tid": 0, "cat": cat, "id2": id, "name": name, "args": args
        }))
    }

    /// The number of a group, which is named when it is used first.
    fn pid(&mut self, group: Group) -> io::Result<u64> {
        if let Some(pid) = self.groups.get(&group) {
            return Ok(*pid);
        }
        let pid = self.groups.len() as u64 + 1;
        self.groups.insert(group, pid);
        let name = match group {
            Group::Reads => "reads of this machine".to_owned(),
            Group::Fetches => "fetches".to_owned(),
            Group::Asks(peer) => format!("asks {peer}"),
            Group::Serves(peer) => format!("serves {peer}"),
        };
        self.line(&json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }))?;
        Ok(pid)
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(if self.lines == 0 { "\n" } else { ",\n" }.as_bytes())?;
        self.lines += 1;
        Ok(serde_json::to_writer(&mut self.out, value)?)
    }
}

/// A chunk, or a page of hashes, by its number.
fn name(place: &Place) -> String {
    let noun = if place.offset_bytes.is_some() { "chunk" } else { "page" };
    format!("{noun} {}", place.chunk)
}

fn about(place: &Place, args: &mut Map<String, Value>) {
    args.insert("image".to_owned(), json!(place.image));
    args.extend(place.offset_bytes.map(|offset| ("offset_bytes".to_owned(), json!(offset))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: &[TraceEvent], missed: u64) -> Vec<Value> {
        let mut chrome = Chrome::begin(Vec::new()).unwrap();
        events.iter().for_each(|event| chrome.add(event).unwrap());
        let text = chrome.end(missed).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(trace["otherData"]["missed_events"], missed);
        trace["traceEvents"].as_array().unwrap().clone()
    }

    /// `ph`, time, group, name of each span's events.
    fn spans(all: &[Value]) -> Vec<String> {
        let group = |pid: &Value| {
            let is_it = |event: &&Value| event["name"] == "process_name" && event["pid"] == *pid;
            all.iter().find(is_it).map(|event| event["args"]["name"].as_str().unwrap().to_owned()).unwrap()
        };
        let line = |event: &Value| {
            let [ph, name] = ["ph", "name"].map(|key| event[key].as_str().unwrap());
            format!("{ph} {} {}: {name}", event["ts"], group(&event["pid"]))
        };
        all.iter().filter(|event| event["ph"] != "M").map(line).collect()
    }

    fn event(at_us: u64, of: Option<&Place>, did: Did) -> TraceEvent {
        TraceEvent { at_us, of: of.cloned(), did }
    }

    #[test]
    fn a_read_becomes_spans_that_nest() {
        let peer = SocketAddr::from(([198, 18, 0, 1], 4440));
        let place = Place { image: "viver \"x\"\n".to_owned(), chunk: 5, offset_bytes: Some(5 << 16) };
        let of = Some(&place);
        let stage = |stage: Option<&'static str>| Did::Fetch { stage: stage.map(Into::into), peer: None };
        let came = Did::Came { request: 3, bytes: 65536, took_us: 40, check_us: 8, peer_waited_ms: 0 };
        let all = written(
            &[
                event(0, None, Did::Answered { request: 1, how: "arrived".into() }),
                event(10, of, Did::ReadBegan { read: 7 }),
                event(10, of, stage(Some("queued"))),
                event(11, of, stage(Some("requested"))),
                event(12, of, Did::Asked { request: 3, peer, priority: "demand".into(), slice: false }),
                event(100, None, came),
                event(101, None, Did::Answered { request: 3, how: "arrived".into() }),
                event(101, of, stage(None)),
                event(101, of, Did::Stored),
                event(102, None, Did::ReadEnded { read: 7, how: "here".into() }),
            ],
            2,
        );
        assert_eq!(
            spans(&all),
            [
                "b 10 reads of this machine: chunk 5",
                "b 10 fetches: chunk 5",
                "b 10 fetches: queued",
                "e 11 fetches: queued",
                "b 11 fetches: requested",
                "b 12 asks 198.18.0.1:4440: chunk 5",
                "b 52 asks 198.18.0.1:4440: arrives",
                "e 92 asks 198.18.0.1:4440: arrives",
                "b 92 asks 198.18.0.1:4440: is verified",
                "e 100 asks 198.18.0.1:4440: is verified",
                "e 101 asks 198.18.0.1:4440: chunk 5",
                "e 101 fetches: requested",
                "e 101 fetches: chunk 5",
                "i 101 fetches: stored: chunk 5",
                "e 102 reads of this machine: chunk 5",
            ]
        );
        assert!(all.iter().any(|event| event["args"]["image"] == place.image.as_str()));
    }

    #[test]
    fn spans_share_a_lane_one_after_the_other() {
        let place = |chunk| Place { image: "x".to_owned(), chunk, offset_bytes: Some(chunk << 16) };
        let began = |at, chunk| event(at, Some(&place(chunk)), Did::ReadBegan { read: chunk });
        let ended = |at, chunk| event(at, None, Did::ReadEnded { read: chunk, how: "here".into() });
        let all = written(&[began(1, 5), began(2, 6), ended(3, 5), began(4, 7), began(5, 8), ended(6, 6)], 0);
        let lane = |event: &Value| Some(format!("{} {}", event["name"].as_str()?, event["id2"]["local"].as_str()?));
        let lanes: Vec<String> = all.iter().filter(|event| event["ph"] == "b").filter_map(lane).collect();
        assert_eq!(lanes, ["chunk 5 0x1", "chunk 6 0x2", "chunk 7 0x1", "chunk 8 0x3"]);
    }

    #[test]
    fn what_has_no_beginning_is_left_out_and_what_has_no_end_says_so() {
        let peer = SocketAddr::from(([198, 18, 0, 2], 4440));
        let page = Place { image: "x".to_owned(), chunk: 3001, offset_bytes: None };
        let asks = Did::PeerAsks { connection: 1, request: 9, peer, priority: "fill".into() };
        let all = written(
            &[
                event(1, None, Did::Sent { connection: 1, request: 8, bytes: 5 }),
                event(2, Some(&page), asks),
                event(3, None, Did::Sending { connection: 1, request: 9 }),
                event(4, None, Did::ReadEnded { read: 1, how: "here".into() }),
            ],
            0,
        );
        let serves = "serves 198.18.0.2:4440";
        assert_eq!(
            spans(&all),
            [
                format!("b 2 {serves}: page 3001"),
                format!("b 3 {serves}: is sent"),
                format!("e 4 {serves}: is sent"),
                format!("e 4 {serves}: page 3001"),
            ]
        );
        assert_eq!(all.last().unwrap()["args"]["ended"], "not before the trace did");
        // Nothing at all is a trace as well.
        assert_eq!(spans(&written(&[], 0)), [""; 0]);
    }
}
