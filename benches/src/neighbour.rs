//! Row A4: what an actor waits for beside others that never give its core back by themselves.
//!
//! Requests leave every 20 ms, whatever became of those before: few enough that none waits for another. Two numbers of each:
//! the time from when it should have left to its answer, and of it what the node answers for: from when it left, without the
//! time in which the node's core or the client was ready to run and the machine ran something else (the kernel counts it, see
//! `RunDelay`). The bound is on the second one, so that neighbours of the machine do not fail a bench; what the node's own other
//! threads take from its core is forgiven with it. A hypervisor's theft is not: on a machine that is stolen from, run it again.

use std::time::Duration;

use hdrhistogram::Histogram;
use wasmkeep_storage::clock::Clock;

use crate::machine::{RunDelay, histogram, pin_to_last_cpu};
use crate::node::{Client, Node};

/// The goal of row A4, µs: no wait is longer.
pub const WAIT_US_MAX: u64 = 10_000;

const PERIOD_NS: u64 = 20_000_000;

/// What runs on the same core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// Nothing: what the machine itself does to the measurement.
    Nothing,
    /// A guest that computes without end.
    Spin,
    /// A guest with a query without end.
    Sql,
    /// One of each.
    Both,
}

impl Beside {
    /// Paths of the requests that never end.
    const fn paths(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Spin => &["/test/spinner/spin"],
            Self::Sql => &["/test/asker/endless-sql"],
            Self::Both => &["/test/spinner/spin", "/test/asker/endless-sql"],
        }
    }

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Spin => "a spinning guest",
            Self::Sql => "an endless query",
            Self::Both => "a spinning guest and an endless query",
        }
    }
}

/// What a neighbour waited, µs.
#[derive(Clone, Debug)]
pub struct Waits {
    /// From when a request should have left.
    pub all: Histogram<u64>,
    /// What the node answers for.
    pub own: Histogram<u64>,
}

/// Sends so many requests to an actor whose core is shared with `beside`.
///
/// # Panics
/// When what should run without end has ended: there was nothing to measure then.
#[must_use]
pub fn waits(beside: Beside, requests: u64) -> Waits {
    let data = tempfile::tempdir().expect("a directory");
    let flags = ["--cores", "1", "--event-cpu", "10m", "--event-wall", "10m"];
    let node = Node::start(data.path(), &flags);
    let mut client = node.client();
    for _ in 0..100 {
        client.ok("GET", "/counter/neighbour", "");
    }
    let (mut offenders, mut warm) = (Vec::new(), node.client());
    for path in beside.paths() {
        // Awake before it offends: a first start is not what is measured.
        warm.ok("GET", &format!("{}/inits", path.rsplit_once('/').map_or("", |(actor, _)| actor)), "");
        let mut client = node.client();
        offenders.push(std::thread::spawn(move || client.try_ask("POST", path, "")));
    }
    std::thread::sleep(Duration::from_millis(300));
    let core = RunDelay::of_thread(node.pid(), "wk-core-0");
    let waits = std::thread::scope(|scope| scope.spawn(|| ask(&mut client, &core, requests)).join().expect("measures"));
    assert!(offenders.iter().all(|offender| !offender.is_finished()), "{} ended early", beside.name());
    node.kill();
    for offender in offenders {
        let _cut_off = offender.join();
    }
    waits
}

fn ask(client: &mut Client, core: &RunDelay, requests: u64) -> Waits {
    pin_to_last_cpu();
    let (clock, this) = (Clock::System, RunDelay::of_this_thread());
    let mut waits = Waits { all: histogram(), own: histogram() };
    let start_ns = clock.monotonic_ns();
    for n in 0..requests {
        let due_ns = start_ns + n * PERIOD_NS;
        // Sleeping is not exact to better than this; the rest is spun.
        let early_ns = due_ns.saturating_sub(clock.monotonic_ns() + 150_000);
        std::thread::sleep(Duration::from_nanos(early_ns));
        while clock.monotonic_ns() < due_ns {
            std::hint::spin_loop();
        }
        let (foreign_ns, sent_ns) = (core.ns() + this.ns(), clock.monotonic_ns());
        client.ok("GET", "/counter/neighbour", "");
        let answered_ns = clock.monotonic_ns();
        let foreign_ns = core.ns() + this.ns() - foreign_ns;
        waits.all.saturating_record((answered_ns - due_ns) / 1000);
        waits.own.saturating_record((answered_ns - sent_ns).saturating_sub(foreign_ns) / 1000);
    }
    waits
}
