//! How fast a journal of 256 MB is indexed at start: `recover_rate [actors]`.
//!
//! Writes records of 300 bytes of that many actors (10,000 otherwise), then times recovery: once with the file in the page
//! cache as the kernel left it, then again. `JOURNAL_RATE_DIR` names the directory (`/tmp` otherwise).

use std::future::poll_fn;
use std::path::PathBuf;

use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::disk::background::Background;
use wasmkeep_storage::disk::os::OsFiles;
use wasmkeep_storage::disk::probe::{Io, WriteForm};
use wasmkeep_storage::journal::{Journal, JournalOptions, Record, RecordKind, recover};
use wasmkeep_storage::{Address, Lsn, Refused, limits};

fn main() {
    let actors: u64 = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("a number of actors"));
    let base = std::env::var_os("JOURNAL_RATE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = base.join(format!("recover-rate-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(fill(&dir, actors));
    for _ in 0..3 {
        let clock = Clock::System;
        let (start, cpu) = (clock.monotonic_ns(), cpu_ns());
        let recovery = recover(&OsFiles, &dir.join("journal"), false).expect("an intact journal");
        let ms = (clock.monotonic_ns() - start) / 1_000_000;
        let cpu_ms = (cpu_ns() - cpu) / 1_000_000;
        let bytes: u64 = recovery.journals.iter().map(|journal| journal.group_bytes).sum();
        let (records, found) = (recovery.index.record_count(), recovery.index.actor_count());
        println!(
            "{records} records of {found} actors, {} MB in {ms} ms ({cpu_ms} ms of CPU): {} MB/s",
            bytes >> 20,
            bytes / 1000 / ms.max(1)
        );
    }
    std::fs::remove_dir_all(&dir).expect("removing the measured journal");
}

async fn fill(dir: &std::path::Path, actors: u64) {
    let background = Background::thread("prepare", OsFiles::shared()).expect("a thread");
    let options = JournalOptions {
        dir: dir.join("journal"),
        incarnation: 1,
        core: 0,
        segment_bytes: limits::SEGMENT_BYTES,
        journal_bytes_max: 8 * limits::SEGMENT_BYTES,
        first_lsn: Lsn(1),
    };
    let backend = Io::new(false, WriteForm::WriteSync).open().expect("a backend");
    let journal = Journal::create(backend, background, options).expect("a journal");
    let addresses: Vec<_> = (0..actors).map(|n| Address::new("kv", &format!("actor-{n}"))).collect();
    let body = [0x5a; 250];
    for n in 0.. {
        let actor = n % actors;
        let address = &addresses[usize::try_from(actor).expect("64 bits")];
        let kind = RecordKind::Pages;
        let record =
            Record { actor, address, actor_sequence: n / actors, kind, durable: true, size_pages: 9, page_count: 1, body: &body };
        loop {
            match journal.append(&record) {
                Ok(_) => break,
                Err(Refused::Full) if journal.awaits_segment() || journal.pending_bytes() > 0 => {
                    journal.cut();
                    let _ = poll_fn(|cx| journal.poll_progress(cx)).await;
                }
                Err(_) => return,
            }
        }
        if n % 256 == 0 {
            journal.cut();
            while journal.pending_bytes() > 1 << 20 {
                let _ = poll_fn(|cx| journal.poll_progress(cx)).await;
                journal.cut();
            }
        }
    }
}

/// CPU time of this thread, user and system.
fn cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to write to, and the clock exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    u64::try_from(ts.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
}
