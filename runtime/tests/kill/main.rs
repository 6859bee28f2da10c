//! A node in a process of its own is killed with SIGKILL at random moments under load; every acknowledged write is there after
//! each restart. `WASMKEEP_KILLS` says how often (20), `WASMKEEP_SEED` replays the moments of one run.

#[path = "../common/mod.rs"]
mod common;

mod messages;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Client;
use common::process::{Process, serve};

const WRITERS: usize = 8;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Adds to one counter until the node is gone; returns the newest count that was acknowledged.
fn write_until(stop: &AtomicBool, http: SocketAddr, counter: usize, mut acknowledged: u64) -> u64 {
    let Ok(mut client) = Client::try_connect(http) else { return acknowledged };
    while !stop.load(Ordering::Relaxed) {
        match client.try_send("POST", &format!("/counter/c{counter}"), "") {
            Ok((200, body)) => acknowledged = count(&body),
            Ok((status, body)) => panic!("{status} {body}"),
            Err(_) => break,
        }
    }
    acknowledged
}

fn count(body: &str) -> u64 {
    let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
    json["count"].as_u64().expect("a count")
}

fn every_acknowledged_write_survives(io: &str) {
    let kills = number("WASMKEEP_KILLS").unwrap_or(20);
    let seed = number("WASMKEEP_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("WASMKEEP_SEED={seed} replays the moments of this run");
    let mut random = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().expect("a directory");
    let mut acknowledged = [0; WRITERS];
    for kill in 0..kills {
        let cores = if kill % 3 == 2 { 1 } else { 2 };
        let cores = cores.to_string();
        let arguments = ["--io", io, "--idle", "1s", "--cores", &cores, "--journal-mb", "64"];
        let mut process = Process::start(serve(data.path(), "counter", &arguments));
        let mut client = Client::connect(process.http);
        for (counter, known) in acknowledged.iter_mut().enumerate() {
            let (status, body) = client.send("GET", &format!("/counter/c{counter}"), "");
            assert_eq!(status, 200, "{body}");
            let found = count(&body);
            // One more may have been kept without having been acknowledged.
            assert!((*known..=*known + 1).contains(&found), "kill {kill}, counter {counter}: {known} acknowledged, {found} found");
            *known = found;
        }
        let stop = AtomicBool::new(false);
        let (http, stop) = (process.http, &stop);
        std::thread::scope(|scope| {
            let writer = |(counter, known): (usize, &u64)| {
                let known = *known;
                scope.spawn(move || write_until(stop, http, counter, known))
            };
            let writers: Vec<_> = acknowledged.iter().enumerate().map(writer).collect();
            // The moment is what is random here, not a wait for something.
            std::thread::sleep(Duration::from_millis(random.u64(1..250)));
            process.child.kill().expect("kills");
            process.child.wait().expect("reaps");
            stop.store(true, Ordering::Relaxed);
            for (known, writer) in acknowledged.iter_mut().zip(writers) {
                *known = writer.join().expect("a writer");
            }
        });
    }
    assert!(acknowledged.iter().all(|known| *known > 0), "every counter was written: {acknowledged:?}");
}

#[test]
fn every_acknowledged_write_survives_kills_on_uring() {
    every_acknowledged_write_survives("auto");
}

#[test]
fn every_acknowledged_write_survives_kills_on_threads() {
    every_acknowledged_write_survives("threads");
}
