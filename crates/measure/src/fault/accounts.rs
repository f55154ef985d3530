//! Accounts: what all nodes say while a reader waits for too long, for whoever looks for the cause.
//! Once its connection has given up there is nothing left to be seen.

use super::field::Field;
use std::fmt::Write as _;
use vfield_lab::process::run;

/// Most characters of what a node says at once: a few screens.
const MOST: usize = 8000;

/// The status of each node, its account of the latest slow reads, and the end of its log.
pub(super) fn of_daemons(field: &mut Field<'_>) -> String {
    let mut accounts = String::new();
    for (host, daemon) in field.daemons().iter().enumerate() {
        let _ = writeln!(accounts, "host {host}");
        for verb in [&["status", "--json"][..], &["explain", "--json"]] {
            let said = run(&mut daemon.ask_to(verb)).unwrap_or_else(|error| error.to_string());
            let _ = writeln!(accounts, "  {}: {}", verb[0], said.chars().take(MOST).collect::<String>());
        }
        let _ = writeln!(accounts, "  {}", daemon.process().log_tail());
    }
    accounts
}
