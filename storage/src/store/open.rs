//! Opening an actor's database: base file, then what the journals know beyond it, then a connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::{CoreStore, Database, Inner, Sink, meta, place};
use crate::disk::{File, Open};
use crate::error::{Refused, StorageError};
use crate::limits::PAGE_BYTES;
use crate::sql::{CommitSink, Connection, ConnectionOptions, EventBudget, Pages};
use crate::types::{Address, Lsn};

/// An open database. Dropping it closes the connection; the committed pages stay until their base file has them.
pub struct Opened {
    /// The one connection.
    pub connection: Rc<Connection>,
    database: Rc<Database>,
    inner: Rc<Inner>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.database.open.set(false);
        self.database.pages.borrow_mut().set_base(None);
        self.inner.forget_if_clean(&self.database);
    }
}

impl CoreStore {
    /// Opens an actor's database for the one instance that may use it; a second one while the first is open is a bug of ours.
    ///
    /// # Errors
    /// The file system's, a base file that was changed from outside, SQLite's, or `Restarting` after a failed group.
    pub fn open_actor(&self, address: &Address, budget: Rc<EventBudget>) -> Result<Opened, StorageError> {
        let inner = &self.inner;
        if inner.failed.get() {
            return Err(StorageError::Restarting);
        }
        let database = inner.load(address)?;
        let connection = inner.connect(&database, budget, true)?;
        Ok(Opened { connection: Rc::new(connection), database, inner: Rc::clone(inner) })
    }
}

impl Inner {
    pub(super) fn connect(
        self: &Rc<Self>,
        database: &Rc<Database>,
        budget: Rc<EventBudget>,
        guest: bool,
    ) -> Result<Connection, StorageError> {
        assert!(!database.open.get(), "{} is opened twice", database.address);
        let base = self.open_base(&database.address)?;
        database.pages.borrow_mut().set_base(base);
        let sink: Rc<dyn CommitSink> = Rc::new(Sink { store: Rc::downgrade(self), database: Rc::clone(database) });
        let options = ConnectionOptions { database_bytes_max: self.options.database_bytes_max, guest };
        let connection = Connection::open(Rc::clone(&database.pages), sink, budget, &options)
            .map_err(|error| StorageError::Open { address: database.address.to_string(), message: error.to_string() })?;
        database.open.set(true);
        Ok(connection)
    }

    /// The database's entry, made if there is none.
    pub(super) fn database(self: &Rc<Self>, address: &Address) -> Result<Rc<Database>, Refused> {
        self.load(address).map_err(|error| {
            tracing::error!(%address, %error, "a database could not be loaded");
            Refused::Failed
        })
    }

    pub(super) fn load(self: &Rc<Self>, address: &Address) -> Result<Rc<Database>, StorageError> {
        if let Some(database) = self.databases.borrow().get(address) {
            return Ok(Rc::clone(database));
        }
        let base = self.open_base(address)?;
        let size_pages = match &base {
            Some(file) => self.check_base(address, file)?,
            None => {
                self.check_missing(address)?;
                0
            }
        };
        let mut pages = Pages::new(base, size_pages);
        // The tail stays until it is replayed: after an error the next attempt needs it.
        let replayed = self.tails.borrow().get(address).map(|tail| tail.replay(&mut pages)).transpose()?;
        self.tails.borrow_mut().remove(address);
        let recovered = replayed.is_some();
        let sequence = replayed.unwrap_or(0);
        pages.set_base(None);
        self.next_database.set(self.next_database.get() + 1);
        let database = Rc::new(Database {
            id: self.next_database.get(),
            address: address.clone(),
            pages: Rc::new(RefCell::new(pages)),
            sequence: Cell::new(sequence),
            open: Cell::new(false),
            queued: Cell::new(recovered),
            accounted_bytes: Cell::new(0),
        });
        self.account(&database);
        if recovered {
            self.checkpoints.queue(Rc::clone(&database));
        }
        self.databases.borrow_mut().insert(address.clone(), Rc::clone(&database));
        Ok(database)
    }

    /// A database that is closed and whose base file has everything needs no memory.
    pub(super) fn forget_if_clean(&self, database: &Rc<Database>) {
        let clean = {
            let pages = database.pages.borrow();
            pages.first_dirty().is_none() && pages.undo_bytes() == 0
        };
        // The queue of checkpoints may still hold one that was forgotten when its commits were lost; its address may have been
        // loaded anew since, and that entry is not this one.
        let is_entry = self.databases.borrow().get(&database.address).is_some_and(|entry| Rc::ptr_eq(entry, database));
        if clean && is_entry && !database.open.get() {
            self.databases.borrow_mut().remove(&database.address);
            self.overlay_bytes.set(self.overlay_bytes.get() - database.accounted_bytes.replace(0));
        }
    }

    pub(super) fn open_base(&self, address: &Address) -> Result<Option<Arc<dyn File>>, StorageError> {
        let path = place::base_path(&self.options.data, address);
        match self.files.open(&path, Open::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::io("opening", path)(error)),
        }
    }

    /// Checks that a database without a base file never had one, as far as is known.
    fn check_missing(self: &Rc<Self>, address: &Address) -> Result<(), StorageError> {
        let is_catalog = &*address.class == place::CATALOG_CLASS;
        if is_catalog || self.options.accept_journal_loss || self.tails.borrow().contains_key(address) {
            return Ok(());
        }
        let known = self.stamps.borrow().get(address);
        let known = if known.is_some() { known } else { self.catalog_row(address)?.map(|row| row.base_stamp) };
        if known.is_none_or(|stamp| stamp == 0) {
            return Ok(());
        }
        let detail = "is missing. Put it back, or start once with --accept-journal-loss to begin with an empty database".to_owned();
        Err(StorageError::BaseFile { path: place::base_path(&self.options.data, address), detail })
    }

    /// Checks that a base file is the one we left and returns its size in pages. A file with a tail in a journal is not checked:
    /// a checkpoint may have been under way when the node died, and replay makes it right whatever it had written.
    fn check_base(self: &Rc<Self>, address: &Address, file: &Arc<dyn File>) -> Result<u32, StorageError> {
        let path = || place::base_path(&self.options.data, address);
        let mut header = [0; 100];
        let read = file.read_at(0, &mut header).map_err(StorageError::io("reading", path()))?;
        let stamp = if read == header.len() { meta::stamp_of(&header) } else { 0 };
        let size_pages = u32::try_from(stamp & 0xffff_ffff).unwrap_or(0);
        if self.tails.borrow().contains_key(address) {
            return Ok(size_pages);
        }
        let bytes = file.len().map_err(StorageError::io("reading", path()))?;
        let known = match self.stamps.borrow().get(address) {
            Some(stamp) => Some(stamp),
            None if &*address.class == place::CATALOG_CLASS => None,
            None => self.catalog_row(address)?.map(|row| row.base_stamp),
        };
        let is_database = header.starts_with(b"SQLite format 3\0") && bytes >= u64::from(size_pages) * PAGE_BYTES as u64;
        let is_ours = known.is_none_or(|known| known == stamp) || self.options.accept_journal_loss;
        if !is_database || !is_ours {
            let detail = if is_database {
                "was changed by another program, or belongs to another data directory. Put the right file back, or start once \
                 with --accept-journal-loss to take it as it is"
            } else {
                "is not a whole SQLite database. Put the right file back"
            };
            return Err(StorageError::BaseFile { path: path(), detail: detail.to_owned() });
        }
        if known != Some(stamp) && &*address.class != place::CATALOG_CLASS {
            self.stamps.borrow_mut().put(address, stamp, Lsn::ZERO);
        }
        Ok(size_pages)
    }
}
