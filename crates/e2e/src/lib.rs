//! What the end-to-end tests share: the program under test, a field of real processes, peers that
//! lie and that bully, local users in the place of a daemon, file systems on images, readers that
//! never stop.
//!
//! The tests are in `tests/e2e`; each makes a field of its own, and each wait in them is bounded.

pub mod bully;
pub mod field;
pub mod herald;
pub mod impostor;
pub mod liar;
pub mod program;
pub mod tree;
pub mod watch;

/// How a test fails: at once, where it happened, so that daemons print their logs while the panic
/// unwinds.
///
/// `?` on any error panics; no value of this type exists.
#[derive(Debug)]
pub enum Failed {}

/// What a test returns.
pub type Outcome = Result<(), Failed>;

impl<E: std::error::Error> From<E> for Failed {
    #[track_caller]
    fn from(error: E) -> Self {
        panic!("{error}")
    }
}
