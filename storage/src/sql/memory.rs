//! SQLite's allocator: ours, so that what one connection may hold is bounded.
//!
//! Every allocation is charged to the account that is current on its thread. Over the account's limit SQLite sees an allocation
//! failure, which it handles everywhere: cache, dirty pages, sorts, queues of recursive queries and temporary tables are bounded
//! by one number. A coroutine's account is made current whenever it is resumed (`enter`).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Once;

use rusqlite::ffi;

/// What one connection's SQLite holds.
#[derive(Debug)]
pub(super) struct Account {
    used_bytes: Cell<usize>,
    max_bytes: usize,
}

impl Account {
    pub(super) const fn new(max_bytes: usize) -> Self {
        Self { used_bytes: Cell::new(0), max_bytes }
    }

    /// Bytes held.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }
}

thread_local! {
    static CURRENT: Cell<*const Account> = const { Cell::new(ptr::null()) };
}

/// Makes an account current until the guard is dropped. The account must outlive the guard, which its lifetime says.
pub(super) fn enter(account: &Account) -> Entered<'_> {
    Entered { before: CURRENT.replace(account), _account: account }
}

pub(super) struct Entered<'a> {
    before: *const Account,
    _account: &'a Account,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Runs on the current account, if there is one.
fn with_current<T>(f: impl FnOnce(&Account) -> T) -> Option<T> {
    let account = CURRENT.get();
    // SAFETY: `enter` put the pointer there from a reference that outlives the guard, and the guard puts the old one back.
    (!account.is_null()).then(|| f(unsafe { &*account }))
}

/// Gives SQLite this allocator. Must come before SQLite is first used in the process; if somebody was earlier, SQLite keeps
/// the allocator it has and connections are not bounded, which is said once.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let methods = ffi::sqlite3_mem_methods {
            xMalloc: Some(malloc),
            xFree: Some(free),
            xRealloc: Some(realloc),
            xSize: Some(size),
            xRoundup: Some(roundup),
            xInit: Some(init),
            xShutdown: Some(shutdown),
            pAppData: ptr::null_mut(),
        };
        // SAFETY: the option takes a pointer to methods, which SQLite copies.
        let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods) };
        if code != ffi::SQLITE_OK {
            tracing::warn!("SQLite was in use before this node's allocator was given to it: memory of connections is not bounded");
        }
    });
}

unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
    let Ok(bytes) = usize::try_from(bytes) else { return ptr::null_mut() };
    if with_current(|account| account.used_bytes.get() + bytes > account.max_bytes).unwrap_or(false) {
        return ptr::null_mut();
    }
    // SAFETY: any size is fine for malloc.
    let block = unsafe { libc::malloc(bytes) };
    charge(block);
    block
}

unsafe extern "C" fn free(block: *mut c_void) {
    discharge(block);
    // SAFETY: SQLite gives back what `malloc` or `realloc` gave it, once.
    unsafe { libc::free(block) };
}

unsafe extern "C" fn realloc(block: *mut c_void, bytes: c_int) -> *mut c_void {
    let Ok(bytes) = usize::try_from(bytes) else { return ptr::null_mut() };
    let old = usable(block);
    let over = |account: &Account| bytes > old && account.used_bytes.get() + (bytes - old) > account.max_bytes;
    if with_current(over).unwrap_or(false) {
        return ptr::null_mut();
    }
    discharge(block);
    // SAFETY: as in `free`; a failed realloc leaves the block alone.
    let new = unsafe { libc::realloc(block, bytes) };
    charge(if new.is_null() { block } else { new });
    new
}

unsafe extern "C" fn size(block: *mut c_void) -> c_int {
    c_int::try_from(usable(block)).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn roundup(bytes: c_int) -> c_int {
    bytes.saturating_add(7) & !7
}

unsafe extern "C" fn init(_: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn shutdown(_: *mut c_void) {}

fn usable(block: *mut c_void) -> usize {
    // SAFETY: null gives 0, anything else came from `malloc` or `realloc` and has not been freed.
    unsafe { libc::malloc_usable_size(block) }
}

fn charge(block: *mut c_void) {
    with_current(|account| account.used_bytes.set(account.used_bytes.get() + usable(block)));
}

fn discharge(block: *mut c_void) {
    with_current(|account| account.used_bytes.set(account.used_bytes.get().saturating_sub(usable(block))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_bounds_new_blocks_and_grown_ones_and_a_refused_growth_leaves_the_block() {
        let account = Account::new(1 << 20);
        let entered = enter(&account);
        // SAFETY: blocks are used within their sizes and freed once.
        unsafe {
            let block = malloc(600_000);
            assert!(!block.is_null());
            block.cast::<u8>().write(7);
            assert!(malloc(600_000).is_null(), "a second one is over the bound");
            assert!(realloc(block, 1_200_000).is_null(), "so is the first one, grown");
            assert_eq!(block.cast::<u8>().read(), 7);
            assert!((600_000..1 << 20).contains(&account.used_bytes()), "{} bytes", account.used_bytes());
            let block = realloc(block, 1_000_000);
            assert!(!block.is_null(), "growth within the bound is fine");
            free(block);
        }
        assert_eq!(account.used_bytes(), 0);
        drop(entered);
        // SAFETY: as above.
        unsafe { free(malloc(2_000_000)) };
        assert_eq!(account.used_bytes(), 0, "what runs outside is not charged");
    }
}
