//! The WasmKeep node: a thread-per-core process that runs WebAssembly actors, each with its own SQLite database.

pub mod admin;
pub mod cli;
pub mod config;
pub mod core;
pub mod data_dir;
pub mod door;
pub mod event;
pub mod fatal;
pub mod http;
pub mod limits;
pub mod logging;
mod memory;
pub mod metrics;
mod moves;
pub mod node;
pub mod router;
pub mod signals;
mod vitals;
pub mod wasm;
