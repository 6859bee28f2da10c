//! All that storage asks of a disk, in two small traits, so that tests can stand in for one.
//!
//! `Files` is the ordinary, synchronous part: base files, directories, recovery. `Backend` is the journal's hot path: submit a
//! write, hear later that it is durable. `os` and the journal backends `uring` and `threads` are real; `sim` keeps what is live
//! and what is durable apart and can build every state a crash may leave. `background` is where work that may block is done.

pub mod background;
mod cpus;
pub mod os;
pub mod probe;
pub mod sim;
pub mod threads;
pub mod uring;

#[cfg(test)]
mod tests;

pub use cpus::unbind_thread;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

/// One open file of a `Files`. Closed when the last clone is dropped.
#[expect(clippy::len_without_is_empty, reason = "a file's length is a question to the system, not a collection's")]
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`; returns the bytes read, fewer only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`, growing the file as needed. Not durable before `sync`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    /// The file's length, bytes.
    fn len(&self) -> io::Result<u64>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Says that the whole file will be read soon. A matter of speed only.
    fn will_read(&self) {}
    /// The descriptor for a journal backend, where there is one.
    fn raw_fd(&self) -> Option<std::os::fd::RawFd>;
    /// A number that names this file for the simulated backend, 0 elsewhere.
    fn sim_id(&self) -> u64 {
        0
    }
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// Reading only; must exist.
    Read,
    /// Reading and writing; must exist.
    Write,
    /// Reading and writing; made if missing.
    Create,
    /// Reading and writing past the page cache (O_DIRECT where the file system knows it), for journal segments; must exist.
    Journal,
}

/// A file system, or something that behaves like one. Safe to use from any thread.
pub trait Files: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// Names in a directory, unsorted; an absent directory has none.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Makes a directory and its parents.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Renames a file, replacing the target, or a directory with all it holds to a name not in use. Atomic.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; absent is fine.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory; absent is fine.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes everything written to the file system of `dir` durable: cheaper than many `File::sync`.
    fn sync_all(&self, dir: &Path) -> io::Result<()>;
}

/// Names one submitted write; chosen by the journal.
pub type Token = u64;

/// A finished write.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub token: Token,
    /// Whether every byte is durable. A short write is an error.
    pub result: io::Result<()>,
    /// The buffer, for reuse.
    pub buffer: AlignedBuf,
}

/// The journal's way to the disk.
pub trait Backend {
    /// Starts a write that is durable when its completion says so. `offset` and the buffer's length are multiples of 4,096.
    /// Never fails at once: errors come as completions.
    fn submit(&mut self, file: &Arc<dyn File>, offset: u64, buffer: AlignedBuf, token: Token);
    /// Moves finished writes to `out`, in any order. Does not block.
    fn reap(&mut self, out: &mut Vec<Completion>);
    /// Ready when `reap` may have something; registers the waker otherwise.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// What it is, for the log: `uring (rwf_dsync)`, `threads`, `sim`.
    fn name(&self) -> &'static str;
}

/// A buffer aligned to 4,096 bytes whose length is padded to a multiple of it when written.
#[derive(Debug)]
pub struct AlignedBuf {
    // A Vec of aligned blocks keeps alignment without unsafe allocation code; `len_bytes` is what is used of it.
    blocks: Vec<Block>,
    len_bytes: usize,
}

#[repr(C, align(4096))]
#[derive(Clone, Debug)]
struct Block([u8; 4096]);

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl AlignedBuf {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { blocks: Vec::new(), len_bytes: 0 }
    }

    /// Bytes in use.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether nothing is in use.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Forgets the content, keeps the memory.
    pub const fn clear(&mut self) {
        self.len_bytes = 0;
    }

    /// Bytes it can hold without asking for memory.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.blocks.len() * 4096
    }

    /// Forgets everything past `len_bytes`.
    pub fn truncate(&mut self, len_bytes: usize) {
        self.len_bytes = self.len_bytes.min(len_bytes);
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let start = self.len_bytes;
        self.grow(start + bytes.len());
        self.as_mut_slice()[start..].copy_from_slice(bytes);
    }

    /// Fills with zeros up to the next multiple of 4,096.
    pub fn pad(&mut self) {
        let start = self.len_bytes;
        self.grow(start.next_multiple_of(4096));
        self.as_mut_slice()[start..].fill(0);
    }

    fn grow(&mut self, len_bytes: usize) {
        let blocks = len_bytes.div_ceil(4096);
        if blocks > self.blocks.len() {
            self.blocks.resize(blocks.next_power_of_two(), Block([0; 4096]));
        }
        self.len_bytes = len_bytes;
    }

    /// The bytes in use.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `blocks` is one contiguous allocation of `blocks.len() * 4096` initialised bytes and `len_bytes` is within it.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len_bytes) }
    }

    /// The bytes in use, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len_bytes) }
    }
}
