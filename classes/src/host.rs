//! What a host hands to a state machine and gets back. It is not a transport: a path, bytes, a caller the host vouches for.

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is asked, with the protocol's version in it.
    pub path: &'a str,
    /// The message.
    pub body: &'a [u8],
    /// `class/name` of who asks, vouched for by the host.
    pub caller: &'a str,
}

/// A request that a client has made, to be carried to the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its path.
    pub path: &'static str,
    /// Its body.
    pub body: Vec<u8>,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// An HTTP status.
    pub status: u16,
    /// The message; in words if the status is an error's.
    pub body: Vec<u8>,
    /// What must have happened before this may leave.
    pub effect: Effect,
}

/// What a request did. In order, so that the largest of a batch is the batch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It wrote nothing.
    Read,
    /// It wrote what a crash may forget.
    Local,
    /// It wrote, or answered from, what must be durable before the answer leaves.
    Durable,
}
