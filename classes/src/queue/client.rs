//! A client of a queue without its transport: make a [`Call`], carry it to the queue's actor, hand status and body of the answer to
//! the function named after the operation's participle.
//!
//! An answer that got lost is ambiguous: the operation may have been done. A send with a dedupe id may be repeated; so may a
//! settle, whose leases are then stale.

use std::fmt;

pub use crate::host::Call;

use super::codec;
use super::protocol::{DeadPage, Invalid, Lease, Leased, Message, Moved, Outcome, Sent, Settled, Settlement, Stats, Which};

/// Why an operation gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// 400, 404: the request breaks a rule, in the queue's words. Nothing was done.
    Refused(String),
    /// 403: the caller may not use this queue. Nothing was done.
    Forbidden,
    /// 413: the request is too large, in the queue's words. Nothing was done.
    TooLarge(String),
    /// 507: there is no room. Nothing was done.
    Full,
    /// Any other status: it may have been done.
    Failed {
        /// The status.
        status: u16,
        /// The answer's body.
        words: String,
    },
    /// 200, and an answer that means nothing: it may have been done.
    Malformed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(words) | Self::TooLarge(words) => write!(f, "the queue refused: {words}"),
            Self::Forbidden => f.write_str("this caller may not use the queue"),
            Self::Full => f.write_str("the queue's storage is full"),
            Self::Failed { status, words } => write!(f, "the queue answered {status}: {words}"),
            Self::Malformed => f.write_str("the queue's answer is malformed"),
        }
    }
}

impl std::error::Error for Error {}

/// The answer's body if it is one of success.
fn success(status: u16, body: &[u8]) -> Result<&[u8], Error> {
    let words = || String::from_utf8_lossy(body).into_owned();
    match status {
        200 => Ok(body),
        400 | 404 => Err(Error::Refused(words())),
        403 => Err(Error::Forbidden),
        413 => Err(Error::TooLarge(words())),
        507 => Err(Error::Full),
        _ => Err(Error::Failed { status, words: words() }),
    }
}

fn read<'a, T>(status: u16, body: &'a [u8], decode: fn(&'a [u8]) -> Result<T, Invalid>) -> Result<T, Error> {
    decode(success(status, body)?).map_err(|_| Error::Malformed)
}

/// Sends messages, at most 1,000: all or none. Durable before it is answered.
///
/// # Errors
/// The rule that a message breaks.
pub fn send(messages: &[Message<'_>]) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-queue/v1/send", body: codec::encode_send(messages)? })
}

/// The ids of what was sent, in the order given.
///
/// # Errors
/// Why not.
pub fn sent(status: u16, body: &[u8]) -> Result<Vec<Sent>, Error> {
    read(status, body, codec::decode_sent)
}

/// Asks for at most `max` messages, 1 to 1,000 and 8 MiB, that no other lease gets for `visibility_ms`, 1 ms to 12 h.
///
/// # Errors
/// The bound that is broken.
pub fn lease(max: u32, visibility_ms: u64) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-queue/v1/lease", body: codec::encode_lease(max, visibility_ms)? })
}

/// The messages leased: none if none is visible or the queue is paused.
///
/// # Errors
/// Why not.
pub fn leased(status: u16, body: &[u8]) -> Result<Vec<Leased<'_>>, Error> {
    read(status, body, codec::decode_delivery)
}

/// Settles leases, at most 1,000, in the order given.
///
/// # Errors
/// The rule that an outcome breaks.
pub fn settle(settlements: &[Settlement<'_>]) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-queue/v1/settle", body: codec::encode_outcomes(settlements)? })
}

/// Settles one lease: its message is done with.
///
/// # Errors
/// None in practice; as `settle`.
pub fn ack(lease: Lease) -> Result<Call, Invalid> {
    settle(&[Settlement { lease, outcome: Outcome::Ack }])
}

/// Settles one lease: its message is to be leased again, after `delay_ms` or the default backoff. A retry is an attempt like any
/// other: the one that ends the last attempt makes the message a dead letter, with `error` as the reason.
///
/// # Errors
/// A delay of more than a year.
pub fn retry(lease: Lease, delay_ms: Option<u64>, error: &str) -> Result<Call, Invalid> {
    settle(&[Settlement { lease, outcome: Outcome::Retry { delay_ms, error } }])
}

/// Lengthens, or shortens, one lease to `visibility_ms` from now.
///
/// # Errors
/// None, or more than 12 h.
pub fn extend(lease: Lease, visibility_ms: u64) -> Result<Call, Invalid> {
    settle(&[Settlement { lease, outcome: Outcome::Extend { visibility_ms } }])
}

/// What became of each, in the order given.
///
/// # Errors
/// Why not.
pub fn settled(status: u16, body: &[u8]) -> Result<Vec<Settled>, Error> {
    read(status, body, codec::decode_settled)
}

/// Asks for the queue in numbers.
#[must_use]
pub const fn stats() -> Call {
    Call { path: "wasmkeep-queue/v1/stats", body: Vec::new() }
}

/// The numbers.
///
/// # Errors
/// Why not.
pub fn stats_read(status: u16, body: &[u8]) -> Result<Stats, Error> {
    read(status, body, codec::decode_stats)
}

/// Stops deliveries and leases; sends and settles go on. Durable.
#[must_use]
pub const fn pause() -> Call {
    Call { path: "wasmkeep-queue/v1/pause", body: Vec::new() }
}

/// Ends a pause. Durable.
#[must_use]
pub const fn resume() -> Call {
    Call { path: "wasmkeep-queue/v1/resume", body: Vec::new() }
}

/// Whether a pause or its end was done.
///
/// # Errors
/// Why not.
pub fn done(status: u16, body: &[u8]) -> Result<(), Error> {
    read(status, body, codec::decode_nothing)
}

/// Asks for at most `limit` dead letters, 1 to 1,000 and 8 MiB, with ids above `after`.
///
/// # Errors
/// The bound that is broken.
pub fn dead_letters(after: u64, limit: u32) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-queue/v1/dead", body: codec::encode_dead(after, limit)? })
}

/// The dead letters.
///
/// # Errors
/// Why not.
pub fn dead_letters_read(status: u16, body: &[u8]) -> Result<DeadPage<'_>, Error> {
    read(status, body, codec::decode_dead_page)
}

/// Makes dead letters messages again, with their ids and without their attempts. Durable, a batch at a time: repeat it with
/// `Moved::next`.
///
/// # Errors
/// More than 1,000 ids.
pub fn redrive(which: &Which) -> Result<Call, Invalid> {
    if matches!(which, Which::Live | Which::LiveUpTo { .. }) {
        return Err(Invalid::NotDead);
    }
    Ok(Call { path: "wasmkeep-queue/v1/redrive", body: codec::encode_which(which)? })
}

/// Deletes dead letters or messages. Durable, a batch at a time: repeat it with `Moved::next`.
///
/// # Errors
/// More than 1,000 ids.
pub fn purge(which: &Which) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-queue/v1/purge", body: codec::encode_which(which)? })
}

/// What a redrive or purge did, and how to go on.
///
/// # Errors
/// Why not.
pub fn moved(status: u16, body: &[u8]) -> Result<Moved, Error> {
    read(status, body, codec::decode_moved)
}
