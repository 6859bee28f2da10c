//! Native classes: actors that the node serves itself, without a component.

use std::sync::Arc;

use wasmkeep_classes::{kv, queue};

/// What stands for a class in the addresses of callers that come through the service door.
pub(crate) const CALLERS: &str = "_api";

/// What stands for it in the address of the operator, who may do everything anyway.
pub(crate) const OPERATOR: &str = "_operator";

/// One native class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NativeConfig {
    /// `[a-z][a-z0-9-]{0,62}`
    pub name: Arc<str>,
    /// Who may call it, each a class or `class/name`; `_api` or `_api/name` are programs at the service door. Empty: any actor of
    /// the app, and any such program.
    pub allow: Vec<String>,
    /// What it is.
    pub kind: NativeKind,
}

/// What a native class is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NativeKind {
    /// Each of its actors is a queue.
    Queue(queue::Config),
    /// Its actors are the shards of one key-value store; their number is given.
    Kv(kv::Config),
}

impl NativeConfig {
    /// A queue class that any actor may call.
    #[must_use]
    pub fn queue(name: &str, config: queue::Config) -> Self {
        Self { name: name.into(), allow: Vec::new(), kind: NativeKind::Queue(config) }
    }

    /// A key-value class of so many shards that any actor may call.
    #[must_use]
    pub fn kv(name: &str, shards: u32) -> Self {
        let config = kv::Config { shards: Some(shards), ..kv::Config::default() };
        Self { name: name.into(), allow: Vec::new(), kind: NativeKind::Kv(config) }
    }

    /// The number of shards of a key-value class.
    #[must_use]
    pub const fn shards(&self) -> Option<u32> {
        match self.kind {
            NativeKind::Kv(config) => config.shards,
            NativeKind::Queue(_) => None,
        }
    }

    /// Whether an actor may call it.
    #[must_use]
    pub fn allows(&self, class: &str, name: &str) -> bool {
        let is_one = |allowed: &String| match allowed.split_once('/') {
            Some(address) => address == (class, name),
            None => allowed == class,
        };
        self.allow.is_empty() || class == OPERATOR || self.allow.iter().any(is_one)
    }

    /// The addresses and classes it names, with the key that names them.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let consumer = match &self.kind {
            NativeKind::Queue(queue) => queue.consumer.as_deref().map(|consumer| ("consumer", consumer)),
            NativeKind::Kv(_) => None,
        };
        consumer.into_iter().chain(self.allow.iter().map(|allowed| ("allow", allowed.as_str())))
    }
}
