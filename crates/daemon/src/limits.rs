//! The limits of the node's traffic: the settings, and the rates that follow from the time of day.
//!
//! Owns the settings; the node has the rates in force. `vfield limit` changes the settings, and a
//! task follows the clock. A limit that was set while the daemon ran is gone after its restart.

pub mod local_time;

use crate::values::limit::Limit;
use local_time::minute_of_day;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vfield_console::log::EVENTS;
use vfield_control::limits::{LimitStatus, LimitsStatus};
use vfield_control::message::Reply;
use vfield_node::Node;
use vfield_node::limits::Rates;

/// Interval of looks at the clock, which people and servers of time may set at any moment.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The limits of both directions over a day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// To other nodes.
    pub up: Limit,
    /// From other nodes.
    pub down: Limit,
}

impl Settings {
    /// The rates at this minute of the day.
    pub fn rates_at(&self, minute: u16) -> Rates {
        Rates { up: self.up.rate_at(minute), down: self.down.rate_at(minute) }
    }
}

/// The limits of a daemon.
#[derive(Debug)]
pub struct Limits(Mutex<Settings>);

impl Limits {
    /// Those of its start.
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self(Mutex::new(settings)))
    }

    /// Follows the clock until it is aborted.
    pub async fn keep(self: Arc<Self>, node: Arc<Node>) {
        loop {
            self.apply(&node);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sets the directions that are given; the reply has both settings, or the refusal.
    pub fn set(&self, node: &Node, up: Option<&str>, down: Option<&str>) -> Reply {
        let parse = |option: &str, text: Option<&str>| {
            let refuse =
                |bad: vfield_console::failure::BadValue| Reply::refused(format!("{option}: {}", bad.fact), bad.hint);
            text.map(str::parse::<Limit>).transpose().map_err(refuse)
        };
        let (up, down) = match (parse("--up", up), parse("--down", down)) {
            (Ok(up), Ok(down)) => (up, down),
            (Err(refusal), _) | (_, Err(refusal)) => return refusal,
        };
        let is_change = up.is_some() || down.is_some();
        {
            let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            settings.up = up.unwrap_or_else(|| settings.up.clone());
            settings.down = down.unwrap_or_else(|| settings.down.clone());
        }
        if is_change {
            self.apply(node);
            let Settings { up, down } = self.settings();
            tracing::info!(target: EVENTS, event = "limits", %up, %down, "limits changed");
        }
        Reply::Limits { limits: self.status(node) }
    }

    /// The limits as people see them.
    pub fn status(&self, node: &Node) -> LimitsStatus {
        let (Settings { up, down }, (rates, [held_up, held_down])) = (self.settings(), node.limits());
        let of = |limit: &Limit, rate: Option<std::num::NonZeroU64>, held: Duration| LimitStatus {
            setting: limit.to_string(),
            bytes_per_s: rate.map(std::num::NonZeroU64::get),
            held_s: held.as_secs_f64(),
        };
        LimitsStatus { up: of(&up, rates.up, held_up), down: of(&down, rates.down, held_down) }
    }

    fn apply(&self, node: &Node) {
        let rates = self.settings().rates_at(minute_of_day());
        if node.limits().0 != rates {
            node.limit(rates);
        }
    }

    fn settings(&self) -> Settings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
