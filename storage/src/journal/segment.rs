//! Segment files: their names, how one is made ready, how old journals are retired.
//!
//! ```text
//! <dir>/<incarnation>-<core>/<epoch>.seg   a journal's segments, hexadecimal
//! <dir>/spare/*.seg                        zero-filled or used segments of no journal, to be used again
//! <dir>/retired-<incarnation>-<core>/      a journal that is in the base files, being taken apart
//! ```
//!
//! Invariants: a segment's name is durable before its header is written, and its header before its first group. A journal
//! leaves by one rename of its directory, so recovery sees all of it or nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{BLOCK_BYTES, JournalId, SegmentHeader};
use crate::disk::{AlignedBuf, File, Files, Open};
use crate::error::StorageError;

/// A segment file in some use.
pub(super) struct Segment {
    pub(super) epoch: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
}

/// A segment could not be made ready.
#[derive(Debug)]
pub(super) struct PrepareFailed {
    pub(super) error: io::Error,
    /// A file that was to be used and still exists, under this name.
    pub(super) leftover: Option<PathBuf>,
}

/// What to make ready.
pub(super) struct Prepare {
    pub(super) dir: PathBuf,
    pub(super) journal: JournalId,
    pub(super) epoch: u64,
    pub(super) segment_bytes: u64,
    /// A segment of this journal that holds nothing needed.
    pub(super) recycle: Option<PathBuf>,
}

const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

pub(super) fn journal_dir(dir: &Path, journal: JournalId) -> PathBuf {
    dir.join(journal.to_string())
}

pub(super) fn segment_path(dir: &Path, journal: JournalId, epoch: u64) -> PathBuf {
    journal_dir(dir, journal).join(format!("{epoch:08x}.seg"))
}

fn spare_dir(dir: &Path) -> PathBuf {
    dir.join("spare")
}

/// The journal whose directory this is.
pub(super) fn parse_journal_dir(path: &Path) -> Option<JournalId> {
    let (incarnation, core) = path.file_name()?.to_str()?.split_once('-')?;
    let id = JournalId { incarnation: u64::from_str_radix(incarnation, 16).ok()?, core: u16::from_str_radix(core, 16).ok()? };
    (path.file_name()?.to_str()? == id.to_string()).then_some(id)
}

/// The epoch of the segment whose file this is.
pub(super) fn parse_segment_name(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".seg")?;
    (name.len() >= 8).then(|| u64::from_str_radix(name, 16).ok())?
}

/// The journals in a directory, oldest first.
pub(super) fn list_journals(files: &dyn Files, dir: &Path) -> Result<Vec<(JournalId, PathBuf)>, StorageError> {
    let names = files.list(dir).map_err(StorageError::io("listing", dir))?;
    let mut journals: Vec<_> = names.into_iter().filter_map(|path| Some((parse_journal_dir(&path)?, path))).collect();
    journals.sort();
    Ok(journals)
}

/// The segments of a journal, oldest first.
pub(super) fn list_segments(files: &dyn Files, dir: &Path) -> Result<Vec<(u64, PathBuf)>, StorageError> {
    let names = files.list(dir).map_err(StorageError::io("listing", dir))?;
    let mut segments: Vec<_> = names.into_iter().filter_map(|path| Some((parse_segment_name(&path)?, path))).collect();
    segments.sort();
    Ok(segments)
}

/// Makes the directory of a new journal, durably.
pub(super) fn create_journal_dir(files: &dyn Files, dir: &Path, journal: JournalId) -> Result<(), StorageError> {
    let journal_dir = journal_dir(dir, journal);
    let spare = spare_dir(dir);
    for made in [&journal_dir, &spare] {
        files.create_dir_all(made).map_err(StorageError::io("creating", made))?;
    }
    for parent in [Some(dir), dir.parent()].into_iter().flatten().filter(|p| !p.as_os_str().is_empty()) {
        files.sync_dir(parent).map_err(StorageError::io("syncing", parent))?;
    }
    Ok(())
}

/// Makes a segment ready: its space is written, its name and header are durable. May take as long as writing all of it.
pub(super) fn prepare(files: &dyn Files, job: &Prepare) -> Result<Segment, PrepareFailed> {
    let path = segment_path(&job.dir, job.journal, job.epoch);
    let own_dir = journal_dir(&job.dir, job.journal);
    let reused = match &job.recycle {
        Some(old) => match files.rename(old, &path) {
            Ok(()) => true,
            Err(error) => return Err(PrepareFailed { error, leftover: Some(old.clone()) }),
        },
        None => take_spare(files, job, &path),
    };
    if !reused {
        zero_fill(files, &path, job.segment_bytes).map_err(|error| {
            // A part of a segment is of no use, and its space may be what others are waiting for.
            let _ = files.remove(&path);
            PrepareFailed { error, leftover: None }
        })?;
    }
    let finish = || {
        files.sync_dir(&own_dir)?;
        let file = files.open(&path, Open::Journal)?;
        file.write_at(0, SegmentHeader::new(job.journal, job.epoch, job.segment_bytes).encode().as_slice())?;
        file.sync()?;
        Ok(file)
    };
    match finish() {
        Ok(file) => Ok(Segment { epoch: job.epoch, path, file }),
        Err(error) => Err(PrepareFailed { error, leftover: Some(path) }),
    }
}

/// Takes a spare segment of the right size, if there is one. Several cores may try at once: the rename decides.
fn take_spare(files: &dyn Files, job: &Prepare, path: &Path) -> bool {
    let spares = files.list(&spare_dir(&job.dir)).unwrap_or_default();
    spares.into_iter().filter(|spare| parse_segment_name(spare).is_some()).any(|spare| {
        let right_size = files.open(&spare, Open::Read).and_then(|file| file.len()).is_ok_and(|len| len == job.segment_bytes);
        if right_size {
            files.rename(&spare, path).is_ok()
        } else {
            let _ = files.remove(&spare);
            false
        }
    })
}

/// Writes a file full of zeros. Really written, not only reserved: a write into reserved space would change metadata too.
fn zero_fill(files: &dyn Files, path: &Path, len_bytes: u64) -> io::Result<()> {
    files.open(path, Open::Create)?;
    let file = files.open(path, Open::Journal)?;
    let mut zeros = AlignedBuf::new();
    zeros.extend(&vec![
        0;
        ZERO_CHUNK_BYTES.min(usize::try_from(len_bytes).unwrap_or(ZERO_CHUNK_BYTES)).next_multiple_of(BLOCK_BYTES)
    ]);
    let mut offset = 0;
    while offset < len_bytes {
        let chunk = usize::try_from(len_bytes - offset).map_or(zeros.len(), |left| left.min(zeros.len()));
        file.write_at(offset, &zeros.as_slice()[..chunk])?;
        offset += chunk as u64;
    }
    file.sync()
}

/// Takes journals away whose every record is in base files, synced: all of them, or none of an incarnation newer than one left.
/// Their segments become spares while there are fewer than `spares_max`; the rest is removed. May block for long.
///
/// Give it all journals older than the current incarnation: an actor may have records in several of them, and those that stay
/// must be the newest.
///
/// # Errors
/// When the system refuses; calling it again goes on where it stopped.
pub fn retire(files: &dyn Files, dir: &Path, before_incarnation: u64, spares_max: usize) -> Result<(), StorageError> {
    for (journal, path) in list_journals(files, dir)? {
        if journal.incarnation < before_incarnation {
            let retired = dir.join(format!("retired-{journal}"));
            files.rename(&path, &retired).map_err(StorageError::io("retiring", &path))?;
            files.sync_dir(dir).map_err(StorageError::io("syncing", dir))?;
        }
    }
    remove_retired(files, dir, spares_max)
}

/// Takes apart what a crash left of retired journals.
fn remove_retired(files: &dyn Files, dir: &Path, spares_max: usize) -> Result<(), StorageError> {
    let spare = spare_dir(dir);
    let mut spares = files.list(&spare).map_err(StorageError::io("listing", &spare))?.len();
    for retired in files.list(dir).map_err(StorageError::io("listing", dir))? {
        let Some(name) = retired.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("retired-")) else { continue };
        for path in files.list(&retired).map_err(StorageError::io("listing", &retired))? {
            match parse_segment_name(&path) {
                Some(epoch) if spares < spares_max => {
                    let (incarnation, core) = name.split_once('-').unwrap_or((name, "0"));
                    let to = spare.join(format!("{incarnation}{core}{epoch:08x}.seg"));
                    files.rename(&path, &to).map_err(StorageError::io("renaming", &path))?;
                    spares += 1;
                }
                _ => files.remove(&path).map_err(StorageError::io("removing", &path))?,
            }
        }
        files.remove_dir(&retired).map_err(StorageError::io("removing", &retired))?;
    }
    Ok(())
}
