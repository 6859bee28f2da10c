//! Calls to other actors of the application.

use crate::bindings::wasmkeep::actor::actors;
use crate::{Request, Response};
use core::fmt;
use std::time::Duration;

pub use crate::bindings::wasmkeep::actor::types::Address;

impl Address {
    /// The actor `class/name`. The grammar of both is checked by the node when the address is used.
    pub fn new(class: impl Into<String>, name: impl Into<String>) -> Self {
        Self { class: class.into(), name: name.into() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class, self.name)
    }
}

/// Why there is no answer. One kind for each thing that a caller can do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// No class of that name is served, or the address breaks its grammar. Nothing ran.
    NoSuchClass,
    /// That class does not take calls from this one. Nothing ran.
    Forbidden,
    /// That actor is waiting, directly or through others, for this very event. Nothing ran.
    ReEntry,
    /// That actor has too many events waiting. Nothing ran; try again later.
    Busy,
    /// The time ran out. Whether the call took effect is not known.
    Timeout,
    /// The call could not be delivered. Nothing ran.
    Unavailable,
    /// The call was delivered and its answer was lost. Whether it took effect is not known.
    UnknownOutcome,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchClass => "no such class is served",
            Self::Forbidden => "that class does not take calls from this one",
            Self::ReEntry => "that actor is waiting for this very event",
            Self::Busy => "that actor has too many events waiting",
            Self::Timeout => "the call ran out of time; it may have taken effect",
            Self::Unavailable => "the call could not be delivered",
            Self::UnknownOutcome => "the answer was lost; the call may have taken effect",
        })
    }
}

impl std::error::Error for CallError {}

impl From<actors::CallError> for CallError {
    fn from(error: actors::CallError) -> Self {
        use actors::CallError as Wire;
        match error {
            Wire::NoSuchClass => Self::NoSuchClass,
            Wire::Forbidden => Self::Forbidden,
            Wire::ReEntry => Self::ReEntry,
            Wire::Busy => Self::Busy,
            Wire::Timeout => Self::Timeout,
            Wire::Unavailable => Self::Unavailable,
            Wire::UnknownOutcome => Self::UnknownOutcome,
        }
    }
}

/// Sends a request to another actor and waits for its answer, at most as long as this event has left. Meanwhile this actor
/// handles no other event.
///
/// # Errors
/// [`CallError`]; an answer of any status is no error.
pub fn call(target: &Address, request: &Request) -> Result<Response, CallError> {
    call_within(target, request, None)
}

/// Like [`call`], waiting no longer than `timeout`.
///
/// # Errors
/// [`CallError`]; an answer of any status is no error.
pub fn call_timeout(target: &Address, request: &Request, timeout: Duration) -> Result<Response, CallError> {
    call_within(target, request, Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)))
}

fn call_within(target: &Address, request: &Request, timeout_ms: Option<u64>) -> Result<Response, CallError> {
    let options = actors::CallOptions { timeout_ms };
    actors::call(target, request.as_wire(), options).map(Response::from_wire).map_err(CallError::from)
}
