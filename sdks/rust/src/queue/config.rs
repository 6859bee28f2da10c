//! How a queue class behaves.

use crate::hosted::millis;
use std::time::Duration;
use wasmkeep_classes::queue;

/// How long a delivery may take unless the configuration says otherwise: within an event's usual time, with some left for
/// settling.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// How a queue behaves. It may change from one version of the component to the next; the messages stay.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) machine: queue::Config,
    pub(super) allow: Vec<String>,
    pub(super) delivery_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// Messages are pulled; leases last 30 s if pushed; five attempts; dedupe ids are remembered for 5 min; no ordering keys.
    pub fn new() -> Self {
        Self { machine: queue::Config::default(), allow: Vec::new(), delivery_timeout: DELIVERY_TIMEOUT }
    }

    /// Pushes messages to the actor `class/name`.
    #[must_use]
    pub fn consumer(mut self, address: impl Into<String>) -> Self {
        self.machine.consumer = Some(address.into());
        self
    }

    /// Messages in one delivery, 1 to 1,000; 10 unless said.
    #[must_use]
    pub fn batch(mut self, messages: u32) -> Self {
        self.machine.batch = messages;
        self
    }

    /// How long a delivered message is hidden, 1 ms to 12 h; 30 s unless said.
    #[must_use]
    pub fn visibility(mut self, time: Duration) -> Self {
        self.machine.visibility_ms = millis(time);
        self
    }

    /// How long to wait for the consumer's answer; 20 s unless said. It should be shorter than the time of an event
    /// (`--event-wall`): what is left of it is for settling.
    #[must_use]
    pub fn delivery_timeout(mut self, time: Duration) -> Self {
        self.delivery_timeout = time;
        self
    }

    /// Deliveries or leases that a message may have before it becomes a dead letter, 1 to 100,000; 5 unless said.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.machine.max_attempts = attempts;
        self
    }

    /// How long a dedupe id is remembered, up to a week; 5 min unless said, and zero refuses dedupe ids.
    #[must_use]
    pub fn dedupe_window(mut self, time: Duration) -> Self {
        self.machine.dedupe_window_ms = millis(time);
        self
    }

    /// Whether an ordering key may be given on send.
    #[must_use]
    pub fn ordering(mut self, is_allowed: bool) -> Self {
        self.machine.ordering = is_allowed;
        self
    }

    /// Deliveries out at once. A queue that is a component handles one event at a time and refuses any number but 1; this is
    /// here so that a configuration moved from a native queue fails with words.
    #[must_use]
    pub fn concurrency(mut self, deliveries: u32) -> Self {
        self.machine.concurrency = deliveries;
        self
    }

    /// Adds a caller that may use the queue, a `class` or a `class/name`. Without any, every actor of the application may.
    #[must_use]
    pub fn allow(mut self, caller: impl Into<String>) -> Self {
        self.allow.push(caller.into());
        self
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.machine.concurrency != 1 {
            let given = self.machine.concurrency;
            return Err(format!("concurrency = {given}: a queue class in a component handles one event at a time; only 1 works"));
        }
        self.machine.check().map_err(|bad| bad.to_string())
    }
}
