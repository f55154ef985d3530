//! One node, whose inputs a test makes and whose outputs it looks at.

mod boasting;
mod bounds;
mod budget;
mod choosing;
mod claims;
#[path = "../support/company.rs"]
mod company;
mod dropping;
mod entrusted;
mod explain;
mod fairness;
mod filling;
mod found;
mod gateways;
mod hedges;
mod hostile;
mod joining;
mod measuring;
#[path = "../support/one_origin.rs"]
mod one_origin;
mod parking;
mod repair;
mod rounds;
#[path = "../support/signed.rs"]
mod signed;
mod slices;
mod speeds;
