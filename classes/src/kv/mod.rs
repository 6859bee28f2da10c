//! A key-value shard: keys, values, versions that are never given twice, times to live.
//!
//! What it is not: it knows no other shard and no client's cache. Clients spread keys over shards by [`shard_of`] and merge their
//! listings with [`merge`].
//!
//! Promises: a new version of a key is larger than any it had, after a delete, a crash and a lost local write as well, so that a
//! compare-and-set that holds an old one always loses. A durable write's answer, a refusal too, leaves only when what it is about
//! is durable. A row past its time to live is absent for everything. A put without a time to live clears it, with any expectation;
//! an increment keeps it.

pub mod cache;
pub mod client;
mod codec;
mod layout;
mod machine;
pub mod merge;
mod moving;
mod operations;
pub mod protocol;
mod reading;
pub mod relay;
mod sql;
mod sweep;
mod transfer;
mod writing;

#[cfg(test)]
mod tests;

use crate::limits::{KV_OPERATION_WINDOW_MS, KV_OPERATION_WINDOW_MS_MAX};

pub use layout::{Layout, Phase, Shards, shard_index, shard_name, shard_of};
pub use machine::{Machine, State};
pub use sweep::Swept;

/// How a shard behaves. It may change between two `Machine::open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long the outcome of a write with an operation id is remembered, ms, 1 ms to a week.
    pub operation_window_ms: u64,
    /// The number of shards of the class, 1..=4,096, if the host knows: requests for another number are refused from the first
    /// on. Otherwise it is the one of the first write.
    pub shards: Option<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Self { operation_window_ms: KV_OPERATION_WINDOW_MS, shards: None }
    }
}

impl Config {
    /// Whether it is in range.
    ///
    /// # Errors
    /// What is not, in words.
    pub fn check(&self) -> Result<(), String> {
        let window = self.operation_window_ms;
        if !(1..=KV_OPERATION_WINDOW_MS_MAX).contains(&window) {
            return Err(format!("operation window of {window} ms: must be from 1 to {KV_OPERATION_WINDOW_MS_MAX}"));
        }
        self.shards.map_or(Ok(()), |shards| Shards::new(shards).map(drop).map_err(|bad| bad.to_string()))
    }
}
