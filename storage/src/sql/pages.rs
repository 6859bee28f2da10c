//! The committed content of one database: an overlay of changed pages over a base file that may lag behind.
//!
//! It holds the *newest* content, durable or not, and an undo log of the commits that are not durable yet. So making a group
//! durable costs nothing per page, and a failed group is taken back without the disk.
//!
//! What it is not: it neither writes base files nor knows what is durable; its owner says so (`durable`, `revert`) and does the
//! writing (`checkpoint_take`, write, `checkpoint_done`).
//!
//! Invariants
//! - A page in the overlay is newer than the base file. Any other page is the base file's, or zeros where the base has none.
//! - **A checkpoint set must not be written to a base file before its `lsn` is durable.** The owner waits; `Pages` cannot.
//! - The undo log covers exactly the commits past the last `durable` position.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use super::delta::{DeltaError, Page, PageDeltas, ZERO_PAGE};
use crate::Refused;
use crate::disk::File;
use crate::limits::PAGE_BYTES;
use crate::types::{Lsn, Positions};

/// What one commit changed, on its way to the journal.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// The database's size after the commit, pages.
    pub size_pages: u32,
    /// Pages in `body`.
    pub page_count: u32,
    /// Per page: `pgno u32 LE, n u16 LE`, then `n` times `offset u16 LE, len u16 LE, bytes`. A page past the previous committed
    /// size is "zeros, then these ranges".
    pub body: &'a [u8],
    /// Whether the commit is of durable class: outputs wait for it.
    pub durable: bool,
}

/// Takes commits, in order. Called at SQLite's commit point: an error rolls the transaction back and leaves no trace.
pub trait CommitSink {
    /// Gives the commit a position in the log, or refuses it. Must not use the database that commits.
    fn append(&self, commit: &Commit<'_>) -> Result<Lsn, Refused>;
}

/// Mixes page numbers; std's hasher is several times the cost of the lookup.
#[derive(Default)]
struct PgnoHasher(u64);

impl Hasher for PgnoHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

#[derive(Clone, Debug)]
struct Entry {
    image: Arc<Page>,
    /// The oldest commit whose change to this page the base file may lack.
    first_lsn: Lsn,
    last_lsn: Lsn,
}

/// A commit that can be taken back.
#[derive(Debug)]
struct UndoCommit {
    lsn: Lsn,
    previous_size_pages: u32,
    /// Bytes of this commit in `Undo::bytes`: the old content, in the format of a body.
    bytes_len: usize,
    /// Pages of the overlay that the commit cut off.
    removed: Vec<(u32, Entry)>,
}

#[derive(Debug, Default)]
struct Undo {
    commits: VecDeque<UndoCommit>,
    /// Old bytes of all commits, oldest first, from `start`.
    bytes: Vec<u8>,
    start: usize,
}

/// Undo bytes kept allocated once everything is durable; past it the memory goes back.
const UNDO_BYTES_KEPT: usize = 64 * 1024;

impl Undo {
    fn forget_through(&mut self, lsn: Lsn) {
        while self.commits.front().is_some_and(|c| c.lsn <= lsn) {
            if let Some(commit) = self.commits.pop_front() {
                self.start += commit.bytes_len;
            }
        }
        if self.commits.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(UNDO_BYTES_KEPT);
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

/// A consistent image of what a base file lacks, as of `lsn`. Cheap to take: pages are shared until a later commit changes them.
///
/// To apply it, once `lsn` is durable: cut the file to `keep_pages` pages if it is longer, write the pages, set the length to
/// `size_pages` pages, sync.
#[derive(Clone, Debug)]
pub struct CheckpointSet {
    /// The position of the image. Nothing of it may be written before this is durable.
    pub lsn: Lsn,
    /// The base file's pages past this are stale.
    pub keep_pages: u32,
    /// The database's size, pages.
    pub size_pages: u32,
    /// Number and content, ascending.
    pub pages: Vec<(u32, Arc<Page>)>,
}

/// One database's committed content.
pub struct Pages {
    base: Option<Arc<dyn File>>,
    /// Pages for which the base file was right at the last checkpoint.
    base_pages: u32,
    /// Commits since then that made the database shorter, with its size. What the base holds past the shortest is stale.
    cuts: Vec<(Lsn, u32)>,
    overlay: HashMap<u32, Entry, BuildHasherDefault<PgnoHasher>>,
    size_pages: u32,
    newest_lsn: Lsn,
    newest_durable_class_lsn: Lsn,
    /// Through which position the base file is complete.
    checkpointed_lsn: Lsn,
    first_dirty_lsn: Option<Lsn>,
    undo: Undo,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages")
            .field("size_pages", &self.size_pages)
            .field("newest_lsn", &self.newest_lsn)
            .field("overlay", &self.overlay.len())
            .field("undo", &self.undo.commits.len())
            .finish_non_exhaustive()
    }
}

impl Pages {
    /// The content of a base file of `size_pages` pages, or an empty database.
    #[must_use]
    pub fn new(base: Option<Arc<dyn File>>, size_pages: u32) -> Self {
        Self {
            base,
            base_pages: size_pages,
            cuts: Vec::new(),
            overlay: HashMap::default(),
            size_pages,
            newest_lsn: Lsn::ZERO,
            newest_durable_class_lsn: Lsn::ZERO,
            checkpointed_lsn: Lsn::ZERO,
            first_dirty_lsn: None,
            undo: Undo::default(),
        }
    }

    /// Attaches the base file, or lets go of it: without one only what is in the overlay may be read, so a database without a
    /// connection needs none.
    pub fn set_base(&mut self, file: Option<Arc<dyn File>>) {
        self.base = file;
    }

    /// The base file, if there is one.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<dyn File>> {
        self.base.as_ref()
    }

    /// The database's size, pages.
    #[must_use]
    pub const fn size_pages(&self) -> u32 {
        self.size_pages
    }

    /// The newest commit, `Lsn::ZERO` if there was none since the start.
    #[must_use]
    pub const fn newest_lsn(&self) -> Lsn {
        self.newest_lsn
    }

    /// What anyone who reads this database now has seen.
    #[must_use]
    pub const fn positions(&self) -> Positions {
        Positions { gate: self.newest_durable_class_lsn, seen: self.newest_lsn }
    }

    /// The oldest commit that the base file may lack: the journal must keep it.
    #[must_use]
    pub const fn first_dirty(&self) -> Option<Lsn> {
        self.first_dirty_lsn
    }

    /// Memory of the overlay, bytes.
    #[must_use]
    pub fn overlay_bytes(&self) -> usize {
        self.overlay.len() * (PAGE_BYTES + size_of::<Entry>() + 16)
    }

    /// Memory of the undo log, bytes.
    #[must_use]
    pub fn undo_bytes(&self) -> usize {
        self.undo.bytes.len() - self.undo.start + self.undo.commits.len() * size_of::<UndoCommit>()
    }

    /// Pages for which the base file is right where the overlay has none.
    fn base_valid_pages(&self) -> u32 {
        self.cuts.iter().fold(self.base_pages, |n, (_, size)| n.min(*size))
    }

    /// The page as it is in memory, if it is: from the overlay, or zeros past everything.
    #[inline]
    pub(super) fn in_memory(&self, pgno: u32) -> Option<&Page> {
        if let Some(entry) = self.overlay.get(&pgno) {
            return Some(&entry.image);
        }
        (self.base.is_none() || pgno > self.size_pages || pgno > self.base_valid_pages()).then_some(&ZERO_PAGE)
    }

    /// Reads a page; past the size of the database there are zeros.
    pub fn read_page(&self, pgno: u32, page: &mut Page) -> io::Result<()> {
        self.read_in_page(pgno, 0, page)
    }

    /// Reads `buf.len()` bytes from byte `offset` of a page.
    pub(super) fn read_in_page(&self, pgno: u32, offset: usize, buf: &mut [u8]) -> io::Result<()> {
        if let Some(page) = self.in_memory(pgno) {
            buf.copy_from_slice(&page[offset..offset + buf.len()]);
            return Ok(());
        }
        let Some(base) = &self.base else {
            buf.fill(0);
            return Ok(());
        };
        let n = base.read_at(u64::from(pgno - 1) * PAGE_BYTES as u64 + offset as u64, buf)?;
        buf[n..].fill(0);
        Ok(())
    }

    /// Takes in a commit that has its position: the same body that went to the journal. `base_image` gives pages that were read
    /// from the base file while the body was made.
    pub(super) fn install(&mut self, lsn: Lsn, commit: &Commit<'_>, mut base_image: impl FnMut(u32) -> Option<Arc<Page>>) {
        let undo_start = self.undo.bytes.len();
        let previous_size_pages = self.size_pages;
        for delta in PageDeltas::new(commit.body, commit.size_pages) {
            let Ok(delta) = delta else { break };
            if let Some(entry) = self.overlay.get_mut(&delta.pgno) {
                delta.apply_with_undo(Arc::make_mut(&mut entry.image), &mut self.undo.bytes);
                entry.last_lsn = lsn;
                continue;
            }
            let mut image = base_image(delta.pgno).unwrap_or_else(|| Arc::new(ZERO_PAGE));
            if delta.pgno > previous_size_pages {
                delta.apply(Arc::make_mut(&mut image));
            } else {
                delta.apply_with_undo(Arc::make_mut(&mut image), &mut self.undo.bytes);
            }
            self.overlay.insert(delta.pgno, Entry { image, first_lsn: lsn, last_lsn: lsn });
        }
        let removed = self.resize(lsn, commit.size_pages);
        let bytes_len = self.undo.bytes.len() - undo_start;
        self.undo.commits.push_back(UndoCommit { lsn, previous_size_pages, bytes_len, removed });
        self.advance(lsn);
        if commit.durable {
            self.newest_durable_class_lsn = lsn;
        }
    }

    /// Recovery: applies a record that is already durable. Harmless if its changes, or newer ones, are in the base file.
    pub fn replay(&mut self, lsn: Lsn, size_pages: u32, body: &[u8]) -> Result<(), ReplayError> {
        PageDeltas::validate(body, size_pages)?;
        let previous_size_pages = self.size_pages;
        for delta in PageDeltas::new(body, size_pages) {
            let delta = delta?;
            if !self.overlay.contains_key(&delta.pgno) {
                let mut image = ZERO_PAGE;
                if delta.pgno <= previous_size_pages {
                    self.read_page(delta.pgno, &mut image)?;
                }
                self.overlay.insert(delta.pgno, Entry { image: Arc::new(image), first_lsn: lsn, last_lsn: lsn });
            }
            if let Some(entry) = self.overlay.get_mut(&delta.pgno) {
                delta.apply(Arc::make_mut(&mut entry.image));
                entry.last_lsn = lsn;
            }
        }
        self.resize(lsn, size_pages);
        self.advance(lsn);
        Ok(())
    }

    /// Sets the size; returns the pages cut off.
    fn resize(&mut self, lsn: Lsn, size_pages: u32) -> Vec<(u32, Entry)> {
        let mut removed = Vec::new();
        if size_pages < self.size_pages {
            removed.extend(self.overlay.extract_if(|pgno, _| *pgno > size_pages));
            self.cuts.push((lsn, size_pages));
        }
        self.size_pages = size_pages;
        removed
    }

    fn advance(&mut self, lsn: Lsn) {
        self.newest_lsn = lsn;
        self.first_dirty_lsn.get_or_insert(lsn);
    }

    /// Everything through `lsn` is durable: it can no longer be taken back.
    pub fn durable(&mut self, lsn: Lsn) {
        self.undo.forget_through(lsn);
    }

    /// Takes back every commit newer than `durable`, newest first. A connection on this database must have been dropped.
    pub fn revert(&mut self, durable: Lsn) {
        if self.newest_lsn <= durable {
            return;
        }
        while self.undo.commits.back().is_some_and(|c| c.lsn > durable) {
            let Some(commit) = self.undo.commits.pop_back() else { break };
            for pgno in commit.previous_size_pages.saturating_add(1)..=self.size_pages {
                self.overlay.remove(&pgno);
            }
            let start = self.undo.bytes.len() - commit.bytes_len;
            for delta in PageDeltas::new(&self.undo.bytes[start..], u32::MAX).flatten() {
                if let Some(entry) = self.overlay.get_mut(&delta.pgno) {
                    delta.apply(Arc::make_mut(&mut entry.image));
                }
            }
            self.undo.bytes.truncate(start);
            self.overlay.extend(commit.removed);
            self.size_pages = commit.previous_size_pages;
        }
        self.cuts.retain(|(lsn, _)| *lsn <= durable);
        // A page whose first change since the checkpoint is gone is the base file's again.
        self.overlay.retain(|_, entry| {
            entry.last_lsn = entry.last_lsn.min(durable);
            entry.first_lsn <= durable
        });
        self.newest_lsn = durable;
        self.newest_durable_class_lsn = self.newest_durable_class_lsn.min(durable);
        if self.first_dirty_lsn.is_some_and(|first| first > durable) {
            self.first_dirty_lsn = None;
        }
    }

    /// The image that the base file should get next. See `CheckpointSet` for how; then call `checkpoint_done`.
    #[must_use]
    pub fn checkpoint_take(&self) -> CheckpointSet {
        let mut pages: Vec<_> = self.overlay.iter().map(|(pgno, entry)| (*pgno, Arc::clone(&entry.image))).collect();
        pages.sort_unstable_by_key(|(pgno, _)| *pgno);
        CheckpointSet { lsn: self.newest_lsn, keep_pages: self.base_valid_pages(), size_pages: self.size_pages, pages }
    }

    /// The base file holds this set, durably: its pages leave the overlay, unless a later commit changed them.
    pub fn checkpoint_done(&mut self, set: &CheckpointSet) {
        self.overlay.retain(|_, entry| {
            entry.first_lsn = entry.first_lsn.max(set.lsn.next());
            entry.last_lsn > set.lsn
        });
        self.cuts.retain(|(lsn, _)| *lsn > set.lsn);
        self.base_pages = set.size_pages;
        self.checkpointed_lsn = set.lsn;
        self.first_dirty_lsn = (self.newest_lsn > set.lsn).then(|| set.lsn.next());
    }
}

/// Why a record could not be replayed.
#[derive(thiserror::Error, Debug)]
pub enum ReplayError {
    /// The record is damaged.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// The base file could not be read.
    #[error("reading the base file: {0}")]
    Base(#[from] io::Error),
}
