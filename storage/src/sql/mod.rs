//! SQLite over captured pages: what each commit changed goes to a journal, what is committed is kept as pages.
//!
//! `vfs` captures, `delta` encodes, `pages` keeps what is committed, `connection` is what callers use, `session` what
//! the node itself uses; `coroutine` lets long
//! statements be suspended, `budget` and `memory` bound them, `guard` says what guests may do.
//!
//! What it is not: it writes no file and knows nothing of durability beyond the positions it is told.

mod budget;
mod connection;
mod coroutine;
mod delta;
mod guard;
mod memory;
mod pages;
mod session;
mod statement;
#[cfg(test)]
mod tests;
mod vfs;

pub use budget::EventBudget;
pub use connection::{Connection, ConnectionOptions};
pub use delta::{DeltaError, Page};
pub use pages::{CheckpointSet, Commit, CommitSink, Pages, ReplayError};
pub use session::{Param, Row, Session};
