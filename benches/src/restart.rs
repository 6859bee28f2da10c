//! Row A3: from the start of a process to its first reply, when the one before was killed with full journals.
//!
//! The journals are written through storage, by a process that then kills itself: one-row upserts of about 160 bytes of record
//! each, spread over a thousand actors, more than three million records in two journals. They are copied for each
//! restart and dropped from the page cache. The first reply is a read of an actor whose newest rows are only in a journal.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::rc::Rc;
use std::time::Duration;

use tempfile::TempDir;
use wasmkeep::data_dir::DataDir;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::sql::EventBudget;
use wasmkeep_storage::store::{CorePart, NodeStorage, NodeStorageOptions, Opened, core_of, partition};
use wasmkeep_storage::{Address, Value};

use crate::node::{Node, in_role};
use crate::on_core;
use crate::store::{open_store, progress, settle};

/// The goal of row A3, s.
pub const RESTART_S_MAX: f64 = 3.0;

const ACTORS: u64 = 1000;
const KEYS: u64 = 10;
/// Commits between two cuts of the journal's group, as of 64 clients.
const GROUP_COMMITS: u64 = 64;
const UPSERT: &str = "INSERT INTO kept VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// A data directory as a killed node leaves it.
#[derive(Debug)]
pub struct Killed {
    data: TempDir,
    cores: usize,
    /// What `/test/a0/read?key=k0` answers.
    newest: String,
    /// Bytes of journal segments in use, of all cores.
    pub journal_bytes: u64,
}

impl Killed {
    /// Fills the journals of so many cores with so many bytes each.
    #[must_use]
    pub fn new(cores: usize, bytes: u64) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let cores_flag = cores.to_string();
        let node = Node::start(data.path(), &["--cores", &cores_flag]);
        let mut client = node.client();
        for actor in 0..ACTORS {
            client.ok("GET", &format!("/test/a{actor}/inits"), "");
        }
        node.stop();
        let mut filler = in_role("fill");
        filler.arg(data.path()).args([cores_flag, bytes.to_string()]).stdout(Stdio::piped());
        let output = filler.output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (used, newest) = said.trim().split_once(' ').unwrap_or_else(|| panic!("filling journals: {:?}", output.status));
        Self { data, cores, newest: newest.to_owned(), journal_bytes: used.parse().expect("a number") }
    }

    /// One restart on a copy; how long it took until the node served, and until the first reply.
    #[must_use]
    pub fn restart(&self) -> (Duration, Duration) {
        let copy = tempfile::tempdir().expect("a directory");
        copy_cold(self.data.path(), copy.path());
        let clock = Clock::System;
        let start_ns = clock.monotonic_ns();
        let node = Node::start(copy.path(), &["--cores", &self.cores.to_string()]);
        let served = Duration::from_nanos(clock.monotonic_ns() - start_ns);
        let answer = node.client().ok("GET", "/test/a0/read?key=k0", "");
        let took = Duration::from_nanos(clock.monotonic_ns() - start_ns);
        assert_eq!(answer, self.newest, "the newest acknowledged row");
        node.kill();
        (served, took)
    }
}

/// 100 characters that differ from those of other numbers nearly everywhere: a record holds only what a commit has changed.
fn value(number: u64) -> String {
    let mut value = format!("{:016x}", number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(7);
    value.truncate(100);
    value
}

/// Copies a directory and lets the page cache forget it, so that the start has to read the disk.
fn copy_cold(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("a type").is_dir() {
            std::fs::create_dir_all(&to).expect("a directory");
            copy_cold(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copies");
            let file = File::open(&to).expect("opens");
            file.sync_all().expect("syncs");
            // SAFETY: the descriptor is open; the call takes numbers only.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }
}

/// The child that fills journals, says how many bytes are in use and what is newest, and kills itself.
pub(crate) fn fill_and_die() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [data, cores, bytes] = args.as_slice() else { panic!("three arguments: directory, cores, bytes") };
    let (cores, bytes) = (cores.parse().expect("a number"), bytes.parse().expect("a number"));
    let data = DataDir::open(Path::new(data)).expect("opens");
    let path = data.path().to_owned();
    let options = NodeStorageOptions { data: path.clone(), cores, incarnation: data.incarnation(), accept_journal_loss: false };
    let parts = NodeStorage::recover(&OsFiles::shared(), &options).expect("recovers");
    let (mut used, mut newest) = (0, String::new());
    for (core, part) in parts.into_iter().enumerate() {
        let (core_used, of_first) = on_core(fill(&path, (core, cores), part, bytes));
        used += core_used;
        newest.push_str(&of_first);
    }
    println!("{used} {newest}");
    // SAFETY: it takes numbers only, and ends this process.
    unsafe { libc::kill(std::process::id().cast_signed(), libc::SIGKILL) };
    None
}

/// Fills one core's journal. Returns the bytes in use, and the newest value of `k0` of `a0` if that is one of the core's actors.
async fn fill(data: &Path, core: (usize, usize), part: CorePart, bytes: u64) -> (u64, String) {
    // Room for twice as much, and nobody to checkpoint: the bytes stay where they are.
    let store = open_store(data, core, part, 2 * bytes + (256 << 20));
    store.started().await.expect("starts");
    let is_here = |actor: &u64| core_of(partition("test", &format!("a{actor}")), core.1) == core.0;
    let actors: Vec<(u64, Opened)> = (0..ACTORS)
        .filter(is_here)
        .map(|actor| {
            let budget = Rc::new(EventBudget::new(Clock::System, u64::MAX));
            (actor, store.open_actor(&Address::new("test", &format!("a{actor}")), budget).expect("opens"))
        })
        .collect();
    let (mut written, mut newest) = (0_u64, String::new());
    while store.stats().journal_used_bytes < bytes {
        for _ in 0..GROUP_COMMITS {
            let (actor, opened) = &actors[usize::try_from(written).unwrap_or(0) % actors.len()];
            let key = format!("k{}", written / actors.len() as u64 % KEYS);
            let value = value(written);
            if *actor == 0 && key == "k0" {
                newest.clone_from(&value);
            }
            opened.connection.exec(UPSERT, &[Value::Text(key), Value::Text(value)], true).await.expect("commits");
            written += 1;
        }
        store.cut();
        while store.newest() > store.durable() || !store.has_room() {
            progress(&store).await;
        }
    }
    settle(&store).await;
    (store.stats().journal_used_bytes, newest)
}
