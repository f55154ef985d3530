//! Membership by itself: members that speak with one another over a modelled network, and liars
//! among them.

mod addresses;
mod gossip;
mod hearsay;
mod rivals;
#[path = "../support/room.rs"]
mod room;
#[path = "../support/signed.rs"]
mod signed;
mod speaking;
mod ways;
