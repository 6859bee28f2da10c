//! What is promised of key-value and queues, held against both hosts of their state machines: the node itself, and a component made
//! with the SDK. Each promise is a function that knows nothing of the host; it runs for both, on one, two and eight cores.
//!
//! `docs/conformance.md` says which of these tests proves what.

#[path = "../common/mod.rs"]
mod common;

#[macro_use]
mod bed;
mod ending;
mod life;
mod poison;
mod pulling;
mod pushing;
mod queue;
mod sending;
mod shards;
