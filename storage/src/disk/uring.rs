//! The journal's writes through io_uring, on our own small driver.
//!
//! A write is handed to the kernel at once, not when the executor happens to park: a busy core must not delay its own flushes.
//! The executor only hears, through the ring's descriptor, that something has completed.
//!
//! What it is not: a general ring. It writes, durably, and nothing else. Owner: one core; not `Send`. Dropping it waits for what
//! is in flight, because the kernel still reads those buffers.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use io_uring::{IoUring, opcode, squeue, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::probe::WriteForm;
use super::{AlignedBuf, Backend, Completion, File, Token};
use crate::limits::RING_ENTRIES;

/// A write the kernel holds a pointer into.
struct Slot {
    token: Token,
    buffer: AlignedBuf,
    /// Keeps the descriptor open.
    _file: Arc<dyn File>,
    /// Completions to come: one, or two for a write and its flush.
    left: u8,
    error: Option<io::Error>,
}

/// The ring without an executor: also what the probe measures.
pub(super) struct Ring {
    ring: IoUring,
    form: WriteForm,
    slots: Vec<Option<Slot>>,
    in_flight: usize,
    /// Entries are queued that the kernel has not taken.
    unsubmitted: bool,
}

impl Ring {
    pub(super) fn new(form: WriteForm) -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().dontfork().build(RING_ENTRIES)?;
        Ok(Self { ring, form, slots: Vec::new(), in_flight: 0, unsubmitted: false })
    }

    /// Keeps the kernel's flush workers on these processors.
    pub(super) fn set_worker_cpus(&self, cpus: &libc::cpu_set_t) -> io::Result<()> {
        self.ring.submitter().register_iowq_aff(cpus)
    }

    pub(super) fn submit(&mut self, file: &Arc<dyn File>, offset: u64, buffer: AlignedBuf, token: Token) -> Result<(), Completion> {
        let failed = |buffer, error| Err(Completion { token, result: Err(error), buffer });
        let Some(fd) = file.raw_fd() else { return failed(buffer, io::Error::other("this file has no descriptor")) };
        let Ok(len_bytes) = u32::try_from(buffer.len()) else { return failed(buffer, io::ErrorKind::InvalidInput.into()) };
        let entries = if self.form == WriteForm::Dsync { 1 } else { 2 };
        let queue = self.ring.submission();
        let room = queue.capacity() - queue.len();
        drop(queue);
        if room < entries {
            return failed(buffer, io::ErrorKind::ResourceBusy.into());
        }
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(None);
        }
        let user_data = (index as u64) << 1;
        let write = opcode::Write::new(types::Fd(fd), buffer.as_slice().as_ptr(), len_bytes).offset(offset);
        let write = match self.form {
            WriteForm::Dsync => write.rw_flags(libc::RWF_DSYNC).build(),
            WriteForm::WriteSync => write.build().flags(squeue::Flags::IO_LINK),
        }
        .user_data(user_data);
        let sync = opcode::Fsync::new(types::Fd(fd)).flags(types::FsyncFlags::DATASYNC).build().user_data(user_data | 1);
        self.slots[index] =
            Some(Slot { token, buffer, _file: Arc::clone(file), left: u8::try_from(entries).unwrap_or(1), error: None });
        // SAFETY: the descriptor and the buffer's memory stay valid until the completions came: the slot owns both, moving an
        // `AlignedBuf` does not move its blocks, nobody changes them meanwhile, and `drop` waits.
        let pushed = unsafe {
            let mut queue = self.ring.submission();
            queue.push(&write).and_then(|()| if entries == 2 { queue.push(&sync) } else { Ok(()) })
        };
        assert!(pushed.is_ok(), "room was checked above");
        self.in_flight += 1;
        self.unsubmitted = true;
        self.flush();
        Ok(())
    }

    /// Hands queued entries to the kernel. Whether it took them all.
    fn flush(&mut self) -> bool {
        while self.unsubmitted {
            match self.ring.submit() {
                Ok(_) => self.unsubmitted = !self.ring.submission().is_empty(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Short of memory, or completions must be taken first: the entries stay queued and are tried again.
                Err(_) => return false,
            }
        }
        true
    }

    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Blocks until at least one write has ended.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {
                    self.unsubmitted = !self.ring.submission().is_empty();
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn reap(&mut self, out: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let (index, is_sync) = (usize::try_from(entry.user_data() >> 1).unwrap_or(usize::MAX), entry.user_data() & 1 == 1);
            let Some(place) = self.slots.get_mut(index) else { continue };
            let Some(slot) = place else { continue };
            let result = entry.result();
            let error = if result < 0 {
                Some(io::Error::from_raw_os_error(-result))
            } else if !is_sync && usize::try_from(result).ok() != Some(slot.buffer.len()) {
                Some(io::Error::new(io::ErrorKind::WriteZero, "short write"))
            } else {
                None
            };
            // The write's own error says more than the ECANCELED of the flush linked to it.
            slot.error = if is_sync { slot.error.take().or(error) } else { error.or_else(|| slot.error.take()) };
            slot.left -= 1;
            if slot.left == 0
                && let Some(slot) = place.take()
            {
                self.in_flight -= 1;
                out.push(Completion { token: slot.token, result: slot.error.map_or(Ok(()), Err), buffer: slot.buffer });
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.wait().is_err() {
                // The kernel may still read these buffers: better lost than freed.
                self.slots.drain(..).for_each(std::mem::forget);
                return;
            }
            self.reap(&mut done);
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// A core's ring.
pub struct Uring {
    ring: AsyncFd<Ring>,
    refused: Vec<Completion>,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({} in flight)", self.name(), self.ring.get_ref().in_flight)
    }
}

impl Uring {
    /// A ring for this thread's executor. Must be called within a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// When the kernel or a container's filter forbids io_uring, or limits are reached.
    pub fn new(form: WriteForm, worker_cpus: Option<&libc::cpu_set_t>) -> io::Result<Self> {
        let ring = Ring::new(form)?;
        if let Some(cpus) = worker_cpus {
            // A matter of speed only.
            let _ = ring.set_worker_cpus(cpus);
        }
        // SAFETY: the ring's descriptor is open as long as the ring, which the `AsyncFd` owns and never replaces.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE)? };
        Ok(Self { ring, refused: Vec::new() })
    }
}

impl Backend for Uring {
    fn submit(&mut self, file: &Arc<dyn File>, offset: u64, buffer: AlignedBuf, token: Token) {
        if let Err(refused) = self.ring.get_mut().submit(file, offset, buffer, token) {
            self.refused.push(refused);
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.refused);
        self.ring.get_mut().reap(out);
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.ring.get_mut().flush() {
            cx.waker().wake_by_ref();
        }
        loop {
            if !self.refused.is_empty() || self.ring.get_mut().has_completions() {
                return Poll::Ready(());
            }
            match ready!(self.ring.poll_read_ready(cx)) {
                Ok(mut guard) => guard.clear_ready(),
                // The executor is shutting down; nobody will wait any more.
                Err(_) => return Poll::Pending,
            }
        }
    }

    fn name(&self) -> &'static str {
        match self.ring.get_ref().form {
            WriteForm::Dsync => "uring (rwf_dsync)",
            WriteForm::WriteSync => "uring (write, fdatasync)",
        }
    }
}
