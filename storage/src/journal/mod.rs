//! The journal of one core.
//!
//! A core's commits become records, records become groups, a group is one write that is durable before it is acknowledged.
//! `format` is the bytes, `segment` the files, `supply` the stock of segments, `group` a group being filled, `writer` the journal
//! itself; `scan` reads a segment, `recover` puts together what all journals hold, `inspect` shows a segment to a person.
//!
//! What it is not: it knows neither pages nor SQLite; bodies are opaque. It decides what is durable and what was lost, not who
//! must wait or break.

mod format;
mod group;
mod index;
mod inspect;
mod recover;
mod scan;
mod segment;
mod supply;
mod writer;

pub use format::{EpochEnd, JournalId, RECORD_HEADER_BYTES, Record, RecordKind, SegmentHeader};
pub use index::{Index, RecordRef};
pub use inspect::{InspectedGroup, InspectedRecord, Inspection, inspect};
pub use recover::{FoundJournal, ReadRecord, Recovery, recover};
pub use segment::retire;
pub use writer::{Flush, Journal, JournalOptions, Progress};

#[cfg(test)]
mod tests;
