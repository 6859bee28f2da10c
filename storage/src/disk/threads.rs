//! The journal's writes on two plain threads: for kernels and containers that forbid io_uring.
//!
//! What it is not: the fast path. Both threads write at the same time, as both groups in flight would on a ring. Owner: one
//! core. Dropping it lets what is in flight end.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::probe::WriteForm;
use super::{AlignedBuf, Backend, Completion, File, Token, cpus};
use crate::limits::{GROUPS_IN_FLIGHT_MAX, RING_ENTRIES};

struct Write {
    file: Arc<dyn File>,
    offset: u64,
    buffer: AlignedBuf,
    token: Token,
}

/// A core's writing threads.
pub struct Threads {
    form: WriteForm,
    writers: Vec<SyncSender<Write>>,
    next: usize,
    finished: mpsc::Receiver<Completion>,
    taken: Vec<Completion>,
    handles: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(form: WriteForm) -> io::Result<Self> {
        let (done, finished) = mpsc::channel(RING_ENTRIES as usize);
        let (mut writers, mut handles) = (Vec::new(), Vec::new());
        for n in 0..GROUPS_IN_FLIGHT_MAX {
            let (sender, writes) = sync_channel(RING_ENTRIES as usize);
            let done = done.clone();
            let name = format!("journal-write-{n}");
            handles.push(std::thread::Builder::new().name(name).spawn(move || write_all(form, &writes, &done))?);
            writers.push(sender);
        }
        Ok(Self { form, writers, next: 0, finished, taken: Vec::new(), handles })
    }
}

fn write_all(form: WriteForm, writes: &Receiver<Write>, done: &mpsc::Sender<Completion>) {
    cpus::unbind_thread();
    while let Ok(Write { file, offset, buffer, token }) = writes.recv() {
        let result = write_durably(form, &*file, offset, buffer.as_slice());
        drop(file);
        if done.blocking_send(Completion { token, result, buffer }).is_err() {
            return;
        }
    }
}

/// One write that is durable when this returns.
pub(super) fn write_durably(form: WriteForm, file: &dyn File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    match (form, file.raw_fd()) {
        (WriteForm::Dsync, Some(fd)) => pwrite_dsync(fd, offset, bytes),
        _ => {
            file.write_at(offset, bytes)?;
            file.sync()
        }
    }
}

fn pwrite_dsync(fd: RawFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        // SAFETY: the vector describes `bytes`, which outlives the call and is only read by it; the descriptor is open.
        let written = unsafe { libc::pwritev2(fd, &raw const vector, 1, offset, libc::RWF_DSYNC) };
        match usize::try_from(written) {
            Ok(n) if n == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::WriteZero, "short write")),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

impl Backend for Threads {
    fn submit(&mut self, file: &Arc<dyn File>, offset: u64, buffer: AlignedBuf, token: Token) {
        self.next = (self.next + 1) % self.writers.len();
        let write = Write { file: Arc::clone(file), offset, buffer, token };
        if let Err(TrySendError::Full(write) | TrySendError::Disconnected(write)) = self.writers[self.next].try_send(write) {
            let result = Err(io::Error::other("the journal's writing thread takes nothing"));
            self.taken.push(Completion { token, result, buffer: write.buffer });
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.taken);
        while let Ok(completion) = self.finished.try_recv() {
            out.push(completion);
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.taken.is_empty() {
            return Poll::Ready(());
        }
        match self.finished.poll_recv(cx) {
            Poll::Ready(Some(completion)) => {
                self.taken.push(completion);
                Poll::Ready(())
            }
            // All threads are gone; submitting says so.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn name(&self) -> &'static str {
        match self.form {
            WriteForm::Dsync => "threads (rwf_dsync)",
            WriteForm::WriteSync => "threads (write, fdatasync)",
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.writers.clear();
        self.finished.close();
        for handle in self.handles.drain(..) {
            // A thread that panicked has said so itself.
            let _ = handle.join();
        }
    }
}
