//! The dashboard over a room that is made up: its metrics, its paths, and its page in a browser.

mod browser;
mod metrics;
mod room;
mod site;
