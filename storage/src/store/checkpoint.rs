//! Checkpoints: committed pages into base files, facts into catalogs, then the journal's oldest segments are free again.
//!
//! One task per core, in rounds. A round takes everything that was committed when it began, waits until that is durable, writes
//! base files on the background thread in bounded batches, folds facts and stamps into the catalogs, waits until that is durable
//! too, and only then lets the journal recycle. A round that fails (a full disk, a failed group) changes nothing that matters
//! and is tried again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

use super::{Address, CoreStore, Database, Lsn, Meta, meta, node, place};
use crate::disk::{Files, Open};
use crate::error::StorageError;
use crate::limits::{
    CHECKPOINT_BATCH_BYTES, CHECKPOINT_BATCH_DATABASES, CHECKPOINT_QUIET_NS, FOLD_BATCH, OVERLAY_CHECKPOINT_BYTES, PAGE_BYTES,
};
use crate::sql::CheckpointSet;

/// The state of a core's checkpoints.
#[derive(Default)]
pub(super) struct Checkpoints {
    queue: RefCell<VecDeque<Rc<Database>>>,
    look: tokio::sync::Notify,
    pages_written: Cell<u64>,
    /// The newest position when last looked at, and since when it has been so.
    quiet: Cell<(Lsn, u64)>,
    /// Said once, until a round succeeds again.
    complained: Cell<bool>,
    /// The last round that failed did so for want of space, and none has succeeded since.
    no_space: Cell<bool>,
    in_round: Cell<bool>,
    round_ended: tokio::sync::Notify,
}

/// Held by the one round that is going on.
struct Alone<'a>(&'a Checkpoints);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.in_round.set(false);
        self.0.round_ended.notify_one();
    }
}

impl Checkpoints {
    /// A database became dirty.
    pub(super) fn queue(&self, database: Rc<Database>) {
        self.queue.borrow_mut().push_back(database);
    }

    pub(super) fn shrink(&self) {
        self.queue.borrow_mut().shrink_to_fit();
    }

    /// Something changed that may make a round due.
    pub(super) fn look_again(&self) {
        self.look.notify_one();
    }

    /// Waits for the round that is going on, if any, to end.
    async fn alone(&self) -> Alone<'_> {
        while self.in_round.replace(true) {
            self.round_ended.notified().await;
        }
        Alone(self)
    }

    pub(super) const fn found_no_space(&self) -> bool {
        self.no_space.get()
    }

    pub(super) const fn pages_written(&self) -> u64 {
        self.pages_written.get()
    }
}

/// What a fold writes into one partition's catalog: facts and stamps.
type Facts = (Vec<(Address, Meta)>, Vec<(Address, u64)>);

/// What one background job writes of one database.
struct BaseWrite {
    path: PathBuf,
    set: CheckpointSet,
}

impl CoreStore {
    /// Runs checkpoints for as long as the core lives. Spawn it once on the core.
    pub async fn run_checkpoints(self) {
        loop {
            self.inner.checkpoints.look.notified().await;
            if !self.round_is_due() {
                continue;
            }
            let checkpoints = &self.inner.checkpoints;
            let round = self.round().await;
            checkpoints.no_space.set(round.as_ref().is_err_and(StorageError::is_full));
            match round {
                Ok(()) => checkpoints.complained.set(false),
                // `sweep` looks again a few times a second, which is soon enough for a disk to have space again.
                Err(error) if !checkpoints.complained.replace(true) => {
                    tracing::warn!(core = self.inner.options.core, %error, "a checkpoint failed and will be tried again");
                }
                Err(_) => {}
            }
        }
    }

    /// Brings everything into base files and catalogs and gives the journal up, for a clean stop.
    ///
    /// # Errors
    /// The file system's. Nothing is lost then: the next start recovers from the journal.
    pub async fn close(&self) -> Result<(), StorageError> {
        let inner = &self.inner;
        // What a round is writing looks clean; from here on no other one begins.
        let _alone = inner.checkpoints.alone().await;
        // A round's folds make the catalogs dirty, which the next round writes; the third has nothing left to do.
        for _ in 0..4 {
            if inner.is_clean() {
                break;
            }
            self.round_alone().await?;
        }
        if inner.is_clean() { inner.part.closed() } else { Ok(()) }
    }

    fn round_is_due(&self) -> bool {
        let inner = &self.inner;
        if inner.failed.get() || (inner.is_clean() && inner.part.is_drained()) {
            return false;
        }
        let (newest, now_ns) = (self.newest(), inner.options.clock.monotonic_ns());
        let (quiet_at, since_ns) = inner.checkpoints.quiet.get();
        if quiet_at != newest {
            inner.checkpoints.quiet.set((newest, now_ns));
        }
        let is_quiet = quiet_at == newest && now_ns - since_ns >= CHECKPOINT_QUIET_NS;
        is_quiet
            || !inner.part.is_drained()
            || inner.journal.used_bytes() >= inner.options.journal_bytes_max / 2
            || inner.overlay_bytes.get() >= OVERLAY_CHECKPOINT_BYTES
    }

    async fn round(&self) -> Result<(), StorageError> {
        // What a round is writing stands in no queue, so another one beside it would take it for written.
        let _alone = self.inner.checkpoints.alone().await;
        self.round_alone().await
    }

    async fn round_alone(&self) -> Result<(), StorageError> {
        let inner = &self.inner;
        self.drain_tails().await?;
        let through = self.newest();
        self.settled(through).await?;
        self.write_bases(through).await?;
        self.fold(through).await?;
        inner.part.note_drained(inner.recovered_is_clean());
        inner.part.remove_old_journals(&inner.background).await?;
        if let Some(bound) = inner.recycle_bound() {
            inner.journal.recycle_through(bound);
        }
        inner.checkpoints.quiet.set((self.newest(), inner.options.clock.monotonic_ns()));
        Ok(())
    }

    async fn settled(&self, position: Lsn) -> Result<(), StorageError> {
        self.cut();
        self.durable_at(position).await.map_err(|_| StorageError::Restarting)
    }

    /// Loads what was recovered, a bounded number at a time, and writes it to base files.
    async fn drain_tails(&self) -> Result<(), StorageError> {
        loop {
            let addresses: Vec<_> = self.inner.tails.borrow().keys().take(CHECKPOINT_BATCH_DATABASES).cloned().collect();
            if addresses.is_empty() {
                return Ok(());
            }
            for address in &addresses {
                // An event may have loaded it since.
                if self.inner.tails.borrow().contains_key(address) {
                    self.inner.load(address)?;
                    // Replaying one may be thousands of records: requests that have waited for the start come first.
                    tokio::task::yield_now().await;
                }
                if self.inner.failed.get() {
                    return Err(StorageError::Restarting);
                }
            }
            self.write_bases(Lsn::ZERO).await?;
            tokio::task::yield_now().await;
        }
    }

    /// Writes every database that was dirty at or before `through` to its base file.
    async fn write_bases(&self, through: Lsn) -> Result<(), StorageError> {
        let inner = &self.inner;
        let mut left = inner.checkpoints.queue.borrow().len();
        while left > 0 {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while left > 0 && batch.len() < CHECKPOINT_BATCH_DATABASES && bytes < CHECKPOINT_BATCH_BYTES {
                left -= 1;
                let Some(database) = inner.checkpoints.queue.borrow_mut().pop_front() else { break };
                match inner.take_dirty(database, through) {
                    Some((database, set)) => {
                        bytes += set.pages.len() * PAGE_BYTES;
                        batch.push((database, set));
                    }
                    None => continue,
                }
            }
            if !batch.is_empty() {
                self.write_batch(batch).await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn write_batch(&self, batch: Vec<(Rc<Database>, CheckpointSet)>) -> Result<(), StorageError> {
        let inner = &self.inner;
        let newest = batch.iter().map(|(_, set)| set.lsn).max().unwrap_or(Lsn::ZERO);
        let written = match self.settled(newest).await {
            Ok(()) => {
                let data = inner.options.data.clone();
                let writes: Vec<_> = batch
                    .iter()
                    .map(|(database, set)| BaseWrite { path: place::base_path(&data, &database.address), set: set.clone() })
                    .collect();
                node::run(&inner.background, move |files| write_base_files(files, &data, &writes)).await
            }
            Err(error) => Err(error),
        };
        // Every one goes back to the queue if it is dirty, whatever went wrong with another: what is in no queue would not hold
        // back the journal's segments.
        let mut result = written;
        let is_written = result.is_ok();
        for (database, set) in batch {
            if is_written {
                result = inner.checkpointed(&database, &set).and(result);
            }
            inner.requeue_if_dirty(&database);
        }
        result
    }

    /// Writes facts and stamps into the catalogs, waits until they are durable there, and forgets them here.
    async fn fold(&self, through: Lsn) -> Result<(), StorageError> {
        let inner = &self.inner;
        loop {
            let metas = inner.metas.borrow().due(through, self.durable(), FOLD_BATCH);
            let stamps = inner.stamps.borrow().due(FOLD_BATCH);
            if metas.is_empty() && stamps.is_empty() {
                return Ok(());
            }
            let mut partitions: BTreeMap<u32, Facts> = BTreeMap::new();
            for (address, _, meta) in &metas {
                partitions.entry(place::partition_of_database(address)).or_default().0.push((address.clone(), *meta));
            }
            for (address, stamp) in &stamps {
                partitions.entry(place::partition_of_database(address)).or_default().1.push((address.clone(), *stamp));
            }
            for (partition, (metas, stamps)) in partitions {
                inner.fold_partition(partition, &metas, &stamps)?;
            }
            self.settled(self.newest()).await?;
            for (address, lsn, _) in &metas {
                inner.metas.borrow_mut().folded(address, *lsn);
            }
            for (address, stamp) in &stamps {
                inner.stamps.borrow_mut().folded(address, *stamp);
            }
            tokio::task::yield_now().await;
        }
    }
}

impl super::Inner {
    fn is_clean(&self) -> bool {
        self.checkpoints.queue.borrow().is_empty()
            && self.tails.borrow().is_empty()
            && self.metas.borrow().needed_from().is_none()
            && self.stamps.borrow().needed_from().is_none()
            && self.undurable.borrow().is_empty()
    }

    /// Whether nothing depends on the old journals any more.
    fn recovered_is_clean(&self) -> bool {
        self.tails.borrow().is_empty() && self.oldest_needed().is_none_or(|needed| needed > Lsn::ZERO)
    }

    fn oldest_needed(&self) -> Option<Lsn> {
        let queue = self.checkpoints.queue.borrow();
        let dirty = queue.iter().filter_map(|database| database.pages.borrow().first_dirty()).min();
        [dirty, self.metas.borrow().needed_from(), self.stamps.borrow().needed_from()].into_iter().flatten().min()
    }

    /// Everything up to this position is in base files and catalogs.
    fn recycle_bound(&self) -> Option<Lsn> {
        let durable = self.journal.durable();
        match self.oldest_needed() {
            Some(needed) => Some(Lsn(needed.0.checked_sub(1)?).min(durable)),
            None => Some(durable),
        }
    }

    /// The pages to write of a database, if it was dirty at `through`; otherwise it goes back to the queue or is forgotten.
    fn take_dirty(&self, database: Rc<Database>, through: Lsn) -> Option<(Rc<Database>, CheckpointSet)> {
        let first = database.pages.borrow().first_dirty();
        match first {
            Some(first) if first <= through => {
                let set = database.pages.borrow_mut().checkpoint_take();
                Some((database, set))
            }
            _ => {
                self.requeue_if_dirty(&database);
                None
            }
        }
    }

    fn requeue_if_dirty(&self, database: &Rc<Database>) {
        if database.pages.borrow().first_dirty().is_some() {
            self.checkpoints.queue(Rc::clone(database));
        } else {
            database.queued.set(false);
            self.forget_if_clean(database);
        }
    }

    /// A base file has these pages, durably.
    fn checkpointed(&self, database: &Rc<Database>, set: &CheckpointSet) -> Result<(), StorageError> {
        let first = database.pages.borrow().first_dirty().unwrap_or(set.lsn);
        let page_one = set.pages.iter().find(|(number, _)| *number == 1);
        if let Some((_, image)) = page_one
            && &*database.address.class != place::CATALOG_CLASS
        {
            self.stamps.borrow_mut().put(&database.address, meta::stamp_of(&image[..]), first);
        }
        if database.open.get() {
            let base = self.open_base(&database.address)?;
            database.pages.borrow_mut().set_base(base);
        }
        database.pages.borrow_mut().checkpoint_done(set);
        self.checkpoints.pages_written.set(self.checkpoints.pages_written.get() + set.pages.len() as u64);
        self.account(database);
        Ok(())
    }
}

/// Writes the batch and makes it durable, names included.
fn write_base_files(files: &dyn Files, data: &std::path::Path, writes: &[BaseWrite]) -> Result<(), StorageError> {
    let mut whole = writes.len() > 4;
    let mut dirs = BTreeSet::new();
    for write in writes {
        let path = &write.path;
        let dir = path.parent().unwrap_or(data);
        let opened = match files.open(path, Open::Create) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // New directories have parents to be made durable too: one sync for the whole file system.
                whole = true;
                files.create_dir_all(dir).map_err(StorageError::io("making", dir))?;
                files.open(path, Open::Create)
            }
            opened => opened,
        };
        let file = opened.map_err(StorageError::io("opening", path))?;
        let failed = |error| StorageError::io("writing", path)(error);
        let page_bytes = PAGE_BYTES as u64;
        if file.len().map_err(failed)? > u64::from(write.set.keep_pages) * page_bytes {
            file.set_len(u64::from(write.set.keep_pages) * page_bytes).map_err(failed)?;
        }
        for (number, image) in &write.set.pages {
            file.write_at(u64::from(number - 1) * page_bytes, &image[..]).map_err(failed)?;
        }
        file.set_len(u64::from(write.set.size_pages) * page_bytes).map_err(failed)?;
        if !whole {
            file.sync().map_err(failed)?;
            // Up to the data directory: an attempt that failed, or another core, may have made the parents and not synced them.
            dirs.extend(dir.ancestors().take_while(|dir| dir.starts_with(data)).map(std::path::Path::to_owned));
        }
    }
    if whole {
        return files.sync_all(data).map_err(StorageError::io("syncing", data));
    }
    dirs.iter().try_for_each(|dir| files.sync_dir(dir).map_err(StorageError::io("syncing", dir)))
}
