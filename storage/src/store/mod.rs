//! One core's durable state: opens actors' databases, feeds their commits to the core's journal, and knows what is durable.
//!
//! It decides what is durable and what was lost. It does not decide who waits for that: gates are the caller's. Everything here
//! belongs to one thread. Invariants:
//! - a page reaches a base file only after its position is durable;
//! - the journal keeps every record that some base file or catalog has not got, so what is left of an actor's history in the
//!   journals is always a suffix of it;
//! - after a failed group nothing is opened and nothing is written until the failed epoch is ended durably.

mod catalog;
mod checkpoint;
mod meta;
mod node;
mod open;
mod place;
mod waiters;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pub use meta::{Alarm, Meta};
pub use node::{CoreDisk, CorePart, NodeStorage, NodeStorageOptions};
pub use open::Opened;
pub use place::{PARTITIONS, base_path, core_of, partition};
pub use waiters::Lost;

use crate::clock::Clock;
use crate::disk::Files;
use crate::disk::background::Background;
use crate::error::Refused;
use crate::journal::{self, Journal, RECORD_HEADER_BYTES, Record, RecordKind};
use crate::limits::{CATALOGS_KEPT, FOLD_RESERVE_PART, OVERLAY_BYTES_MAX, PENDING_BYTES_MAX, SEGMENT_BYTES, TRANSACTION_BYTES_MAX};
use crate::sql::{Commit, CommitSink, Pages};
use crate::types::{Address, Lsn};

/// What a core's store needs to know.
#[derive(Clone)]
pub struct StoreOptions {
    /// The data directory.
    pub data: PathBuf,
    /// This core's number.
    pub core: usize,
    /// How many cores the node has.
    pub cores: usize,
    /// Time.
    pub clock: Clock,
    /// The largest database, bytes.
    pub database_bytes_max: u64,
    /// The journal's size past which checkpoints must have made room, bytes.
    pub journal_bytes_max: u64,
    /// Length of a journal segment, bytes, if not the usual one.
    pub segment_bytes: Option<u64>,
    /// Take base files as they are: the operator has accepted that a journal was lost.
    pub accept_journal_loss: bool,
}

/// What happened to the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Everything up to this position is durable.
    Durable(Lsn),
    /// A group failed: everything past this position is lost, is already taken back here, and whoever has seen it is broken.
    /// Nothing can be written until `Restarted`.
    Failed {
        /// The newest durable position.
        durable: Lsn,
    },
    /// Writes are taken again.
    Restarted,
    /// The attempt to restart failed; `sweep` tries again.
    RestartFailed,
}

/// One core's durable state. Cheap to clone.
#[derive(Clone)]
pub struct CoreStore {
    inner: Rc<Inner>,
}

struct Inner {
    options: StoreOptions,
    files: Arc<dyn Files>,
    background: Background,
    journal: Journal,
    /// Databases that are open or whose base file lacks something.
    databases: RefCell<HashMap<Address, Rc<Database>>>,
    /// Commits and facts that are not durable yet, in order.
    undurable: RefCell<VecDeque<(Lsn, Undurable)>>,
    metas: RefCell<meta::Metas>,
    stamps: RefCell<meta::Stamps>,
    /// Recovered databases that nobody has opened yet.
    tails: RefCell<HashMap<Address, node::Tail>>,
    catalogs: RefCell<HashMap<u32, Rc<catalog::Catalog>>>,
    /// Whether a catalog was asked or written since the last sweep.
    catalogs_used: Cell<bool>,
    waiters: Rc<waiters::Waiters>,
    next_database: Cell<u64>,
    /// Bytes of records given to the journal.
    written_bytes: Cell<u64>,
    /// Bytes of pages and undo kept in memory, over all databases.
    overlay_bytes: Cell<usize>,
    /// Between a failed group and the durable end of its epoch.
    failed: Cell<bool>,
    restart_due: Cell<bool>,
    /// The disk had no room for a segment; said once.
    full: Cell<bool>,
    checkpoints: checkpoint::Checkpoints,
    part: node::PartState,
}

/// What may still be lost.
enum Undurable {
    Pages(Rc<Database>),
    Meta(Address),
}

/// One database with anything in memory.
struct Database {
    /// Names it in this core's journal.
    id: u64,
    address: Address,
    pages: Rc<RefCell<Pages>>,
    /// Counts its records that were not lost, from where its last one in a journal stood when it was loaded; from 0 if its base
    /// file had everything.
    sequence: Cell<u64>,
    /// Whether a connection has it.
    open: Cell<bool>,
    /// Whether it stands in the checkpoint queue.
    queued: Cell<bool>,
    /// What it adds to `Inner::overlay_bytes`.
    accounted_bytes: Cell<usize>,
}

impl CoreStore {
    /// The newest durable position.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.inner.journal.durable()
    }

    /// The newest position given out.
    #[must_use]
    pub fn newest(&self) -> Lsn {
        self.inner.journal.newest()
    }

    /// Whether writes are refused because a group failed and its epoch has not been ended yet.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.inner.failed.get()
    }

    /// Whether a new event should start: memory that waits for the disk is within its bounds, and what the event commits will
    /// find room. While the next journal segment is being made, an event had better wait for it than be refused as full, unless
    /// the disk is known to be full: then each attempt may take long and fail, and whoever only reads must not wait for it.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let journal = &self.inner.journal;
        let segment_comes =
            !self.inner.full.get() && journal.awaits_segment() && journal.segment_left_bytes() < TRANSACTION_BYTES_MAX as u64;
        journal.pending_bytes() < PENDING_BYTES_MAX && self.inner.overlay_bytes.get() < OVERLAY_BYTES_MAX && !segment_comes
    }

    /// Whether the disk has no room for the journal's next segment or for base files.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inner.full.get() || self.inner.checkpoints.found_no_space()
    }

    /// Lets what is pending be written. Call it between guest runs only: what a run committed must not be split over groups.
    pub fn cut(&self) {
        self.inner.journal.cut();
    }

    /// Says that a guest run has ended and that others go on before the next `cut`. Cheap; lets the disk work meanwhile.
    pub fn end_run(&self) {
        self.inner.journal.end_run();
    }

    /// Hears from the journal and does what storage has to do about it; the caller then opens gates or breaks actors.
    pub fn poll_progress(&self, cx: &mut Context<'_>) -> Poll<Progress> {
        let inner = &self.inner;
        let progress = match ready!(inner.journal.poll_progress(cx)) {
            journal::Progress::Durable(durable) => {
                inner.settle(durable);
                inner.waiters.durable(durable);
                Progress::Durable(durable)
            }
            journal::Progress::Failed { durable, error } => {
                tracing::error!(core = inner.options.core, %error, "a write to the journal failed");
                inner.settle(durable);
                inner.take_back(durable);
                inner.waiters.durable(durable);
                inner.waiters.fail(durable, inner.journal.newest());
                Progress::Failed { durable }
            }
            journal::Progress::Restarted => {
                tracing::info!(core = inner.options.core, "the journal has restarted; writes are taken again");
                inner.failed.set(false);
                Progress::Restarted
            }
            journal::Progress::RestartFailed(_) => {
                inner.waiters.lose(inner.journal.durable(), inner.journal.newest());
                inner.restart_due.set(true);
                Progress::RestartFailed
            }
            journal::Progress::PrepareFailed(error) => {
                if !inner.full.replace(true) {
                    tracing::warn!(core = inner.options.core, %error, "no new journal segment could be made; writes may be refused");
                }
                Progress::Durable(inner.journal.durable())
            }
            journal::Progress::Room => {
                inner.full.set(false);
                Progress::Durable(inner.journal.durable())
            }
        };
        inner.checkpoints.look_again();
        Poll::Ready(progress)
    }

    /// After `Failed`, once nobody uses what was lost: ends the failed epoch durably. `Restarted` or `RestartFailed` follows.
    pub fn restart(&self) {
        self.inner.journal.restart();
    }

    /// To be called a few times a second: tries again what a full or failing disk had refused.
    pub fn sweep(&self) {
        let inner = &self.inner;
        if inner.restart_due.replace(false) {
            inner.journal.restart();
        }
        inner.part.allow_recycling(&inner.journal);
        inner.journal.retry_prepare();
        if inner.journal.is_stocked() {
            inner.full.set(false);
        }
        if !inner.catalogs_used.replace(false) && inner.catalogs.borrow().len() > CATALOGS_KEPT {
            inner.close_catalogs();
        }
        inner.checkpoints.look_again();
    }

    /// Ends when `position` is durable, or with `Lost` when its group fails or has failed.
    pub fn durable_at(&self, position: Lsn) -> impl Future<Output = Result<(), Lost>> + use<> {
        let waiters = &self.inner.waiters;
        // The journal goes on behind what was lost: that it is further does not make a lost position durable.
        let is_lost = waiters.is_lost(position);
        let wait = (!is_lost && position > self.durable()).then(|| Rc::clone(waiters).wait(position));
        async move {
            match wait {
                Some(wait) => wait.await,
                None if is_lost => Err(Lost),
                None => Ok(()),
            }
        }
    }

    /// What is known of an actor; `None` if it has never been initialised.
    pub fn meta(&self, address: &Address) -> Result<Option<Meta>, crate::StorageError> {
        let newest = self.inner.metas.borrow().get(address);
        match newest {
            Some(meta) => Ok(Some(meta)),
            None => Ok(self.inner.catalog_row(address)?.and_then(|row| row.meta)),
        }
    }

    /// Records new facts of an actor, in the same group as what its current run has committed.
    pub fn record_meta(&self, address: &Address, meta: Meta, durable: bool) -> Result<Lsn, Refused> {
        let inner = &self.inner;
        let database = inner.database(address)?;
        let body = meta.encode();
        let lsn =
            inner.append(&database, RecordKind::Meta, durable, 0, 0, &body).inspect_err(|_| inner.forget_if_clean(&database))?;
        inner.metas.borrow_mut().put(address, lsn, meta);
        inner.undurable.borrow_mut().push_back((lsn, Undurable::Meta(address.clone())));
        Ok(lsn)
    }

    /// Flushes that ended since this was last asked, for the metrics.
    pub fn take_flushes(&self, each: impl FnMut(journal::Flush)) {
        self.inner.journal.take_flushes(each);
    }

    /// How many databases are open or lack a checkpoint, or how many actors' facts wait for a catalog, whichever is more.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        let inner = &self.inner;
        inner.databases.borrow().len().max(inner.metas.borrow().len()).max(inner.stamps.borrow().len())
    }

    /// Lets go of room in tables that hold far less than they did: to be called when most of it has become quiet.
    pub fn shrink(&self) {
        let inner = &self.inner;
        if inner.catalogs.borrow().len() > CATALOGS_KEPT {
            inner.close_catalogs();
        }
        inner.databases.borrow_mut().shrink_to_fit();
        inner.undurable.borrow_mut().shrink_to_fit();
        inner.metas.borrow_mut().shrink();
        inner.stamps.borrow_mut().shrink();
        inner.tails.borrow_mut().shrink_to_fit();
        inner.checkpoints.shrink();
    }

    /// Numbers for the metrics.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let inner = &self.inner;
        StoreStats {
            overlay_bytes: inner.overlay_bytes.get(),
            journal_used_bytes: inner.journal.used_bytes(),
            journal_pending_bytes: inner.journal.pending_bytes(),
            journal_written_bytes: inner.written_bytes.get(),
            databases: inner.databases.borrow().len(),
            recovered_waiting: inner.tails.borrow().len(),
            pages_checkpointed: inner.checkpoints.pages_written(),
        }
    }
}

/// See `CoreStore::stats`.
#[derive(Clone, Copy, Default, Debug)]
pub struct StoreStats {
    /// Bytes of committed pages and undo in memory.
    pub overlay_bytes: usize,
    /// Bytes of journal segments in use.
    pub journal_used_bytes: u64,
    /// Bytes waiting in memory for the journal.
    pub journal_pending_bytes: usize,
    /// Bytes of records given to the journal since the start.
    pub journal_written_bytes: u64,
    /// Databases that are open or dirty.
    pub databases: usize,
    /// Recovered databases not yet drained.
    pub recovered_waiting: usize,
    /// Pages written to base files since the start.
    pub pages_checkpointed: u64,
}

impl Inner {
    fn append(
        &self,
        database: &Database,
        kind: RecordKind,
        durable: bool,
        size_pages: u32,
        page_count: u32,
        body: &[u8],
    ) -> Result<Lsn, Refused> {
        // Facts are folded through this same journal before its segments are free again: actors may not fill it to the end.
        let segment_bytes = self.options.segment_bytes.unwrap_or(SEGMENT_BYTES);
        let left = self.journal.segment_left_bytes().saturating_sub((self.journal.pending_bytes() + body.len()) as u64);
        let is_actors = &*database.address.class != place::CATALOG_CLASS;
        if is_actors && !self.failed.get() && !self.journal.has_segment_ready() && left < segment_bytes / FOLD_RESERVE_PART {
            // Asks for the next segment, should there be room for it by now.
            self.journal.retry_prepare();
            self.checkpoints.look_again();
            return Err(Refused::Full);
        }
        let sequence = database.sequence.get() + 1;
        let lsn = self.journal.append(&Record {
            actor: database.id,
            address: &database.address,
            actor_sequence: sequence,
            kind,
            durable,
            size_pages,
            page_count,
            body,
        })?;
        database.sequence.set(sequence);
        self.written_bytes.set(self.written_bytes.get() + (RECORD_HEADER_BYTES + body.len()) as u64);
        Ok(lsn)
    }

    /// Everything up to `durable` can no longer be lost: its undo is dropped, and so are databases that were loaded to record a
    /// fact.
    fn settle(&self, durable: Lsn) {
        let mut undurable = self.undurable.borrow_mut();
        while undurable.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            match undurable.pop_front() {
                Some((_, Undurable::Pages(database))) => {
                    database.pages.borrow_mut().durable(durable);
                    self.account(&database);
                }
                Some((_, Undurable::Meta(address))) => {
                    self.metas.borrow_mut().durable(&address, durable);
                    let database = self.databases.borrow().get(&address).cloned();
                    if let Some(database) = database {
                        self.forget_if_clean(&database);
                    }
                }
                None => break,
            }
        }
    }

    /// Everything past `durable` is lost: databases and facts go back to what is durable.
    fn take_back(&self, durable: Lsn) {
        self.failed.set(true);
        for (_, lost) in self.undurable.borrow_mut().drain(..) {
            let database = match lost {
                Undurable::Pages(database) => {
                    database.pages.borrow_mut().revert(durable);
                    self.account(&database);
                    Some(database)
                }
                Undurable::Meta(address) => self.databases.borrow().get(&address).cloned(),
            };
            if let Some(database) = database {
                database.sequence.set(database.sequence.get().saturating_sub(1));
                self.forget_if_clean(&database);
            }
        }
        self.metas.borrow_mut().revert(durable);
        // Their caches hold what was lost.
        self.catalogs.borrow_mut().clear();
    }

    fn account(&self, database: &Database) {
        let bytes = {
            let pages = database.pages.borrow();
            pages.overlay_bytes() + pages.undo_bytes()
        };
        let before = database.accounted_bytes.replace(bytes);
        self.overlay_bytes.set(self.overlay_bytes.get() + bytes - before);
    }
}

/// Takes the commits of one database into the core's journal.
struct Sink {
    store: Weak<Inner>,
    database: Rc<Database>,
}

impl CommitSink for Sink {
    fn append(&self, commit: &Commit<'_>) -> Result<Lsn, Refused> {
        let inner = self.store.upgrade().ok_or(Refused::Failed)?;
        let database = &self.database;
        let lsn = inner.append(database, RecordKind::Pages, commit.durable, commit.size_pages, commit.page_count, commit.body)?;
        inner.undurable.borrow_mut().push_back((lsn, Undurable::Pages(Rc::clone(database))));
        if !database.queued.replace(true) {
            inner.checkpoints.queue(Rc::clone(database));
        }
        Ok(lsn)
    }
}
