//! Random lives of a queue against a model that is nothing but a list of messages: sends, leases, settles, deliveries, redrives,
//! purges, pauses, clocks that step, requests taken back, sleep, crashes.

use proptest::prelude::*;

use super::*;
use crate::limits::QUEUE_SWEEP_LINGER_MS;
use crate::queue::settle::backoff_ms;

/// What the model knows of a message.
#[derive(Clone, Debug)]
struct Known {
    id: u64,
    enqueued_at: i64,
    visible_at: i64,
    is_blocked: bool,
    attempts: u32,
    /// Which of all leases ever given it has, if any.
    lease: Option<usize>,
    key: Option<u8>,
    error: Option<String>,
}

/// What a crash takes back.
#[derive(Clone, Debug, Default)]
struct Kept {
    live: Vec<Known>,
    dead: Vec<(Known, i64, String)>,
    dedupe: Vec<(u8, Sent, i64)>,
    last_id: u64,
    is_paused: bool,
}

struct Model {
    kept: Kept,
    durable: Kept,
    /// Every lease ever given, also those that a crash forgot.
    leases: Vec<Lease>,
    out: Vec<(u64, Vec<usize>)>,
    config: Config,
    now: i64,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<(u64, Option<u8>, Option<u8>)>),
    Lease(u32, u64),
    Settle(Vec<(usize, u8)>),
    Alarm,
    Answer(usize, Option<Vec<(usize, u8)>>),
    Withdraw(usize),
    Pause(bool),
    Redrive(u8, u64),
    Purge(u8, u64),
    Clock(i64),
    Undone(Box<Step>),
    Sleep,
    Crash,
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("small")
}

impl Model {
    fn message(&mut self, id: u64) -> &mut Known {
        self.kept.live.iter_mut().find(|known| known.id == id).expect("it is alive")
    }

    fn is_line(&self, key: Option<u8>) -> bool {
        key.is_some() && self.kept.live.iter().any(|known| known.key == key)
    }

    fn send(&mut self, messages: &[(u64, Option<u8>, Option<u8>)]) -> Vec<Sent> {
        let now = self.now;
        let mut all = Vec::new();
        for (delay, dedupe, key) in messages {
            let known = self.kept.dedupe.iter().find(|(id, _, until)| Some(*id) == *dedupe && *until > now);
            if let Some((_, sent, _)) = known {
                all.push(Sent { is_duplicate: true, ..*sent });
                continue;
            }
            self.kept.last_id += 1;
            let (id, visible_at) = (self.kept.last_id, now + signed(*delay));
            let is_blocked = self.is_line(*key);
            self.kept.live.push(Known {
                id,
                enqueued_at: now,
                visible_at,
                is_blocked,
                attempts: 0,
                lease: None,
                key: *key,
                error: None,
            });
            let sent = Sent { id, due_at_ms: visible_at.unsigned_abs(), is_duplicate: false };
            if let Some(dedupe) = dedupe {
                self.kept.dedupe.retain(|(id, ..)| id != dedupe);
                self.kept.dedupe.push((*dedupe, sent, now + signed(self.config.dedupe_window_ms)));
            }
            all.push(sent);
        }
        all
    }

    /// Takes a message out. The next one of its key comes up.
    fn take(&mut self, id: u64) -> Known {
        let index = self.kept.live.iter().position(|known| known.id == id).expect("it is alive");
        let taken = self.kept.live.remove(index);
        if taken.key.is_some() && !taken.is_blocked {
            let next = self.kept.live.iter_mut().filter(|known| known.key == taken.key).min_by_key(|known| known.id);
            if let Some(next) = next {
                next.is_blocked = false;
            }
        }
        taken
    }

    fn kill(&mut self, id: u64, error: Option<&str>, otherwise: &str) {
        let known = self.take(id);
        let reason = error.map(str::to_owned).or_else(|| known.error.clone()).unwrap_or_else(|| otherwise.to_owned());
        self.kept.dead.push((known, self.now, reason));
        self.kept.dead.sort_by_key(|(known, ..)| known.id);
    }

    fn due(&self) -> Vec<&Known> {
        let mut due: Vec<_> = self.kept.live.iter().filter(|known| !known.is_blocked && known.visible_at <= self.now).collect();
        due.sort_by_key(|known| (known.visible_at, known.id));
        due
    }

    fn lease(&mut self, max: u32, visibility_ms: u64) -> Vec<(u64, u32)> {
        loop {
            let head: Vec<_> = self.due().iter().take(max as usize).map(|known| (known.id, known.attempts + 1)).collect();
            let exhausted: Vec<_> = head.iter().filter(|(_, attempt)| *attempt > self.config.max_attempts).collect();
            if exhausted.is_empty() {
                let until = self.now + signed(visibility_ms);
                for (index, (id, _)) in head.iter().enumerate() {
                    let lease = self.leases.len() + index;
                    let known = self.message(*id);
                    (known.attempts, known.visible_at, known.lease) = (known.attempts + 1, until, Some(lease));
                }
                return head;
            }
            for (id, _) in exhausted {
                self.kill(*id, None, "its last lease ran out");
            }
        }
    }

    fn settle(&mut self, lease: usize, outcome: Outcome<'_>) -> Settled {
        let Some(known) = self.kept.live.iter_mut().find(|known| known.lease == Some(lease)) else { return Settled::Stale };
        let id = known.id;
        match outcome {
            Outcome::Ack => {
                self.take(id);
            }
            Outcome::Retry { error, .. } if known.attempts >= self.config.max_attempts => {
                self.kill(id, Some(error).filter(|error| !error.is_empty()), "given back after its last attempt");
                return Settled::Dead;
            }
            Outcome::Retry { delay_ms, error } => {
                let delay = delay_ms.unwrap_or_else(|| backoff_ms(known.attempts));
                (known.lease, known.visible_at) = (None, self.now + signed(delay));
                if !error.is_empty() {
                    known.error = Some(error.to_owned());
                }
            }
            Outcome::Extend { visibility_ms } => known.visible_at = self.now + signed(visibility_ms),
        }
        Settled::Done
    }

    fn sweep_dead(&mut self) {
        loop {
            let is_over = |known: &&Known| known.lease.is_some() && known.attempts >= self.config.max_attempts;
            let over = self.kept.live.iter().filter(is_over).find(|known| known.visible_at <= self.now).map(|known| known.id);
            let Some(id) = over else { break };
            self.kill(id, None, "its last lease ran out");
        }
    }

    fn redrive(&mut self, chosen: &dyn Fn(&(Known, i64, String)) -> bool) -> u64 {
        let (back, dead): (Vec<_>, Vec<_>) = self.kept.dead.drain(..).partition(chosen);
        self.kept.dead = dead;
        let count = back.len() as u64;
        for (known, ..) in back {
            let is_blocked = self.is_line(known.key);
            self.kept.live.push(Known { is_blocked, visible_at: self.now, attempts: 0, lease: None, error: None, ..known });
        }
        self.kept.live.sort_by_key(|known| known.id);
        count
    }

    fn alarm(&self, dedupe_until: Option<i64>) -> Option<i64> {
        let is_pushing =
            self.config.consumer.is_some() && !self.kept.is_paused && self.out.len() < self.config.concurrency as usize;
        let live = || self.kept.live.iter().filter(|known| !known.is_blocked);
        let push = live().map(|known| known.visible_at).min().filter(|_| is_pushing);
        let is_last = |known: &&Known| known.lease.is_some() && known.attempts >= self.config.max_attempts;
        let last = live().filter(is_last).map(|known| known.visible_at).min();
        [push, last, dedupe_until.map(|until| until + signed(QUEUE_SWEEP_LINGER_MS))].into_iter().flatten().min()
    }

    fn stats(&self) -> (u64, u64, u64, u64, u64, Option<u64>) {
        let count = |class: &dyn Fn(&Known) -> bool| self.kept.live.iter().filter(|known| class(known)).count() as u64;
        let is_later = |known: &Known| !known.is_blocked && known.visible_at > self.now;
        let oldest = self.kept.live.iter().min_by_key(|known| known.id);
        (
            self.due().len() as u64,
            count(&|known| is_later(known) && known.lease.is_none()),
            count(&|known| is_later(known) && known.lease.is_some()),
            count(&|known| known.is_blocked),
            self.kept.dead.len() as u64,
            oldest.map(|known| (self.now - known.enqueued_at).max(0).unsigned_abs()),
        )
    }
}

fn outcome(kind: u8) -> Outcome<'static> {
    match kind % 6 {
        0..=2 => Outcome::Ack,
        3 => Outcome::Retry { delay_ms: None, error: "err" },
        4 => Outcome::Retry { delay_ms: Some(u64::from(kind)), error: "" },
        _ => Outcome::Extend { visibility_ms: 1 + 20 * u64::from(kind) },
    }
}

/// A queue and its model, and the clock they are under.
struct Life {
    host: Host,
    model: Model,
}

impl Life {
    fn new(config: Config) -> Self {
        let host = Host::new(config.clone());
        let kept = Kept::default();
        Self { host, model: Model { durable: kept.clone(), kept, leases: vec![], out: vec![], config, now: signed(START) } }
    }

    /// What time the queue takes it to be: never earlier than before within one life.
    fn tick(&mut self) {
        let now = self.host.machine.state.clock.clone().read(self.host.now);
        self.model.now = now;
    }

    fn durable(&mut self, effect: Effect) {
        if effect == Effect::Durable {
            self.model.durable = self.model.kept.clone();
        }
    }

    fn call(&mut self, call: &Call) -> Reply {
        self.host.call(call)
    }

    /// Leases of the model for what the queue gave. The two must be the same messages in the same order.
    fn given(&mut self, got: &[Got], expected: &[(u64, u32)]) -> Vec<usize> {
        let given: Vec<_> = got.iter().map(|got| (got.lease.id, got.lease.attempt)).collect();
        assert_eq!(given, expected);
        for got in got {
            assert!(!self.model.leases.contains(&got.lease), "{:?} was given before", got.lease);
            self.model.leases.push(got.lease);
        }
        (self.model.leases.len() - got.len()..self.model.leases.len()).collect()
    }

    fn chosen(&self, picks: &[(usize, u8)]) -> Vec<(usize, Outcome<'static>)> {
        let count = self.model.leases.len();
        if count == 0 {
            return Vec::new();
        }
        // The newest leases are the interesting ones.
        picks.iter().map(|(pick, kind)| (count - 1 - (pick % count.min(12)), outcome(*kind))).collect()
    }

    fn body(&self, chosen: &[(usize, Outcome<'static>)]) -> Vec<u8> {
        let settlement =
            |(lease, outcome): &(usize, Outcome<'static>)| Settlement { lease: self.model.leases[*lease], outcome: *outcome };
        super::super::encode_outcomes(&chosen.iter().map(settlement).collect::<Vec<_>>()).expect("valid")
    }

    fn request(step: &Step) -> Option<Call> {
        let which = |kind: u8, value: u64| match kind % 3 {
            0 => Which::DeadIds((0..6).map(|n| value % 20 + n).collect()),
            1 => Which::DeadOlderThan { age_ms: value },
            _ => Which::DeadOlderThan { age_ms: 0 },
        };
        Some(match step {
            Step::Send(messages) => {
                let keys: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
                let key = |key: &Option<u8>| key.map(|key| &keys[usize::from(key)][..]);
                let message = |(delay, dedupe, order): &(u64, Option<u8>, Option<u8>)| Message {
                    body: b"body",
                    delay_ms: *delay,
                    dedupe_id: key(dedupe),
                    ordering_key: key(order),
                };
                client::send(&messages.iter().map(message).collect::<Vec<_>>()).expect("valid")
            }
            Step::Lease(max, visibility) => client::lease(*max, *visibility).expect("valid"),
            Step::Pause(true) => client::pause(),
            Step::Pause(false) => client::resume(),
            Step::Redrive(kind, value) => client::redrive(&which(*kind, *value)).expect("valid"),
            Step::Purge(4, _) => client::purge(&Which::Live).expect("valid"),
            Step::Purge(kind, value) => client::purge(&which(*kind, *value)).expect("valid"),
            _ => return None,
        })
    }

    fn step(&mut self, step: &Step) {
        self.tick();
        match step {
            Step::Clock(ms) => self.host.now = self.host.now.saturating_add_signed(*ms),
            Step::Undone(step) => {
                if let Some(call) = self.undoable(step) {
                    self.host.undone(&call);
                }
            }
            Step::Sleep => {
                self.model.out.clear();
                self.host.wake();
            }
            Step::Crash => {
                self.model.out.clear();
                self.model.kept = self.model.durable.clone();
                self.host.crash();
            }
            Step::Settle(picks) => self.settle(picks),
            Step::Alarm => self.alarm(),
            Step::Answer(index, picks) => self.answer(*index, picks.as_deref()),
            Step::Withdraw(index) => self.withdraw(*index),
            _ => self.ask(step),
        }
        self.compare();
    }

    fn undoable(&self, step: &Step) -> Option<Call> {
        match step {
            Step::Settle(picks) => Some(Call { path: "wasmkeep-queue/v1/settle", body: self.body(&self.chosen(picks)) }),
            step => Self::request(step),
        }
    }

    fn ask(&mut self, step: &Step) {
        let reply = self.call(&Self::request(step).expect("it is a request"));
        match step {
            Step::Send(messages) => assert_eq!(client::sent(reply.status, &reply.body), Ok(self.model.send(messages))),
            Step::Lease(max, visibility) => {
                let expected = if self.model.kept.is_paused { vec![] } else { self.model.lease(*max, *visibility) };
                let got = owned(&client::leased(reply.status, &reply.body).expect("leased"));
                self.given(&got, &expected);
            }
            Step::Pause(is_paused) => self.model.kept.is_paused = *is_paused,
            Step::Redrive(kind, value) => {
                let chosen = self.matching(*kind, *value);
                let count = self.model.redrive(&chosen);
                assert_eq!(client::moved(reply.status, &reply.body), Ok(Moved { count, next: None }));
            }
            Step::Purge(kind, value) => {
                let chosen = self.matching(*kind, *value);
                let kept = &mut self.model.kept;
                let before = kept.live.len() + kept.dead.len();
                if *kind == 4 {
                    kept.live.clear();
                } else {
                    kept.dead.retain(|dead| !chosen(dead));
                }
                let count = (before - kept.live.len() - kept.dead.len()) as u64;
                assert_eq!(client::moved(reply.status, &reply.body), Ok(Moved { count, next: None }));
            }
            _ => unreachable!("it is a request"),
        }
        self.durable(reply.effect);
    }

    fn matching(&self, kind: u8, value: u64) -> impl Fn(&(Known, i64, String)) -> bool + use<> {
        let now = self.model.now;
        move |(known, failed_at, _)| match kind % 3 {
            0 => (value % 20..value % 20 + 6).contains(&known.id),
            1 => *failed_at <= now - signed(value),
            _ => true,
        }
    }

    fn settle(&mut self, picks: &[(usize, u8)]) {
        let chosen = self.chosen(picks);
        let body = self.body(&chosen);
        let reply = self.host.handle("wasmkeep-queue/v1/settle", &body);
        let expected: Vec<_> = chosen.iter().map(|(lease, outcome)| self.model.settle(*lease, *outcome)).collect();
        assert_eq!(client::settled(reply.status, &reply.body), Ok(expected));
        self.durable(reply.effect);
    }

    fn alarm(&mut self) {
        self.host.sql("BEGIN");
        let alarmed = self.host.machine.on_alarm(&mut self.host.memory, self.host.now).expect("the database works");
        self.host.sql("COMMIT");
        self.host.keep(alarmed.effect);
        self.host.check();
        self.model.sweep_dead();
        let is_free = self.model.out.len() < self.model.config.concurrency as usize;
        let (batch, visibility) = (self.model.config.batch, self.model.config.visibility_ms);
        let is_pushing = self.model.config.consumer.is_some() && !self.model.kept.is_paused && is_free;
        let expected = if is_pushing { self.model.lease(batch, visibility) } else { vec![] };
        let got = alarmed.delivery.as_ref().map(contents).unwrap_or_default();
        let leases = self.given(&got, &expected);
        if let Some(delivery) = alarmed.delivery {
            self.model.out.push((delivery.number, leases));
        }
        let swept = self.host.machine.state.dedupe_until;
        self.model.kept.dedupe.retain(|(.., until)| swept.is_some_and(|swept| *until >= swept));
        self.durable(alarmed.effect);
    }

    fn answer(&mut self, index: usize, picks: Option<&[(usize, u8)]>) {
        if self.model.out.is_empty() {
            return;
        }
        let (number, leases) = self.model.out.swap_remove(index % self.model.out.len());
        if let Some(picks) = picks {
            let chosen: Vec<_> = picks.iter().map(|(pick, kind)| (leases[pick % leases.len()], outcome(*kind))).collect();
            let body = self.body(&chosen);
            self.host.delivered(number, Ok(&body));
            for (lease, outcome) in chosen {
                self.model.settle(lease, outcome);
            }
        } else {
            self.host.delivered(number, Err("failed"));
            for lease in leases {
                self.model.settle(lease, retry("failed"));
            }
        }
    }

    fn withdraw(&mut self, index: usize) {
        if self.model.out.is_empty() {
            return;
        }
        let (number, leases) = self.model.out.swap_remove(index % self.model.out.len());
        self.host.machine.withdraw(&mut self.host.memory, self.host.now, number, 30).expect("the database works");
        self.host.check();
        let visible_at = self.model.now + 30;
        for known in self.model.kept.live.iter_mut().filter(|known| known.lease.is_some_and(|lease| leases.contains(&lease))) {
            (known.attempts, known.lease, known.visible_at) = (known.attempts - 1, None, visible_at);
        }
    }

    fn compare(&mut self) {
        self.tick();
        let stats = self.host.stats();
        let numbers = (stats.visible, stats.delayed, stats.leased, stats.blocked, stats.dead, stats.oldest_age_ms);
        assert_eq!(numbers, self.model.stats());
        let dead: Vec<_> =
            self.model.kept.dead.iter().map(|(known, _, reason)| (known.id, known.attempts, reason.clone())).collect();
        assert_eq!(self.host.dead(), dead);
        let state = &self.host.machine.state;
        let earliest = self.model.kept.dedupe.iter().map(|(.., until)| *until).min();
        assert!(state.dedupe_until.is_some() == earliest.is_some() && state.dedupe_until <= earliest);
        let alarm = self.model.alarm(state.dedupe_until).map(|at| state.clock.host(at));
        assert_eq!(self.host.machine.alarm(), alarm);
        let gauges = self.host.machine.gauges();
        assert_eq!((gauges.depth, gauges.dead), (self.model.kept.live.len() as u64, stats.dead));
    }
}

fn requests() -> impl Strategy<Value = Step> {
    let item =
        (prop_oneof![2 => Just(0), 1 => 1..4_000_u64], prop::option::weighted(0.2, 0..4_u8), prop::option::weighted(0.5, 0..3_u8));
    prop_oneof![
        4 => prop::collection::vec(item, 0..14).prop_map(Step::Send),
        5 => (1..8_u32, 1..3_000_u64).prop_map(|(max, visibility)| Step::Lease(max, visibility)),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => (0..3_u8, 0..3_000_u64).prop_map(|(kind, value)| Step::Redrive(kind, value)),
        1 => (0..12_u8, 0..3_000_u64).prop_filter("few", |(kind, _)| *kind < 5).prop_map(|(kind, value)| Step::Purge(kind, value)),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let picks = || prop::collection::vec((0..64_usize, any::<u8>()), 0..8);
    prop_oneof![
        12 => requests(),
        5 => picks().prop_map(Step::Settle),
        6 => Just(Step::Alarm),
        4 => (0..4_usize, prop::option::weighted(0.8, picks())).prop_map(|(index, picks)| Step::Answer(index, picks)),
        1 => (0..4_usize).prop_map(Step::Withdraw),
        6 => prop_oneof![4 => 0..2_000_i64, 1 => 0..20_000_i64, 1 => -5_000..0_i64].prop_map(Step::Clock),
        2 => prop_oneof![3 => requests(), 1 => picks().prop_map(Step::Settle)].prop_map(|step| Step::Undone(Box::new(step))),
        1 => Just(Step::Sleep),
        2 => Just(Step::Crash),
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    (any::<bool>(), 1..5_u32, 1..4_u32, 1..4_u32, 1..20_000_u64).prop_map(|(is_pushed, batch, attempts, concurrency, window)| {
        Config {
            consumer: is_pushed.then(|| "mailer/main".to_owned()),
            batch,
            visibility_ms: 700,
            max_attempts: attempts,
            dedupe_window_ms: window,
            ordering: true,
            concurrency,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_does_what_its_model_does(config in configs(), steps in prop::collection::vec(steps(), 1..40)) {
        let mut life = Life::new(config);
        for step in &steps {
            life.step(step);
        }
    }
}
