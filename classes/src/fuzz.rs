//! Fuzzing without a special toolchain: what is in `fuzz_corpus.txt`, mutated with a seed, goes to every decoder and to both
//! machines. Nothing may panic, a refused request may write nothing, and a request that was taken back may leave nothing.
//!
//! In an ordinary run it takes a fixed number of inputs. `WASMKEEP_FUZZ_SECONDS` makes it go on for so long, `WASMKEEP_SEED`
//! replays a run. Whoever finds something adds the line that is printed to the corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use crate::database::DatabaseError;
use crate::host::{Effect, Reply, Request};
use crate::testing::Memory;
use crate::{kv, queue};

const CORPUS: &str = include_str!("fuzz_corpus.txt");

/// Inputs of an ordinary run.
const INPUTS: u64 = 3_000;

/// Inputs after which the machines start from nothing: databases stay small, and so does what leads to a failure.
const INPUTS_OF_A_LIFE: u64 = 500;

/// Where time begins, ms.
const START_MS: u64 = 1_000_000_000;

/// One request, or bytes that are taken for an answer.
#[derive(Clone, Debug)]
struct Input {
    path: String,
    body: Vec<u8>,
}

impl Input {
    fn parse(line: &str) -> Self {
        let (path, hex) = line.split_once(' ').unwrap_or((line, ""));
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        Self { path: path.to_owned(), body: (0..hex.len()).step_by(2).map(digits).collect() }
    }

    /// As a line of the corpus.
    fn line(&self) -> String {
        let hex: String = self.body.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {hex}", self.path)
    }
}

fn corpus() -> Vec<Input> {
    CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(Input::parse).collect()
}

/// Numbers near which something changes.
const EDGES: [u64; 10] = [0, 1, 2, 255, 1_000, 1_001, 1 << 31, u32::MAX as u64, i64::MAX.cast_unsigned(), u64::MAX];

fn mutate(random: &mut Rng, corpus: &[Input]) -> Input {
    let mut input = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.u32(0..5) {
        let body = &mut input.body;
        let at = random.usize(..=body.len());
        match random.u32(..9) {
            0 if at < body.len() => body[at] ^= 1 << random.u32(..8),
            1 if at < body.len() => body[at] = random.u8(..),
            2 => body.insert(at, random.u8(..)),
            3 if at < body.len() => drop(body.remove(at)),
            4 => body.truncate(at),
            5 => body.extend_from_within(at..),
            6 => overwrite(body, at, &random.choice(EDGES).unwrap_or(0).to_le_bytes()),
            7 => overwrite(body, at, &random.choice([0, 1, 2, 1_001, u32::MAX]).unwrap_or(0).to_le_bytes()),
            _ => {
                let other = &corpus[random.usize(..corpus.len())];
                if random.bool() {
                    input.path.clone_from(&other.path);
                } else {
                    body.truncate(at);
                    body.extend_from_slice(&other.body[random.usize(..=other.body.len())..]);
                }
            }
        }
        input.body.truncate(4 * 1024);
    }
    if random.u32(..200) == 0 {
        let cut = random.usize(..=input.path.len());
        input.path = format!("{}{}", input.path.get(..cut).unwrap_or(""), random.choice(["", "/", "é", "v2/", "\0"]).unwrap_or(""));
    }
    input
}

fn overwrite(body: &mut [u8], at: usize, bytes: &[u8]) {
    body[at..].iter_mut().zip(bytes).for_each(|(byte, new)| *byte = *new);
}

/// Both machines, each in a database of its own.
struct Life {
    queues: Memory,
    queue: queue::Machine,
    shards: Memory,
    shard: kv::Machine,
    now_ms: u64,
}

fn queue_config() -> queue::Config {
    queue::Config { consumer: Some("c/c".to_owned()), ordering: true, max_attempts: 2, concurrency: 2, ..queue::Config::default() }
}

impl Life {
    fn new() -> Self {
        let (mut queues, mut shards) = (Memory::new(), Memory::new());
        let queue = queue::Machine::open(&mut queues, queue_config(), START_MS).expect("opens");
        let shard = kv::Machine::open(&mut shards, kv::Config::default(), START_MS).expect("opens");
        Self { queues, queue, shards, shard, now_ms: START_MS }
    }

    fn try_one(&mut self, input: &Input, random: &mut Rng) {
        if random.u32(..20) == 0 {
            self.now_ms += random.u64(..120_000);
        }
        answers(&input.body);
        let is_kept = random.bool();
        self.ask_queue(input, is_kept);
        self.ask_shard(input, is_kept, random.choice(["web/main", "_operator/admin", "_api/shop", ""]).unwrap_or(""));
        if random.u32(..10) == 0 {
            self.deliver(&input.body);
        }
    }

    fn ask_queue(&mut self, input: &Input, is_kept: bool) {
        let (before, changes) = (self.queue.state(), begin(&self.queues));
        let request = Request { path: &input.path, body: &input.body, caller: "web/main" };
        let reply = self.queue.handle(&mut self.queues, self.now_ms, request);
        check_refusal(reply.as_ref(), &self.queues, changes);
        if end(&self.queues, is_kept && reply.is_ok()) {
            return;
        }
        self.queue.restore(before);
        let now_ms = self.now_ms;
        let mut fresh = queue::Machine::open(&mut self.queues, queue_config(), now_ms).expect("opens");
        let [kept, read] = [&mut self.queue, &mut fresh].map(|machine| numbers(machine, &mut self.queues, now_ms));
        assert_eq!(kept, read, "memory is not what an opening reads");
    }

    fn ask_shard(&mut self, input: &Input, is_kept: bool, caller: &str) {
        let (before, changes) = (self.shard.state(), begin(&self.shards));
        let request = Request { path: &input.path, body: &input.body, caller };
        let reply = self.shard.handle(&mut self.shards, self.now_ms, request);
        check_refusal(reply.as_ref(), &self.shards, changes);
        if !end(&self.shards, is_kept && reply.is_ok()) {
            self.shard.restore(before);
        }
        let swept = self.shard.on_alarm(&mut self.shards, self.now_ms);
        assert!(!matches!(swept, Err(DatabaseError::Other(_))), "{swept:?}");
    }

    /// What is due goes out and is answered with these bytes.
    fn deliver(&mut self, answer: &[u8]) {
        let alarmed = self.queue.on_alarm(&mut self.queues, self.now_ms).expect("the database works");
        let Some(delivery) = alarmed.delivery else { return };
        assert!(queue::decode_delivery(&delivery.body).is_ok_and(|messages| !messages.is_empty()));
        self.queue.delivered(&mut self.queues, self.now_ms, delivery.number, Ok(answer)).expect("the database works");
    }
}

/// Begins a request; returns how many rows were changed by now.
fn begin(memory: &Memory) -> u64 {
    memory.connection.execute_batch("SAVEPOINT one").expect("runs");
    memory.connection.total_changes()
}

/// Ends it; returns whether it is kept.
fn end(memory: &Memory, is_kept: bool) -> bool {
    let sql = if is_kept { "RELEASE one" } else { "ROLLBACK TO one; RELEASE one" };
    memory.connection.execute_batch(sql).expect("runs");
    is_kept
}

/// A refusal wrote nothing, and the database knew every statement.
fn check_refusal(reply: Result<&Reply, &DatabaseError>, memory: &Memory, changes: u64) {
    match reply {
        Ok(Reply { status: 400 | 403 | 404 | 413 | 421, effect, .. }) => {
            assert_eq!((*effect, memory.connection.total_changes()), (Effect::Read, changes), "a refused request wrote");
        }
        Ok(Reply { status, effect, .. }) => {
            assert!(matches!(status, 200 | 409 | 422), "{status}");
            assert!(*effect > Effect::Read || memory.connection.total_changes() == changes, "a read wrote");
        }
        Err(DatabaseError::Other(words)) => panic!("a statement failed: {words}"),
        Err(_) => {}
    }
}

/// A queue in numbers, without what happened since it was opened.
fn numbers(machine: &mut queue::Machine, memory: &mut Memory, now_ms: u64) -> queue::protocol::Stats {
    let call = queue::client::stats();
    let request = Request { path: call.path, body: &call.body, caller: "web/main" };
    let reply = machine.handle(memory, now_ms, request).expect("the database works");
    let stats = queue::client::stats_read(reply.status, &reply.body).expect("stats");
    queue::protocol::Stats { counters: queue::protocol::Counters::default(), ..stats }
}

/// Bytes as the answer to everything that a client may have asked.
fn answers(body: &[u8]) {
    for status in [200, 400, 409, 413, 421, 422, 500] {
        let _ = queue::client::sent(status, body);
        let _ = queue::client::leased(status, body);
        let _ = queue::client::settled(status, body);
        let _ = queue::client::stats_read(status, body);
        let _ = queue::client::dead_letters_read(status, body);
        let _ = queue::client::moved(status, body);
        let _ = kv::client::got(status, body);
        let _ = kv::client::got_many(status, body, 7);
        let _ = kv::client::put(status, body);
        let _ = kv::client::deleted(status, body);
        let _ = kv::client::incremented(status, body);
        let _ = kv::client::written_many(status, body);
        let _ = kv::client::listed(status, body);
        let _ = kv::client::counted(status, body);
        let _ = kv::client::is_laid_out(status, body);
        let _ = kv::client::exported(status, body);
        let _ = kv::client::imported(status, body);
        let _ = kv::client::pruned(status, body);
    }
}

#[allow(clippy::disallowed_methods, reason = "how long to go on is real time; no machine sees it")]
fn goes_on() -> impl Fn(u64) -> bool {
    let seconds = std::env::var("WASMKEEP_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let start = std::time::Instant::now();
    move |inputs| seconds.map_or(inputs < INPUTS, |seconds: u64| start.elapsed().as_secs() < seconds)
}

#[test]
fn no_input_panics_writes_after_a_refusal_or_leaves_what_was_taken_back() {
    let (corpus, goes_on) = (corpus(), goes_on());
    let seed = std::env::var("WASMKEEP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| if std::env::var_os("WASMKEEP_FUZZ_SECONDS").is_some() { fastrand::u64(..) } else { 1 });
    println!("WASMKEEP_SEED={seed} replays this run");
    let mut random = Rng::with_seed(seed);
    let (mut life, mut lived, mut inputs) = (Life::new(), Vec::new(), 0_u64);
    while goes_on(inputs) {
        if inputs.is_multiple_of(INPUTS_OF_A_LIFE) {
            (life, lived) = (Life::new(), Vec::new());
        }
        let input = mutate(&mut random, &corpus);
        lived.push(input.line());
        if catch_unwind(AssertUnwindSafe(|| life.try_one(&input, &mut random))).is_err() {
            panic!("input {inputs} of seed {seed}; the last one of this life is to blame:\n{}", lived.join("\n"));
        }
        inputs += 1;
    }
    println!("{inputs} inputs");
}

#[test]
fn the_corpus_holds_a_right_request_of_every_operation() {
    let operations = [
        "wasmkeep-queue/v1/send",
        "wasmkeep-queue/v1/lease",
        "wasmkeep-queue/v1/settle",
        "wasmkeep-queue/v1/stats",
        "wasmkeep-queue/v1/pause",
        "wasmkeep-queue/v1/resume",
        "wasmkeep-queue/v1/dead",
        "wasmkeep-queue/v1/redrive",
        "wasmkeep-queue/v1/purge",
        "wasmkeep-kv/v1/get",
        "wasmkeep-kv/v1/get-many",
        "wasmkeep-kv/v1/put",
        "wasmkeep-kv/v1/delete",
        "wasmkeep-kv/v1/increment",
        "wasmkeep-kv/v1/write-many",
        "wasmkeep-kv/v1/list",
        "wasmkeep-kv/v1/count",
        "wasmkeep-kv/v1/layout",
        "wasmkeep-kv/v1/set-layout",
        "wasmkeep-kv/v1/export",
        "wasmkeep-kv/v1/import",
    ];
    for operation in operations {
        let is_right = |input: &Input| {
            let mut life = Life::new();
            let request = Request { path: &input.path, body: &input.body, caller: "_operator/admin" };
            let reply = if operation.contains("queue") {
                life.queue.handle(&mut life.queues, START_MS, request)
            } else {
                life.shard.handle(&mut life.shards, START_MS, request)
            };
            reply.is_ok_and(|reply| reply.status == 200)
        };
        assert!(corpus().iter().any(|input| input.path == operation && is_right(input)), "{operation}");
    }
}
