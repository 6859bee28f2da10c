//! What benches and the report share: how each row of the table of goals is measured.
//!
//! `store` drives a core's storage in this process. Everything else drives a whole node: this program started anew as
//! `wasmkeep serve` (`node`), so that it can be killed, and its memory and its threads can be told from those of the client.

pub mod actors;
pub mod known;
pub mod machine;
pub mod neighbour;
pub mod node;
pub mod restart;
pub mod store;

/// The allocator of the `wasmkeep` binary: a node in a bench must not have another one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a future on an executor like a core's.
pub fn on_core<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Whether the bench is only to show that it runs: `cargo bench -- --test`.
#[must_use]
pub fn is_smoke() -> bool {
    std::env::args().any(|arg| arg == "--test")
}
