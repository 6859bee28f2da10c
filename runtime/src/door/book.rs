//! The native classes that the service door leads to, as one thread knows them.
//!
//! It is a thread's own: the number of shards of a class is what that thread was told last.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use wasmkeep_classes::kv::{Shards, shard_name};
use wasmkeep_storage::Address;

use super::refusal::Refusal;
use crate::config::{NativeConfig, NativeKind, check_class_name};
use crate::event::Problem;

/// All of them, by name.
#[derive(Default)]
pub(crate) struct Book {
    pub(super) queues: HashMap<Arc<str>, Rc<QueueClass>>,
    pub(super) kvs: HashMap<Arc<str>, Rc<KvClass>>,
}

/// A class of queues.
pub(super) struct QueueClass {
    pub(super) name: Arc<str>,
    /// Messages in a lease, unless asked otherwise.
    pub(super) batch: u32,
    /// How long a lease is, ms, unless asked otherwise.
    pub(super) visibility_ms: u64,
}

/// A key-value class.
pub(super) struct KvClass {
    pub(super) name: Arc<str>,
    shards: Cell<Shards>,
    /// The names of its shards, as far as they were needed.
    shard_names: RefCell<Vec<Arc<str>>>,
}

impl Book {
    /// As configured.
    pub(crate) fn new(natives: &[NativeConfig]) -> Self {
        let mut book = Self::default();
        for native in natives {
            let name = Arc::clone(&native.name);
            match &native.kind {
                NativeKind::Queue(config) => {
                    let class = QueueClass { name: Arc::clone(&name), batch: config.batch, visibility_ms: config.visibility_ms };
                    book.queues.insert(name, Rc::new(class));
                }
                NativeKind::Kv(config) => {
                    // Refused by the configuration if it is missing or out of range.
                    if let Some(shards) = config.shards.and_then(|shards| Shards::new(shards).ok()) {
                        book.kvs.insert(Arc::clone(&name), Rc::new(KvClass::new(&name, shards)));
                    }
                }
            }
        }
        book
    }

    pub(super) fn queue(&self, name: &str) -> Result<Rc<QueueClass>, Refusal> {
        self.queues.get(name).cloned().ok_or_else(|| unknown(name))
    }

    pub(super) fn kv(&self, name: &str) -> Result<Rc<KvClass>, Refusal> {
        self.kvs.get(name).cloned().ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> Refusal {
    match check_class_name(name) {
        Ok(()) => Problem::UnknownClass(name.into()).into(),
        Err(words) => Problem::BadAddress(words).into(),
    }
}

impl KvClass {
    pub(super) fn new(name: &str, shards: Shards) -> Self {
        Self { name: name.into(), shards: Cell::new(shards), shard_names: RefCell::default() }
    }

    /// How many shards it has, as far as is known here.
    pub(super) fn shards(&self) -> Shards {
        self.shards.get()
    }

    /// A shard has said that it has so many.
    pub(super) fn learn(&self, shards: Shards) {
        self.shards.set(shards);
    }

    /// The actor of a shard.
    pub(super) fn shard(&self, index: u32) -> Address {
        let mut names = self.shard_names.borrow_mut();
        let at = index as usize;
        while names.len() <= at {
            let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
            names.push(shard_name(next).into());
        }
        Address { class: Arc::clone(&self.name), name: Arc::clone(&names[at]) }
    }
}
