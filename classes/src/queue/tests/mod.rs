//! Tests of queues, and the host they run under: one transaction per request, a file whose last durable image a crash goes back to.

mod delivering;
mod dying;
mod failing;
mod leasing;
mod model;
mod ordering;
mod plans;
mod sending;
mod wire;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use super::client::{self, Call};
use super::protocol::{Lease, Message, Moved, Outcome, Sent, Settled, Settlement, Stats, Which};
use super::{Config, Delivery, Machine};
use crate::host::{Effect, Reply, Request};
use crate::testing::Memory;

/// Where tests begin, ms.
const START: u64 = 1_000_000_000;

/// A host of one queue with its own clock.
struct Host {
    memory: Memory,
    machine: Machine,
    config: Config,
    now: u64,
    path: PathBuf,
    /// The database as of the last durable request.
    image: Vec<u8>,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn connect(path: &PathBuf) -> Memory {
    let connection = Connection::open(path).expect("opens");
    connection
        .execute_batch(
            "PRAGMA page_size = 512; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF",
        )
        .expect("runs");
    connection.set_prepared_statement_cache_capacity(128);
    Memory { connection }
}

/// A message as a lease or delivery gives it, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    lease: Lease,
    key: Option<Vec<u8>>,
    body: Vec<u8>,
}

fn owned(leased: &[super::protocol::Leased<'_>]) -> Vec<Got> {
    let own = |got: &super::protocol::Leased<'_>| Got {
        lease: got.lease,
        key: got.ordering_key.map(<[u8]>::to_vec),
        body: got.body.to_vec(),
    };
    leased.iter().map(own).collect()
}

fn message(body: &str) -> Message<'_> {
    Message { body: body.as_bytes(), ..Message::default() }
}

fn pushed() -> Config {
    Config { consumer: Some("mailer/main".to_owned()), ..Config::default() }
}

fn retry(error: &str) -> Outcome<'_> {
    Outcome::Retry { delay_ms: None, error }
}

impl Host {
    fn new(config: Config) -> Self {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let name = format!("wasmkeep-queue-{}-{}.sqlite", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        // In memory where there is such a place: thousands of lives are lived here.
        let memory = std::path::Path::new("/dev/shm");
        let path = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }.join(name);
        let mut memory = connect(&path);
        memory.connection.execute_batch("BEGIN").expect("runs");
        let machine = Machine::open(&mut memory, config.clone(), START).expect("opens");
        memory.connection.execute_batch("COMMIT").expect("runs");
        let image = std::fs::read(&path).expect("there is a file");
        Self { memory, machine, config, now: START, path, image }
    }

    fn sql(&self, sql: &str) {
        self.memory.connection.execute_batch(sql).expect("runs");
    }

    fn count(&self, sql: &str) -> i64 {
        self.memory.connection.query_row(sql, [], |row| row.get(0)).expect("runs")
    }

    fn keep(&mut self, effect: Effect) {
        if effect == Effect::Durable {
            self.image.clear();
            let mut file = std::fs::File::open(&self.path).expect("there is a file");
            std::io::Read::read_to_end(&mut file, &mut self.image).expect("reads");
        }
    }

    fn handle(&mut self, path: &str, body: &[u8]) -> Reply {
        self.sql("BEGIN; SAVEPOINT one");
        let request = Request { path, body, caller: "web/main" };
        let reply = self.machine.handle(&mut self.memory, self.now, request).expect("the database works");
        self.sql("RELEASE one; COMMIT");
        self.keep(reply.effect);
        self.check();
        reply
    }

    fn call(&mut self, call: &Call) -> Reply {
        self.handle(call.path, &call.body)
    }

    /// Handles a request and takes it back.
    fn undone(&mut self, call: &Call) {
        self.sql("BEGIN; SAVEPOINT one");
        let state = self.machine.state();
        let request = Request { path: call.path, body: &call.body, caller: "web/main" };
        self.machine.handle(&mut self.memory, self.now, request).expect("the database works");
        self.sql("ROLLBACK TO one; RELEASE one; COMMIT");
        self.machine.restore(state);
        self.check();
    }

    /// Opens the queue again, as after it slept.
    fn wake(&mut self) {
        self.machine = Machine::open(&mut self.memory, self.config.clone(), self.now).expect("opens");
        self.check();
    }

    /// Goes back to what was durable and opens the queue again.
    fn crash(&mut self) {
        self.memory = Memory::new();
        std::fs::write(&self.path, &self.image).expect("writes");
        self.memory = connect(&self.path);
        self.wake();
    }

    /// What is kept in memory is what an opening would read.
    fn check(&mut self) {
        let now = self.machine.state.clock.clone().read(self.now);
        let mut fresh = Machine::open(&mut self.memory, self.config.clone(), u64::try_from(now).expect("fits")).expect("opens");
        let mut kept = Machine { config: self.config.clone(), state: self.machine.state() };
        kept.count_until(&mut self.memory, now).expect("counts");
        fresh.count_until(&mut self.memory, now).expect("counts");
        let (fresh, kept) = (fresh.state, kept.state);
        assert_eq!(kept.counts, fresh.counts);
        assert_eq!(
            (kept.oldest, kept.last_until, kept.keyed, kept.dead),
            (fresh.oldest, fresh.last_until, fresh.keyed, fresh.dead)
        );
        assert_eq!((kept.is_paused, kept.epoch, kept.last_id), (fresh.is_paused, fresh.epoch, fresh.last_id));
        if self.machine.may_push() {
            assert_eq!(kept.earliest, fresh.earliest);
        }
        assert!(kept.dedupe_until.is_some() == fresh.dedupe_until.is_some() && kept.dedupe_until <= fresh.dedupe_until);
    }

    fn send(&mut self, messages: &[Message<'_>]) -> Vec<Sent> {
        let reply = self.call(&client::send(messages).expect("valid"));
        assert_eq!(reply.effect, Effect::Durable);
        client::sent(reply.status, &reply.body).expect("sent")
    }

    fn send_all(&mut self, bodies: &[&str]) -> Vec<u64> {
        let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
        self.send(&messages).iter().map(|sent| sent.id).collect()
    }

    fn lease(&mut self, max: u32, visibility_ms: u64) -> Vec<Got> {
        let reply = self.call(&client::lease(max, visibility_ms).expect("valid"));
        owned(&client::leased(reply.status, &reply.body).expect("leased"))
    }

    fn settle(&mut self, settlements: &[(Lease, Outcome<'_>)]) -> Vec<Settled> {
        let settlements: Vec<_> =
            settlements.iter().map(|(lease, outcome)| Settlement { lease: *lease, outcome: *outcome }).collect();
        let reply = self.call(&client::settle(&settlements).expect("valid"));
        client::settled(reply.status, &reply.body).expect("settled")
    }

    fn ack(&mut self, lease: Lease) -> Settled {
        self.settle(&[(lease, Outcome::Ack)])[0]
    }

    fn stats(&mut self) -> Stats {
        let reply = self.call(&client::stats());
        assert_eq!(reply.effect, Effect::Read);
        client::stats_read(reply.status, &reply.body).expect("stats")
    }

    /// (visible, delayed, leased, blocked, dead)
    fn counts(&mut self) -> (u64, u64, u64, u64, u64) {
        let stats = self.stats();
        (stats.visible, stats.delayed, stats.leased, stats.blocked, stats.dead)
    }

    fn set_paused(&mut self, is_paused: bool) {
        let reply = self.call(&if is_paused { client::pause() } else { client::resume() });
        assert_eq!((client::done(reply.status, &reply.body), reply.effect), (Ok(()), Effect::Durable));
    }

    /// Ids, attempts and reasons of dead letters.
    fn dead(&mut self) -> Vec<(u64, u32, String)> {
        let reply = self.call(&client::dead_letters(0, 1_000).expect("valid"));
        let page = client::dead_letters_read(reply.status, &reply.body).expect("a page");
        page.letters.iter().map(|letter| (letter.id, letter.attempts, letter.reason.to_owned())).collect()
    }

    fn redrive(&mut self, which: &Which) -> Moved {
        let reply = self.call(&client::redrive(which).expect("valid"));
        client::moved(reply.status, &reply.body).expect("moved")
    }

    fn purge(&mut self, which: &Which) -> Moved {
        let reply = self.call(&client::purge(which).expect("valid"));
        client::moved(reply.status, &reply.body).expect("moved")
    }

    /// Lets the alarm fire now.
    fn fire(&mut self) -> Option<Delivery> {
        self.sql("BEGIN");
        let alarmed = self.machine.on_alarm(&mut self.memory, self.now).expect("the database works");
        self.sql("COMMIT");
        self.keep(alarmed.effect);
        self.check();
        alarmed.delivery
    }

    /// Waits for the alarm, which must be set, and lets it fire.
    fn fire_when_due(&mut self) -> Option<Delivery> {
        self.now = self.now.max(self.machine.alarm().expect("there is an alarm"));
        self.fire()
    }

    fn delivered(&mut self, number: u64, result: Result<&[u8], &str>) {
        self.sql("BEGIN");
        let effect = self.machine.delivered(&mut self.memory, self.now, number, result).expect("the database works");
        self.sql("COMMIT");
        self.keep(effect);
        self.check();
    }

    /// A consumer answers with these outcomes.
    fn answer(&mut self, number: u64, settlements: &[(Lease, Outcome<'_>)]) {
        let settlements: Vec<_> =
            settlements.iter().map(|(lease, outcome)| Settlement { lease: *lease, outcome: *outcome }).collect();
        let body = super::encode_outcomes(&settlements).expect("valid");
        self.delivered(number, Ok(&body));
    }
}

fn contents(delivery: &Delivery) -> Vec<Got> {
    owned(&super::decode_delivery(&delivery.body).expect("a delivery"))
}

fn ids(got: &[Got]) -> Vec<u64> {
    got.iter().map(|got| got.lease.id).collect()
}
