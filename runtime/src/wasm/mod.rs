//! The wasm host: compiles components, keeps one instance per resident actor, and lends it the imports of `wasmkeep:actor`.
//!
//! What it is not: it does not decide which actor runs when, how long an event may take in wall time, or what an output has to
//! wait for. It runs one event of one instance when told to, bounds its CPU time and memory, and says how it ended.
//!
//! Invariants: one instance belongs to one actor and one thread; events of an instance do not overlap (`&mut self`); an
//! instance whose event failed or was dropped half-way is never entered again.

mod cache;
mod component;
mod engine;
mod guest_log;
mod hooks;
mod host;
mod http;
mod instance;
pub mod limits;
mod meter;
mod response;
mod sql;
mod state;
mod stdio;
#[cfg(test)]
mod tests;
mod types;

pub use component::{ComponentError, ComponentProblem, Program, World};
pub use engine::{Engine, EngineError, EngineOptions};
pub use hooks::{Call, CallAnswer, CallError, GetAlarm, Hooks, SetAlarm};
pub use instance::{ActorHost, Failure, Instance};
