//! What the rest of the node does for a guest's imports: alarms and calls to other actors.

use crate::event::{Request, Response};
use std::future::Future;
use std::pin::Pin;
use wasmkeep_storage::Address;

/// Why a call to another actor has no answer. The guest sees these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// No class of that name, or an address that breaks its grammar.
    NoSuchClass,
    /// That class does not take calls from this one.
    Forbidden,
    /// That actor waits for the calling event.
    ReEntry,
    /// That actor has too many events waiting.
    Busy,
    /// The time ran out; the outcome is not known.
    Timeout,
    /// Nothing ran.
    Unavailable,
    /// The answer was lost; the outcome is not known.
    UnknownOutcome,
}

/// Sets the actor's alarm (ms since the Unix epoch) or clears it. An error is a trap with that text.
pub type SetAlarm = Box<dyn Fn(Option<u64>) -> Result<(), String>>;

/// The actor's alarm, ms since the Unix epoch. An error is a trap with that text.
pub type GetAlarm = Box<dyn Fn() -> Result<Option<u64>, String>>;

/// A call's answer, when it comes.
pub type CallAnswer = Pin<Box<dyn Future<Output = Result<Response, CallError>>>>;

/// Calls another actor: whom, with what, and how long to wait at most, ms. The request is valid HTTP and carries no header
/// that only the node may set. The future may be dropped at any time.
pub type Call = Box<dyn Fn(Address, Request, Option<u64>) -> CallAnswer>;

/// The node's side of the imports that reach beyond the actor. Called on the instance's own thread, during its events only.
pub struct Hooks {
    /// `alarms.set` and `alarms.clear`.
    pub set_alarm: SetAlarm,
    /// `alarms.get`.
    pub get_alarm: GetAlarm,
    /// `actors.call`.
    pub call: Call,
}

impl Default for Hooks {
    /// Alarms trap and calls are unavailable.
    fn default() -> Self {
        Self {
            set_alarm: Box::new(|_| Err(NO_ALARMS.into())),
            get_alarm: Box::new(|| Err(NO_ALARMS.into())),
            call: Box::new(|_, _, _| Box::pin(std::future::ready(Err(CallError::Unavailable)))),
        }
    }
}

const NO_ALARMS: &str = "this instance has no alarms";
