//! Reads groups out of a segment's bytes and says why it stops.
//!
//! What it is not: it follows no chain over segments and takes no decision about damage.

use super::format::{BLOCK_BYTES, GROUP_HEADER_BYTES, GROUPS_OFFSET, GroupHeader, JournalId, RawRecord, chain_record_crc};

/// Why there is no group at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mismatch {
    /// Zeros, another use of the segment, or its end: nothing of this epoch was ever seen here.
    Nothing(&'static str),
    /// Something that is not what it should be.
    Bad(&'static str),
}

impl Mismatch {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Nothing(reason) | Self::Bad(reason) => reason,
        }
    }
}

/// Where a chain of groups stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) crc: u32,
    pub(super) next_lsn: u64,
}

/// The header of the group at `offset`, if there is an intact one of this journal and epoch whose payload fits.
pub(super) fn group_at(image: &[u8], offset: usize, journal: JournalId, epoch: u64) -> Result<GroupHeader, Mismatch> {
    let Some(bytes) = image.get(offset..).filter(|rest| rest.len() >= BLOCK_BYTES) else {
        return Err(Mismatch::Nothing("the segment ends"));
    };
    let Some(header) = GroupHeader::decode(bytes) else {
        return Err(match bytes[..GROUP_HEADER_BYTES].iter().all(|&byte| byte == 0) {
            true => Mismatch::Nothing("no group was written here"),
            false => Mismatch::Bad("the group header's checksum does not match"),
        });
    };
    if !header.is_of(journal, epoch) {
        return Err(Mismatch::Nothing("the group here is left over from an earlier use of the segment"));
    }
    if header.padded_bytes() > bytes.len() {
        return Err(Mismatch::Bad("the group does not fit the segment"));
    }
    Ok(header)
}

/// Whether a group follows directly on a chain.
pub(super) const fn follows(header: &GroupHeader, chain: &Chain) -> Result<(), Mismatch> {
    if header.sequence != chain.sequence + 1 {
        return Err(Mismatch::Bad("the group's sequence is not the next"));
    }
    if header.previous_crc != chain.crc {
        return Err(Mismatch::Bad("the group does not continue the one before it"));
    }
    if header.first_lsn != chain.next_lsn {
        return Err(Mismatch::Bad("the group's first LSN is not the next"));
    }
    Ok(())
}

/// Verifies a group's records and gives each, with its offset in the image, to `each`.
pub(super) fn records<'a>(
    image: &'a [u8],
    offset: usize,
    header: &GroupHeader,
    mut each: impl FnMut(usize, &RawRecord<'a>) -> Result<(), &'static str>,
) -> Result<(), Mismatch> {
    let start = offset + GROUP_HEADER_BYTES;
    let end = start + header.payload_bytes as usize;
    let (mut at, mut crc, mut lsn) = (start, 0, header.first_lsn);
    for _ in 0..header.record_count {
        let record = RawRecord::decode(&image[at..end]).map_err(Mismatch::Bad)?;
        if record.header.lsn != lsn {
            return Err(Mismatch::Bad("a record's LSN is not the next"));
        }
        each(at, &record).map_err(Mismatch::Bad)?;
        crc = chain_record_crc(crc, record.header.crc);
        lsn += 1;
        at += record.header.len_bytes as usize;
    }
    if at != end || crc != header.payload_crc {
        return Err(Mismatch::Bad("the group's records are not those its header counts"));
    }
    Ok(())
}

/// The chain after a group.
pub(super) fn after(header: &GroupHeader) -> Chain {
    let next_lsn = header.first_lsn + u64::from(header.record_count);
    Chain { epoch: header.epoch, sequence: header.sequence, crc: header.crc, next_lsn }
}

/// Every intact header of this journal and epoch from `offset` on, whatever lies between them.
pub(super) fn headers_from(
    image: &[u8],
    offset: usize,
    journal: JournalId,
    epoch: u64,
) -> impl Iterator<Item = (usize, GroupHeader)> {
    let first = offset.max(usize::try_from(GROUPS_OFFSET).unwrap_or(BLOCK_BYTES)).next_multiple_of(BLOCK_BYTES);
    (first..image.len()).step_by(BLOCK_BYTES).filter_map(move |at| Some((at, group_at(image, at, journal, epoch).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::format::GroupFacts;
    use crate::types::Lsn;

    #[test]
    fn a_group_follows_only_with_the_next_sequence_crc_and_lsn() {
        let facts = GroupFacts {
            journal: JournalId { incarnation: 1, core: 0 },
            epoch: 1,
            sequence: 8,
            first_lsn: Lsn(20),
            durable_through: 7,
            record_count: 2,
            payload_bytes: 100,
            payload_crc: 0,
            previous_crc: 5,
        };
        let mut bytes = [0; GROUP_HEADER_BYTES];
        GroupHeader::encode(&facts, &mut bytes);
        let header = GroupHeader::decode(&bytes).unwrap();
        let chain = Chain { epoch: 1, sequence: 7, crc: 5, next_lsn: 20 };
        assert_eq!(follows(&header, &chain), Ok(()));
        for other in [Chain { sequence: 6, ..chain }, Chain { crc: 6, ..chain }, Chain { next_lsn: 19, ..chain }] {
            assert!(follows(&header, &other).is_err(), "{other:?}");
        }
        assert_eq!(after(&header), Chain { epoch: 1, sequence: 8, crc: header.crc, next_lsn: 22 });
    }
}
