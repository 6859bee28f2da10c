//! The words every part of storage shares: positions, addresses, values.

use std::fmt;
use std::sync::Arc;

/// A core's log position: the number of a record in that core's journal. Grows by one per record and is never reused;
/// `Lsn::ZERO` is before the first record. Positions of different cores are not comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The position before the first record.
    pub const ZERO: Self = Self(0);

    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What an actor may have seen of its core's log. Both only grow while the actor is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Positions {
    /// The newest commit of durable class it may have seen: its outputs wait for this one.
    pub gate: Lsn,
    /// The newest commit of any class it may have seen: losing this one breaks the actor.
    pub seen: Lsn,
}

impl Positions {
    /// Takes in what another actor of the same core had seen when it sent us something.
    pub fn absorb(&mut self, other: Self) {
        self.gate = self.gate.max(other.gate);
        self.seen = self.seen.max(other.seen);
    }
}

/// `class/name`, the address of an actor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// `[a-z][a-z0-9-]{0,62}`; the caller has checked it.
    pub class: Arc<str>,
    /// 1 to 256 bytes of UTF-8 without control characters; the caller has checked it.
    pub name: Arc<str>,
}

impl Address {
    /// An address from its two parts, unchecked.
    #[must_use]
    pub fn new(class: &str, name: &str) -> Self {
        Self { class: class.into(), name: name.into() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class, self.name)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One SQLite value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// NULL
    Null,
    /// A signed 64-bit integer, exact.
    Integer(i64),
    /// A double. NaN is kept exact in our own hands; SQLite itself stores NaN as NULL.
    Real(f64),
    /// Text; may hold NUL.
    Text(String),
    /// Bytes; may be empty.
    Blob(Vec<u8>),
}

/// What a query returned.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rows {
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// The rows' values, row by row: `values.len()` is a multiple of `columns.len()`.
    pub values: Vec<Value>,
}
