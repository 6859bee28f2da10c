//! Durable actor state for one core: SQLite over a VFS that captures what each commit changed, a per-core journal that makes
//! groups of commits durable, an overlay that is checkpointed into plain SQLite base files, and recovery.
//!
//! What it is not: it knows no wasm, no HTTP, no sockets. It decides what is durable and what was lost; who has to wait for
//! that, or break because of it, is decided by the caller.

pub mod clock;
pub mod disk;
mod error;
pub mod journal;
pub mod limits;
pub mod sql;
pub mod store;
mod types;

pub use disk::unbind_thread;
pub use error::{Refused, SqlError, StorageError};
pub use types::{Address, Lsn, Positions, Rows, Value};

/// Gives what the system's allocator keeps of freed memory back to the system: SQLite's memory comes from there. May take long.
pub fn give_memory_back() {
    // SAFETY: malloc_trim has no preconditions and is safe on any thread.
    unsafe { libc::malloc_trim(0) };
}
