//! Firewalls, from the files of the programs that make their rules.
//!
//! These files are the lasting configuration. What somebody admits until the next start of the
//! program is in none of them.

use super::Root;
use crate::facts::{Admitted, Firewall, FirewallProgram};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Where systemd shows that firewalld runs: with one hierarchy of control groups, and with several.
const RUNS: [&str; 2] = [
    "sys/fs/cgroup/system.slice/firewalld.service/cgroup.procs",
    "sys/fs/cgroup/systemd/system.slice/firewalld.service/cgroup.procs",
];
/// An administrator's files come before those of packages.
const FIREWALLD: [&str; 2] = ["etc/firewalld", "usr/lib/firewalld"];
const ALL: RangeInclusive<u16> = 0..=u16::MAX;

pub(super) fn read(root: &Root) -> Vec<Firewall> {
    firewalld(root).into_iter().chain(ufw(root)).collect()
}

/// None if it does not run, or if its configuration cannot be read.
fn firewalld(root: &Root) -> Option<Firewall> {
    RUNS.iter().find_map(|file| root.text(file))?;
    let settings = root.text("etc/firewalld/firewalld.conf")?;
    let usual = settings.lines().find_map(|line| line.strip_prefix("DefaultZone=")).map_or("public", str::trim);
    // Zones that somebody has changed; another program may have put an interface into any of them.
    let changed = root.names("etc/firewalld/zones");
    let zones = changed.iter().filter_map(|name| name.strip_suffix(".xml")).chain([usual]).collect::<BTreeSet<_>>();
    let (mut admitted, mut services) = (Vec::new(), Vec::new());
    for zone in zones {
        admit(root, "zones", zone, &mut admitted, &mut services);
    }
    let mut known = BTreeSet::new();
    while let Some(service) = services.pop() {
        if known.insert(service.clone()) {
            admit(root, "services", &service, &mut admitted, &mut services);
        }
    }
    let has_service = described(root, "services", "vfield").is_some();
    Some(Firewall { by: FirewallProgram::Firewalld { has_service }, admitted })
}

/// The description of a zone or a service.
fn described(root: &Root, folder: &str, name: &str) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    FIREWALLD.iter().find_map(|place| root.text(&format!("{place}/{folder}/{name}.xml")))
}

/// Adds what a zone or a service admits, and the services that it names.
fn admit(root: &Root, folder: &str, name: &str, admitted: &mut Vec<Admitted>, services: &mut Vec<String>) {
    let Some(text) = described(root, folder, name) else { return };
    let Ok(document) = roxmltree::Document::parse(&text) else { return };
    if document.root_element().attribute("target") == Some("ACCEPT") {
        admitted.push(Admitted { tcp: true, udp: true, ports: ALL });
    }
    for element in document.descendants() {
        // A rule may also reject, or only log.
        let rule = element.parent_element().filter(|parent| parent.has_tag_name("rule"));
        if rule.is_some_and(|rule| !rule.children().any(|part| part.has_tag_name("accept"))) {
            continue;
        }
        let is = |attribute: &str, value: &str| element.attribute(attribute) == Some(value);
        match element.tag_name().name() {
            "port" => {
                if let Some(ports) = element.attribute("port").and_then(|ports| range(ports, '-')) {
                    admitted.push(Admitted { tcp: is("protocol", "tcp"), udp: is("protocol", "udp"), ports });
                }
            }
            "protocol" => admitted.push(Admitted { tcp: is("value", "tcp"), udp: is("value", "udp"), ports: ALL }),
            "service" => services.extend(element.attribute("name").map(str::to_owned)),
            "include" => services.extend(element.attribute("service").map(str::to_owned)),
            _ => {}
        }
    }
}

/// `4440`, or `4000-5000` with another sign between the two.
fn range(text: &str, between: char) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once(between).unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// None if it is off, if it admits what nobody refuses, or if its rules cannot be read.
fn ufw(root: &Root) -> Option<Firewall> {
    let is_set = |text: &str, line: &str| text.lines().any(|other| other.trim() == line);
    let is_on = is_set(&root.text("etc/ufw/ufw.conf")?, "ENABLED=yes");
    let admits = is_set(&root.text("etc/default/ufw")?, "DEFAULT_INPUT_POLICY=\"ACCEPT\"");
    if !is_on || admits {
        return None;
    }
    let rules = root.text("etc/ufw/user.rules")?;
    let tuples = rules.lines().filter_map(|line| line.strip_prefix("### tuple ### "));
    Some(Firewall { by: FirewallProgram::Ufw, admitted: tuples.flat_map(tuple).collect() })
}

/// What a rule admits: `allow tcp 22,80 0.0.0.0/0 any 0.0.0.0/0 in`, where only the last word may
/// have names of programs before it, or the name of an interface behind it.
fn tuple(line: &str) -> Vec<Admitted> {
    let mut words = line.split_whitespace().take_while(|word| !word.starts_with("comment="));
    let (Some(action), Some(protocol), Some(ports), Some(direction)) =
        (words.next(), words.next(), words.next(), words.last())
    else {
        return Vec::new();
    };
    if !(action.starts_with("allow") || action.starts_with("limit")) || !direction.starts_with("in") {
        return Vec::new();
    }
    let (tcp, udp) = (matches!(protocol, "tcp" | "any"), matches!(protocol, "udp" | "any"));
    let ranges = ports.split(',').filter_map(|ports| if ports == "any" { Some(ALL) } else { range(ports, ':') });
    ranges.map(|ports| Admitted { tcp, udp, ports }).collect()
}
