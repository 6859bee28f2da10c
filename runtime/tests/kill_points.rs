//! SIGKILL where it is most likely to hurt: at a first start, in the middle of a checkpoint, while segments are used again. And a
//! kernel that forbids io_uring. `WASMKEEP_SEED` replays the moments of one run.

mod common;

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::process::{Process, serve};
use common::{Client, until};

fn random() -> fastrand::Rng {
    let seed = std::env::var("WASMKEEP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("WASMKEEP_SEED={seed} replays the moments of this run");
    fastrand::Rng::with_seed(seed)
}

fn metric(process: &Process, series: &str) -> f64 {
    let (_, page) = Client::connect(process.admin).send("GET", "/metrics", "");
    let lines = page.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn a_first_start_that_is_killed_at_any_moment_leaves_a_directory_that_can_be_started_on() {
    let mut random = random();
    for round in 0..3 {
        let data = tempfile::tempdir().expect("a directory");
        let path = data.path().join("not/there/yet");
        let command = || serve(&path, "counter", &["--cores", "2", "--io", if round == 0 { "threads" } else { "auto" }]);
        for _ in 0..4 {
            let mut child = command().stderr(Stdio::null()).spawn().expect("starts");
            // The moment is what is random here, not a wait for something.
            std::thread::sleep(Duration::from_millis(random.u64(0..300)));
            child.kill().expect("kills");
            child.wait().expect("reaps");
        }
        let process = Process::start(command());
        let answer = Client::connect(process.http).send("POST", "/counter/a", "");
        assert_eq!(answer, (200, "{\"count\":1}".to_string()));
        assert_eq!(process.stop().0, Some(0));
    }
}

/// What the actor `n` is given as its value number `round`: different in every byte from the one before.
fn value(n: usize, round: u64, bytes: usize) -> String {
    let filler = char::from(b'a' + u8::try_from(round % 26).expect("small"));
    format!("{n}-{round}-{}", filler.to_string().repeat(bytes))
}

/// The number of an actor's newest value, which must be whole.
fn newest(http: SocketAddr, n: usize, bytes: usize) -> u64 {
    let (status, body) = Client::connect(http).send("GET", &format!("/test-guest/a{n}/read?key=k"), "");
    if status == 404 {
        return 0;
    }
    let round = body.split('-').nth(1).and_then(|round| round.parse().ok()).unwrap_or_else(|| panic!("{status} {body}"));
    assert_eq!((status, body), (200, value(n, round, bytes)));
    round
}

/// Writes to one actor until the node is gone; returns the newest value that was acknowledged.
fn write_until(stop: &AtomicBool, http: SocketAddr, n: usize, mut acknowledged: u64, bytes: usize) -> u64 {
    let Ok(mut client) = Client::try_connect(http) else { return acknowledged };
    while !stop.load(Ordering::Relaxed) {
        let path = format!("/test-guest/a{n}/durable-insert?key=k&value={}", value(n, acknowledged + 1, bytes));
        match client.try_send("POST", &path, "") {
            Ok((200, _)) => acknowledged += 1,
            // A burst may fill the journal faster than checkpoints empty it; nothing is kept then.
            Ok((507, _)) => {}
            Ok((status, body)) => panic!("{status} {body}"),
            Err(_) => break,
        }
    }
    acknowledged
}

/// Lets writers write until `is_moment`, then kills; again and again on the same data.
fn survives(kills: u64, writers: usize, bytes: usize, data: &Path, is_moment: impl Fn(&Process) -> bool) {
    let mut random = random();
    let mut acknowledged = vec![0; writers];
    for kill in 0..=kills {
        let mut process = Process::start(serve(data, "test_guest", &["--cores", "1", "--journal-mb", "64"]));
        for (n, known) in acknowledged.iter_mut().enumerate() {
            let found = newest(process.http, n, bytes);
            // One more may have been kept without having been acknowledged.
            assert!((*known..=*known + 1).contains(&found), "kill {kill}, actor {n}: {known} acknowledged, {found} found");
            *known = found;
        }
        if kill == kills {
            assert_eq!(process.stop().0, Some(0));
            return;
        }
        let (http, stop) = (process.http, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writer = |(n, known): (usize, &u64)| {
                let known = *known;
                scope.spawn(move || write_until(stop, http, n, known, bytes))
            };
            let writers: Vec<_> = acknowledged.iter().enumerate().map(writer).collect();
            until("the moment comes", || is_moment(&process));
            // The moment is what is random here, not a wait for something.
            std::thread::sleep(Duration::from_millis(random.u64(0..40)));
            process.kill();
            stop.store(true, Ordering::Relaxed);
            for (known, writer) in acknowledged.iter_mut().zip(writers) {
                *known = writer.join().expect("a writer");
            }
        });
    }
}

#[test]
fn every_acknowledged_write_survives_a_kill_in_the_middle_of_a_checkpoint() {
    let data = tempfile::tempdir().expect("a directory");
    // Half of the journal makes a checkpoint due, whatever the writers do.
    survives(3, 4, 40_000, data.path(), |process| metric(process, "wasmkeep_checkpoint_pages_total") > 0.0);
}

#[test]
fn every_acknowledged_write_survives_a_kill_while_segments_are_used_again() {
    let data = tempfile::tempdir().expect("a directory");
    // More than all of its segments hold.
    survives(1, 4, 50_000, data.path(), |process| metric(process, "wasmkeep_journal_bytes_total") > 110e6);
}

/// Makes the kernel refuse io_uring_setup to the process to come, as the default profile of a container runtime does.
fn forbid_io_uring(command: &mut Command) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: u16::try_from(code).expect("small"), jt: 0, jf: 0, k };
    let io_uring_setup = u32::try_from(libc::SYS_io_uring_setup).expect("small");
    let filter = [
        // The number of the system call is the first field of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, io_uring_setup) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).expect("small")),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let length = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
        // SAFETY: both calls are plain system calls; the program and its filter outlive the second one, which only reads them.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

#[test]
fn where_io_uring_is_forbidden_the_node_says_so_once_and_serves_durable_writes_with_threads() {
    let data = tempfile::tempdir().expect("a directory");
    let mut command = serve(data.path(), "counter", &["--cores", "2"]);
    forbid_io_uring(&mut command);
    let process = Process::start(command);
    let mut client = Client::connect(process.http);
    for n in 1..=20 {
        assert_eq!(client.send("POST", "/counter/a", ""), (200, format!("{{\"count\":{n}}}")));
    }
    drop(client);
    let (status, log) = process.stop();
    assert_eq!(status, Some(0), "{log:#?}");
    let said: Vec<_> = log.iter().filter(|line| line.contains("io_uring")).collect();
    assert_eq!((said.len(), said[0].contains("WARN"), said[0].contains("threads")), (1, true, true), "{log:#?}");

    let mut command = serve(data.path(), "counter", &["--cores", "2", "--io", "uring"]);
    forbid_io_uring(&mut command);
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.contains("io_uring")), (Some(7), true), "{text}");
}
