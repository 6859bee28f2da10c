//! What reaches an actor and what leaves it, free of any protocol's types.

use bytes::Bytes;

/// A request event as the guest sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The method, upper case as it came.
    pub method: String,
    /// The path behind the actor's address, from `/`, with its query.
    pub path: String,
    /// Names in lower case, values as bytes, in the order they came.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Bytes,
}

/// What a guest answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Response {
    /// 200 to 599; anything else from a guest is a trap.
    pub status: u16,
    /// Names and values as the guest gave them, checked to be valid HTTP.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Bytes,
}

/// What leaves a core for one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The guest's answer.
    Response(Response),
    /// The node's own.
    Problem(Problem),
}

/// Why there is no answer from the guest. One kind for each thing a caller may do about it; the text is for people.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// No class of that name is served here.
    #[error("no class \"{0}\" is served here")]
    UnknownClass(String),
    /// The address breaks its grammar.
    #[error("{0}")]
    BadAddress(String),
    /// A body or header is over its limit.
    #[error("{0}")]
    TooLarge(String),
    /// The class does not answer this caller.
    #[error("{0}")]
    Forbidden(String),
    /// The actor has too many events waiting.
    #[error("the actor has too many events waiting; try again later")]
    MailboxFull,
    /// The event's time ran out; it had no durable effect that was seen.
    #[error("the event ran out of time")]
    Deadline,
    /// The guest failed.
    #[error("the guest failed: {0}")]
    Trap(String),
    /// A write may have been kept.
    #[error("the outcome is unknown: a write of this event may have been kept")]
    UnknownOutcome,
    /// Nothing ran.
    #[error("{0}")]
    Unavailable(String),
    /// The disk or the journal is full.
    #[error("storage is full: nothing is written until space is free again")]
    StorageFull,
    /// The node is stopping.
    #[error("the node is stopping")]
    Draining,
}
