//! The plan of a run as plain data: from flags, or drawn from a seed.

pub mod chaos;
pub mod fit;
pub mod room;
pub mod storm;
pub mod units;

pub use vfield_weather as weather;
