//! The ground of a daemon: the place of its control socket, the estate of earlier daemons, and its
//! events.
//!
//! A daemon that starts takes it first of all. A successor takes it last, when the daemon before it
//! has ended: until then all of it belongs to that daemon.

use crate::dashboard::now_ms;
use crate::estate::{CONTROL, EVENTS, Estate};
use crate::events::Events;
use crate::handover;
use crate::handover::state::State;
use crate::keeper::custody::Line;
use crate::keeper::word::Word;
use crate::limits::local_time::minute_of_day;
use crate::plan::Plan;
use crate::report::Reporter;
use crate::standing_orders::StandingOrders;
use crate::start_error;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use vfield_console::failure::Failure;
use vfield_control::place::Place;
use vfield_node::Node;
use vfield_node::config::ServeConfig;
use vfield_node::keeper::Keeper as _;
use vfield_node::node::Publication;

/// The ground of a daemon.
pub struct Ground {
    /// Where its control socket is.
    pub place: Place,
    /// The control socket, which listens.
    pub listener: UnixListener,
    /// The files of earlier daemons.
    pub estate: Arc<Estate>,
    /// Its events, and those of earlier daemons.
    pub events: Arc<Events>,
    /// What people ordered since the settings were made.
    pub orders: Arc<StandingOrders>,
    /// The state of the daemon before it, if that has handed over.
    pub state: Option<State>,
}

impl Ground {
    /// Takes it, and completes the plan with it. Blocks until the keeper has given all.
    pub fn take(plan: &mut Plan) -> Result<Self, Failure> {
        let estate = Estate::take(plan.node.keeper.take());
        let (place, listener) = match estate.pick(CONTROL) {
            Some(socket) => Place::adopt(plan.control.as_deref(), socket)?,
            None => Place::take(plan.control.as_deref())?,
        };
        if let Some(wanted) = &plan.control {
            estate.stays("the control socket", place.path().display(), wanted.display(), place.path() == wanted);
        }
        estate.keep_with_guard(CONTROL, listener.as_fd());
        plan.node.keeper = estate.of_node();
        plan.node.sockets = estate.node_sockets(plan.finds_address);
        if let Some(addr) = plan.node.sockets.as_ref().and_then(|sockets| sockets.addr().ok()) {
            let wanted = plan.node.listen;
            let any_port = plan.node.any_port || wanted.port() == 0;
            let is_there = addr.ip() == wanted.ip() && (any_port || addr.port() == wanted.port());
            estate.stays("the node", addr, wanted, is_there);
        }
        let events = Arc::new(Events::take(estate.pick(EVENTS)));
        // A file that could not be read is not kept beside the new one.
        estate.forget(EVENTS);
        if let Some(file) = events.file() {
            estate.keep(EVENTS, file);
        }
        let orders = StandingOrders::take(&estate, plan);
        let started = format!("vfield {} started", env!("CARGO_PKG_VERSION"));
        events.add(now_ms(), "started", &started);
        let state = handover::state(&estate);
        let members = state.iter().flat_map(|state| &state.members).filter_map(|addr| addr.parse().ok());
        for addr in members {
            if !plan.node.bootstrap.contains(&addr) {
                plan.node.bootstrap.push(addr);
            }
        }
        Ok(Self { place, listener, estate, events, orders, state })
    }

    /// Prepares all that is slow, and takes the ground when the daemon that stands on it has handed
    /// over.
    pub async fn succeed(mut plan: Plan, reporter: &Reporter) -> Result<(Plan, Self, Publication), Failure> {
        let events = reporter.sink(|_| {});
        let publication = Node::publish(&plan.node, &events).await.map_err(start_error::explain)?;
        let mut names: Vec<String> = plan.node.serve.iter().map(ServeConfig::image_name).collect();
        Line.say(&Word::Ready, None);
        let taken = tokio::task::spawn_blocking(move || Self::take(&mut plan).map(|ground| (plan, ground))).await;
        let (mut plan, ground) = taken.map_err(|error| Failure::failed(format!("taking over: {error}")))??;
        // With the limits that were ordered.
        (plan.node.limits, plan.node.image_limits) = plan.limits.rates_at(minute_of_day());
        let is_served = |name: &String| plan.node.serve.iter().any(|file| file.image_name() == *name);
        names.retain(|name| !is_served(name));
        let publication = publication.without(|name| names.iter().any(|dropped| dropped == name));
        Ok((plan, ground, publication))
    }
}
