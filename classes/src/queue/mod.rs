//! A queue: messages that are leased, settled and, if nobody manages to handle them, dead-lettered; pushed to a consumer or pulled.
//!
//! What it is not: it sends nothing and wakes nobody. Its host asks it for the alarm it wants and carries a [`Delivery`] to its
//! consumer.
//!
//! Promises: a message that a send acknowledged is delivered at least once, or dead-lettered once. Oldest first by the time at
//! which a message becomes visible, then by id; with an ordering key strictly in the order sent, one at a time. A lease counts as
//! an attempt however it ends.

pub mod client;
mod codec;
mod dead;
mod delivery;
mod handled;
mod lease;
mod machine;
pub mod protocol;
mod send;
mod settle;
mod sql;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::limits::{
    QUEUE_ATTEMPTS_MAX, QUEUE_CONCURRENCY_MAX, QUEUE_DEDUPE_WINDOW_MS_MAX, QUEUE_LEASE_MAX, QUEUE_VISIBILITY_MS_MAX,
};

pub use codec::{decode_delivery, encode_outcomes};
pub use delivery::{Alarmed, Delivery};
pub use handled::Handled;
pub use machine::Machine;
pub use state::{Gauges, State};

/// How a queue behaves. It may change between two `Machine::open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `class/name` of the actor that messages are pushed to; `None`: they are pulled.
    pub consumer: Option<String>,
    /// Messages in one delivery, 1..=1,000.
    pub batch: u32,
    /// How long a delivered message is hidden, ms, 1..=12 h.
    pub visibility_ms: u64,
    /// Leases a message may have before it is dead-lettered, 1..=100,000.
    pub max_attempts: u32,
    /// How long a dedupe id is remembered, ms, up to a week; 0: dedupe ids are refused.
    pub dedupe_window_ms: u64,
    /// Whether an ordering key may be given on send.
    pub ordering: bool,
    /// Deliveries that may be out at once, 1..=64. A host that runs one event at a time must refuse all but 1.
    pub concurrency: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            consumer: None,
            batch: 10,
            visibility_ms: 30_000,
            max_attempts: 5,
            dedupe_window_ms: 5 * 60 * 1_000,
            ordering: false,
            concurrency: 1,
        }
    }
}

/// What is wrong with a configuration, in words that name the setting and its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadConfig(String);

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadConfig {}

impl Config {
    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that is not.
    pub fn check(&self) -> Result<(), BadConfig> {
        let within = |name: &str, value: u64, min: u64, max: u64| {
            let right = (min..=max).contains(&value);
            if right { Ok(()) } else { Err(BadConfig(format!("{name} = {value}: must be from {min} to {max}"))) }
        };
        within("batch", self.batch.into(), 1, QUEUE_LEASE_MAX.into())?;
        within("visibility in ms", self.visibility_ms, 1, QUEUE_VISIBILITY_MS_MAX)?;
        within("max-attempts", self.max_attempts.into(), 1, QUEUE_ATTEMPTS_MAX.into())?;
        within("dedupe-window in ms", self.dedupe_window_ms, 0, QUEUE_DEDUPE_WINDOW_MS_MAX)?;
        within("concurrency", self.concurrency.into(), 1, QUEUE_CONCURRENCY_MAX.into())
    }
}
