//! Memory that was freed goes back to the system: the allocators keep it, and a node that has become idle asks them for nothing, so
//! they would keep it for ever.
//!
//! There are two. Rust's is mimalloc in the `wasmkeep` binary; it has a heap per thread, and only its own thread can tell which of
//! a heap's pages are empty. SQLite's is the C library's, which anyone may ask.

use std::sync::{Mutex, PoisonError};

// Without this its code would not be linked into programs that have another allocator, which then finds no heap and does nothing.
use mimalloc as _;

unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Declines huge pages for this process. The allocator asks for them, and with them one small block that stays keeps two megabytes:
/// an idle node was 20 MB larger, and after ten thousand actors the kernel put back over minutes what had been given back. The CPU
/// time of events differed by less than its noise.
pub(crate) fn decline_huge_pages() {
    const ON: libc::c_ulong = 1;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: the call takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, ON, UNUSED, UNUSED, UNUSED) } != 0 {
        tracing::debug!("huge pages cannot be declined: {}", std::io::Error::last_os_error());
    }
}

/// Gives back what the calling thread's heap has free: one or two milliseconds on a core that had four thousand actors awake.
pub(crate) fn give_back_own() {
    // SAFETY: it looks at the calling thread's heap, none or not yet used included, and at what no heap uses.
    unsafe { mi_collect(true) };
}

/// Gives back what no heap uses and what the C library keeps, on a thread of its own: that may take long and needs nothing of the
/// caller. Without a thread the memory stays until the next time.
pub(crate) fn give_back_shared() {
    // mimalloc lets one thread purge at a time and sends the others away, whose memory would stay.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let work = || {
        // The caller is a core, whose processor this thread would share otherwise.
        wasmkeep_storage::unbind_thread();
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        give_back_own();
        wasmkeep_storage::give_memory_back();
    };
    let _without_it_memory_stays = std::thread::Builder::new().name("wk-trim".into()).spawn(work);
}
