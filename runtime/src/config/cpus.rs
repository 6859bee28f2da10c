//! Which CPUs this process may use.

/// The CPUs this process may be scheduled on, by their number.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the size is the set's own, and the set is ours to write.
    let refused = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0;
    if refused {
        return (0..cores_max()).collect();
    }
    let count = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: every index asked for is below CPU_SETSIZE.
    (0..count).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// The most cores that make sense here: the allowed CPUs, or the whole CPUs of a cgroup's quota if that is less; at least 1.
#[must_use]
pub fn cores_max() -> usize {
    // The standard library reads the affinity mask and the quotas of cgroup v1 and v2, and of their parents.
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_use_at_least_one_cpu_and_no_more_cores_than_cpus() {
        let cpus = allowed_cpus();
        assert!(!cpus.is_empty());
        assert!((1..=cpus.len()).contains(&cores_max()));
    }
}
