//! The fixture: a data directory and nodes that live in it, one after the other.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
use wasmkeep_storage::clock::{Clock, ManualClock};
use wasmkeep_storage::disk::background::Background;
use wasmkeep_storage::disk::sim::SimDisk;
use wasmkeep_storage::disk::{Backend, File, Files, Open};
use wasmkeep_storage::sql::EventBudget;
use wasmkeep_storage::store::{
    CoreDisk, CoreStore, NodeStorage, NodeStorageOptions, Opened, Progress, StoreOptions, core_of, partition,
};
use wasmkeep_storage::{Address, SqlError, StorageError, Value};

pub(crate) const CLASS: &str = "thing";
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY, v BLOB)";

/// Runs a test in one thread.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(test))
}

/// The simulated disk, with readers that can be made to fail and writers of base files that can be held.
struct Readers {
    sim: Arc<dyn Files>,
    fail: Arc<AtomicBool>,
    hold: Arc<AtomicBool>,
}

struct Reader {
    file: Arc<dyn File>,
    fail: Arc<AtomicBool>,
    hold: Option<Arc<AtomicBool>>,
}

impl File for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if self.fail.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        while self.hold.as_ref().is_some_and(|hold| hold.load(Ordering::Relaxed)) {
            std::thread::yield_now();
        }
        self.file.write_at(offset, bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        self.file.raw_fd()
    }

    fn sim_id(&self) -> u64 {
        self.file.sim_id()
    }
}

impl Files for Readers {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.sim.open(path, how)?;
        let is_base = path.extension().is_some_and(|extension| extension == "sqlite");
        Ok(Arc::new(Reader { file, fail: Arc::clone(&self.fail), hold: is_base.then(|| Arc::clone(&self.hold)) }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.sim.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.sim.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.sim.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.sim.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.sim.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.sim.sync_dir(dir)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.sim.sync_all(dir)
    }
}

/// A data directory on a disk, and how nodes use it.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) sim: SimDisk,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) fail_reads: Arc<AtomicBool>,
    /// Writers of base files wait; only with `threads`.
    pub(crate) hold_bases: Arc<AtomicBool>,
    pub(crate) data: PathBuf,
    pub(crate) segment_bytes: u64,
    pub(crate) journal_bytes_max: u64,
    pub(crate) accept_journal_loss: bool,
    /// Base files are written by a thread instead of at once.
    pub(crate) threads: bool,
    pub(crate) incarnation: u64,
    /// Makes the journals' way to the disk, if it is not the simulated one.
    pub(crate) backend: Option<fn() -> Box<dyn Backend>>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let sim = SimDisk::new();
        sim.files().create_dir_all(Path::new("/data")).unwrap();
        sim.files().sync_dir(Path::new("/")).unwrap();
        Self::over(sim)
    }

    pub(crate) fn over(sim: SimDisk) -> Self {
        let fail_reads = Arc::new(AtomicBool::new(false));
        let hold_bases = Arc::new(AtomicBool::new(false));
        let files = Arc::new(Readers { sim: sim.files(), fail: Arc::clone(&fail_reads), hold: Arc::clone(&hold_bases) });
        Self {
            sim,
            files,
            fail_reads,
            hold_bases,
            data: "/data".into(),
            segment_bytes: 256 * 1024,
            journal_bytes_max: 8 * 256 * 1024,
            accept_journal_loss: false,
            threads: false,
            incarnation: 0,
            backend: None,
        }
    }

    /// This data directory after a power cut.
    pub(crate) fn crashed(&self, seed: u64) -> Self {
        let image = Self::over(self.sim.crash_image(seed));
        Self { sim: image.sim, files: image.files, fail_reads: image.fail_reads, hold_bases: image.hold_bases, ..self.clone() }
    }

    /// Starts a node.
    pub(crate) fn start(&mut self, cores: usize) -> Result<Node, StorageError> {
        self.incarnation += 1;
        let (clock, time) = Clock::manual();
        let options = NodeStorageOptions {
            data: self.data.clone(),
            cores,
            incarnation: self.incarnation,
            accept_journal_loss: self.accept_journal_loss,
        };
        let parts = NodeStorage::recover(&self.files, &options)?;
        let mut stores = Vec::new();
        for (core, part) in parts.into_iter().enumerate() {
            let options = StoreOptions {
                data: self.data.clone(),
                core,
                cores,
                clock: clock.clone(),
                database_bytes_max: 1 << 30,
                journal_bytes_max: self.journal_bytes_max,
                segment_bytes: Some(self.segment_bytes),
                accept_journal_loss: self.accept_journal_loss,
            };
            let background = || Background::inline(Arc::clone(&self.files));
            let disk = CoreDisk {
                files: Arc::clone(&self.files),
                backend: self.backend.map_or_else(|| self.sim.backend(), |open| open()),
                segments: background(),
                checkpoints: if self.threads {
                    Background::thread("bases", Arc::clone(&self.files)).unwrap()
                } else {
                    background()
                },
            };
            stores.push(CoreStore::open(options, part, disk)?);
        }
        let tasks = stores.iter().map(|store| spawn_local(store.clone().run_checkpoints())).collect();
        Ok(Node { stores, tasks, clock, time, sim: self.sim.clone() })
    }

    /// Starts a node and waits until it may serve.
    pub(crate) async fn serve(&mut self, cores: usize) -> Node {
        let node = self.start(cores).unwrap();
        for store in &node.stores {
            store.started().await.unwrap();
        }
        node
    }
}

/// A running node. Dropping it is a kill.
pub(crate) struct Node {
    pub(crate) stores: Vec<CoreStore>,
    tasks: Vec<JoinHandle<()>>,
    clock: Clock,
    pub(crate) time: Arc<ManualClock>,
    sim: SimDisk,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn address(name: &str) -> Address {
    Address::new(CLASS, name)
}

impl Node {
    pub(crate) fn core(&self, name: &str) -> usize {
        core_of(partition(CLASS, name), self.stores.len())
    }

    pub(crate) fn store(&self, name: &str) -> &CoreStore {
        &self.stores[self.core(name)]
    }

    pub(crate) fn try_open(&self, name: &str) -> Result<Opened, StorageError> {
        let budget = Rc::new(EventBudget::new(self.clock.clone(), u64::MAX));
        self.store(name).open_actor(&address(name), budget)
    }

    pub(crate) fn open(&self, name: &str) -> Opened {
        self.try_open(name).unwrap()
    }

    /// What the journals have to say now. Lets tasks go on, writes what is pending; ends when nothing more happens.
    pub(crate) async fn pump(&self) -> Vec<(usize, Progress)> {
        let mut heard = Vec::new();
        let mut idle = 0;
        while idle < 4 {
            idle += 1;
            for (core, store) in self.stores.iter().enumerate() {
                store.cut();
                while let Poll::Ready(progress) = store.poll_progress(&mut Context::from_waker(Waker::noop())) {
                    heard.push((core, progress));
                    idle = 0;
                }
            }
            for _ in 0..4 {
                yield_now().await;
            }
        }
        heard
    }

    /// Time passes in which nobody writes: checkpoints run.
    pub(crate) async fn quiet(&self) {
        for _ in 0..6 {
            self.stores.iter().for_each(CoreStore::sweep);
            self.pump().await;
            self.time.advance_ms(1_001);
        }
    }

    /// A clean stop.
    pub(crate) async fn close(self) -> Result<(), StorageError> {
        let closing: Vec<_> = self.stores.iter().cloned().map(|store| spawn_local(async move { store.close().await })).collect();
        for closing in closing {
            let mut pumped = 0;
            while !closing.is_finished() {
                if self.sim.is_dead() {
                    // Its writes never end; neither does it.
                    closing.abort();
                    return Err(StorageError::Restarting);
                }
                pumped += 1;
                let stats: Vec<_> = self.stores.iter().map(|s| (s.is_failed(), s.durable(), s.newest(), s.stats())).collect();
                assert!(pumped < 500, "a clean stop does not end: {stats:?}");
                if pumped > 100 {
                    // A simulated disk ends its writes when asked; a real one, behind threads, takes time.
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                for (core, progress) in self.pump().await {
                    if let Progress::Failed { .. } = progress {
                        self.stores[core].restart();
                    }
                }
                self.stores.iter().for_each(CoreStore::sweep);
            }
            closing.await.unwrap()?;
        }
        Ok(())
    }
}

/// Commits one row.
pub(crate) fn insert(opened: &Opened, n: i64, bytes: usize) -> Result<u64, SqlError> {
    opened.connection.exec_now(TABLE, &[], true)?;
    let value = Value::Blob(vec![u8::try_from(n & 0xff).unwrap(); bytes]);
    opened.connection.exec_now("INSERT INTO log VALUES (?1, ?2)", &[Value::Integer(n), value], true)
}

/// The numbers of all rows, after an integrity check. None: there is no table.
pub(crate) fn rows(opened: &Opened) -> Option<Vec<i64>> {
    let check = opened.connection.query_now("PRAGMA integrity_check", &[]).unwrap();
    assert_eq!(check.values, [Value::Text("ok".into())]);
    let found = opened.connection.query_now("SELECT n FROM log ORDER BY n", &[]).ok()?;
    Some(found.values.iter().map(|n| if let Value::Integer(n) = n { *n } else { panic!("not a number: {n:?}") }).collect())
}
