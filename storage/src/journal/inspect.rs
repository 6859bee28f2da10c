//! Shows what one segment file holds, and where and why its groups stop: `wasmkeep journal inspect FILE`.
//!
//! What it is not: recovery. It looks at one file alone; whether a group counts may be decided by another segment.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::format::{BLOCK_BYTES, EpochEnd, JournalId, RecordKind, SegmentHeader};
use super::scan::{Chain, after, follows, group_at, headers_from, records};
use super::segment::{parse_journal_dir, parse_segment_name};
use crate::disk::{Files, Open};
use crate::error::StorageError;

/// A segment file, as far as it makes sense.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Whose it says to be: `<incarnation>-<core>`, hexadecimal.
    pub journal: Option<String>,
    /// Its number in its journal.
    pub epoch: Option<u64>,
    /// The file's length, bytes.
    pub file_bytes: u64,
    /// What is wrong with the segment's header, if anything.
    pub header_problem: Option<String>,
    /// The groups, in order.
    pub groups: Vec<InspectedGroup>,
    /// Where reading stopped, bytes.
    pub stopped_at: u64,
    /// Why.
    pub stopped: String,
    /// Intact groups of this epoch that follow after that, as offsets: damage if one was written after the missing one was
    /// durable.
    pub beyond: Vec<u64>,
}

/// One group.
#[derive(Clone, Debug, Serialize)]
pub struct InspectedGroup {
    /// Where it begins, bytes.
    pub offset: u64,
    /// Its length with padding, bytes.
    pub bytes: u64,
    /// Its place in the chain.
    pub sequence: u64,
    /// The newest group that was durable when it was written.
    pub durable_through: u64,
    /// Its records.
    pub records: Vec<InspectedRecord>,
}

/// One record.
#[derive(Clone, Debug, Serialize)]
pub struct InspectedRecord {
    /// Its LSN.
    pub lsn: u64,
    /// `pages`, `meta` or `epoch ends`.
    pub kind: &'static str,
    /// `class/name`, where the segment named it before.
    pub address: Option<String>,
    /// The actor's own count.
    pub actor_sequence: u64,
    /// Whether an output may have waited for it.
    pub durable: bool,
    /// The database's size after it, pages.
    pub size_pages: u32,
    /// Pages in it.
    pub page_count: u32,
    /// Its length on disk, bytes.
    pub bytes: u32,
    /// The ends it states, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<String>,
}

/// Reads one segment file.
///
/// # Errors
/// When it cannot be read. A file that makes no sense is no error: the result says so.
pub fn inspect(files: &dyn Files, path: &Path) -> Result<Inspection, StorageError> {
    let io = |error| StorageError::io("reading", path)(error);
    let file = files.open(path, Open::Read).map_err(StorageError::io("opening", path))?;
    let file_bytes = file.len().map_err(io)?;
    let mut image = vec![0; usize::try_from(file_bytes).unwrap_or(usize::MAX)];
    let read = file.read_at(0, &mut image).map_err(io)?;
    image.truncate(read);
    let header = SegmentHeader::decode(&image);
    // A damaged header is made up for by the file's place, if it still lies in its place.
    let journal = header.ok().and_then(|h| h.journal()).or_else(|| path.parent().and_then(parse_journal_dir));
    let epoch = header.ok().map(|h| h.epoch).or_else(|| parse_segment_name(path));
    let mut inspection = Inspection {
        journal: journal.map(|id| id.to_string()),
        epoch,
        file_bytes,
        header_problem: header.err().map(str::to_owned),
        groups: Vec::new(),
        stopped_at: 0,
        stopped: "it is not known which journal and epoch this file belongs to".to_owned(),
        beyond: Vec::new(),
    };
    if let (Some(journal), Some(epoch)) = (journal, epoch) {
        read_groups(&image, journal, epoch, &mut inspection);
    }
    Ok(inspection)
}

fn read_groups(image: &[u8], journal: JournalId, epoch: u64, inspection: &mut Inspection) {
    let mut names = std::collections::HashMap::new();
    let mut chain: Option<Chain> = None;
    let mut offset = BLOCK_BYTES;
    let why = loop {
        let header = match group_at(image, offset, journal, epoch) {
            Ok(header) => header,
            Err(why) => break why,
        };
        if let Some(Err(why)) = chain.as_ref().map(|chain| follows(&header, chain)) {
            break why;
        }
        let mut found = Vec::new();
        let verified = records(image, offset, &header, |_, record| {
            if let Some((class, name)) = record.address {
                names.insert(record.header.actor, format!("{class}/{name}"));
            }
            found.push(InspectedRecord {
                lsn: record.header.lsn,
                kind: match record.kind {
                    RecordKind::Pages => "pages",
                    RecordKind::Meta => "meta",
                    RecordKind::EpochEnds => "epoch ends",
                },
                address: names.get(&record.header.actor).cloned(),
                actor_sequence: record.header.actor_sequence,
                durable: record.durable(),
                size_pages: record.header.size_pages,
                page_count: record.header.page_count,
                bytes: record.header.len_bytes,
                ends: if record.kind == RecordKind::EpochEnds { ends_in_words(record.body) } else { Vec::new() },
            });
            Ok(())
        });
        if let Err(why) = verified {
            break why;
        }
        inspection.groups.push(InspectedGroup {
            offset: offset as u64,
            bytes: header.padded_bytes() as u64,
            sequence: header.sequence,
            durable_through: header.durable_through,
            records: found,
        });
        chain = Some(after(&header));
        offset += header.padded_bytes();
    };
    inspection.stopped_at = offset as u64;
    why.reason().clone_into(&mut inspection.stopped);
    let next = chain.map_or(0, |chain| chain.sequence);
    inspection.beyond = headers_from(image, offset + BLOCK_BYTES, journal, epoch)
        .filter(|(_, h)| h.sequence > next)
        .map(|(at, _)| at as u64)
        .collect();
}

fn ends_in_words(body: &[u8]) -> Vec<String> {
    let ends = EpochEnd::decode_all(body).unwrap_or_default();
    ends.iter()
        .map(|end| match end.sequence {
            0 => format!("journal {} holds nothing", end.journal),
            sequence => {
                format!("journal {} ends in segment {:08x} with group {sequence}, crc {:08x}", end.journal, end.epoch, end.crc)
            }
        })
        .collect()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let journal = self.journal.as_deref().unwrap_or("unknown");
        let epoch = self.epoch.map_or_else(|| "unknown".to_owned(), |epoch| format!("{epoch:08x}"));
        writeln!(f, "segment {epoch} of journal {journal}, {} bytes", self.file_bytes)?;
        if let Some(problem) = &self.header_problem {
            writeln!(f, "its header cannot be used: {problem}")?;
        }
        for group in &self.groups {
            let InspectedGroup { offset, bytes, sequence, durable_through, records } = group;
            writeln!(f, "@{offset} group {sequence}, {bytes} bytes, {} records, durable through {durable_through}", records.len())?;
            for record in records {
                let InspectedRecord { lsn, kind, actor_sequence, size_pages, page_count, bytes, .. } = record;
                let class = if record.durable { "durable" } else { "local" };
                match &record.address {
                    Some(address) => writeln!(
                        f,
                        "  lsn {lsn} {address} #{actor_sequence} {kind} {class}, {page_count} of {size_pages} pages, {bytes} bytes"
                    )?,
                    None => writeln!(f, "  lsn {lsn} {kind}, {bytes} bytes")?,
                }
                record.ends.iter().try_for_each(|end| writeln!(f, "    {end}"))?;
            }
        }
        write!(f, "stops at byte {}: {}", self.stopped_at, self.stopped)?;
        for offset in &self.beyond {
            write!(f, "\nan intact group follows at byte {offset}")?;
        }
        Ok(())
    }
}
