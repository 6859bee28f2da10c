//! What a node's cores share of storage: what was recovered, and when the old journals may go.
//!
//! At a start every journal found is read and indexed, its databases and facts are dealt to the cores, and core 0 states durably
//! where the old journals ended; then the node serves. Each core drains its part behind. Old journals are removed when all cores
//! have drained, and only then may a core reuse segments of its new journal: what is left of an actor's records in the journals
//! is then always a suffix of its history.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{CoreStore, Inner, StoreOptions, checkpoint, meta, place, waiters};
use crate::disk::background::Background;
use crate::disk::{Backend, Files};
use crate::error::StorageError;
use crate::journal::{self, EpochEnd, Journal, JournalOptions, RecordKind, Recovery};
use crate::limits::{JOURNAL_SPARES_MAX, SEGMENT_BYTES};
use crate::sql::Pages;
use crate::types::{Address, Lsn};

/// What recovery needs to know.
#[derive(Clone, Debug)]
pub struct NodeStorageOptions {
    /// The data directory.
    pub data: PathBuf,
    /// How many cores the node has now.
    pub cores: usize,
    /// This start's number: higher than any before, durable already.
    pub incarnation: u64,
    /// Go on without what a damaged journal held.
    pub accept_journal_loss: bool,
}

/// Recovers a node's storage.
#[derive(Clone, Copy, Debug)]
pub struct NodeStorage;

/// One core's part of what was recovered.
pub struct CorePart {
    shared: Arc<Shared>,
    tails: HashMap<Address, Tail>,
    metas: Vec<(Address, meta::Meta)>,
    ends: Vec<EpochEnd>,
}

struct Shared {
    files: Arc<dyn Files>,
    journals: PathBuf,
    incarnation: u64,
    cores: usize,
    recovery: Recovery,
    /// Cores that have not drained their part.
    undrained: AtomicUsize,
    retiring: AtomicBool,
    retired: AtomicBool,
    closed: AtomicUsize,
}

/// What the journals hold of one database beyond its base file.
pub(super) struct Tail {
    shared: Arc<Shared>,
    address: Address,
}

impl Tail {
    /// Brings a database's pages up to the newest record; returns where the count of its records stands.
    pub(super) fn replay(&self, pages: &mut Pages) -> Result<u64, StorageError> {
        let recovery = &self.shared.recovery;
        let mut buffer = Vec::new();
        let records = recovery.index.records(&self.address);
        for record in records.iter().filter(|record| record.kind == RecordKind::Pages) {
            let read = recovery.read_record(record, &mut buffer)?;
            // What was recovered is durable: its position is before every position of this start.
            pages.replay(Lsn::ZERO, read.size_pages, read.body).map_err(|error| StorageError::Open {
                address: self.address.to_string(),
                message: format!("a record of the journal could not be applied: {error}"),
            })?;
        }
        Ok(records.last().map_or(0, |record| record.actor_sequence))
    }
}

impl NodeStorage {
    /// Reads every journal and deals what they hold to the cores, in their order.
    ///
    /// # Errors
    /// The file system's, or a journal that is damaged where it was durable.
    pub fn recover(files: &Arc<dyn Files>, options: &NodeStorageOptions) -> Result<Vec<CorePart>, StorageError> {
        let journals = options.data.join("journal");
        let recovery = journal::recover(&**files, &journals, options.accept_journal_loss)?;
        for loss in &recovery.losses {
            tracing::warn!("a loss was accepted: {loss}");
        }
        if recovery.index.record_count() > 0 {
            let (records, databases) = (recovery.index.record_count(), recovery.index.actor_count());
            tracing::info!(records, databases, "recovering from journals; serving goes on meanwhile");
        }
        let shared = Arc::new(Shared {
            files: Arc::clone(files),
            journals,
            incarnation: options.incarnation,
            cores: options.cores,
            recovery,
            undrained: AtomicUsize::new(options.cores),
            retiring: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            closed: AtomicUsize::new(0),
        });
        let mut parts: Vec<_> = (0..options.cores)
            .map(|core| CorePart {
                shared: Arc::clone(&shared),
                tails: HashMap::new(),
                metas: Vec::new(),
                ends: if core == 0 { shared.recovery.ends.clone() } else { Vec::new() },
            })
            .collect();
        let mut buffer = Vec::new();
        for (address, records) in shared.recovery.index.actors() {
            let part = &mut parts[place::core_of_database(address, options.cores)];
            if records.iter().any(|record| record.kind == RecordKind::Pages) {
                part.tails.insert(address.clone(), Tail { shared: Arc::clone(&shared), address: address.clone() });
            }
            if let Some(record) = records.iter().rfind(|record| record.kind == RecordKind::Meta) {
                let read = shared.recovery.read_record(record, &mut buffer)?;
                if let Some(meta) = meta::Meta::decode(read.body) {
                    part.metas.push((address.clone(), meta));
                }
            }
        }
        Ok(parts)
    }
}

/// A core's side of what is shared.
pub(super) struct PartState {
    shared: Arc<Shared>,
    drained: Cell<bool>,
    recycling: Cell<bool>,
}

impl PartState {
    /// Whether nothing of this core depends on old journals.
    pub(super) fn is_drained(&self) -> bool {
        self.drained.get()
    }

    /// Notes that this core's base files and catalogs have everything that was recovered.
    pub(super) fn note_drained(&self, clean: bool) {
        if clean && !self.drained.replace(true) {
            self.shared.undrained.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Removes the old journals once all cores have drained; any core may find that it is the one to do it.
    pub(super) async fn remove_old_journals(&self, background: &Background) -> Result<(), StorageError> {
        let shared = &self.shared;
        if shared.undrained.load(Ordering::Acquire) > 0 || shared.retiring.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let job = Arc::clone(shared);
        let done = run(background, move |files| journal::retire(files, &job.journals, job.incarnation, JOURNAL_SPARES_MAX));
        match done.await {
            Ok(()) => shared.retired.store(true, Ordering::Release),
            Err(error) => {
                shared.retiring.store(false, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lets the journal reuse segments once the old journals are gone.
    pub(super) fn allow_recycling(&self, journal: &Journal) {
        if !self.recycling.get() && self.shared.retired.load(Ordering::Acquire) {
            self.recycling.set(true);
            journal.set_recycling(true);
        }
    }

    /// After a clean stop of every core there is nothing to recover: the last one removes all journals.
    pub(super) fn closed(&self) -> Result<(), StorageError> {
        let shared = &self.shared;
        if shared.closed.fetch_add(1, Ordering::AcqRel) + 1 == shared.cores {
            journal::retire(&*shared.files, &shared.journals, shared.incarnation + 1, JOURNAL_SPARES_MAX)?;
        }
        Ok(())
    }
}

/// Runs a job on a background thread.
pub(super) async fn run<T: Send + 'static>(
    background: &Background,
    job: impl FnOnce(&dyn Files) -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match background.spawn(job) {
        Ok(job) => job.await.unwrap_or(Err(StorageError::Background)),
        Err(_) => Err(StorageError::Background),
    }
}

/// The threads and the way to the disk of one core.
pub struct CoreDisk {
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The journal's writes.
    pub backend: Box<dyn Backend>,
    /// Prepares the journal's segments.
    pub segments: Background,
    /// Writes base files.
    pub checkpoints: Background,
}

impl CoreStore {
    /// Opens a core's storage, on its own thread. Nothing may be served before `started` has returned on every core.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(options: StoreOptions, part: CorePart, disk: CoreDisk) -> Result<Self, StorageError> {
        let CorePart { shared, tails, metas, ends } = part;
        let journal = Journal::create(
            disk.backend,
            disk.segments,
            JournalOptions {
                dir: shared.journals.clone(),
                incarnation: shared.incarnation,
                core: u16::try_from(options.core).unwrap_or(u16::MAX),
                segment_bytes: options.segment_bytes.unwrap_or(SEGMENT_BYTES),
                journal_bytes_max: options.journal_bytes_max,
                first_lsn: Lsn(1),
                clock: options.clock.clone(),
            },
        )?;
        journal.set_recycling(false);
        journal.set_restart_beyond(true);
        if !ends.is_empty() {
            journal
                .append_epoch_ends(&ends)
                .map_err(|refused| StorageError::Open { address: "journal".into(), message: refused.to_string() })?;
            journal.cut();
        }
        let mut recovered = meta::Metas::default();
        for (address, meta) in metas {
            recovered.put(&address, Lsn::ZERO, meta);
        }
        let part = PartState { shared, drained: Cell::new(false), recycling: Cell::new(false) };
        let inner = Inner {
            options,
            files: disk.files,
            background: disk.checkpoints,
            journal,
            databases: std::cell::RefCell::default(),
            undurable: VecDeque::new().into(),
            metas: recovered.into(),
            stamps: std::cell::RefCell::default(),
            tails: tails.into(),
            catalogs: std::cell::RefCell::default(),
            catalogs_used: Cell::new(false),
            waiters: Rc::<waiters::Waiters>::default(),
            next_database: Cell::new(0),
            written_bytes: Cell::new(0),
            overlay_bytes: Cell::new(0),
            failed: Cell::new(false),
            restart_due: Cell::new(false),
            full: Cell::new(false),
            checkpoints: checkpoint::Checkpoints::default(),
            part,
        };
        Ok(Self { inner: Rc::new(inner) })
    }

    /// Waits until it is durable where the old journals ended.
    ///
    /// # Errors
    /// When that cannot be written.
    pub async fn started(&self) -> Result<(), StorageError> {
        while self.durable() < self.newest() {
            // Nothing of the store's own depends on this first group; what else is heard before it is tried or said again.
            let progress = std::future::poll_fn(|cx| self.inner.journal.poll_progress(cx)).await;
            if let journal::Progress::Failed { error, .. } = progress {
                let journals = &self.inner.part.shared.journals;
                return Err(StorageError::io("writing where the old journals ended to", journals)(error));
            }
        }
        Ok(())
    }
}
