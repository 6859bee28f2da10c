//! The journal on every backend.

mod behaviour;
mod crash;
mod fuzz;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Journal, JournalOptions, Progress, Record, RecordKind, Recovery, recover};
use crate::clock::Clock;
use crate::disk::background::Background;
use crate::disk::os::OsFiles;
use crate::disk::probe::{Io, WriteForm};
use crate::disk::sim::SimDisk;
use crate::disk::{Backend, Files};
use crate::error::{Refused, StorageError};
use crate::types::{Address, Lsn};

/// The disks a test runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disk {
    Sim,
    Threads(WriteForm),
    Uring(WriteForm),
}

const DISKS: [Disk; 5] = [
    Disk::Sim,
    Disk::Threads(WriteForm::Dsync),
    Disk::Threads(WriteForm::WriteSync),
    Disk::Uring(WriteForm::Dsync),
    Disk::Uring(WriteForm::WriteSync),
];

/// One disk with a data directory.
struct Bed {
    disk: Disk,
    dir: PathBuf,
    files: Arc<dyn Files>,
    sim: SimDisk,
    segment_bytes: u64,
    segments_max: u64,
    clock: Clock,
    _temp: Option<tempfile::TempDir>,
}

/// Runs a test once per kind of disk, each time in a runtime of one thread.
fn on_every_disk(test: impl AsyncFn(Bed)) {
    for disk in DISKS {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(Bed::new(disk)));
    }
}

/// Runs a test on the simulated disk only, because it steers the disk.
fn on_sim(test: impl AsyncFn(Bed)) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(test(Bed::new(Disk::Sim)));
}

impl Bed {
    fn new(disk: Disk) -> Self {
        let sim = SimDisk::new();
        let (files, dir, temp) = if disk == Disk::Sim {
            let files = sim.files();
            // The data directory's own name is its maker's business.
            files.create_dir_all(Path::new("/data")).unwrap();
            files.sync_dir(Path::new("/")).unwrap();
            (files, PathBuf::from("/data/journal"), None)
        } else {
            let temp = tempfile::tempdir().unwrap();
            (OsFiles::shared(), temp.path().join("journal"), Some(temp))
        };
        Self { disk, dir, files, sim, segment_bytes: 64 * 1024, segments_max: 6, clock: Clock::System, _temp: temp }
    }

    fn over(sim: SimDisk) -> Self {
        Self { files: sim.files(), sim, ..Self::new(Disk::Sim) }
    }

    fn backend(&self) -> Box<dyn Backend> {
        match self.disk {
            Disk::Sim => self.sim.backend(),
            Disk::Threads(form) => Io::new(false, form).open().unwrap(),
            Disk::Uring(form) => Io::new(true, form).open().unwrap(),
        }
    }

    fn background(&self) -> Background {
        match self.disk {
            Disk::Sim => Background::inline(Arc::clone(&self.files)),
            Disk::Threads(_) | Disk::Uring(_) => Background::thread("prepare", Arc::clone(&self.files)).unwrap(),
        }
    }

    fn try_journal(&self, incarnation: u64, core: u16) -> Result<Journal, StorageError> {
        let options = JournalOptions {
            dir: self.dir.clone(),
            incarnation,
            core,
            segment_bytes: self.segment_bytes,
            journal_bytes_max: self.segments_max * self.segment_bytes,
            first_lsn: Lsn(1),
            clock: self.clock.clone(),
        };
        Journal::create(self.backend(), self.background(), options)
    }

    fn journal(&self, incarnation: u64, core: u16) -> Journal {
        self.try_journal(incarnation, core).unwrap()
    }

    fn recover(&self) -> Recovery {
        recover(&*self.files, &self.dir, false).unwrap()
    }

    /// The segments of a journal on disk, by name.
    fn segments(&self, incarnation: u64, core: u16) -> Vec<PathBuf> {
        let mut paths = self.files.list(&self.dir.join(format!("{incarnation:08x}-{core:04x}"))).unwrap();
        paths.sort();
        paths
    }

    fn flip(&self, path: &Path, offset: u64) {
        let file = self.files.open(path, crate::disk::Open::Write).unwrap();
        let mut byte = [0];
        file.read_at(offset, &mut byte).unwrap();
        file.write_at(offset, &[byte[0] ^ 0x10]).unwrap();
        file.sync().unwrap();
    }
}

/// A record that says who and which it is, `len_bytes` long.
fn put(journal: &Journal, actor: u64, sequence: u64, len_bytes: usize) -> Result<Lsn, Refused> {
    journal.append(&Record {
        actor,
        address: &address(actor),
        actor_sequence: sequence,
        kind: if sequence.is_multiple_of(5) { RecordKind::Meta } else { RecordKind::Pages },
        durable: !sequence.is_multiple_of(3),
        size_pages: 7,
        page_count: 1,
        body: &body(actor, sequence, len_bytes),
    })
}

fn address(actor: u64) -> Address {
    Address::new("thing", &format!("actor {actor}"))
}

fn body(actor: u64, sequence: u64, len_bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(actor << 32 | sequence);
    let mut body = vec![0; len_bytes];
    rng.fill(&mut body);
    body
}

/// What the journal has to say now, if anything.
fn next_progress(journal: &Journal) -> Option<Progress> {
    match journal.poll_progress(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(progress) => Some(progress),
        Poll::Pending => None,
    }
}

async fn progress(journal: &Journal) -> Progress {
    poll_fn(|cx| journal.poll_progress(cx)).await
}

/// As `put`, waiting for a segment that is being prepared.
async fn put_soon(journal: &Journal, actor: u64, sequence: u64, len_bytes: usize) -> Lsn {
    loop {
        match put(journal, actor, sequence, len_bytes) {
            Ok(lsn) => return lsn,
            Err(Refused::Full) => {
                journal.cut();
                drop(progress(journal).await);
            }
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// Cuts until a record is durable and the next segment is there: these segments are so small that a writer who does not wait
/// may fill one before the background thread has made the next, and is then rightly refused.
async fn until_durable(journal: &Journal, lsn: Lsn) {
    journal.cut();
    while journal.durable() < lsn || journal.awaits_segment() {
        match progress(journal).await {
            Progress::Failed { error, .. } => panic!("a group failed: {error}"),
            _ => journal.cut(),
        }
    }
}

/// Everything found, as (sequence, body) per actor, verified to carry what `put` wrote.
fn contents(recovery: &Recovery) -> BTreeMap<String, Vec<(u64, usize)>> {
    let mut all = BTreeMap::new();
    let mut buffer = Vec::new();
    for (address, records) in recovery.index.actors() {
        let actor: u64 = address.name.strip_prefix("actor ").unwrap().parse().unwrap();
        let list: &mut Vec<_> = all.entry(address.to_string()).or_default();
        assert_eq!(recovery.index.records(address), records);
        for record in records {
            let read = recovery.read_record(record, &mut buffer).unwrap();
            assert_eq!(read.body, body(actor, record.actor_sequence, read.body.len()), "{address} {record:?}");
            assert_eq!((read.size_pages, read.page_count), (7, 1));
            let meta = record.actor_sequence.is_multiple_of(5);
            assert_eq!(record.kind, if meta { RecordKind::Meta } else { RecordKind::Pages });
            assert_eq!(record.durable, !record.actor_sequence.is_multiple_of(3));
            list.push((record.actor_sequence, read.body.len()));
        }
    }
    all
}

/// The sequences found of one actor.
fn sequences(recovery: &Recovery, actor: u64) -> Vec<u64> {
    recovery.index.records(&address(actor)).iter().map(|record| record.actor_sequence).collect()
}
