//! Checks of firewalls.

use crate::facts::{Admitted, Facts, Field, Firewall, FirewallProgram};
use crate::finding::{Finding, Weight};
use vfield_node::config::DEFAULT_PORT;

pub(super) fn closed(facts: &Facts) -> Vec<Finding> {
    let addr = facts.field.as_ref().and_then(|field| field.addr);
    if addr.is_some_and(|addr| addr.ip().is_loopback()) {
        return Vec::new();
    }
    let port = addr.map_or(DEFAULT_PORT, |addr| addr.port());
    let is_found = facts.field.as_ref().is_some_and(is_found);
    facts.firewalls.iter().filter_map(|firewall| closed_by(firewall, port, is_found)).collect()
}

/// True if others can connect to the node now, whatever the files of a firewall say.
fn is_found(field: &Field) -> bool {
    field.members.iter().any(|(_, state, _)| state == "alive")
        && !field.warnings.iter().any(|warning| warning.contains("cannot connect to you"))
}

fn closed_by(firewall: &Firewall, port: u16, is_found: bool) -> Option<Finding> {
    let admits = |of: fn(&Admitted) -> bool| {
        firewall.admitted.iter().any(|admitted| of(admitted) && admitted.ports.contains(&port))
    };
    let (tcp, udp) = (admits(|admitted| admitted.tcp), admits(|admitted| admitted.udp));
    let shut = match (tcp, udp) {
        (true, true) => return None,
        (false, true) => format!("TCP {port}"),
        (true, false) => format!("UDP {port}"),
        (false, false) => format!("TCP {port} and UDP {port}"),
    };
    let (weight, costs) = match (is_found, tcp) {
        (true, _) => (Weight::Note, "others connect to this node now: somebody admitted it until the next start"),
        (false, false) => (Weight::Bad, "no other node can read what a node here holds: its store counts for nothing"),
        (false, true) => (Weight::Slow, "gossip takes connections instead of datagrams"),
    };
    let (fact, command, undo) = match firewall.by {
        FirewallProgram::Firewalld { has_service } => {
            let what = |does: &str| match has_service && port == DEFAULT_PORT {
                true => format!("--{does}-service=vfield"),
                false => format!("--{does}-port={port}/tcp --{does}-port={port}/udp"),
            };
            let line = |does: &str| format!("firewall-cmd --permanent {} && firewall-cmd --reload", what(does));
            (format!("firewalld runs, and none of its zones admits {shut}"), line("add"), line("remove"))
        }
        FirewallProgram::Ufw => {
            let fact = format!("ufw is on, and none of its rules admits {shut}");
            (fact, format!("ufw allow {port}"), format!("ufw delete allow {port}"))
        }
    };
    Some(Finding::new("firewall", weight, fact, costs.to_owned()).typed(command, undo))
}
