//! One actor's connection: what a guest's SQL goes through.
//!
//! It knows what its actor has seen (`positions`) and which class a transaction has, and keeps the rules for transactions that
//! an interrupt took away. It does not wait for durability: that is the gate's.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::ptr;
use std::rc::Rc;

use rusqlite::ffi;

use super::budget::EventBudget;
use super::coroutine::{self, Progress};
use super::guard::{self, Guard};
use super::memory::{self, Account};
use super::pages::{CommitSink, Pages};
use super::statement::{Cache, Statement, check_result};
use super::vfs::{self, Handover, Shared};
use crate::error::{Refused, SqlError};
use crate::limits::{PAGE_BYTES, ROW_BYTES_MAX, SQL_BYTES_MAX, SQL_MEMORY_BYTES_MAX, TRANSACTION_BYTES_MAX};
use crate::types::{Positions, Rows, Value};

/// SQLite's page cache per connection, KiB. The overlay is memory already; this saves only the copy out of it.
const CACHE_KIB: u32 = 512;

/// How to open a connection.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The largest the database may grow, bytes.
    pub database_bytes_max: u64,
    /// Whether what runs on it comes from a guest and is held to what guests may do.
    pub guest: bool,
}

/// A connection to one database. Statements run one at a time: an actor handles one event at a time.
pub struct Connection {
    db: *mut ffi::sqlite3,
    cache: RefCell<Cache>,
    /// Prepared statements of our own, by where their text stands: as many as there are such texts.
    constants: RefCell<HashMap<(usize, usize), Statement>>,
    pub(super) shared: Rc<Shared>,
    pub(super) pages: Rc<RefCell<Pages>>,
    // SQLite holds pointers to these: boxed, and dropped after the connection is closed.
    pub(super) progress: Box<Progress>,
    guard: Box<Guard>,
    pub(super) account: Box<Account>,
    /// A transaction was rolled back under its owner's feet.
    vanished: Cell<bool>,
    /// A statement runs or is suspended.
    busy: Cell<bool>,
    guest: bool,
}

/// Held while a statement runs on a coroutine.
pub(super) struct Busy<'a>(&'a Cell<bool>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.cache.borrow_mut().clear();
        self.constants.borrow_mut().clear();
        // SAFETY: opened by us, all statements are finalised.
        let code = unsafe { ffi::sqlite3_close(self.db) };
        debug_assert_eq!(code, ffi::SQLITE_OK, "a statement outlived its connection");
    }
}

impl Connection {
    /// Opens a database over `pages`; its commits go to `sink`.
    ///
    /// # Errors
    /// SQLite's, in practice only a page 1 that is not a database's.
    pub fn open(
        pages: Rc<RefCell<Pages>>,
        sink: Rc<dyn CommitSink>,
        budget: Rc<EventBudget>,
        options: &ConnectionOptions,
    ) -> Result<Self, SqlError> {
        vfs::register();
        let shared = Rc::new(Shared::default());
        shared.positions.set(pages.borrow().positions());
        vfs::hand_over(Handover { pages: Rc::clone(&pages), sink, shared: Rc::clone(&shared) });
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_NOMUTEX | ffi::SQLITE_OPEN_EXRESCODE;
        let mut db = ptr::null_mut();
        // SAFETY: names are C strings; SQLite sets `db` even when it fails, unless it has no memory.
        let code = unsafe { ffi::sqlite3_open_v2(c"actor".as_ptr(), &raw mut db, flags, vfs::NAME.as_ptr()) };
        let connection = Self {
            db,
            cache: RefCell::default(),
            constants: RefCell::default(),
            shared,
            pages,
            progress: Box::new(Progress::new(budget)),
            guard: Box::default(),
            account: Box::new(Account::new(SQL_MEMORY_BYTES_MAX)),
            vanished: Cell::new(false),
            busy: Cell::new(false),
            guest: options.guest,
        };
        if code != ffi::SQLITE_OK {
            return Err(connection.error(code));
        }
        connection.set_up(options)?;
        Ok(connection)
    }

    fn set_up(&self, options: &ConnectionOptions) -> Result<(), SqlError> {
        let pages_max = (options.database_bytes_max / PAGE_BYTES as u64).clamp(1, u64::from(u32::MAX - 1));
        let pragmas = format!(
            "PRAGMA page_size={PAGE_BYTES}; PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF; \
             PRAGMA cache_spill=OFF; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-{CACHE_KIB}; PRAGMA max_page_count={pages_max}; \
             PRAGMA trusted_schema=OFF;"
        );
        let pragmas = CString::new(pragmas).map_err(|_| SqlError::Unavailable)?;
        // SAFETY: `db` is open; the callbacks' arguments live as long as it does, see `Connection`.
        unsafe {
            let code = ffi::sqlite3_exec(self.db, pragmas.as_ptr(), None, ptr::null_mut(), ptr::null_mut());
            if code != ffi::SQLITE_OK {
                return Err(self.error(code));
            }
            for (limit, value) in [
                (ffi::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX),
                (ffi::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX),
                (ffi::SQLITE_LIMIT_ATTACHED, 0),
                (ffi::SQLITE_LIMIT_EXPR_DEPTH, 500),
                (ffi::SQLITE_LIMIT_COMPOUND_SELECT, 200),
                (ffi::SQLITE_LIMIT_TRIGGER_DEPTH, 50),
                (ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 10_000),
                (ffi::SQLITE_LIMIT_WORKER_THREADS, 0),
            ] {
                ffi::sqlite3_limit(self.db, limit, c_int::try_from(value).unwrap_or(c_int::MAX));
            }
            if options.guest {
                let none: *mut c_int = ptr::null_mut();
                ffi::sqlite3_db_config(self.db, ffi::SQLITE_DBCONFIG_DEFENSIVE, 1 as c_int, none);
                ffi::sqlite3_db_config(self.db, ffi::SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0 as c_int, none);
                ffi::sqlite3_set_authorizer(self.db, Some(guard::authorizer), ptr::from_ref(&*self.guard).cast_mut().cast());
            }
            let progress = ptr::from_ref(&*self.progress).cast_mut().cast();
            ffi::sqlite3_progress_handler(self.db, coroutine::PROGRESS_INSTRUCTIONS, Some(coroutine::handler), progress);
        }
        Ok(())
    }

    /// Runs a statement, or several when there are no parameters; returns the rows they changed. Rows they return are not kept.
    /// `durable` makes the transaction durable class: what leaves the actor later waits for it.
    ///
    /// # Errors
    /// Why nothing, or the transaction so far, was done. Dropping the future interrupts the statement.
    pub async fn exec(&self, sql: &str, params: &[Value], durable: bool) -> Result<u64, SqlError> {
        let _busy = self.claim()?;
        coroutine::run(&self.progress, &self.account, || self.exec_now(sql, params, durable)).await
    }

    /// Runs one statement and returns its rows. NaN comes back as NULL: SQLite has none.
    ///
    /// # Errors
    /// As `exec`, and `TooLarge` past `RESULT_BYTES_MAX`.
    pub async fn query(&self, sql: &str, params: &[Value]) -> Result<Rows, SqlError> {
        let _busy = self.claim()?;
        coroutine::run(&self.progress, &self.account, || self.query_now(sql, params)).await
    }

    /// `query` in a transaction of durable class: what leaves later waits for whatever it read or wrote.
    ///
    /// # Errors
    /// As `query`.
    pub async fn query_durable(&self, sql: &str) -> Result<Rows, SqlError> {
        let _busy = self.claim()?;
        self.shared.durable.set(true);
        let result = coroutine::run(&self.progress, &self.account, || self.query_now(sql, &[])).await;
        let newest = self.pages.borrow().newest_lsn();
        self.absorb(Positions { gate: newest, seen: newest });
        result
    }

    /// Rows changed since the connection was opened.
    #[must_use]
    pub fn total_changes(&self) -> u64 {
        // SAFETY: `db` is open.
        u64::try_from(unsafe { ffi::sqlite3_total_changes64(self.db) }).unwrap_or(0)
    }

    /// `exec` on the caller's stack: never suspended, for short statements of our own.
    ///
    /// # Errors
    /// As `exec`.
    pub fn exec_now(&self, sql: &str, params: &[Value], durable: bool) -> Result<u64, SqlError> {
        let _account = memory::enter(&self.account);
        self.progress.begin_unsuspended();
        if durable {
            self.shared.durable.set(true);
        }
        let result = self.exec_all(sql, params);
        if durable {
            // Whether or not it changed a row: an ignored insert depends on the row it met.
            let newest = self.pages.borrow().newest_lsn();
            self.absorb(Positions { gate: newest, seen: newest });
        }
        if self.is_autocommit() {
            self.shared.durable.set(false);
        }
        result
    }

    fn exec_all(&self, sql: &str, params: &[Value]) -> Result<u64, SqlError> {
        let mut changed = 0;
        let mut rest = sql;
        while !rest.is_empty() {
            let Some((text, statement)) = self.statement(rest)? else { break };
            let behind = &rest[statement.taken_bytes..];
            if !params.is_empty() && guard::has_statement(behind) {
                return Err(misuse("parameters go with one statement only; run the statements one by one"));
            }
            let before = self.total_changes();
            self.run_one(text, statement, params, |_| Ok(()))?;
            if self.total_changes() != before {
                // Of the statement itself: the total also counts triggers and a virtual table's own tables.
                changed += self.changes();
            }
            rest = behind;
        }
        Ok(changed)
    }

    /// `query` on the caller's stack, as `exec_now`.
    ///
    /// # Errors
    /// As `query`.
    pub fn query_now(&self, sql: &str, params: &[Value]) -> Result<Rows, SqlError> {
        let _account = memory::enter(&self.account);
        self.progress.begin_unsuspended();
        let Some((text, statement)) = self.statement(sql)? else { return Err(misuse("there is no statement in the text")) };
        if guard::has_statement(&sql[statement.taken_bytes..]) {
            return Err(misuse("a query is one statement"));
        }
        let mut rows = Rows { columns: statement.columns(), values: Vec::new() };
        let mut bytes = 0;
        let mut first = true;
        let result = self.run_one(text, statement, params, |statement| {
            if std::mem::take(&mut first) {
                // A changed schema shows in the first step.
                rows.columns = statement.columns();
            }
            bytes += statement.row(&mut rows);
            check_result(bytes)
        });
        if self.is_autocommit() {
            self.shared.durable.set(false);
        }
        result.map(|()| rows)
    }

    /// Ends an event: an open transaction is rolled back.
    pub fn end_event(&self) {
        // What the rollback frees was charged to this account.
        let _account = memory::enter(&self.account);
        self.vanished.set(false);
        self.shared.refused.set(None);
        self.roll_back();
    }

    /// Rolls an open transaction back.
    pub(super) fn roll_back(&self) {
        if !self.is_autocommit() {
            // SAFETY: `db` is open and no statement is running.
            unsafe { ffi::sqlite3_exec(self.db, c"ROLLBACK".as_ptr(), None, ptr::null_mut(), ptr::null_mut()) };
        }
        self.shared.durable.set(false);
    }

    /// Rows changed by the last statement that changed any.
    pub(super) fn changes(&self) -> u64 {
        // SAFETY: `db` is open.
        u64::try_from(unsafe { ffi::sqlite3_changes64(self.db) }).unwrap_or(0)
    }

    /// The statement of a constant text, kept or prepared.
    pub(super) fn constant(&self, sql: &'static str) -> Result<Statement, SqlError> {
        if let Some(kept) = self.constants.borrow_mut().remove(&place(sql)) {
            return Ok(kept);
        }
        match Statement::prepare(self.db, sql) {
            Ok(Some(statement)) => Ok(statement),
            Ok(None) => Err(misuse("there is no statement in the text")),
            Err(code) => Err(self.error(code)),
        }
    }

    /// Keeps a statement that has been reset.
    pub(super) fn keep_constant(&self, sql: &'static str, statement: Statement) {
        self.constants.borrow_mut().insert(place(sql), statement);
    }

    /// What the actor has seen.
    #[must_use]
    pub fn positions(&self) -> Positions {
        self.shared.positions.get()
    }

    /// Takes in what somebody had seen who sent the actor something.
    pub fn absorb(&self, other: Positions) {
        let mut positions = self.shared.positions.get();
        positions.absorb(other);
        self.shared.positions.set(positions);
    }

    /// The budget that statements draw on.
    #[must_use]
    pub fn budget(&self) -> &Rc<EventBudget> {
        self.progress.budget()
    }

    /// The database's committed content.
    #[must_use]
    pub fn pages(&self) -> &Rc<RefCell<Pages>> {
        &self.pages
    }

    /// Memory that SQLite holds for this connection, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.account.used_bytes()
    }

    /// The statement at the start of a text, from the cache or prepared; `None` if only white space and comments are left.
    fn statement(&self, sql: &str) -> Result<Option<(Box<str>, Statement)>, SqlError> {
        if let Some(cached) = self.cache.borrow_mut().take(sql) {
            return Ok(Some(cached));
        }
        if sql.len() > SQL_BYTES_MAX {
            return Err(SqlError::TooLarge(format!("a statement of {} bytes; at most {SQL_BYTES_MAX} fit", sql.len())));
        }
        if sql.contains('\0') {
            return Err(misuse(
                "there is a NUL in the statement, behind which SQLite would read nothing; bind such text as a parameter",
            ));
        }
        if self.guest
            && let Some(reason) = guard::refused_by_name(sql)
        {
            return Err(SqlError::NotAllowed(reason.into()));
        }
        match Statement::prepare(self.db, sql) {
            Ok(statement) => Ok(statement.map(|statement| (sql.into(), statement))),
            Err(code) => Err(self.error(code)),
        }
    }

    fn run_one(
        &self,
        text: Box<str>,
        statement: Statement,
        params: &[Value],
        mut on_row: impl FnMut(&Statement) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        if self.vanished.get() {
            return self.run_vanished(&text);
        }
        // A rollback that failed itself, which has never been seen: the next commit would be taken for it and dropped. Nothing
        // more is done until the actor is loaded anew.
        if self.shared.aborting.get() {
            return Err(SqlError::Unavailable);
        }
        statement.bind(params)?;
        let was_open = !self.is_autocommit();
        let result = loop {
            match statement.step() {
                ffi::SQLITE_ROW => match on_row(&statement) {
                    Ok(()) => {}
                    Err(error) => {
                        self.take_back(&statement);
                        break Err(error);
                    }
                },
                ffi::SQLITE_DONE => break Ok(()),
                code => break Err(self.error(code)),
            }
        };
        statement.reset();
        if result.is_err() && was_open && self.is_autocommit() {
            self.vanished.set(true);
        }
        if result.is_ok() {
            self.cache.borrow_mut().put(text, statement);
        }
        result
    }

    /// Ends a statement whose rows were refused. A mere reset would commit what one with RETURNING has written; an interrupt
    /// rolls it back, and with it an open transaction.
    fn take_back(&self, statement: &Statement) {
        if !statement.is_readonly() {
            // SAFETY: `db` is open; the flag ends with the statement, the only one that runs.
            unsafe { ffi::sqlite3_interrupt(self.db) };
            statement.step();
        }
    }

    /// Makes a second statement wait its turn by refusing it: two on one connection would resume each other's stack.
    pub(super) fn claim(&self) -> Result<Busy<'_>, SqlError> {
        if self.busy.replace(true) {
            return Err(misuse("another statement of this actor is still running"));
        }
        Ok(Busy(&self.busy))
    }

    /// The transaction was rolled back by an interrupt or an error: nothing else may run as if it were still open.
    fn run_vanished(&self, text: &str) -> Result<(), SqlError> {
        if guard::is_whole_rollback(text) {
            self.vanished.set(false);
            return Ok(());
        }
        Err(misuse("the transaction was rolled back by an earlier error; ROLLBACK first"))
    }

    pub(super) fn is_autocommit(&self) -> bool {
        // SAFETY: `db` is open.
        unsafe { ffi::sqlite3_get_autocommit(self.db) != 0 }
    }

    /// What a result code means to a guest.
    pub(super) fn error(&self, code: c_int) -> SqlError {
        match self.shared.refused.take() {
            Some(Refused::Full) => return SqlError::Full,
            Some(Refused::Failed) => return SqlError::Unavailable,
            Some(Refused::TooLarge) => {
                return SqlError::TooLarge(format!("the transaction changes more than {TRANSACTION_BYTES_MAX} bytes"));
            }
            None => {}
        }
        if let Some(reason) = self.guard.take_reason() {
            return SqlError::NotAllowed(reason);
        }
        match code & 0xff {
            ffi::SQLITE_INTERRUPT => SqlError::Deadline,
            ffi::SQLITE_NOMEM => {
                SqlError::TooLarge(format!("the statement needs more than {SQL_MEMORY_BYTES_MAX} bytes of memory"))
            }
            ffi::SQLITE_TOOBIG => SqlError::TooLarge(format!("a value or row is over {ROW_BYTES_MAX} bytes")),
            ffi::SQLITE_FULL => SqlError::Full,
            ffi::SQLITE_AUTH => SqlError::NotAllowed(self.message()),
            _ => SqlError::Sql { code, message: self.message() },
        }
    }

    fn message(&self) -> String {
        if self.db.is_null() {
            return "out of memory".into();
        }
        // SAFETY: `db` is open; the message lives until the next call on it.
        unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(self.db)) }.to_string_lossy().into_owned()
    }
}

/// What tells constant texts apart without reading them. The same text at two places is prepared twice.
fn place(sql: &'static str) -> (usize, usize) {
    (sql.as_ptr() as usize, sql.len())
}

pub(super) fn misuse(message: &str) -> SqlError {
    SqlError::Sql { code: ffi::SQLITE_MISUSE, message: message.into() }
}
