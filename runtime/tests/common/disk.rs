//! A disk whose journal writes a test holds, lets go and fails, and whose files it can make fail or wait.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wasmkeep::node::NodeDisk;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::disk::probe::{Io, WriteForm};
use wasmkeep_storage::disk::sim::SimDisk;
use wasmkeep_storage::disk::uring::Uring;
use wasmkeep_storage::disk::{AlignedBuf, Backend, Completion, File, Files, Open, Token};

/// What lies under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Memory.
    Sim,
    /// The machine's disk, written by threads.
    Threads,
    /// The machine's disk, written through io_uring.
    Uring,
}

/// Every way to a disk that this machine has.
pub(crate) fn all() -> Vec<Over> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let may = runtime.block_on(async { Uring::new(WriteForm::WriteSync, None).is_ok() });
    if !may {
        println!("this machine lets nobody use io_uring: tested on the others");
    }
    [Over::Sim, Over::Threads].into_iter().chain(may.then_some(Over::Uring)).collect()
}

/// What is done to a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Open,
    Read,
    Write,
    Names,
}

type Hook = Box<dyn Fn(Op, &Path) -> io::Result<()> + Send + Sync>;

/// The disk. Clones are the same one, also for nodes that live on it one after the other.
#[derive(Clone)]
pub(crate) struct TestDisk {
    pub(crate) sim: SimDisk,
    over: Over,
    segment_bytes: u64,
    valve: Arc<Valve>,
    hook: Arc<Mutex<Option<Arc<Hook>>>>,
}

/// Numbers journal writes from 1 in the order they were submitted, over all cores.
#[derive(Default)]
struct Valve {
    state: Mutex<State>,
    submitted: Condvar,
}

#[derive(Default)]
struct State {
    paused: bool,
    count: u64,
    let_go: HashSet<u64>,
    /// Every write up to this number fails, unless it has ended already.
    doomed: u64,
    error: Option<i32>,
    wakers: Vec<Waker>,
}

impl Valve {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it held")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

impl TestDisk {
    pub(crate) fn new(over: Over) -> Self {
        Self { sim: SimDisk::new(), over, segment_bytes: 256 * 1024, valve: Arc::default(), hook: Arc::default() }
    }

    pub(crate) fn sim() -> Self {
        Self::new(Over::Sim)
    }

    /// The same with segments of its journal that hold large transactions.
    pub(crate) fn with_segments(self, bytes: u64) -> Self {
        Self { segment_bytes: bytes, ..self }
    }

    /// The same disk after a power cut.
    pub(crate) fn crashed(&self, seed: u64) -> Self {
        Self { sim: self.sim.crash_image(seed), segment_bytes: self.segment_bytes, ..Self::new(self.over) }
    }

    /// This disk for a node with this data directory.
    pub(crate) fn node_disk(&self, data: &Path) -> NodeDisk {
        // On the machine's disk the node itself has made it by then.
        self.sim.files().create_dir_all(data).and_then(|()| self.sim.files().sync_all(data)).expect("a disk that works");
        let real: Arc<dyn Files> = if self.over == Over::Sim { self.sim.files() } else { OsFiles::shared() };
        let disk = self.clone();
        NodeDisk {
            files: Arc::new(Hooked { real, hook: Arc::clone(&self.hook) }),
            backend: Box::new(move |_| {
                let real = match disk.over {
                    Over::Sim => disk.sim.backend(),
                    over => Io::new(over == Over::Uring, WriteForm::WriteSync).open()?,
                };
                Ok(Box::new(Valved { real, valve: Arc::clone(&disk.valve), numbers: HashMap::new(), ended: Vec::new() }))
            }),
            segment_bytes: Some(self.segment_bytes),
        }
    }

    /// From now on no write of the journal ends.
    pub(crate) fn pause(&self) {
        self.valve.change(|state| state.paused = true);
    }

    /// Every write ends as it wants to.
    pub(crate) fn release(&self) {
        self.valve.change(|state| state.paused = false);
    }

    /// Lets one write end while the others are held.
    pub(crate) fn release_one(&self, number: u64) {
        self.valve.change(|state| {
            state.let_go.insert(number);
        });
    }

    /// Everything that is held fails, though its bytes are on the disk; what comes later is not held.
    pub(crate) fn fail(&self) {
        self.valve.change(|state| {
            state.doomed = state.count;
            state.paused = false;
        });
    }

    /// Every write fails from now on, with this errno, or none does.
    pub(crate) fn fail_all(&self, errno: Option<i32>) {
        self.valve.change(|state| state.error = errno);
    }

    /// Journal writes submitted so far.
    pub(crate) fn count(&self) -> u64 {
        self.valve.lock().count
    }

    /// Waits until so many journal writes have been submitted.
    pub(crate) fn wait_for(&self, count: u64) {
        let state = self.valve.lock();
        let (state, timeout) = self
            .valve
            .submitted
            .wait_timeout_while(state, Duration::from_secs(30), |state| state.count < count)
            .expect("no test panics with it held");
        assert!(!timeout.timed_out(), "{} journal writes were submitted, {count} expected", state.count);
    }

    /// Called before whatever is done to a file or directory; an error is that operation's.
    pub(crate) fn hook(&self, hook: impl Fn(Op, &Path) -> io::Result<()> + Send + Sync + 'static) {
        *self.hook.lock().expect("no test panics with it held") = Some(Arc::new(Box::new(hook)));
    }

    pub(crate) fn unhook(&self) {
        *self.hook.lock().expect("no test panics with it held") = None;
    }
}

pub(crate) fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

pub(crate) fn is_base(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sqlite")
}

/// A core's journal writes, held back.
struct Valved {
    real: Box<dyn Backend>,
    valve: Arc<Valve>,
    numbers: HashMap<Token, u64>,
    ended: Vec<Completion>,
}

impl Valved {
    fn is_let_go(&self, state: &State, token: Token) -> bool {
        !state.paused || self.numbers.get(&token).is_some_and(|number| state.let_go.contains(number))
    }
}

impl Backend for Valved {
    fn submit(&mut self, file: &Arc<dyn File>, offset: u64, buffer: AlignedBuf, token: Token) {
        let mut state = self.valve.lock();
        state.count += 1;
        self.numbers.insert(token, state.count);
        self.real.submit(file, offset, buffer, token);
        self.valve.submitted.notify_all();
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        self.real.reap(&mut self.ended);
        let state = self.valve.lock();
        for mut completion in std::mem::take(&mut self.ended) {
            if !self.is_let_go(&state, completion.token) {
                self.ended.push(completion);
                continue;
            }
            let number = self.numbers.remove(&completion.token).unwrap_or(u64::MAX);
            if number <= state.doomed {
                completion.result = Err(errno(libc::EIO));
            } else if let Some(code) = state.error {
                completion.result = Err(errno(code));
            }
            out.push(completion);
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.real.poll_ready(cx).is_ready() {
            self.real.reap(&mut self.ended);
        }
        let mut state = self.valve.lock();
        if self.ended.iter().any(|completion| self.is_let_go(&state, completion.token)) {
            return Poll::Ready(());
        }
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn name(&self) -> &'static str {
        "valved"
    }
}

/// Files that ask the test's hook first.
struct Hooked {
    real: Arc<dyn Files>,
    hook: Arc<Mutex<Option<Arc<Hook>>>>,
}

struct HookedFile {
    real: Arc<dyn File>,
    path: PathBuf,
    hook: Arc<Mutex<Option<Arc<Hook>>>>,
}

fn ask(hook: &Mutex<Option<Arc<Hook>>>, op: Op, path: &Path) -> io::Result<()> {
    // Not called with the lock held: it may wait for the test, or let the test change it.
    let hook = hook.lock().expect("no test panics with it held").clone();
    hook.map_or(Ok(()), |hook| hook(op, path))
}

impl Hooked {
    fn ask(&self, op: Op, path: &Path) -> io::Result<()> {
        ask(&self.hook, op, path)
    }
}

impl Files for Hooked {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.ask(Op::Open, path)?;
        let real = self.real.open(path, how)?;
        Ok(Arc::new(HookedFile { real, path: path.to_owned(), hook: Arc::clone(&self.hook) }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.real.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.ask(Op::Names, dir)?;
        self.real.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Op::Names, to)?;
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.ask(Op::Names, path)?;
        self.real.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.ask(Op::Names, dir)?;
        self.real.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.ask(Op::Names, dir)?;
        self.real.sync_dir(dir)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.ask(Op::Names, dir)?;
        self.real.sync_all(dir)
    }
}

impl File for HookedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        ask(&self.hook, Op::Read, &self.path)?;
        self.real.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        ask(&self.hook, Op::Write, &self.path)?;
        self.real.write_at(offset, bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        ask(&self.hook, Op::Write, &self.path)?;
        self.real.set_len(len_bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }

    fn sync(&self) -> io::Result<()> {
        ask(&self.hook, Op::Write, &self.path)?;
        self.real.sync()
    }

    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        self.real.raw_fd()
    }

    fn sim_id(&self) -> u64 {
        self.real.sim_id()
    }
}
