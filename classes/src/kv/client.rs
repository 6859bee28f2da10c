//! A client of shards without its transport: make a [`Call`], carry it to the actor of the key's shard, hand status and body of the
//! answer to the function named after what became of it.
//!
//! An answer that got lost is ambiguous: the write may have been done. A write with an operation id may be repeated as it was; any
//! other should be read again first.

use std::fmt;

pub use crate::host::Call;

use super::codec;
use super::layout::{Layout, Phase, Shards};
use super::operations::REUSED;
use super::protocol::{Found, Imported, Invalid, List, Listed, Moving, Options, Outcome, Page, Pruned, Write};
use super::transfer;
use crate::wire::{Malformed, Reader};

/// Why an operation gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// 409: the row is not what was expected; its version, `None` if it is absent. Nothing was done.
    Conflict {
        /// The version.
        current: Option<i64>,
    },
    /// 409: what each write of an atomic call met. Nothing was done.
    NotApplied(Vec<Outcome>),
    /// 422: the value is not a number in ASCII decimal. Nothing was done.
    NotANumber,
    /// 422: the sum does not fit 64 bits, signed. Nothing was done.
    Overflow,
    /// 422: the operation id belongs to another request. Nothing was done.
    OperationReused,
    /// 421: the shard's keys are being moved, to so many shards; it takes no writes. Nothing was done; try again later.
    Moving {
        /// The number of shards.
        shards: u32,
    },
    /// 421: the class has so many shards, not as many as the client thinks. Nothing was done.
    Moved {
        /// The number of shards.
        shards: u32,
    },
    /// 400, 404: the request breaks a rule, in the shard's words. Nothing was done.
    Refused(String),
    /// 403: the caller may not do this. Nothing was done.
    Forbidden,
    /// 413: the request is too large, in the shard's words. Nothing was done.
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
    /// An answer that means nothing: it may have been done.
    Malformed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { current: Some(version) } => write!(f, "conflict: the key has version {version}"),
            Self::Conflict { current: None } => f.write_str("conflict: the key is absent"),
            Self::NotApplied(outcomes) => {
                let failed = outcomes.iter().filter(|outcome| **outcome != Outcome::NotApplied).count();
                write!(f, "nothing was written because of {failed} of {} writes", outcomes.len())
            }
            Self::NotANumber => f.write_str("the value is not a number in ASCII decimal"),
            Self::Overflow => f.write_str("the sum does not fit 64 bits"),
            Self::OperationReused => f.write_str("the operation id belongs to another request"),
            Self::Moving { shards } => write!(f, "the keys are being moved to {shards} shards: no writes until then"),
            Self::Moved { shards } => write!(f, "the class has {shards} shards"),
            Self::Refused(words) | Self::TooLarge(words) => write!(f, "the shard refused: {words}"),
            Self::Forbidden => f.write_str("this caller may not do this"),
            Self::Full => f.write_str("the shard's storage is full"),
            Self::Failed { status, words } => write!(f, "the shard answered {status}: {words}"),
            Self::Malformed => f.write_str("the shard's answer is malformed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The error that a status means. Those of single writes are in their body.
fn failure(status: u16, body: &[u8]) -> Error {
    let words = || String::from_utf8_lossy(body).into_owned();
    match status {
        400 | 404 => Error::Refused(words()),
        403 => Error::Forbidden,
        413 => Error::TooLarge(words()),
        421 => misdirected(body).unwrap_or(Error::Malformed),
        422 if body == [REUSED] => Error::OperationReused,
        507 => Error::Full,
        _ => Error::Failed { status, words: words() },
    }
}

fn misdirected(body: &[u8]) -> Result<Error, Malformed> {
    codec::whole(body, |reader| {
        let (is_moving, shards) = (codec::take_flag(reader)?, reader.u32()?);
        Ok(if is_moving { Error::Moving { shards } } else { Error::Moved { shards } })
    })
}

fn read<'a, T>(status: u16, body: &'a [u8], decode: impl FnOnce(&'a [u8]) -> Result<T, Malformed>) -> Result<T, Error> {
    if status == 200 { Ok(decode(body)?) } else { Err(failure(status, body)) }
}

/// What a single write did.
fn outcome(status: u16, body: &[u8]) -> Result<Outcome, Error> {
    if !matches!(status, 200 | 409 | 422) || body == [REUSED] {
        return Err(failure(status, body));
    }
    match codec::decode_outcome(body)? {
        done if done.is_done() && status == 200 => Ok(done),
        Outcome::Conflict { current } if status == 409 => Err(Error::Conflict { current }),
        Outcome::NotANumber if status == 422 => Err(Error::NotANumber),
        Outcome::Overflow if status == 422 => Err(Error::Overflow),
        _ => Err(Error::Malformed),
    }
}

/// Asks for a row.
///
/// # Errors
/// The rule that the key breaks.
pub fn get(shards: Shards, key: &[u8]) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/get", body: codec::encode_get(shards.count(), key)? })
}

/// The row, `None` if it is absent.
///
/// # Errors
/// Why not.
pub fn got(status: u16, body: &[u8]) -> Result<Option<Found<'_>>, Error> {
    read(status, body, codec::decode_found)
}

/// Asks for rows of one shard, at most 1,000 (`Shards::split`).
///
/// # Errors
/// The rule that a key breaks.
pub fn get_many(shards: Shards, keys: &[&[u8]]) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/get-many", body: codec::encode_get_many(shards.count(), keys)? })
}

/// The rows of the first keys in the order given, one at least: if they are fewer than were asked for, the others are to be asked
/// for again.
///
/// # Errors
/// Why not; `Malformed` for none, or for more than `asked`.
pub fn got_many(status: u16, body: &[u8], asked: usize) -> Result<Vec<Option<Found<'_>>>, Error> {
    let found = read(status, body, codec::decode_found_many)?;
    if (1..=asked).contains(&found.len()) { Ok(found) } else { Err(Error::Malformed) }
}

/// One write: a put, a delete or an increment.
///
/// # Errors
/// The rule that it breaks.
pub fn write(shards: Shards, write: &Write<'_>, options: Options<'_>) -> Result<Call, Invalid> {
    let path = match write {
        Write::Put { .. } => "wasmkeep-kv/v1/put",
        Write::Delete { .. } => "wasmkeep-kv/v1/delete",
        Write::Increment { .. } => "wasmkeep-kv/v1/increment",
    };
    Ok(Call { path, body: codec::encode_write(shards.count(), options, write)? })
}

/// The version that a put gave.
///
/// # Errors
/// Why not.
pub fn put(status: u16, body: &[u8]) -> Result<i64, Error> {
    if let Outcome::Put { version } = outcome(status, body)? { Ok(version) } else { Err(Error::Malformed) }
}

/// Whether a delete found a row.
///
/// # Errors
/// Why not.
pub fn deleted(status: u16, body: &[u8]) -> Result<bool, Error> {
    if let Outcome::Deleted { existed } = outcome(status, body)? { Ok(existed) } else { Err(Error::Malformed) }
}

/// The sum, and the version it has.
///
/// # Errors
/// Why not.
pub fn incremented(status: u16, body: &[u8]) -> Result<(i64, i64), Error> {
    match outcome(status, body)? {
        Outcome::Incremented { value, version } => Ok((value, version)),
        _ => Err(Error::Malformed),
    }
}

/// Writes to one shard, at most 1,000 and 16 MiB, in the order given and in one commit. Atomic: all of them or, if one would fail,
/// none; each key may then appear once only.
///
/// # Errors
/// The rule that a write breaks.
pub fn write_many(shards: Shards, writes: &[Write<'_>], is_atomic: bool, options: Options<'_>) -> Result<Call, Invalid> {
    let body = codec::encode_writes(shards.count(), options, is_atomic, writes)?;
    Ok(Call { path: "wasmkeep-kv/v1/write-many", body })
}

/// What became of each write, in the order given.
///
/// # Errors
/// Why not; `NotApplied` for an atomic call of which one failed.
pub fn written_many(status: u16, body: &[u8]) -> Result<Vec<Outcome>, Error> {
    match status {
        409 => Err(Error::NotApplied(codec::decode_outcomes(body)?)),
        _ => read(status, body, codec::decode_outcomes),
    }
}

/// Asks one shard for a page of its keys. `merge::Merge` says what to ask which shard.
///
/// # Errors
/// The rule that the listing breaks.
pub fn list(shards: Shards, list: &List<'_>) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/list", body: codec::encode_list(shards.count(), list)? })
}

/// The page.
///
/// # Errors
/// Why not.
pub fn listed(status: u16, body: &[u8]) -> Result<Page<Listed<'_>>, Error> {
    read(status, body, |body| codec::decode_page(body, codec::take_listed))
}

/// Asks one shard how many rows it has.
#[must_use]
pub fn count(shards: Shards) -> Call {
    Call { path: "wasmkeep-kv/v1/count", body: shards.count().to_le_bytes().to_vec() }
}

/// The number of rows.
///
/// # Errors
/// Why not.
pub fn counted(status: u16, body: &[u8]) -> Result<u64, Error> {
    read(status, body, |body| codec::whole(body, Reader::u64))
}

/// Asks for a shard's layout. For operators, as all that follows.
#[must_use]
pub const fn layout() -> Call {
    Call { path: "wasmkeep-kv/v1/layout", body: Vec::new() }
}

/// The layout.
///
/// # Errors
/// Why not.
pub fn is_laid_out(status: u16, body: &[u8]) -> Result<Layout, Error> {
    read(status, body, transfer::decode_layout)
}

/// Sets a shard's phase. `shards` is the number of shards that it is to serve when it is `Open`, and of no meaning otherwise.
///
/// # Errors
/// `Invalid::Shards`.
pub fn set_layout(phase: Phase, shards: Shards) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/set-layout", body: transfer::encode_phase(phase, shards.count())? })
}

/// Whether it is set.
///
/// # Errors
/// Why not.
pub fn has_set_layout(status: u16, body: &[u8]) -> Result<(), Error> {
    read(status, body, |body| codec::whole(body, |_| Ok(())))
}

/// Asks for a page of rows to move, behind a key.
///
/// # Errors
/// The rule that the key breaks.
pub fn export(after: Option<&[u8]>) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/export", body: transfer::encode_after(after)? })
}

/// The page, in byte order.
///
/// # Errors
/// Why not.
pub fn exported(status: u16, body: &[u8]) -> Result<Page<Moving<'_>>, Error> {
    read(status, body, transfer::decode_export)
}

/// Takes in rows, at most 1,000 and 16 MiB. A copy that may have been interrupted and resumed leaves out what is there already.
///
/// # Errors
/// The rule that a row breaks.
pub fn import(rows: &[Moving<'_>], only_if_absent: bool) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/import", body: transfer::encode_import(only_if_absent, rows)? })
}

/// How many were taken in.
///
/// # Errors
/// Why not.
pub fn imported(status: u16, body: &[u8]) -> Result<Imported, Error> {
    read(status, body, codec::decode_imported)
}

/// Deletes some of the rows that are not of shard `index` among `shards`, from a shard that has moved there.
///
/// # Errors
/// The rule that the key breaks.
pub fn prune(index: u32, shards: Shards, after: Option<&[u8]>) -> Result<Call, Invalid> {
    Ok(Call { path: "wasmkeep-kv/v1/prune", body: transfer::encode_prune(index, shards.count(), after)? })
}

/// How many were deleted, and where to go on.
///
/// # Errors
/// Why not.
pub fn pruned(status: u16, body: &[u8]) -> Result<Pruned<'_>, Error> {
    read(status, body, transfer::decode_pruned)
}
