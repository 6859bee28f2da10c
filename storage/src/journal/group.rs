//! A group being filled: records encoded in place, ready to be written as they are.
//!
//! What it is not: it knows its segment and offset but not its chain; sequence, previous crc and `durable_through` are known
//! only when it is handed to the disk.
//!
//! A group can be split at its boundary only, which lies between guest runs: what one run appended stays together even when it
//! has to move to the next segment, where its actors must be named again.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::format::{
    BLOCK_BYTES, GROUP_HEADER_BYTES, GroupFacts, GroupHeader, RawRecord, Record, chain_record_crc, encode_record, record_bytes,
};
use crate::disk::{AlignedBuf, File};
use crate::types::{Address, Lsn};

/// Spreads the caller's small consecutive actor numbers over a hash table; nobody outside can choose them.
#[derive(Default)]
pub(super) struct ActorHasher(u64);

impl Hasher for ActorHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// Actors whose address the current segment holds already.
pub(super) type Named = HashSet<u64, BuildHasherDefault<ActorHasher>>;

/// How far a group is filled.
#[derive(Clone, Copy)]
struct Fill {
    len_bytes: usize,
    record_count: u32,
    payload_crc: u32,
    last_lsn: Lsn,
}

/// A group in memory.
pub(super) struct Group {
    pub(super) buffer: AlignedBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) epoch: u64,
    pub(super) offset: u64,
    first_lsn: Lsn,
    fill: Fill,
    /// What belongs to ended runs.
    boundary: Fill,
    /// Addresses of the records past the boundary, should they have to move.
    since_boundary: Vec<Address>,
}

/// Records of the run that is still going on, taken out of a full segment.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    addresses: Vec<Address>,
}

/// Where a group stands in the chain.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) journal: super::format::JournalId,
    pub(super) sequence: u64,
    pub(super) durable_through: u64,
    pub(super) previous_crc: u32,
}

impl Tail {
    pub(super) const fn record_count(&self) -> u64 {
        self.addresses.len() as u64
    }
}

impl Group {
    /// An empty group at a place. `first_lsn` is what its first record will get.
    pub(super) fn new(mut buffer: AlignedBuf, file: Arc<dyn File>, epoch: u64, offset: u64, first_lsn: Lsn) -> Self {
        buffer.clear();
        buffer.extend(&[0; GROUP_HEADER_BYTES]);
        let fill = Fill { len_bytes: GROUP_HEADER_BYTES, record_count: 0, payload_crc: 0, last_lsn: Lsn::ZERO };
        Self { buffer, file, epoch, offset, first_lsn, fill, boundary: fill, since_boundary: Vec::new() }
    }

    /// What a group with this many bytes of records takes on disk.
    pub(super) const fn padded_bytes(records_bytes: usize) -> u64 {
        (GROUP_HEADER_BYTES + records_bytes).next_multiple_of(BLOCK_BYTES) as u64
    }

    pub(super) const fn records_bytes(&self) -> usize {
        self.fill.len_bytes - GROUP_HEADER_BYTES
    }

    pub(super) const fn end_offset(&self) -> u64 {
        self.offset + Self::padded_bytes(self.records_bytes())
    }

    pub(super) const fn last_lsn(&self) -> Lsn {
        self.fill.last_lsn
    }

    pub(super) fn record_count(&self) -> u64 {
        u64::from(self.fill.record_count)
    }

    /// Adds a record; the caller knows that it fits.
    pub(super) fn push(&mut self, record: &Record<'_>, lsn: Lsn, named: &mut Named) {
        let crc = encode_record(record, lsn, named.insert(record.actor), &mut self.buffer);
        self.fill = Fill {
            len_bytes: self.buffer.len(),
            record_count: self.fill.record_count + 1,
            payload_crc: chain_record_crc(self.fill.payload_crc, crc),
            last_lsn: lsn,
        };
        self.since_boundary.push(record.address.clone());
    }

    /// Every record so far belongs to runs that have ended.
    pub(super) fn mark_boundary(&mut self) {
        self.boundary = self.fill;
        self.since_boundary.clear();
    }

    /// The most that the records past the boundary can take elsewhere, bytes.
    pub(super) fn tail_bytes_max(&self) -> usize {
        let addresses: usize = self.since_boundary.iter().map(|a| a.class.len() + a.name.len()).sum();
        self.fill.len_bytes - self.boundary.len_bytes + addresses
    }

    /// Cuts off the records past the boundary. What remains may be empty.
    pub(super) fn split_tail(&mut self) -> Tail {
        let bytes = self.buffer.as_slice()[self.boundary.len_bytes..].to_vec();
        self.buffer.truncate(self.boundary.len_bytes);
        self.fill = self.boundary;
        Tail { bytes, addresses: std::mem::take(&mut self.since_boundary) }
    }

    /// Adds the records of a tail, with their LSNs.
    pub(super) fn push_tail(&mut self, tail: &Tail, named: &mut Named) {
        let mut rest = &tail.bytes[..];
        for address in &tail.addresses {
            let raw = RawRecord::decode(rest).expect("encoded by this process a moment ago");
            let record = Record {
                actor: raw.header.actor,
                address,
                actor_sequence: raw.header.actor_sequence,
                kind: raw.kind,
                durable: raw.durable(),
                size_pages: raw.header.size_pages,
                page_count: raw.header.page_count,
                body: raw.body,
            };
            if self.fill.record_count == 0 {
                self.first_lsn = Lsn(raw.header.lsn);
            }
            self.push(&record, Lsn(raw.header.lsn), named);
            rest = &rest[raw.header.len_bytes as usize..];
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.fill.record_count == 0
    }

    /// Completes the bytes to be written; returns the header's crc.
    pub(super) fn finish(&mut self, link: &Link) -> u32 {
        let facts = GroupFacts {
            journal: link.journal,
            epoch: self.epoch,
            sequence: link.sequence,
            first_lsn: self.first_lsn,
            durable_through: link.durable_through,
            record_count: self.fill.record_count,
            payload_bytes: u32::try_from(self.records_bytes()).expect("a group fits a segment"),
            payload_crc: self.fill.payload_crc,
            previous_crc: link.previous_crc,
        };
        self.buffer.pad();
        GroupHeader::encode(&facts, self.buffer.as_mut_slice())
    }
}

/// What a record takes in a segment that names these actors, bytes.
pub(super) fn bytes_in(named: &Named, record: &Record<'_>) -> usize {
    record_bytes(record, !named.contains(&record.actor))
}
