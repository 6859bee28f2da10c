//! Actors of native classes: state machines of `classes`, served by the node itself on the actor's database.
//!
//! Such an actor wakes, hibernates and breaks like any other, and its outputs wait at the same gate. What differs is how it works:
//! whatever waits for it is done in one transaction, each request between two savepoints, so that many share one commit and a
//! failing one undoes itself alone. Answers leave after that commit.

mod batch;
mod database;
mod queue;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use wasmkeep_classes::database::DatabaseError;
use wasmkeep_storage::Address;

pub(super) use self::queue::{be_awake, wake};
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

    const fn queue(&self) -> &wasmkeep_classes::queue::Config {
        let NativeKind::Queue(config) = &self.config.kind;
        config
    }

    /// Why whoever asks may not: looked at before there is an actor.
    fn refusal(&self, caller: Option<&Address>) -> Option<Problem> {
        let class = &self.config.name;
        match caller {
            None => Some(Problem::Forbidden(format!("class \"{class}\" is internal: only actors may call it"))),
            Some(caller) if !self.config.allows(&caller.class, &caller.name) => {
                Some(Problem::Forbidden(format!("class \"{class}\" does not allow calls from {caller}")))
            }
            Some(_) => None,
        }
    }
}

impl Kind {
    /// How long what a queue delivers is hidden.
    fn visibility_ms(&self) -> u64 {
        match self {
            Self::Native(native) => native.queue().visibility_ms,
            Self::Guest(_) => 0,
        }
    }
}

impl Class {
    /// Why an event of this class is not taken.
    pub(super) fn refusal(&self, event: &Event) -> Option<Problem> {
        match (&self.kind, &event.work) {
            (Kind::Native(native), Work::Request(_)) => native.refusal(event.caller.as_ref()),
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
