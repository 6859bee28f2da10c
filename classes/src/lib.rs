//! Key-value shards and queues as plain state machines over a SQLite handle and a clock: one logic, compiled into the node and
//! into guests.
//!
//! What it is not: it runs no transaction, reads no clock, sends nothing and knows neither node nor guest. A **host** does that: it
//! begins a transaction, hands in requests with the time, commits or rolls back, and only then lets the answers
//! leave. Whatever a state machine keeps in memory is `Copy` or rebuilt from the tables, so that a host can take it back together
//! with what was written.

mod clock;
pub mod database;
pub mod host;
pub mod kv;
pub mod limits;
pub mod queue;
pub mod wire;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod testing;
