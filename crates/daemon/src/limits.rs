//! The limits of the node's traffic and of single images: the settings, and the rates that follow
//! from the time of day.
//!
//! Owns the settings; the node has the rates in force. `vfield limit` changes the settings, and a
//! task follows the clock. Changes are standing orders: they outlive the process, not the guard.

pub mod local_time;

use crate::standing_orders::StandingOrders;
use crate::values::limit::Limit;
use local_time::minute_of_day;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vfield_console::log::EVENTS;
use vfield_control::limits::{ImageLimits, LimitStatus, LimitsStatus};
use vfield_control::message::Reply;
use vfield_node::Node;
use vfield_node::limits::Rates;
use vfield_node::node::NodeImage;

/// Interval of looks at the clock, which people and servers of time may set at any moment.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The limits of both directions over a day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Both {
    /// To other nodes.
    pub up: Limit,
    /// From other nodes.
    pub down: Limit,
}

impl Both {
    /// The rates at this minute of the day.
    fn rates_at(&self, minute: u16) -> Rates {
        Rates { up: self.up.rate_at(minute), down: self.down.rate_at(minute) }
    }

    /// Those in force, and for how long each held bytes back.
    fn status(&self, rates: Rates, held: [Duration; 2]) -> [LimitStatus; 2] {
        let of = |limit: &Limit, rate: Option<NonZeroU64>, held: Duration| LimitStatus {
            setting: limit.to_string(),
            bytes_per_s: rate.map(NonZeroU64::get),
            held_s: held.as_secs_f64(),
        };
        [of(&self.up, rates.up, held[0]), of(&self.down, rates.down, held[1])]
    }
}

/// The limits of a node, and of single images within them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Of all images together.
    pub node: Both,
    /// By any of an image's names. An image need not be here.
    pub images: Vec<(String, Both)>,
}

impl Settings {
    /// The rates at this minute of the day: those of the node, and those of images by name.
    pub fn rates_at(&self, minute: u16) -> (Rates, Vec<(String, Rates)>) {
        let images = self.images.iter().map(|(name, limits)| (name.clone(), limits.rates_at(minute)));
        (self.node.rates_at(minute), images.collect())
    }

    /// The limits of an image with this name, none at first.
    pub fn of_image(&mut self, name: &str) -> &mut Both {
        let at = self.images.iter().position(|(of, _)| of == name).unwrap_or_else(|| {
            self.images.push((name.to_owned(), Both::default()));
            self.images.len() - 1
        });
        &mut self.images[at].1
    }
}

/// The limits of a daemon.
#[derive(Debug)]
pub struct Limits {
    state: Mutex<State>,
    orders: Arc<StandingOrders>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    /// The rates that the node has.
    applied: Option<(Rates, Vec<(String, Rates)>)>,
}

impl Limits {
    /// Those of its start.
    pub fn new(settings: Settings, orders: Arc<StandingOrders>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { settings, applied: None }), orders })
    }

    /// Follows the clock until it is aborted.
    pub async fn keep(self: Arc<Self>, node: Arc<Node>) {
        loop {
            self.apply(&node);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sets the directions that are given, up and down, of an image or of the node; the reply has
    /// all settings, or the refusal.
    pub fn set(&self, node: &Node, image: Option<&NodeImage>, given: [Option<&str>; 2]) -> Reply {
        let parse = |option: &str, text: Option<&str>| {
            let refuse =
                |bad: vfield_console::failure::BadValue| Reply::refused(format!("{option}: {}", bad.fact), bad.hint);
            text.map(str::parse::<Limit>).transpose().map_err(refuse)
        };
        let (up, down) = match (parse("--up", given[0]), parse("--down", given[1])) {
            (Ok(up), Ok(down)) => (up, down),
            (Err(refusal), _) | (_, Err(refusal)) => return refusal,
        };
        if up.is_some() || down.is_some() {
            let name = image.map(|image| self.name_of(image));
            self.orders.limited(name.as_deref(), given.map(|given| given.map(str::to_owned)));
            let Both { up, down } = self.change(name.as_deref(), up, down);
            self.apply(node);
            let image = name.unwrap_or_default();
            tracing::info!(target: EVENTS, event = "limits", %image, %up, %down, "limits changed");
        }
        Reply::Limits { limits: self.status(node) }
    }

    /// The name of an image that has limits, or else its first one.
    fn name_of(&self, image: &NodeImage) -> String {
        let (names, state) = (image.source.names(), self.state());
        let known = names.iter().find(|name| state.settings.images.iter().any(|(of, _)| of == **name));
        known.or(names.first()).map(|name| (*name).to_owned()).unwrap_or_default()
    }

    fn change(&self, image: Option<&str>, up: Option<Limit>, down: Option<Limit>) -> Both {
        let settings = &mut self.state().settings;
        let both = match image {
            Some(name) => settings.of_image(name),
            None => &mut settings.node,
        };
        both.up = up.unwrap_or_else(|| both.up.clone());
        both.down = down.unwrap_or_else(|| both.down.clone());
        both.clone()
    }

    /// The limits as people see them.
    pub fn status(&self, node: &Node) -> LimitsStatus {
        let (settings, (rates, held)) = (self.state().settings.clone(), node.limits());
        let [up, down] = settings.node.status(rates, held);
        let here = node.images();
        let images = settings.images.iter().map(|(name, both)| {
            let image = here.iter().find(|image| image.source.names().contains(&name.as_str()));
            let in_force = image.and_then(|image| node.image_limits(image.id));
            let (rates, held) = in_force.unwrap_or_default();
            let [up, down] = both.status(rates, held);
            ImageLimits { image: name.clone(), is_here: image.is_some(), up, down }
        });
        LimitsStatus { up, down, images: images.collect() }
    }

    /// Gives the node the rates of this moment, if it has others.
    fn apply(&self, node: &Node) {
        let mut state = self.state();
        let rates = state.settings.rates_at(minute_of_day());
        if state.applied.as_ref() != Some(&rates) {
            node.limit(rates.0);
            node.limit_images(rates.1.clone());
            state.applied = Some(rates);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
