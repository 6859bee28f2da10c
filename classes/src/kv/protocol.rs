//! What clients and shards say to each other, apart from its bytes; and the rules it must keep.

use std::fmt;

use crate::limits::{
    KV_ITEMS_MAX, KV_KEY_BYTES_MAX, KV_OPERATION_BYTES_MAX, KV_REQUEST_BYTES_MAX, KV_SHARDS_MAX, KV_TTL_MS_MAX, KV_VALUE_BYTES_MAX,
    KV_VERSION_MAX,
};
use crate::wire::Malformed;

/// What every path begins with, the version included.
pub const PATH: &str = "wasmkeep-kv/v1/";

/// What a writer expects of the row it writes. A row past its time to live counts as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Expect {
    /// Anything.
    #[default]
    Any,
    /// That there is none.
    Absent,
    /// That it has this version.
    Version(i64),
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Writes a value. Without a time to live the key has none from then on, whatever it had.
    Put {
        /// The key, 1..=2,048 bytes.
        key: &'a [u8],
        /// The value, up to 8 MiB.
        value: &'a [u8],
        /// What must be there before.
        expect: Expect,
        /// The time to live, ms.
        ttl_ms: Option<u64>,
    },
    /// Deletes a row.
    Delete {
        /// The key.
        key: &'a [u8],
        /// What must be there before.
        expect: Expect,
    },
    /// Adds to a value that is a number in ASCII decimal; absent counts as 0. The time to live stays as it is.
    Increment {
        /// The key.
        key: &'a [u8],
        /// What is added.
        delta: i64,
    },
}

impl<'a> Write<'a> {
    /// Its key.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } | Self::Increment { key, .. } => key,
        }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        check_key(self.key())?;
        match self {
            Self::Put { value, expect, ttl_ms, .. } => {
                check_value(value)?;
                check_expect(*expect)?;
                check_ttl(*ttl_ms)
            }
            Self::Delete { expect, .. } => check_expect(*expect),
            Self::Increment { .. } => Ok(()),
        }
    }
}

/// How a call writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options<'a> {
    /// Whether the answer need not wait until the write is durable. A crash may then forget it, but never reuses its version.
    pub local: bool,
    /// With it, a retry of the same call by the same caller within an hour applies once and gets the first one's outcome.
    pub operation: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// Durable, without an operation id.
    #[must_use]
    pub const fn new() -> Self {
        Self { local: false, operation: None }
    }

    /// Local instead of durable.
    #[must_use]
    pub const fn local(self) -> Self {
        Self { local: true, ..self }
    }

    /// With an operation id, 1..=64 bytes.
    #[must_use]
    pub const fn operation(self, id: &'a [u8]) -> Self {
        Self { operation: Some(id), ..self }
    }
}

/// What one write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It wrote the value under this version.
    Put {
        /// Larger than any the key had.
        version: i64,
    },
    /// The row is gone.
    Deleted {
        /// Whether there was one.
        existed: bool,
    },
    /// It wrote this number under this version.
    Incremented {
        /// The sum.
        value: i64,
        /// As of `Put`.
        version: i64,
    },
    /// The row is not what was expected; nothing was written.
    Conflict {
        /// Its version, `None` if it is absent.
        current: Option<i64>,
    },
    /// The value is not a number in ASCII decimal; nothing was written.
    NotANumber,
    /// The sum does not fit 64 bits, signed; nothing was written.
    Overflow,
    /// Nothing was written, because another write of its atomic call failed.
    NotApplied,
}

impl Outcome {
    /// Whether it did what was asked.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Deleted { .. } | Self::Incremented { .. })
    }
}

/// A row as a reader gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Its version.
    pub version: i64,
    /// What is left of its time to live, ms; `None` if it has none.
    pub ttl_ms: Option<u64>,
}

/// A row of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its version.
    pub version: i64,
    /// As of `Found`.
    pub ttl_ms: Option<u64>,
    /// The value, if it was asked for.
    pub value: Option<&'a [u8]>,
}

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    /// What the keys begin with, up to 2,048 bytes.
    pub prefix: &'a [u8],
    /// Only keys behind this one; `None` from the first.
    pub after: Option<&'a [u8]>,
    /// At most so many, from 1; a page has up to 1,000 rows.
    pub limit: u32,
    /// Whether the values are wanted too.
    pub values: bool,
}

/// Rows in byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Whether there are more behind the last of them.
    pub has_more: bool,
}

/// A row on its way from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The version it had. It gets a larger one.
    pub version: i64,
    /// When it ends by the hosts' clocks, ms since 1970.
    pub expires_at_ms: Option<u64>,
}

/// What an import did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Imported {
    /// Rows written.
    pub written: u32,
    /// Rows left out: the key was there, or the row's time was over.
    pub skipped: u32,
}

/// What a prune did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned<'a> {
    /// Rows deleted.
    pub count: u32,
    /// Where the next one goes on; `None` when every key was seen.
    pub next: Option<&'a [u8]>,
}

/// A rule that a request breaks. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The path is of no version that is spoken here.
    Version,
    /// The path names nothing that a shard does.
    NoSuchOperation,
    /// The bytes are no message: too short, too long, or with a value that means nothing.
    Malformed,
    /// The caller is unknown, or not who may do this.
    Forbidden,
    /// The request is too large.
    RequestBytes(usize),
    /// The key is empty or too long.
    KeyBytes(usize),
    /// The prefix is too long.
    PrefixBytes(usize),
    /// The value is too large.
    ValueBytes(usize),
    /// The time to live is 0 or too long; a negative one looks like a very long one.
    Ttl(u64),
    /// No version is like this one.
    VersionNumber(i64),
    /// Too many items in one call, or none.
    Items(usize),
    /// A listing of nothing.
    Limit,
    /// The operation id is empty or too long.
    OperationBytes(usize),
    /// A key twice in an atomic call.
    KeyTwice,
    /// The number of shards is 0 or too large.
    Shards(u32),
    /// A prune for a layout that the shard has not moved to.
    NotMoved,
}

impl Invalid {
    /// The status a shard answers with.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoSuchOperation => 404,
            Self::Forbidden => 403,
            Self::RequestBytes(_) | Self::ValueBytes(_) => 413,
            Self::Items(count) if *count > KV_ITEMS_MAX => 413,
            _ => 400,
        }
    }
}

impl From<Malformed> for Invalid {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => write!(f, "this shard speaks {PATH}"),
            Self::NoSuchOperation => f.write_str("no such operation"),
            Self::Malformed => f.write_str("malformed message"),
            Self::Forbidden => f.write_str("this caller may not do this"),
            Self::RequestBytes(bytes) => write!(f, "a request of {bytes} bytes: at most {KV_REQUEST_BYTES_MAX}"),
            Self::KeyBytes(bytes) => write!(f, "a key of {bytes} bytes: must be from 1 to {KV_KEY_BYTES_MAX}"),
            Self::PrefixBytes(bytes) => write!(f, "a prefix of {bytes} bytes: at most {KV_KEY_BYTES_MAX}"),
            Self::ValueBytes(bytes) => write!(f, "a value of {bytes} bytes: at most {KV_VALUE_BYTES_MAX}"),
            Self::Ttl(ms) => write!(f, "a time to live of {ms} ms: must be from 1 to {KV_TTL_MS_MAX}"),
            Self::VersionNumber(version) => write!(f, "a version of {version}: must be from 1 to {KV_VERSION_MAX}"),
            Self::Items(count) => write!(f, "{count} items in one call: must be from 1 to {KV_ITEMS_MAX}"),
            Self::Limit => f.write_str("a limit of 0: must be 1 at least"),
            Self::OperationBytes(bytes) => {
                write!(f, "an operation id of {bytes} bytes: must be from 1 to {KV_OPERATION_BYTES_MAX}")
            }
            Self::KeyTwice => f.write_str("a key may appear only once in an atomic call"),
            Self::Shards(count) => write!(f, "{count} shards: must be from 1 to {KV_SHARDS_MAX}"),
            Self::NotMoved => f.write_str("only a shard that has moved to so many shards may be pruned"),
        }
    }
}

impl std::error::Error for Invalid {}

/// The operation that a path names: what metrics may count by.
///
/// # Errors
/// `Invalid::Version` for anything but `wasmkeep-kv/v1/`. What follows is not checked.
pub fn operation(path: &str) -> Result<&str, Invalid> {
    path.strip_prefix('/').unwrap_or(path).strip_prefix(PATH).ok_or(Invalid::Version)
}

/// Whether a request with this path writes nothing, and nobody must wait for what it reads beyond what was there before.
#[must_use]
pub fn only_reads(path: &str) -> bool {
    matches!(operation(path), Ok("get" | "get-many" | "list" | "count" | "layout"))
}

pub(super) const fn check_key(key: &[u8]) -> Result<(), Invalid> {
    if key.is_empty() || key.len() > KV_KEY_BYTES_MAX { Err(Invalid::KeyBytes(key.len())) } else { Ok(()) }
}

pub(super) const fn check_value(value: &[u8]) -> Result<(), Invalid> {
    if value.len() > KV_VALUE_BYTES_MAX { Err(Invalid::ValueBytes(value.len())) } else { Ok(()) }
}

pub(super) const fn check_version(version: i64) -> Result<(), Invalid> {
    if version < 1 || version > KV_VERSION_MAX { Err(Invalid::VersionNumber(version)) } else { Ok(()) }
}

const fn check_expect(expect: Expect) -> Result<(), Invalid> {
    match expect {
        Expect::Any | Expect::Absent => Ok(()),
        Expect::Version(version) => check_version(version),
    }
}

const fn check_ttl(ttl_ms: Option<u64>) -> Result<(), Invalid> {
    match ttl_ms {
        Some(ms) if ms == 0 || ms > KV_TTL_MS_MAX => Err(Invalid::Ttl(ms)),
        _ => Ok(()),
    }
}

pub(super) const fn check_operation(operation: Option<&[u8]>) -> Result<(), Invalid> {
    match operation {
        Some(id) if id.is_empty() || id.len() > KV_OPERATION_BYTES_MAX => Err(Invalid::OperationBytes(id.len())),
        _ => Ok(()),
    }
}

pub(super) const fn check_items(count: usize) -> Result<(), Invalid> {
    if count == 0 || count > KV_ITEMS_MAX { Err(Invalid::Items(count)) } else { Ok(()) }
}

pub(super) fn check_list(list: &List<'_>) -> Result<(), Invalid> {
    if list.prefix.len() > KV_KEY_BYTES_MAX {
        return Err(Invalid::PrefixBytes(list.prefix.len()));
    }
    list.after.map_or(Ok(()), check_key)?;
    if list.limit == 0 { Err(Invalid::Limit) } else { Ok(()) }
}
