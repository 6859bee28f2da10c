//! A disk in memory that keeps what is live and what is durable apart, fails on demand, and builds the states that a power cut
//! may leave behind.
//!
//! For tests only, though it lives in the library so that every crate's tests can use it. It is adversarial where the POSIX
//! rules allow it: unsynced sectors are each old or new, sectors of a journal write in flight may be garbage, unsynced names may
//! be missing. What it does not model: bytes that rot (see `corrupt`), and intermediate versions of a page written twice.

mod model;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use self::model::{Change, Content, Names, SECTOR_BYTES, put, sectors, to_index};
use super::{AlignedBuf, Backend, Completion, File, Files, Open, Token};

/// How a journal write fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// EIO.
    Eio,
    /// ENOSPC.
    Enospc,
    /// Only the first half reached the device; the rest is an error.
    Short,
}

/// What becomes of the bytes of a write that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// None is on disk.
    Lost,
    /// All are on disk after all.
    Kept,
    /// Each sector is old, new or garbage; a crash decides.
    Undecided,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        write!(f, "SimDisk({} names, {} in flight)", state.names.files.len(), state.in_flight.len())
    }
}

#[derive(Default)]
struct State {
    contents: Vec<Content>,
    names: Names,
    durable_names: Names,
    /// Changes of names since `durable_names`, in order.
    name_changes: Vec<NameChange>,
    in_flight: Vec<InFlight>,
    finished: BTreeMap<u64, Vec<Completion>>,
    wakers: BTreeMap<u64, Waker>,
    backends: u64,
    paused: bool,
    next_faults: VecDeque<(Fault, Fate)>,
    every_fault: Option<(Fault, Fate)>,
    files_errno: Option<i32>,
    capacity_bytes: Option<u64>,
    /// Operations until the power goes; `Some(0)` is a disk without power.
    fuse: Option<u64>,
}

struct NameChange {
    change: Change,
    durable: bool,
}

struct InFlight {
    backend: u64,
    content: usize,
    offset: u64,
    buffer: AlignedBuf,
    token: Token,
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(eio()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A step of `Files` that writes.
    fn write_step(&mut self) -> io::Result<()> {
        self.step()?;
        self.files_errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn change(&mut self, change: Change) {
        self.names.apply(&change);
        self.name_changes.push(NameChange { change, durable: false });
    }

    fn used_bytes(&self) -> u64 {
        self.names.files.values().map(|&content| self.contents[content].live.len() as u64).sum()
    }

    fn grow_step(&mut self, content: usize, len_bytes: u64) -> io::Result<()> {
        self.write_step()?;
        let grown = len_bytes.saturating_sub(self.contents[content].live.len() as u64);
        match self.capacity_bytes {
            Some(capacity) if grown > 0 && self.used_bytes() + grown > capacity => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }

    /// Marks what a directory's fsync makes durable: changes of its names, and whatever those build on.
    fn sync_names(&mut self, dir: Option<&Path>) {
        let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
        for entry in self.name_changes.iter_mut().rev() {
            let touched = entry.change.paths();
            if dir.is_none_or(|dir| touched.iter().any(|p| p.parent() == Some(dir))) || touched.iter().any(|p| paths.contains(*p)) {
                entry.durable = true;
                paths.extend(touched.iter().map(|p| (*p).to_owned()));
            }
        }
        let first_pending = self.name_changes.iter().position(|c| !c.durable).unwrap_or(self.name_changes.len());
        for entry in self.name_changes.drain(..first_pending) {
            self.durable_names.apply(&entry.change);
        }
    }

    fn complete(&mut self, index: usize) {
        let write = self.in_flight.remove(index);
        let fault = self.next_faults.pop_front().or(self.every_fault);
        let content = &mut self.contents[write.content];
        let bytes = write.buffer.as_slice();
        let result = match fault {
            None => {
                content.put_durable(write.offset, bytes);
                Ok(())
            }
            Some((fault, fate)) => {
                let reached = if fault == Fault::Short { bytes.len() / 2 / SECTOR_BYTES * SECTOR_BYTES } else { bytes.len() };
                match fate {
                    Fate::Lost => {}
                    Fate::Kept => content.put_durable(write.offset, &bytes[..reached]),
                    Fate::Undecided => content.put_uncertain(write.offset, &bytes[..reached]),
                }
                Err(match fault {
                    Fault::Eio => eio(),
                    Fault::Enospc => io::Error::from_raw_os_error(libc::ENOSPC),
                    Fault::Short => io::Error::new(io::ErrorKind::WriteZero, "short write"),
                })
            }
        };
        let completion = Completion { token: write.token, result, buffer: write.buffer };
        self.finished.entry(write.backend).or_default().push(completion);
        if let Some(waker) = self.wakers.remove(&write.backend) {
            waker.wake();
        }
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This disk as `Files`.
    #[must_use]
    pub fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.clone())
    }

    /// A journal's way to this disk. Any number may exist.
    #[must_use]
    pub fn backend(&self) -> Box<dyn Backend> {
        let mut state = self.lock();
        state.backends += 1;
        Box::new(SimBackend { disk: self.clone(), id: state.backends })
    }

    /// Journal writes stay in flight from now on.
    pub fn pause(&self) {
        self.lock().paused = true;
    }

    /// Completes what is in flight, in order, and all that comes.
    pub fn resume(&self) {
        let mut state = self.lock();
        state.paused = false;
        while !state.in_flight.is_empty() {
            state.complete(0);
        }
    }

    /// Completes one write in flight, counted from the oldest.
    ///
    /// # Panics
    /// When there is no such write.
    pub fn complete(&self, index: usize) {
        self.lock().complete(index);
    }

    /// Writes in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lock().in_flight.len()
    }

    /// The next journal write to complete that has no fault yet fails.
    pub fn fail_next(&self, fault: Fault, fate: Fate) {
        self.lock().next_faults.push_back((fault, fate));
    }

    /// Every journal write fails from now on, or none.
    pub fn fail_all(&self, fault: Option<(Fault, Fate)>) {
        self.lock().every_fault = fault;
    }

    /// Every changing operation of `Files` fails with this errno from now on, or none.
    pub fn fail_files(&self, errno: Option<i32>) {
        self.lock().files_errno = errno;
    }

    /// Bytes the disk holds; a file growing past that gets ENOSPC. None: no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity_bytes = bytes;
    }

    /// Bytes all named files hold.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// After this many more operations the power is gone: nothing has an effect any more, `Files` say EIO, journal writes never
    /// complete. `crash_image` then tells what is left.
    pub fn cut_power_after(&self, operations: u64) {
        self.lock().fuse = Some(operations);
    }

    /// Whether the power is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.lock().fuse == Some(0)
    }

    /// Flips bits of a file, on the medium and for readers.
    ///
    /// # Panics
    /// When there is no such file or byte.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        let mut state = self.lock();
        let content = state.names.files[path];
        state.contents[content].live[to_index(offset)] ^= xor;
        state.contents[content].durable[to_index(offset)] ^= xor;
    }

    /// Every file's path, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock().names.files.keys().cloned().collect()
    }

    /// One of the disks that a power cut at this moment may leave. The same seed gives the same one.
    #[must_use]
    pub fn crash_image(&self, seed: u64) -> Self {
        let state = self.lock();
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut contents = state.contents.clone();
        for write in &state.in_flight {
            contents[write.content].put_uncertain(write.offset, write.buffer.as_slice());
        }
        let contents = contents
            .iter()
            .map(|content| {
                let image = content.after_crash(rng);
                Content { live: image.clone(), durable: image, ..Content::default() }
            })
            .collect();
        let mut names = state.durable_names.clone();
        for entry in &state.name_changes {
            if entry.durable || rng.bool() {
                names.apply(&entry.change);
            }
        }
        names.drop_orphans();
        let image = State { contents, durable_names: names.clone(), names, ..State::default() };
        Self(Arc::new(Mutex::new(image)))
    }
}

impl Files for SimDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut state = self.lock();
        state.step()?;
        let content = match state.names.files.get(path) {
            Some(&content) => content,
            None if how == Open::Create => {
                state.write_step()?;
                if !path.parent().is_some_and(|dir| state.names.dirs.contains(dir)) {
                    return Err(missing());
                }
                let content = state.contents.len();
                state.contents.push(Content::default());
                state.change(Change::Create(path.to_owned(), content));
                content
            }
            None => return Err(missing()),
        };
        Ok(Arc::new(SimFile { disk: self.clone(), content }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.lock();
        state.step()?;
        let names = state.names.files.keys().chain(&state.names.dirs);
        Ok(names.filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.write_step()?;
        let missing: Vec<_> = dir.ancestors().filter(|a| !a.as_os_str().is_empty() && a.parent().is_some()).collect();
        for dir in missing.into_iter().rev() {
            if !state.names.dirs.contains(dir) {
                state.change(Change::MakeDir(dir.to_owned()));
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.write_step()?;
        if !state.names.files.contains_key(from) && !state.names.dirs.contains(from) {
            return Err(missing());
        }
        if from != to {
            state.change(Change::Rename(from.to_owned(), to.to_owned()));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.write_step()?;
        if state.names.files.contains_key(path) {
            state.change(Change::Remove(path.to_owned()));
        }
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.write_step()?;
        if state.names.files.keys().chain(&state.names.dirs).any(|path| path.parent() == Some(dir)) {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
        }
        if state.names.dirs.contains(dir) {
            state.change(Change::Remove(dir.to_owned()));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.write_step()?;
        state.sync_names(Some(dir));
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.write_step()?;
        state.sync_names(None);
        state.contents.iter_mut().for_each(Content::sync);
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    content: usize,
}

impl File for SimFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        state.step()?;
        let live = &state.contents[self.content].live;
        let bytes = live.get(to_index(offset)..).unwrap_or_default();
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.grow_step(self.content, offset + bytes.len() as u64)?;
        let content = &mut state.contents[self.content];
        put(&mut content.live, offset, bytes);
        content.dirty.extend(sectors(offset, bytes.len()));
        for sector in sectors(offset, bytes.len()) {
            content.uncertain.remove(&sector);
        }
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.grow_step(self.content, len_bytes)?;
        let content = &mut state.contents[self.content];
        let old = content.live.len();
        content.live.resize(to_index(len_bytes), 0);
        // Bytes cut off and grown again are zeros, which the medium does not know yet.
        let from = old.min(content.live.len());
        content.dirty.extend(sectors(from as u64, old.max(content.live.len()) - from));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        state.step()?;
        Ok(state.contents[self.content].live.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.write_step()?;
        state.contents[self.content].sync();
        Ok(())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }

    fn sim_id(&self) -> u64 {
        self.content as u64 + 1
    }
}

struct SimBackend {
    disk: SimDisk,
    id: u64,
}

impl Backend for SimBackend {
    fn submit(&mut self, file: &Arc<dyn File>, offset: u64, buffer: AlignedBuf, token: Token) {
        assert!(offset.is_multiple_of(4096) && buffer.len().is_multiple_of(4096), "a journal write must be aligned");
        assert_ne!(file.sim_id(), 0, "a simulated backend writes simulated files");
        let mut state = self.disk.lock();
        if state.step().is_err() {
            return;
        }
        let content = to_index(file.sim_id() - 1);
        state.in_flight.push(InFlight { backend: self.id, content, offset, buffer, token });
        if !state.paused {
            let last = state.in_flight.len() - 1;
            state.complete(last);
        }
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        if let Some(finished) = self.disk.lock().finished.get_mut(&self.id) {
            out.append(finished);
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.disk.lock();
        if state.finished.get(&self.id).is_some_and(|finished| !finished.is_empty()) {
            return Poll::Ready(());
        }
        state.wakers.insert(self.id, cx.waker().clone());
        Poll::Pending
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}
