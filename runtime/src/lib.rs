//! The WasmKeep node: a thread-per-core process that runs WebAssembly actors, each with its own SQLite database.

pub mod event;
pub mod wasm;
