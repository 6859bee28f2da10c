//! The VFS under every database of ours: pages come from `Pages`, commits go to a `CommitSink`, nothing touches a file.
//!
//! SQLite runs with its rollback journal in memory and no cache spilling, so it writes only while it commits: `xWrite` stages
//! pages, `FCNTL_SYNC` is the commit point. An error there (or from a write) makes SQLite put the original pages back and sync
//! again; `aborting` makes that a no-op, because nothing had been installed. A truncation comes after the sync and cannot fail:
//! the size of a commit is what page 1 says.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Once};

use rusqlite::ffi;

use super::delta::{self, Page, ZERO_PAGE};
use super::pages::{Commit, CommitSink, Pages};
use crate::error::Refused;
use crate::limits::PAGE_BYTES;
use crate::types::Positions;

/// The VFS's name in `sqlite3_open_v2`.
pub(super) const NAME: &CStr = c"wasmkeep";

/// What the connection and its file tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The open transaction is of durable class.
    pub(super) durable: Cell<bool>,
    /// Why the last commit was refused, for an error that SQLite can only call an I/O error.
    pub(super) refused: Cell<Option<Refused>>,
    /// A commit was refused and SQLite has not written back the originals yet: what it writes next is dropped, see the module.
    pub(super) aborting: Cell<bool>,
    /// What the connection has seen.
    pub(super) positions: Cell<Positions>,
}

/// What a new file is made of, handed over just before `sqlite3_open_v2` calls `xOpen` on the same thread.
pub(super) struct Handover {
    pub(super) pages: Rc<RefCell<Pages>>,
    pub(super) sink: Rc<dyn CommitSink>,
    pub(super) shared: Rc<Shared>,
}

thread_local! {
    static HANDOVER: RefCell<Option<Handover>> = const { RefCell::new(None) };
}

/// Sets what the next file opened on this thread is made of.
pub(super) fn hand_over(handover: Handover) {
    HANDOVER.replace(Some(handover));
}

/// One open database file. `base` must stand first: SQLite knows only that.
#[repr(C)]
struct VfsFile {
    base: ffi::sqlite3_file,
    state: *mut State,
}

struct State {
    made_of: Handover,
    /// Pages written since the last sync, ascending by number.
    staged: Vec<(u32, Box<Page>)>,
    /// Buffers for the next staged pages.
    spare: Vec<Box<Page>>,
    body: Vec<u8>,
    /// Old images read from the base file while the body was made.
    base_images: Vec<(u32, Arc<Page>)>,
}

/// Staged buffers kept for the next transaction; a larger one gives its memory back.
const SPARE_PAGES_MAX: usize = 32;
const BODY_BYTES_KEPT: usize = 64 * 1024;

impl State {
    fn staged(&self, pgno: u32) -> Option<&Page> {
        self.staged.binary_search_by_key(&pgno, |(number, _)| *number).ok().map(|index| &*self.staged[index].1)
    }

    fn stage(&mut self, pgno: u32, bytes: &[u8; PAGE_BYTES]) {
        let mut page = self.spare.pop().unwrap_or_else(|| Box::new(ZERO_PAGE));
        page.copy_from_slice(bytes);
        match self.staged.binary_search_by_key(&pgno, |(number, _)| *number) {
            Ok(index) => self.staged[index].1 = page,
            Err(index) => self.staged.insert(index, (pgno, page)),
        }
    }

    fn size_pages(&self) -> u32 {
        let committed = self.made_of.pages.borrow().size_pages();
        self.staged.last().map_or(committed, |(last, _)| committed.max(*last))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> c_int {
        let Ok(pgno) = u32::try_from(offset / PAGE_BYTES as u64 + 1) else { return ffi::SQLITE_IOERR_READ };
        let start = usize::try_from(offset % PAGE_BYTES as u64).unwrap_or(0);
        if start + buf.len() > PAGE_BYTES {
            return ffi::SQLITE_IOERR_READ;
        }
        if let Some(page) = self.staged(pgno) {
            buf.copy_from_slice(&page[start..start + buf.len()]);
            return ffi::SQLITE_OK;
        }
        let pages = self.made_of.pages.borrow();
        if pgno > pages.size_pages() {
            buf.fill(0);
            return ffi::SQLITE_IOERR_SHORT_READ;
        }
        match pages.read_in_page(pgno, start, buf) {
            Ok(()) => ffi::SQLITE_OK,
            Err(error) => {
                tracing::error!(%error, pgno, "a base file could not be read");
                ffi::SQLITE_IOERR_READ
            }
        }
    }

    /// The commit point.
    fn sync(&mut self) -> c_int {
        if self.made_of.shared.aborting.replace(false) || self.staged.is_empty() {
            self.clear();
            return ffi::SQLITE_OK;
        }
        let result = self.commit();
        if result != ffi::SQLITE_OK {
            self.made_of.shared.aborting.set(true);
        }
        self.clear();
        result
    }

    fn commit(&mut self) -> c_int {
        let size_pages = match self.staged.first() {
            Some((1, page)) => u32::from_be_bytes([page[28], page[29], page[30], page[31]]),
            _ => self.made_of.pages.borrow().size_pages(),
        };
        let page_count = match self.encode(size_pages) {
            Ok(0) => return ffi::SQLITE_OK,
            Ok(count) => count,
            Err(error) => {
                tracing::error!(%error, "a base file could not be read");
                return ffi::SQLITE_IOERR_READ;
            }
        };
        let Handover { pages, sink, shared } = &self.made_of;
        let commit = Commit { size_pages, page_count, body: &self.body, durable: shared.durable.get() };
        let lsn = match sink.append(&commit) {
            Ok(lsn) => lsn,
            Err(refused) => {
                shared.refused.set(Some(refused));
                return ffi::SQLITE_IOERR_FSYNC;
            }
        };
        let base_images = &mut self.base_images;
        pages.borrow_mut().install(lsn, &commit, |pgno| {
            let index = base_images.iter().position(|(number, _)| *number == pgno)?;
            Some(base_images.swap_remove(index).1)
        });
        let mut positions = shared.positions.get();
        positions.seen = positions.seen.max(lsn);
        if commit.durable {
            positions.gate = positions.gate.max(lsn);
        }
        shared.positions.set(positions);
        ffi::SQLITE_OK
    }

    /// Fills `body`; returns how many pages changed.
    fn encode(&mut self, size_pages: u32) -> std::io::Result<u32> {
        let pages = self.made_of.pages.borrow();
        let mut count = 0;
        for (pgno, new) in self.staged.iter().filter(|(pgno, _)| *pgno <= size_pages) {
            let changed = match pages.in_memory(*pgno) {
                Some(old) => delta::encode(&mut self.body, *pgno, old, new),
                None => {
                    let mut old = Arc::new(ZERO_PAGE);
                    pages.read_page(*pgno, Arc::make_mut(&mut old))?;
                    let changed = delta::encode(&mut self.body, *pgno, &old, new);
                    self.base_images.push((*pgno, old));
                    changed
                }
            };
            count += u32::from(changed);
        }
        Ok(count)
    }

    fn clear(&mut self) {
        self.spare.extend(self.staged.drain(..).map(|(_, page)| page));
        self.spare.truncate(SPARE_PAGES_MAX);
        self.body.clear();
        self.body.shrink_to(BODY_BYTES_KEPT);
        self.base_images.clear();
    }
}

/// Makes the VFS known to SQLite, once per process.
pub(super) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        super::memory::install();
        // SAFETY: the default VFS exists in a bundled SQLite; its struct is copied and lives as long as the process.
        let vfs = unsafe {
            ffi::sqlite3_initialize();
            let default = ffi::sqlite3_vfs_find(ptr::null());
            Box::leak(Box::new(ffi::sqlite3_vfs {
                iVersion: 1,
                szOsFile: c_int::try_from(size_of::<VfsFile>()).unwrap_or(0),
                mxPathname: 512,
                pNext: ptr::null_mut(),
                zName: NAME.as_ptr(),
                pAppData: ptr::null_mut(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xAccess: Some(access),
                xFullPathname: Some(full_pathname),
                ..*default
            }))
        };
        // SAFETY: the struct is leaked, so it lives for ever.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite takes a well-formed VFS");
    });
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The state behind a file that `open` made.
fn state<'a>(file: *mut ffi::sqlite3_file) -> &'a mut State {
    // SAFETY: SQLite calls methods only on files that `open` filled in, from one thread, and never from within one another.
    unsafe { &mut *(*file.cast::<VfsFile>()).state }
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    _name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives room for a VfsFile; without methods it calls nothing on the file.
    unsafe { (*file).pMethods = ptr::null() };
    // Only a main database is ever opened: journals and temporary files are in memory.
    let made_of = if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 { None } else { HANDOVER.take() };
    let Some(made_of) = made_of else { return ffi::SQLITE_CANTOPEN };
    let state = State { made_of, staged: Vec::new(), spare: Vec::new(), body: Vec::new(), base_images: Vec::new() };
    // SAFETY: as above; `out_flags` may be null.
    unsafe {
        *file.cast() = VfsFile { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, state: Box::into_raw(Box::new(state)) };
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the box, and SQLite closes a file once.
    drop(unsafe { Box::from_raw((*file.cast::<VfsFile>()).state) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, buf: *mut c_void, bytes: c_int, offset: i64) -> c_int {
    let (Ok(bytes), Ok(offset)) = (usize::try_from(bytes), u64::try_from(offset)) else { return ffi::SQLITE_IOERR_READ };
    // SAFETY: SQLite gives a buffer of that many bytes.
    state(file).read(offset, unsafe { std::slice::from_raw_parts_mut(buf.cast(), bytes) })
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, buf: *const c_void, bytes: c_int, offset: i64) -> c_int {
    let state = state(file);
    if state.made_of.shared.aborting.get() {
        return ffi::SQLITE_OK;
    }
    let page_bytes = PAGE_BYTES as u64;
    let number = u64::try_from(offset).ok().filter(|offset| offset % page_bytes == 0).map(|offset| offset / page_bytes + 1);
    let Some(pgno) = number.and_then(|number| u32::try_from(number).ok()).filter(|_| usize::try_from(bytes) == Ok(PAGE_BYTES))
    else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite gives a buffer of `bytes` bytes, which is a page.
    state.stage(pgno, unsafe { &*buf.cast() });
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(_file: *mut ffi::sqlite3_file, _bytes: i64) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(_file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite gives a place for the answer.
    unsafe { *out = i64::from(state(file).size_pages()) * PAGE_BYTES as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(_file: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite gives a place for the answer.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, _arg: *mut c_void) -> c_int {
    match op {
        ffi::SQLITE_FCNTL_SYNC => state(file).sync(),
        _ => ffi::SQLITE_NOTFOUND,
    }
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE | ffi::SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN
}

unsafe extern "C" fn delete(_vfs: *mut ffi::sqlite3_vfs, _name: *const c_char, _sync_dir: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(_vfs: *mut ffi::sqlite3_vfs, _name: *const c_char, _flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: SQLite gives a place for the answer. No hot journal ever exists.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(_vfs: *mut ffi::sqlite3_vfs, name: *const c_char, bytes: c_int, out: *mut c_char) -> c_int {
    let room = usize::try_from(bytes).unwrap_or(0);
    // SAFETY: SQLite gives a C string and a buffer of `bytes` bytes.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes_with_nul();
        if name.len() > room {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len());
    }
    ffi::SQLITE_OK
}
