//! How the programs of V-FIELD speak with people.
//!
//! Owns stdout and stderr: failures with their hints, log lines, progress bars, columns.
//! Also parses the sizes, durations and addresses that people type.
//! Knows neither nodes nor exports.

pub mod bar;
pub mod failure;
pub mod log;
pub mod output;
pub mod text;
pub mod values;
pub mod volume;
