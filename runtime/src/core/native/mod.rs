//! Actors of native classes: state machines of `classes`, served by the node itself on the actor's database.
//!
//! Such an actor wakes, hibernates and breaks like any other, and its outputs wait at the same gate. What differs is how it works:
//! whatever waits for it is done in one transaction, so that many requests share one commit; if one of them fails, each is done
//! in a transaction of its own, so that it fails alone. Answers leave after the commit.

mod awake;
mod batch;
mod database;
mod machine;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use wasmkeep_classes::database::DatabaseError;
use wasmkeep_classes::kv::shard_index;
use wasmkeep_storage::Address;

pub(super) use self::awake::{be_awake, wake};
use super::wake::{Event, Work};
use super::{Class, Kind};
use crate::config::{NativeConfig, NativeKind};
use crate::event::Problem;

/// A native class as a core serves it.
pub(crate) struct Native {
    config: NativeConfig,
}

impl Native {
    pub(super) fn new(config: NativeConfig) -> Rc<Self> {
        Rc::new(Self { config })
    }

    const fn kind(&self) -> &NativeKind {
        &self.config.kind
    }

    /// Why whoever asks may not, or nobody may: looked at before there is an actor.
    fn refusal(&self, address: &Address, caller: Option<&Address>) -> Option<Problem> {
        let class = &self.config.name;
        match caller {
            None => Some(Problem::Forbidden(format!("class \"{class}\" is internal: only actors may call it"))),
            Some(caller) if !self.config.allows(&caller.class, &caller.name) => {
                Some(Problem::Forbidden(format!("class \"{class}\" does not allow calls from {caller}")))
            }
            Some(_) if matches!(self.config.kind, NativeKind::Kv(_)) && shard_index(&address.name).is_none() => {
                Some(Problem::BadAddress(format!("class \"{class}\" is key-value: its actors are shard-0, shard-1 and so on")))
            }
            Some(_) => None,
        }
    }
}

impl Kind {
    /// How long what a queue delivers is hidden.
    fn visibility_ms(&self) -> u64 {
        match self {
            Self::Native(native) => match native.kind() {
                NativeKind::Queue(queue) => queue.visibility_ms,
                NativeKind::Kv(_) => 0,
            },
            Self::Guest(_) => 0,
        }
    }
}

impl Class {
    /// Why an event of this class is not taken.
    pub(super) fn refusal(&self, event: &Event) -> Option<Problem> {
        match (&self.kind, &event.work) {
            (Kind::Native(native), Work::Request(_)) => native.refusal(&event.address, event.caller.as_ref()),
            _ => None,
        }
    }
}

/// What a request gets whose statement failed.
fn problem(error: DatabaseError) -> Problem {
    match error {
        DatabaseError::Full => Problem::StorageFull,
        DatabaseError::TooLarge => Problem::TooLarge("the request is too large for one transaction".into()),
        DatabaseError::Deadline => Problem::Deadline,
        DatabaseError::Other(words) => Problem::Unavailable(format!("the actor's database refused: {words}")),
    }
}
