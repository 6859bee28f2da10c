//! How many durable records per second one core's journal takes, in process: `journal_rate [uring|threads]
//! [dsync|write-sync] [cut-each]`.
//!
//! A closed loop: a number of records is outstanding; each is appended again as soon as it is durable, as a pump would do it.
//! Arguments pick one way of writing; without them all are measured. `cut-each` cuts after every record, as if
//! each arrived by itself. `JOURNAL_RATE_DIR` names the directory (`/tmp` otherwise).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::PathBuf;
use std::task::Poll;

use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::background::Background;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::disk::probe::{Io, WriteForm};
use wasmkeep_storage::journal::{Journal, JournalOptions, Progress, Record, RecordKind};
use wasmkeep_storage::{Address, Lsn, limits};

const BODY_BYTES: usize = 300 - 48;
const RUN_NS: u64 = 2_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let picked = |name: &str, of: [&str; 2]| !args.iter().any(|a| of.contains(&a.as_str())) || args.iter().any(|a| a == name);
    for (driver, uring) in [("uring", true), ("threads", false)] {
        for (name, form) in [("dsync", WriteForm::Dsync), ("write-sync", WriteForm::WriteSync)] {
            if picked(driver, ["uring", "threads"]) && picked(name, ["dsync", "write-sync"]) {
                for outstanding in [1, 8, 64, 256, 1024] {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                    runtime.block_on(measure(Io::new(uring, form), outstanding, args.iter().any(|a| a == "cut-each")));
                }
            }
        }
    }
}

async fn measure(io: Io, outstanding: usize, cut_each: bool) {
    let base = std::env::var_os("JOURNAL_RATE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = base.join(format!("journal-rate-{}", std::process::id()));
    let background = Background::thread("prepare", OsFiles::shared()).expect("a thread");
    let options = JournalOptions {
        dir: dir.join("journal"),
        incarnation: 1,
        core: 0,
        segment_bytes: limits::SEGMENT_BYTES,
        journal_bytes_max: 8 * limits::SEGMENT_BYTES,
        first_lsn: Lsn(1),
    };
    let journal = Journal::create(io.open().expect("a backend"), background, options).expect("a journal");
    let address = Address::new("kv", "shard-0");
    let body = [0x5a; BODY_BYTES];
    let (clock, mut sent, mut waits, mut groups) = (Clock::System, VecDeque::new(), Vec::new(), 0_u64);
    let (start, cpu) = (clock.monotonic_ns(), cpu_ns());
    let mut done = 0;
    loop {
        let now = clock.monotonic_ns();
        if now - start > RUN_NS {
            break;
        }
        while sent.len() < outstanding && !journal.awaits_segment() {
            let record = Record {
                actor: 1,
                address: &address,
                actor_sequence: 1,
                kind: RecordKind::Pages,
                durable: true,
                size_pages: 9,
                page_count: 1,
                body: &body,
            };
            let lsn = journal.append(&record).expect("room");
            sent.push_back((lsn, now));
            if cut_each {
                journal.cut();
            }
        }
        journal.cut();
        let (mut durable, mut room) = (None, false);
        poll_fn(|cx| {
            loop {
                match journal.poll_progress(cx) {
                    Poll::Ready(Progress::Durable(lsn)) => durable = Some(lsn),
                    Poll::Ready(Progress::Failed { error, .. }) => panic!("{error}"),
                    Poll::Ready(_) => room = true,
                    Poll::Pending => return if durable.is_some() || room { Poll::Ready(()) } else { Poll::Pending },
                }
            }
        })
        .await;
        let Some(durable) = durable else { continue };
        groups += 1;
        let now = clock.monotonic_ns();
        while let Some((_, at)) = sent.pop_front_if(|(lsn, _)| *lsn <= durable) {
            waits.push(now - at);
            done += 1;
        }
        journal.recycle_through(durable);
    }
    let (wall, cpu) = (clock.monotonic_ns() - start, cpu_ns() - cpu);
    waits.sort_unstable();
    let at = |q: usize| waits[(waits.len() - 1) * q / 1000] / 1000;
    println!(
        "{:26} {outstanding:5} outstanding: {:7} records/s  p50 {:5} us  p99 {:5} us  {:5.1} us CPU/group  {:5.2} us CPU/record  \
         {:.0}% of a core",
        journal.backend_name(),
        done * 1_000_000_000 / wall,
        at(500),
        at(990),
        cpu as f64 / 1000.0 / groups as f64,
        cpu as f64 / 1000.0 / done as f64,
        cpu as f64 * 100.0 / wall as f64,
    );
    drop(journal);
    std::fs::remove_dir_all(&dir).expect("removing the measured journal");
}

/// CPU time of the whole process, user and system.
fn cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to write to, and the clock exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut ts) };
    u64::try_from(ts.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
}
