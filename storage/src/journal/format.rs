//! The journal's bytes: segment header, group header, record header, ends of epochs. All numbers are little-endian.
//!
//! What it is not: it neither reads nor writes files, and it decides nothing about chains; `scan` and `recover` do.
//!
//! What only grows within one journal: the epoch (one per use of a segment; also the segment's number), a group's sequence, a
//! record's LSN. None of them is ever used twice, not even after a failure.
//!
//! Every byte of a group is covered once: the header's crc covers the header, a record's crc its own bytes, and the header's
//! payload crc is the crc of all records' crcs in order. So writer and reader each pass over the bytes only once.

use std::mem::{offset_of, size_of};

use crate::disk::AlignedBuf;
use crate::types::{Address, Lsn};

/// Alignment of everything a journal writes, bytes.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Where a segment's groups begin: after the block that holds its header.
pub(crate) const GROUPS_OFFSET: u64 = BLOCK_BYTES as u64;

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"WKsg");
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"WKgr");
const FORMAT_VERSION: u32 = 1;

/// Which journal: one core of one start of the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JournalId {
    /// The start of the node that wrote it.
    pub incarnation: u64,
    /// The core that wrote it.
    pub core: u16,
}

impl JournalId {
    /// Both in one number, so that a group copied into or left over in another journal's segment is never taken for its own.
    const fn tag(self) -> u64 {
        (self.incarnation << 16) | self.core as u64
    }
}

impl std::fmt::Display for JournalId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{:04x}", self.incarnation, self.core)
    }
}

/// The first bytes of a segment file.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    magic: u32,
    crc: u32,
    version: u32,
    core: u32,
    /// The start of the node that wrote it.
    pub incarnation: u64,
    /// Its number in its journal, raised at every use of the file: the epoch of its groups.
    pub epoch: u64,
    /// The file's length, bytes.
    pub segment_bytes: u64,
}

const _: () = {
    assert!(size_of::<SegmentHeader>() == 40);
    assert!(offset_of!(SegmentHeader, crc) == 4 && offset_of!(SegmentHeader, core) == 12);
    assert!(offset_of!(SegmentHeader, incarnation) == 16 && offset_of!(SegmentHeader, segment_bytes) == 32);
};

/// The first bytes of a group.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHeader {
    magic: u32,
    /// Of everything after this field. Chains the groups: the next one repeats it as `previous_crc`.
    pub(crate) crc: u32,
    journal: u64,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) first_lsn: u64,
    /// The newest group that was durable when this one was handed to the disk.
    pub(crate) durable_through: u64,
    pub(crate) record_count: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
    pub(crate) previous_crc: u32,
}

/// Length of a group's header, bytes.
pub(crate) const GROUP_HEADER_BYTES: usize = size_of::<GroupHeader>();

const _: () = {
    assert!(GROUP_HEADER_BYTES == 64);
    assert!(offset_of!(GroupHeader, journal) == 8 && offset_of!(GroupHeader, durable_through) == 40);
    assert!(offset_of!(GroupHeader, record_count) == 48 && offset_of!(GroupHeader, previous_crc) == 60);
};

/// The first bytes of a record.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    /// Of everything after this field.
    pub(crate) crc: u32,
    /// Header, address and body, bytes.
    pub(crate) len_bytes: u32,
    pub(crate) lsn: u64,
    pub(crate) actor: u64,
    pub(crate) actor_sequence: u64,
    pub(crate) size_pages: u32,
    pub(crate) page_count: u32,
    pub(crate) name_bytes: u16,
    pub(crate) class_bytes: u8,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    reserved: [u8; 3],
}

/// Length of a record's header, bytes.
pub const RECORD_HEADER_BYTES: usize = size_of::<RecordHeader>();

const _: () = {
    assert!(RECORD_HEADER_BYTES == 48);
    assert!(offset_of!(RecordHeader, lsn) == 8 && offset_of!(RecordHeader, size_pages) == 32);
    assert!(offset_of!(RecordHeader, name_bytes) == 40 && offset_of!(RecordHeader, flags) == 44);
};

const FLAG_DURABLE: u8 = 1;

/// What a record's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// Changed byte ranges of pages, as a commit gave them.
    Pages = 1,
    /// Facts about an actor that are not in its database; opaque here.
    Meta = 2,
    /// Where epochs of this or of older journals ended; no actor's.
    EpochEnds = 3,
}

impl RecordKind {
    pub(crate) const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Pages),
            2 => Some(Self::Meta),
            3 => Some(Self::EpochEnds),
            _ => None,
        }
    }
}

/// One record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The caller's number for the actor, unique in this journal.
    pub actor: u64,
    /// Who it is; written only when this is the actor's first record in a segment.
    pub address: &'a Address,
    /// The actor's own count of its records that were not lost, over all journals. 1 again says that its base file has everything
    /// before it.
    pub actor_sequence: u64,
    /// What the body is; `EpochEnds` is the journal's own.
    pub kind: RecordKind,
    /// Whether an output may wait for it.
    pub durable: bool,
    /// The database's size after it, pages.
    pub size_pages: u32,
    /// Pages in the body.
    pub page_count: u32,
    /// The rest, opaque here.
    pub body: &'a [u8],
}

/// Where a journal ended: groups after this one never happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    /// Whose end.
    pub journal: JournalId,
    /// The epoch that holds the last group; 0 when there is none. Epochs between it and the one that says so are void.
    pub epoch: u64,
    /// The last group's sequence; 0 when there is none.
    pub sequence: u64,
    /// The last group's header crc; 0 when there is none.
    pub crc: u32,
}

const EPOCH_END_BYTES: usize = 32;

impl EpochEnd {
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend(self.journal.incarnation.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.sequence.to_le_bytes());
        out.extend(u32::from(self.journal.core).to_le_bytes());
        out.extend(self.crc.to_le_bytes());
    }

    /// The ends in a record's body; None when it is not such a body.
    pub(crate) fn decode_all(body: &[u8]) -> Option<Vec<Self>> {
        let (ends, rest) = body.as_chunks::<EPOCH_END_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        ends.iter()
            .map(|bytes| {
                let core = u16::try_from(u32_at(bytes, 24)?).ok()?;
                let journal = JournalId { incarnation: u64_at(bytes, 0)?, core };
                Some(Self { journal, epoch: u64_at(bytes, 8)?, sequence: u64_at(bytes, 16)?, crc: u32_at(bytes, 28)? })
            })
            .collect()
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes_at(bytes, offset).map(u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes_at(bytes, offset).map(u32::from_le_bytes)
}

fn put<const N: usize>(out: &mut [u8], offset: usize, bytes: [u8; N]) {
    out[offset..offset + N].copy_from_slice(&bytes);
}

/// Continues the crc of a group's payload over one more record.
pub(crate) fn chain_record_crc(payload_crc: u32, record_crc: u32) -> u32 {
    crc32c::crc32c_append(payload_crc, &record_crc.to_le_bytes())
}

impl SegmentHeader {
    pub(crate) const fn new(journal: JournalId, epoch: u64, segment_bytes: u64) -> Self {
        Self {
            magic: SEGMENT_MAGIC,
            crc: 0,
            version: FORMAT_VERSION,
            core: journal.core as u32,
            incarnation: journal.incarnation,
            epoch,
            segment_bytes,
        }
    }

    /// The journal it says it belongs to.
    #[must_use]
    pub fn journal(&self) -> Option<JournalId> {
        Some(JournalId { incarnation: self.incarnation, core: u16::try_from(self.core).ok()? })
    }

    /// The whole first block of the segment.
    pub(crate) fn encode(&self) -> AlignedBuf {
        let mut bytes = [0; size_of::<Self>()];
        put(&mut bytes, offset_of!(Self, magic), self.magic.to_le_bytes());
        put(&mut bytes, offset_of!(Self, version), self.version.to_le_bytes());
        put(&mut bytes, offset_of!(Self, core), self.core.to_le_bytes());
        put(&mut bytes, offset_of!(Self, incarnation), self.incarnation.to_le_bytes());
        put(&mut bytes, offset_of!(Self, epoch), self.epoch.to_le_bytes());
        put(&mut bytes, offset_of!(Self, segment_bytes), self.segment_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[offset_of!(Self, version)..]);
        put(&mut bytes, offset_of!(Self, crc), crc.to_le_bytes());
        let mut block = AlignedBuf::new();
        block.extend(&bytes);
        block.pad();
        block
    }

    /// Reads the first block of a segment. The error says what is wrong with it.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, &'static str> {
        let short = "the file is shorter than a segment header";
        let u32_at = |offset| u32_at(block, offset).ok_or(short);
        let u64_at = |offset| u64_at(block, offset).ok_or(short);
        let header = Self {
            magic: u32_at(offset_of!(Self, magic))?,
            crc: u32_at(offset_of!(Self, crc))?,
            version: u32_at(offset_of!(Self, version))?,
            core: u32_at(offset_of!(Self, core))?,
            incarnation: u64_at(offset_of!(Self, incarnation))?,
            epoch: u64_at(offset_of!(Self, epoch))?,
            segment_bytes: u64_at(offset_of!(Self, segment_bytes))?,
        };
        let covered = block.get(offset_of!(Self, version)..size_of::<Self>()).ok_or(short)?;
        match header {
            Self { magic, .. } if magic != SEGMENT_MAGIC => Err("this is no segment header"),
            Self { crc, .. } if crc != crc32c::crc32c(covered) => Err("the segment header's checksum does not match"),
            Self { version, .. } if version != FORMAT_VERSION => Err("the segment's format version is not known to this program"),
            header => Ok(header),
        }
    }
}

/// All a group header says, but its crc.
#[derive(Clone, Copy)]
pub(crate) struct GroupFacts {
    pub(crate) journal: JournalId,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) durable_through: u64,
    pub(crate) record_count: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
    pub(crate) previous_crc: u32,
}

impl GroupHeader {
    /// Writes a header into the first bytes of `group`; returns its crc.
    pub(crate) fn encode(facts: &GroupFacts, group: &mut [u8]) -> u32 {
        put(group, offset_of!(Self, magic), GROUP_MAGIC.to_le_bytes());
        put(group, offset_of!(Self, journal), facts.journal.tag().to_le_bytes());
        put(group, offset_of!(Self, epoch), facts.epoch.to_le_bytes());
        put(group, offset_of!(Self, sequence), facts.sequence.to_le_bytes());
        put(group, offset_of!(Self, first_lsn), facts.first_lsn.0.to_le_bytes());
        put(group, offset_of!(Self, durable_through), facts.durable_through.to_le_bytes());
        put(group, offset_of!(Self, record_count), facts.record_count.to_le_bytes());
        put(group, offset_of!(Self, payload_bytes), facts.payload_bytes.to_le_bytes());
        put(group, offset_of!(Self, payload_crc), facts.payload_crc.to_le_bytes());
        put(group, offset_of!(Self, previous_crc), facts.previous_crc.to_le_bytes());
        let crc = crc32c::crc32c(&group[offset_of!(Self, journal)..size_of::<Self>()]);
        put(group, offset_of!(Self, crc), crc.to_le_bytes());
        crc
    }

    /// Reads the header at the start of `bytes` if there is an intact one, of whatever journal.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let magic = u32_at(bytes, offset_of!(Self, magic))?;
        let crc = u32_at(bytes, offset_of!(Self, crc))?;
        let covered = bytes.get(offset_of!(Self, journal)..size_of::<Self>())?;
        if magic != GROUP_MAGIC || crc != crc32c::crc32c(covered) {
            return None;
        }
        Some(Self {
            magic,
            crc,
            journal: u64_at(bytes, offset_of!(Self, journal))?,
            epoch: u64_at(bytes, offset_of!(Self, epoch))?,
            sequence: u64_at(bytes, offset_of!(Self, sequence))?,
            first_lsn: u64_at(bytes, offset_of!(Self, first_lsn))?,
            durable_through: u64_at(bytes, offset_of!(Self, durable_through))?,
            record_count: u32_at(bytes, offset_of!(Self, record_count))?,
            payload_bytes: u32_at(bytes, offset_of!(Self, payload_bytes))?,
            payload_crc: u32_at(bytes, offset_of!(Self, payload_crc))?,
            previous_crc: u32_at(bytes, offset_of!(Self, previous_crc))?,
        })
    }

    /// Whether it belongs to this use of this segment, and is not left over from an earlier one.
    pub(crate) const fn is_of(&self, journal: JournalId, epoch: u64) -> bool {
        self.journal == journal.tag() && self.epoch == epoch
    }

    /// Header, payload and padding, bytes.
    pub(crate) const fn padded_bytes(&self) -> usize {
        (GROUP_HEADER_BYTES + self.payload_bytes as usize).next_multiple_of(BLOCK_BYTES)
    }
}

/// A record's length on disk, bytes.
pub(crate) fn record_bytes(record: &Record<'_>, with_address: bool) -> usize {
    let address = if with_address { record.address.class.len() + record.address.name.len() } else { 0 };
    RECORD_HEADER_BYTES + address + record.body.len()
}

/// Appends a record to a group; returns its crc. The caller has checked that lengths fit their fields.
pub(crate) fn encode_record(record: &Record<'_>, lsn: Lsn, with_address: bool, out: &mut AlignedBuf) -> u32 {
    let (class, name) =
        if with_address { (record.address.class.as_bytes(), record.address.name.as_bytes()) } else { Default::default() };
    let len_bytes = u32::try_from(record_bytes(record, with_address)).expect("checked against TRANSACTION_BYTES_MAX");
    let mut header = [0; RECORD_HEADER_BYTES];
    put(&mut header, offset_of!(RecordHeader, len_bytes), len_bytes.to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, lsn), lsn.0.to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, actor), record.actor.to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, actor_sequence), record.actor_sequence.to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, size_pages), record.size_pages.to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, page_count), record.page_count.to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, name_bytes), u16::try_from(name.len()).expect("an address is short").to_le_bytes());
    put(&mut header, offset_of!(RecordHeader, class_bytes), [u8::try_from(class.len()).expect("an address is short")]);
    put(&mut header, offset_of!(RecordHeader, kind), [record.kind as u8]);
    put(&mut header, offset_of!(RecordHeader, flags), [if record.durable { FLAG_DURABLE } else { 0 }]);
    let start = out.len();
    out.extend(&header);
    if with_address {
        out.extend(class);
        out.extend(name);
    }
    out.extend(record.body);
    let bytes = &mut out.as_mut_slice()[start..];
    let crc = crc32c::crc32c(&bytes[offset_of!(RecordHeader, len_bytes)..]);
    put(bytes, offset_of!(RecordHeader, crc), crc.to_le_bytes());
    crc
}

/// A record as it lies in a segment, its crc verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) kind: RecordKind,
    /// Class and name, where the record carries them.
    pub(crate) address: Option<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    pub(crate) const fn durable(&self) -> bool {
        self.header.flags & FLAG_DURABLE != 0
    }

    /// Reads the record at the start of `bytes`. The error says what does not match.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let short = "a record is cut short";
        let u32_at = |offset| u32_at(bytes, offset).ok_or(short);
        let u64_at = |offset| u64_at(bytes, offset).ok_or(short);
        let len_bytes = u32_at(offset_of!(RecordHeader, len_bytes))?;
        let record = bytes.get(..len_bytes as usize).filter(|r| r.len() >= RECORD_HEADER_BYTES).ok_or(short)?;
        let crc = u32_at(offset_of!(RecordHeader, crc))?;
        if crc != crc32c::crc32c(&record[offset_of!(RecordHeader, len_bytes)..]) {
            return Err("a record's checksum does not match");
        }
        let header = RecordHeader {
            crc,
            len_bytes,
            lsn: u64_at(offset_of!(RecordHeader, lsn))?,
            actor: u64_at(offset_of!(RecordHeader, actor))?,
            actor_sequence: u64_at(offset_of!(RecordHeader, actor_sequence))?,
            size_pages: u32_at(offset_of!(RecordHeader, size_pages))?,
            page_count: u32_at(offset_of!(RecordHeader, page_count))?,
            name_bytes: u16::from_le_bytes(bytes_at(record, offset_of!(RecordHeader, name_bytes)).ok_or(short)?),
            class_bytes: record[offset_of!(RecordHeader, class_bytes)],
            kind: record[offset_of!(RecordHeader, kind)],
            flags: record[offset_of!(RecordHeader, flags)],
            reserved: [0; 3],
        };
        let kind = RecordKind::from_u8(header.kind).ok_or("a record's kind is not known to this program")?;
        let text =
            |range| record.get(range).and_then(|b: &[u8]| std::str::from_utf8(b).ok()).ok_or("a record's address is malformed");
        let name_at = RECORD_HEADER_BYTES + usize::from(header.class_bytes);
        let body_at = name_at + usize::from(header.name_bytes);
        let address = match body_at {
            RECORD_HEADER_BYTES => None,
            _ => Some((text(RECORD_HEADER_BYTES..name_at)?, text(name_at..body_at)?)),
        };
        let body = record.get(body_at..).ok_or("a record's address is malformed")?;
        Ok(Self { header, kind, address, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: JournalId = JournalId { incarnation: 3, core: 1 };

    #[test]
    fn a_record_reads_back_and_no_flipped_bit_goes_unseen() {
        let address = Address::new("note", "böb/1");
        let record = Record {
            actor: 9,
            address: &address,
            actor_sequence: 4,
            kind: RecordKind::Pages,
            durable: true,
            size_pages: 7,
            page_count: 2,
            body: b"some ranges",
        };
        for with_address in [true, false] {
            let mut out = AlignedBuf::new();
            let crc = encode_record(&record, Lsn(77), with_address, &mut out);
            assert_eq!(out.len(), record_bytes(&record, with_address));
            let raw = RawRecord::decode(out.as_slice()).unwrap();
            assert_eq!((raw.header.crc, raw.header.lsn, raw.header.actor, raw.header.actor_sequence), (crc, 77, 9, 4));
            assert_eq!((raw.header.size_pages, raw.header.page_count, raw.kind, raw.durable()), (7, 2, RecordKind::Pages, true));
            assert_eq!((raw.address, raw.body), (with_address.then_some(("note", "böb/1")), &b"some ranges"[..]));
            for bit in 0..out.len() * 8 {
                let mut bad = out.as_slice().to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(RawRecord::decode(&bad).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_group_header_reads_back_and_knows_whose_it_is() {
        let facts = GroupFacts {
            journal: JOURNAL,
            epoch: 5,
            sequence: 11,
            first_lsn: Lsn(100),
            durable_through: 9,
            record_count: 3,
            payload_bytes: 4100,
            payload_crc: 1,
            previous_crc: 2,
        };
        let mut group = [0; GROUP_HEADER_BYTES];
        let crc = GroupHeader::encode(&facts, &mut group);
        let header = GroupHeader::decode(&group).unwrap();
        assert_eq!((header.crc, header.sequence, header.first_lsn, header.durable_through), (crc, 11, 100, 9));
        assert_eq!((header.record_count, header.payload_crc, header.previous_crc, header.padded_bytes()), (3, 1, 2, 8192));
        assert!(header.is_of(JOURNAL, 5) && !header.is_of(JOURNAL, 6) && !header.is_of(JournalId { incarnation: 3, core: 2 }, 5));
        for bit in 0..group.len() * 8 {
            let mut bad = group;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(GroupHeader::decode(&bad).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_segment_header_reads_back_and_says_what_is_wrong() {
        let block = SegmentHeader::new(JOURNAL, 5, 65536).encode();
        let header = SegmentHeader::decode(block.as_slice()).unwrap();
        assert_eq!((header.journal(), header.epoch, header.segment_bytes, block.len()), (Some(JOURNAL), 5, 65536, BLOCK_BYTES));
        let mut bad = block.as_slice().to_vec();
        bad[30] ^= 1;
        assert_eq!(SegmentHeader::decode(&bad), Err("the segment header's checksum does not match"));
        assert_eq!(SegmentHeader::decode(&[0; 4096]), Err("this is no segment header"));
        assert_eq!(SegmentHeader::decode(&[0; 3]), Err("the file is shorter than a segment header"));
    }

    #[test]
    fn ends_of_epochs_read_back() {
        let ends = [
            EpochEnd { journal: JOURNAL, epoch: 1, sequence: 2, crc: 3 },
            EpochEnd { journal: JournalId { incarnation: 1 << 40, core: u16::MAX }, epoch: u64::MAX, sequence: 0, crc: u32::MAX },
        ];
        let mut body = Vec::new();
        ends.iter().for_each(|end| end.encode_into(&mut body));
        assert_eq!(EpochEnd::decode_all(&body).unwrap(), ends);
        assert!(EpochEnd::decode_all(&body[1..]).is_none());
    }
}
