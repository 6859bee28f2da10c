//! Puts together what the journals of all earlier incarnations hold.
//!
//! What it is not: it replays nothing; it says which records there are and where. It changes nothing on disk: that these are all
//! is made durable by the first group of the new incarnation (`Recovery::ends`), before anything is served.
//!
//! How far a journal is believed, most decisive first:
//! 1. A newer incarnation stated where it ended: to there exactly.
//! 2. The journal itself restarted after a failure and stated where the failed epoch ended: to there, then on from the restart.
//! 3. Otherwise up to the first group that does not continue the chain. If a later group shows that the missing one had been
//!    durable, the journal is damaged, which is an error unless the caller accepts the loss.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{BLOCK_BYTES, EpochEnd, GROUPS_OFFSET, GroupHeader, JournalId, RawRecord, RecordKind, SegmentHeader};
use super::index::{Index, IndexBuilder, RecordRef};
use super::scan::{Chain, Mismatch, after, follows, group_at, headers_from, records};
use super::segment::{list_journals, list_segments};
use crate::disk::{File, Files, Open};
use crate::error::StorageError;
use crate::types::Lsn;

const GROUPS_START: usize = BLOCK_BYTES;
const _: () = assert!(GROUPS_START as u64 == GROUPS_OFFSET);

/// One journal that was found.
#[derive(Clone, Debug)]
pub struct FoundJournal {
    /// Whose.
    pub journal: JournalId,
    /// Its segments on disk, whether or not they held anything.
    pub segment_count: usize,
    /// Bytes of groups that count.
    pub group_bytes: u64,
    /// The newest record that counts; zero when there is none.
    pub newest_lsn: Lsn,
    /// Why it ends where it ends.
    pub stopped: String,
}

/// What all journals hold.
pub struct Recovery {
    /// The highest incarnation that left a journal; zero when there is none.
    pub highest_incarnation: u64,
    /// The journals, oldest first.
    pub journals: Vec<FoundJournal>,
    /// Where each ended: what the new incarnation's core 0 must state first.
    pub ends: Vec<EpochEnd>,
    /// Who has records, and where.
    pub index: Index,
    /// What was given up because the caller accepts losses, in words.
    pub losses: Vec<String>,
    pub(super) segments: Vec<(PathBuf, Arc<dyn File>)>,
}

impl std::fmt::Debug for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Recovery({} journals, {} actors, {} records)",
            self.journals.len(),
            self.index.actor_count(),
            self.index.record_count()
        )
    }
}

/// A record read back, verified again.
#[derive(Clone, Copy, Debug)]
pub struct ReadRecord<'a> {
    /// The database's size after it, pages.
    pub size_pages: u32,
    /// Pages in the body.
    pub page_count: u32,
    /// The body, as it was appended.
    pub body: &'a [u8],
}

impl Recovery {
    /// Reads a record, through `buffer`.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it was when it was indexed.
    pub fn read_record<'b>(&self, record: &RecordRef, buffer: &'b mut Vec<u8>) -> Result<ReadRecord<'b>, StorageError> {
        let (path, file) = &self.segments[record.segment as usize];
        buffer.resize(record.len_bytes as usize, 0);
        let offset = u64::from(record.offset);
        let read = file.read_at(offset, buffer).map_err(StorageError::io("reading", path))?;
        let damaged = |detail: &str| StorageError::JournalDamaged { path: path.clone(), offset, detail: detail.to_owned() };
        let raw = RawRecord::decode(&buffer[..read]).map_err(damaged)?;
        if raw.header.lsn != record.lsn.0 || raw.header.actor_sequence != record.actor_sequence {
            return Err(damaged("another record lies here than when it was indexed"));
        }
        Ok(ReadRecord { size_pages: raw.header.size_pages, page_count: raw.header.page_count, body: raw.body })
    }
}

/// A segment of a journal that was found.
struct FoundSegment {
    epoch: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Ends stated by its first group.
    states: Vec<EpochEnd>,
}

/// Consecutive segments that must form one chain.
struct Run {
    segments: Vec<FoundSegment>,
    /// Its first group states the end of the run before it.
    restarts: Option<EpochEnd>,
    /// Where it was stated to end.
    end: Option<EpochEnd>,
}

/// Reads every journal in a directory, of any incarnation and number of cores.
///
/// # Errors
/// When a file cannot be read, or a journal is damaged where it was durable and `accept_loss` is off.
pub fn recover(files: &dyn Files, dir: &Path, accept_loss: bool) -> Result<Recovery, StorageError> {
    let mut found = Vec::new();
    for (journal, path) in list_journals(files, dir)? {
        let segments = open_segments(files, journal, &path)?;
        found.push((journal, path, segments));
    }
    let stated = ends_stated_by_newer(&found);
    let mut reader = Reader {
        accept_loss,
        image: Vec::new(),
        index: IndexBuilder::default(),
        segments: Vec::new(),
        losses: Vec::new(),
        chain: None,
        group_bytes: 0,
    };
    let (mut journals, mut ends) = (Vec::new(), Vec::new());
    for (journal, _, segments) in found {
        let segment_count = segments.len();
        (reader.chain, reader.group_bytes) = (None, 0);
        let stopped = reader.read_journal(journal, runs(journal, segments, stated.get(&journal).copied()))?;
        let chain = reader.chain;
        let newest_lsn = Lsn(chain.map_or(0, |chain| chain.next_lsn - 1));
        journals.push(FoundJournal { journal, segment_count, group_bytes: reader.group_bytes, newest_lsn, stopped });
        let (epoch, sequence, crc) = chain.map_or((0, 0, 0), |chain| (chain.epoch, chain.sequence, chain.crc));
        ends.push(EpochEnd { journal, epoch, sequence, crc });
    }
    let Reader { index, segments, mut losses, .. } = reader;
    let (index, skipped) = index.finish(!losses.is_empty());
    if skipped > 0 {
        losses.push(format!("{skipped} records that build on lost ones were left out"));
    }
    losses.iter().for_each(|loss| tracing::warn!("journal loss accepted: {loss}"));
    let highest_incarnation = journals.last().map_or(0, |found| found.journal.incarnation);
    Ok(Recovery { highest_incarnation, journals, ends, index, losses, segments })
}

fn open_segments(files: &dyn Files, journal: JournalId, dir: &Path) -> Result<Vec<FoundSegment>, StorageError> {
    let mut segments = Vec::new();
    for (epoch, path) in list_segments(files, dir)? {
        let file = files.open(&path, Open::Read).map_err(StorageError::io("opening", &path))?;
        let states = read_states(&*file, journal, epoch).map_err(StorageError::io("reading", &path))?;
        segments.push(FoundSegment { epoch, path, file, states });
    }
    Ok(segments)
}

/// The ends that a segment's first group states: such a group is one record.
fn read_states(file: &dyn File, journal: JournalId, epoch: u64) -> std::io::Result<Vec<EpochEnd>> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut read = file.read_at(GROUPS_OFFSET, &mut bytes)?;
    let Some(header) =
        GroupHeader::decode(&bytes[..read]).filter(|header| header.is_of(journal, epoch) && header.record_count == 1)
    else {
        return Ok(Vec::new());
    };
    if header.padded_bytes() > bytes.len() {
        bytes.resize(header.padded_bytes(), 0);
        read = file.read_at(GROUPS_OFFSET, &mut bytes)?;
    }
    let mut states = Vec::new();
    if read == bytes.len() {
        let verified = records(&bytes, 0, &header, |_, record| {
            if record.kind == RecordKind::EpochEnds {
                states = EpochEnd::decode_all(record.body).ok_or("malformed ends of epochs")?;
            }
            Ok(())
        });
        if verified.is_err() {
            states.clear();
        }
    }
    Ok(states)
}

/// For each journal the end stated by the newest incarnation that states one.
fn ends_stated_by_newer(found: &[(JournalId, PathBuf, Vec<FoundSegment>)]) -> HashMap<JournalId, EpochEnd> {
    let mut stated = HashMap::new();
    for (by, _, segments) in found {
        for end in segments.iter().flat_map(|segment| &segment.states) {
            if end.journal.incarnation < by.incarnation {
                stated.insert(end.journal, *end);
            }
        }
    }
    stated
}

/// Splits a journal at its restarts and leaves out void segments.
fn runs(journal: JournalId, segments: Vec<FoundSegment>, stated: Option<EpochEnd>) -> Vec<Run> {
    let (mut runs, mut run, mut end) = (Vec::new(), Vec::new(), stated);
    for segment in segments.into_iter().rev() {
        if end.is_some_and(|end| segment.epoch > end.epoch) {
            continue;
        }
        let restarts = segment.states.iter().find(|end| end.journal == journal).copied();
        run.insert(0, segment);
        if restarts.is_some() {
            runs.insert(0, Run { segments: std::mem::take(&mut run), restarts, end });
            end = restarts;
        }
    }
    if !run.is_empty() {
        runs.insert(0, Run { segments: run, restarts: None, end });
    }
    runs
}

/// Where a run stops being a chain.
struct Stop {
    path: PathBuf,
    offset: usize,
    why: Mismatch,
}

struct Reader {
    accept_loss: bool,
    /// The segment being read, whole.
    image: Vec<u8>,
    index: IndexBuilder,
    segments: Vec<(PathBuf, Arc<dyn File>)>,
    losses: Vec<String>,
    /// The last group that counts, in the journal being read.
    chain: Option<Chain>,
    group_bytes: u64,
}

impl Reader {
    /// Reads a journal as far as it counts; returns why it ends there.
    fn read_journal(&mut self, journal: JournalId, runs: Vec<Run>) -> Result<String, StorageError> {
        let mut stopped = "there are no segments".to_owned();
        for run in runs {
            let Some(stop) = self.read_run(journal, &run)? else {
                stopped = "it was stated to end there".to_owned();
                continue;
            };
            stopped = format!("{} at byte {}: {}", stop.path.display(), stop.offset, stop.why.reason());
            let damage = match run.end {
                Some(end) => Some(format!("{}, but group {} was durable", stop.why.reason(), end.sequence)),
                None => self.evidence_past(journal, &run, &stop)?,
            };
            if let Some(detail) = damage {
                if !self.accept_loss {
                    return Err(StorageError::JournalDamaged { path: stop.path, offset: stop.offset as u64, detail });
                }
                self.losses.push(format!("{} from byte {} on: {detail}", stop.path.display(), stop.offset));
                break;
            }
        }
        Ok(stopped)
    }

    /// Follows the chain through a run. None when it reached its stated end.
    fn read_run(&mut self, journal: JournalId, run: &Run) -> Result<Option<Stop>, StorageError> {
        let mut stop: Option<Stop> = None;
        // A restart's group does not follow on what lies before it but states it.
        let mut anchored = run.restarts.is_none() && self.chain.is_some();
        for (n, segment) in run.segments.iter().enumerate() {
            if n > 0 && !anchored {
                // Segments before the oldest may have been used again, so its first group is believed as it is. If that one is not
                // there, what follows in later segments has lost what it builds on.
                break;
            }
            // The disk reads the next segment while this one is being verified.
            run.segments.iter().skip(n + 1).take(1).for_each(|next| next.file.will_read());
            self.load(segment)?;
            let number = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
            self.segments.push((segment.path.clone(), Arc::clone(&segment.file)));
            self.index.begin_segment();
            let mut offset = GROUPS_START;
            let why = loop {
                if self.reached(run) {
                    return Ok(None);
                }
                match self.read_group(journal, segment.epoch, number, offset, anchored, run.restarts.filter(|_| n == 0)) {
                    Ok(padded_bytes) => offset += padded_bytes,
                    Err(why) => break why,
                }
                anchored = true;
            };
            if offset == GROUPS_START && n > 0 {
                // The chain does not go on here. If the segment before ended as segments do, this is where it breaks.
                let clean = stop.as_ref().is_none_or(|stop| matches!(stop.why, Mismatch::Nothing(_)));
                return Ok(if clean && matches!(why, Mismatch::Bad(_)) {
                    Some(Stop { path: segment.path.clone(), offset, why })
                } else {
                    stop
                });
            }
            stop = Some(Stop { path: segment.path.clone(), offset, why });
        }
        Ok(stop)
    }

    /// Whether the chain stands exactly at the run's stated end.
    fn reached(&self, run: &Run) -> bool {
        let at = self.chain.map_or((0, 0), |chain| (chain.sequence, chain.crc));
        run.end.is_some_and(|end| (end.sequence, end.crc) == at)
    }

    fn load(&mut self, segment: &FoundSegment) -> Result<(), StorageError> {
        let io = |error| StorageError::io("reading", &segment.path)(error);
        let len_bytes = usize::try_from(segment.file.len().map_err(io)?).unwrap_or(usize::MAX);
        self.image.resize(len_bytes, 0);
        let read = segment.file.read_at(0, &mut self.image).map_err(io)?;
        self.image.truncate(read);
        if SegmentHeader::decode(&self.image).is_ok_and(|header| header.epoch != segment.epoch) {
            tracing::debug!(path = %segment.path.display(), "a segment's header is from an earlier use");
        }
        Ok(())
    }

    /// Verifies and indexes one group; returns its length.
    fn read_group(
        &mut self,
        journal: JournalId,
        epoch: u64,
        segment: u32,
        offset: usize,
        anchored: bool,
        restarts: Option<EpochEnd>,
    ) -> Result<usize, Mismatch> {
        let header = group_at(&self.image, offset, journal, epoch)?;
        match (&self.chain, restarts) {
            (Some(chain), _) if anchored => follows(&header, chain)?,
            (_, Some(end)) if header.previous_crc != end.crc || header.sequence <= end.sequence => {
                return Err(Mismatch::Bad("a restart does not continue the end it states"));
            }
            _ => {}
        }
        let before = self.index.len();
        let index = &mut self.index;
        if let Err(why) = records(&self.image, offset, &header, |at, record| index.add(segment, at, record)) {
            self.index.truncate(before);
            return Err(why);
        }
        self.chain = Some(after(&header));
        self.group_bytes += header.padded_bytes() as u64;
        Ok(header.padded_bytes())
    }

    /// What shows that the group missing at `stop` had been durable: a later one that was submitted after that was known.
    fn evidence_past(&mut self, journal: JournalId, run: &Run, stop: &Stop) -> Result<Option<String>, StorageError> {
        let mut missing = self.chain.map(|chain| chain.sequence + 1);
        let first = run.segments.iter().position(|segment| segment.path == stop.path).unwrap_or(0);
        for (n, segment) in run.segments.iter().enumerate().skip(first) {
            self.load(segment)?;
            let from = if n == first { stop.offset } else { 0 };
            for (at, header) in headers_from(&self.image, from, journal, segment.epoch) {
                // Without a chain before it, the missing group may say itself which it is; else it is at best the one before the
                // first that is intact.
                let itself = n == first && at == stop.offset;
                let missing =
                    *missing.get_or_insert(if itself { header.sequence } else { header.sequence.saturating_sub(1).max(1) });
                if header.sequence > missing && header.durable_through >= missing {
                    let reason = stop.why.reason();
                    return Ok(Some(format!(
                        "{reason}, but a later group in {} shows that it was durable",
                        segment.path.display()
                    )));
                }
            }
        }
        Ok(None)
    }
}
