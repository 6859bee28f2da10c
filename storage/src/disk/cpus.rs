//! Where threads may run: a thread takes over the binding of the one that started it, and cores are bound to one processor each.

use std::mem::{size_of, zeroed};

/// Lets the calling thread run wherever this process may: work that was handed away so that a core can go on must not then wait
/// for that core's processor, nor take it away from it. A matter of speed only.
pub fn unbind_thread() {
    // The process's first thread is never bound.
    let Ok(process) = libc::pid_t::try_from(std::process::id()) else { return };
    // SAFETY: a cpu_set_t is plain bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the set is ours and of the size that is given; the number is this process's own, 0 is the calling thread.
    unsafe {
        if libc::sched_getaffinity(process, size_of::<libc::cpu_set_t>(), &raw mut set) == 0 {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}
