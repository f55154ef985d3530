//! How the programs of V-FIELD speak with people.
//!
//! Owns stdout and stderr: failures with their hints, log lines, progress bars, columns.
//! Files that commands make appear whole.
//! Also parses the sizes, durations and addresses that people type.
//! Knows neither nodes nor exports.

pub mod bar;
pub mod failure;
pub mod log;
pub mod new_file;
pub mod output;
pub mod stderr;
pub mod text;
pub mod values;
pub mod volume;
