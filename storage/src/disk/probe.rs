//! Which way of writing the journal is the fastest here: measured for half a second at start.
//!
//! A write with RWF_DSYNC and a write followed by fdatasync each win on some disks. What it is not: a benchmark; it only has to
//! tell two candidates apart, so it alternates between them in short slices.

use std::io;
use std::mem::{size_of, zeroed};
use std::path::Path;
use std::sync::Arc;

use super::os::OsFiles;
use super::threads::{Threads, write_durably};
use super::uring::{Ring, Uring};
use super::{AlignedBuf, Backend, File, Files, Open};
use crate::clock::Clock;
use crate::error::StorageError;
use crate::limits::GROUPS_IN_FLIGHT_MAX;

/// How a write is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteForm {
    /// One write with RWF_DSYNC.
    Dsync,
    /// A write, then fdatasync; on a ring the second is linked to the first.
    WriteSync,
}

/// What the operator asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum IoMode {
    /// io_uring where the system allows it, threads elsewhere.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    Threads,
}

/// What was chosen for all cores of this node.
#[derive(Clone, Copy)]
pub struct Io {
    /// Whether io_uring is used.
    pub uring: bool,
    /// How writes are made durable.
    pub form: WriteForm,
    /// The processors this process may use; None when the system does not say.
    allowed_cpus: Option<libc::cpu_set_t>,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", if self.uring { "uring" } else { "threads" }, self.form)
    }
}

const SLICE_NS: u64 = 50_000_000;
const SLICES: u64 = 5;
const PROBE_FILE_BYTES: u64 = 4 * 1024 * 1024;
const WRITE_BYTES: usize = 8192;

impl Io {
    /// Without measuring.
    #[must_use]
    pub fn new(uring: bool, form: WriteForm) -> Self {
        Self { uring, form, allowed_cpus: allowed_cpus() }
    }

    /// Decides, measuring in a temporary file in `dir`, which must exist. Takes half a second. Call it once per node, before
    /// threads are pinned.
    ///
    /// # Errors
    /// When io_uring was demanded and the system refuses it, or no way of writing works in `dir`.
    pub fn choose(dir: &Path, mode: IoMode, clock: &Clock) -> Result<Self, StorageError> {
        let uring = match (mode, Ring::new(WriteForm::Dsync)) {
            (IoMode::Threads, _) => false,
            (_, Ok(_)) => true,
            (IoMode::Uring, Err(error)) => return Err(StorageError::io("setting up io_uring for", dir)(error)),
            (IoMode::Auto, Err(error)) => {
                tracing::warn!("io_uring is not available ({error}); the journal uses threads instead, which is slower");
                false
            }
        };
        let path = dir.join("probe.tmp");
        let rates = probe_file(&path).and_then(|file| measure(uring, &file, clock));
        // The next start removes what this one could not.
        let _ = OsFiles.remove(&path);
        let form = match rates {
            Ok([dsync, write_sync]) => {
                tracing::info!(uring, dsync, write_sync, "journal probe: durable writes per second of 8 KiB");
                if dsync >= write_sync { WriteForm::Dsync } else { WriteForm::WriteSync }
            }
            // A full disk can be started on: reads work, and recovery may free space.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => WriteForm::WriteSync,
            Err(error) => return Err(StorageError::io("probing durable writes in", path)(error)),
        };
        Ok(Self::new(uring, form))
    }

    /// A core's backend. Call it on the core's thread, within its runtime, after the thread was pinned.
    ///
    /// # Errors
    /// When the system refuses the ring or the threads.
    pub fn open(&self) -> io::Result<Box<dyn Backend>> {
        Ok(if self.uring {
            Box::new(Uring::new(self.form, self.other_cpus().as_ref())?)
        } else {
            Box::new(Threads::new(self.form)?)
        })
    }

    /// The allowed processors that this thread is not pinned to: where the kernel's flush workers should run.
    fn other_cpus(&self) -> Option<libc::cpu_set_t> {
        let (mine, mut others) = (allowed_cpus()?, self.allowed_cpus?);
        let mut any = false;
        for cpu in 0..size_of::<libc::cpu_set_t>() * 8 {
            // SAFETY: `cpu` is below the number of bits of both sets.
            unsafe {
                if libc::CPU_ISSET(cpu, &mine) {
                    libc::CPU_CLR(cpu, &mut others);
                } else {
                    any |= libc::CPU_ISSET(cpu, &others);
                }
            }
        }
        any.then_some(others)
    }
}

/// The processors this thread may run on.
fn allowed_cpus() -> Option<libc::cpu_set_t> {
    // SAFETY: a cpu_set_t is plain bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `set` is a valid set of the given size to write to; 0 names the calling thread.
    let ok = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } == 0;
    ok.then_some(set)
}

fn probe_file(path: &Path) -> io::Result<Arc<dyn File>> {
    OsFiles.open(path, Open::Create)?;
    let file = OsFiles.open(path, Open::Journal)?;
    let mut zeros = AlignedBuf::new();
    zeros.extend(&vec![0; 1024 * 1024]);
    for n in 0..PROBE_FILE_BYTES / zeros.len() as u64 {
        file.write_at(n * zeros.len() as u64, zeros.as_slice())?;
    }
    file.sync()?;
    Ok(file)
}

/// Writes per second of both forms. One that does not work counts zero; that neither works is an error.
fn measure(uring: bool, file: &Arc<dyn File>, clock: &Clock) -> io::Result<[u64; 2]> {
    let forms = [WriteForm::Dsync, WriteForm::WriteSync];
    let mut counts = [0; 2];
    let mut broken = [None, None];
    for _ in 0..SLICES {
        for (n, form) in forms.into_iter().enumerate().filter(|(n, _)| broken[*n].is_none()).collect::<Vec<_>>() {
            match slice(uring, form, file, clock) {
                Ok(count) => counts[n] += count,
                Err(error) => {
                    counts[n] = 0;
                    broken[n] = Some(error);
                }
            }
        }
    }
    match broken {
        [Some(error), Some(_)] => Err(error),
        _ => Ok(counts.map(|count| count * 1_000_000_000 / (SLICE_NS * SLICES))),
    }
}

/// Writes finished in one slice.
fn slice(uring: bool, form: WriteForm, file: &Arc<dyn File>, clock: &Clock) -> io::Result<u64> {
    let end = clock.monotonic_ns() + SLICE_NS;
    let mut count: u64 = 0;
    let offset = |n: u64| n * WRITE_BYTES as u64 % PROBE_FILE_BYTES;
    let mut buffer = AlignedBuf::new();
    buffer.extend(&[0x5a; WRITE_BYTES]);
    if !uring {
        while clock.monotonic_ns() < end {
            write_durably(form, &**file, offset(count), buffer.as_slice())?;
            count += 1;
        }
        return Ok(count);
    }
    let mut ring = Ring::new(form)?;
    let mut free = vec![buffer];
    for _ in 1..GROUPS_IN_FLIGHT_MAX {
        let mut buffer = AlignedBuf::new();
        buffer.extend(&[0x5a; WRITE_BYTES]);
        free.push(buffer);
    }
    let (mut submitted, mut done) = (0, Vec::new());
    while clock.monotonic_ns() < end {
        for buffer in free.drain(..) {
            if let Err(refused) = ring.submit(file, offset(submitted), buffer, submitted) {
                return refused.result.map(|()| count);
            }
            submitted += 1;
        }
        ring.wait()?;
        ring.reap(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            count += 1;
            free.push(completion.buffer);
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_decides_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [IoMode::Auto, IoMode::Threads] {
            let io = Io::choose(dir.path(), mode, &Clock::System).unwrap();
            assert!(mode == IoMode::Auto || !io.uring);
            assert!(OsFiles.list(dir.path()).unwrap().is_empty());
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_that_names_it() {
        let error = Io::choose(Path::new("/proc/none"), IoMode::Threads, &Clock::System).unwrap_err().to_string();
        assert!(error.contains("/proc/none/probe.tmp"), "{error}");
    }
}
