//! Random lives of a shard against a model that is nothing but a map: writes of all kinds, reads, clocks that step, requests taken
//! back, sleep, crashes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const KEYS: [&[u8]; 7] = [b"a", b"a\0", b"a/b", b"b", b"\xff", b"\xff\xff", b"\0"];
const VALUES: [&[u8]; 5] = [b"", b"1", b"-3", b"9223372036854775807", b"x"];
const WINDOW_MS: u64 = 5_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    value: Vec<u8>,
    version: i64,
    ends: Option<i64>,
}

/// A remembered operation: its request, status and body, end.
type Remembered = ((&'static str, Vec<u8>), (u16, Vec<u8>), i64);

/// What a crash takes back.
#[derive(Clone, Debug, Default)]
struct Kept {
    rows: BTreeMap<Vec<u8>, Known>,
    operations: BTreeMap<u8, Remembered>,
}

/// A write with its expectation still a wish: the version of the row, or a stale one.
#[derive(Clone, Debug)]
struct Wish {
    kind: u8,
    key: usize,
    value: usize,
    expect: u8,
    number: i64,
}

#[derive(Clone, Debug)]
enum Step {
    Write { wishes: Vec<Wish>, is_atomic: Option<bool>, local: bool, operation: Option<u8>, is_undone: bool },
    Get(usize),
    List(usize, Option<usize>, u32),
    Import(Vec<(usize, usize, i64, Option<i64>)>, bool),
    Alarm,
    Clock(i64),
    Sleep,
    Crash,
}

struct Life {
    host: Host,
    kept: Kept,
    durable: Kept,
    /// The largest version ever shown, by answers that a crash forgot as well.
    newest: i64,
    /// The shard's time.
    time: i64,
}

fn is_there(row: &Known, now: i64) -> bool {
    row.ends.is_none_or(|ends| ends > now)
}

impl Life {
    fn new() -> Self {
        let host = Host::with(Config { operation_window_ms: WINDOW_MS, ..Config::default() });
        Self { host, kept: Kept::default(), durable: Kept::default(), newest: 0, time: 0 }
    }

    fn now(&self) -> i64 {
        self.host.machine.state().clock.now()
    }

    /// Moves the shard's clock on, which never goes back.
    fn tick(&mut self) {
        self.host.get(b"none");
        assert!(self.now() >= self.time, "time went back");
        self.time = self.now();
    }

    fn row(&self, key: &[u8]) -> Option<&Known> {
        self.kept.rows.get(key).filter(|row| is_there(row, self.now()))
    }

    fn write<'a>(&self, wish: &Wish) -> Write<'a> {
        let (key, value) = (KEYS[wish.key], VALUES[wish.value]);
        let current = self.row(key).map(|row| row.version);
        let expect = match wish.expect {
            0 => Expect::Absent,
            1 => Expect::Version(current.unwrap_or(1)),
            2 => Expect::Version(current.map_or(1, |version| version + wish.number.abs() % 2)),
            _ => Expect::Any,
        };
        let ttl_ms = (wish.number > 2_000).then(|| wish.number.unsigned_abs());
        match wish.kind {
            0..=3 => Write::Put { key, value, expect, ttl_ms },
            4..=5 => Write::Delete { key, expect },
            _ => Write::Increment { key, delta: wish.number },
        }
    }

    /// What a write must come to, with 0 for a version; and the row it leaves.
    fn outcome(&self, write: &Write<'_>) -> (Outcome, Option<Option<Known>>) {
        let row = self.row(write.key());
        let current = row.map(|row| row.version);
        let is_met = |expect| match expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Version(version) => current == Some(version),
        };
        match *write {
            Write::Put { expect, .. } | Write::Delete { expect, .. } if !is_met(expect) => (Outcome::Conflict { current }, None),
            Write::Put { value, ttl_ms, .. } => {
                let ends = ttl_ms.map(|ms| self.now() + ms.cast_signed());
                (Outcome::Put { version: 0 }, Some(Some(Known { value: value.to_vec(), version: 0, ends })))
            }
            Write::Delete { .. } => (Outcome::Deleted { existed: row.is_some() }, row.map(|_| None)),
            Write::Increment { delta, .. } => {
                let text = row.map_or("0", |row| std::str::from_utf8(&row.value).expect("text"));
                let Ok(number) = text.parse::<i64>() else { return (Outcome::NotANumber, None) };
                let Some(value) = number.checked_add(delta) else { return (Outcome::Overflow, None) };
                let known = Known { value: value.to_string().into_bytes(), version: 0, ends: row.and_then(|row| row.ends) };
                (Outcome::Incremented { value, version: 0 }, Some(Some(known)))
            }
        }
    }

    /// Checks an outcome against the model's, and does it there.
    fn settle(&mut self, write: &Write<'_>, got: Outcome) {
        let (mut expected, left) = self.outcome(write);
        let given = match got {
            Outcome::Put { version } | Outcome::Incremented { version, .. } => version,
            _ => 0,
        };
        if let Outcome::Put { version } | Outcome::Incremented { version, .. } = &mut expected {
            assert!(given > self.newest, "version {given} after {}", self.newest);
            (*version, self.newest) = (given, given);
        }
        assert_eq!(got, expected, "{write:?}");
        match left {
            Some(Some(known)) => {
                self.kept.rows.insert(write.key().to_vec(), Known { version: given, ..known });
            }
            Some(None) => {
                self.kept.rows.remove(write.key());
            }
            None => {}
        }
    }

    fn settle_all(&mut self, writes: &[Write<'_>], is_atomic: Option<bool>, reply: &Reply) {
        if is_atomic.is_none() {
            let outcome = match reply.status {
                200 | 409 | 422 => crate::kv::codec::decode_outcome(&reply.body).expect("an outcome"),
                status => panic!("{status}"),
            };
            assert_eq!(outcome.is_done(), reply.status == 200);
            return self.settle(&writes[0], outcome);
        }
        match client::written_many(reply.status, &reply.body) {
            Ok(outcomes) => {
                assert_eq!(outcomes.len(), writes.len());
                for (write, outcome) in writes.iter().zip(outcomes) {
                    assert!(is_atomic == Some(false) || outcome.is_done());
                    self.settle(write, outcome);
                }
            }
            Err(Error::NotApplied(outcomes)) => {
                assert_eq!((is_atomic, outcomes.len()), (Some(true), writes.len()));
                for (write, outcome) in writes.iter().zip(&outcomes) {
                    let expected = self.outcome(write).0;
                    assert_eq!(*outcome, if expected.is_done() { Outcome::NotApplied } else { expected });
                }
                assert!(outcomes.iter().any(|outcome| *outcome != Outcome::NotApplied));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn do_writes(&mut self, step: &Step) {
        let Step::Write { wishes, is_atomic, local, operation, is_undone } = step else { return };
        let mut writes: Vec<_> = wishes.iter().map(|wish| self.write(wish)).collect();
        if *is_atomic == Some(true) {
            writes.sort_by_key(|write| write.key());
            writes.dedup_by_key(|write| write.key());
        }
        let id = operation.map(|id| [id]);
        let options = Options { local: *local, operation: id.as_ref().map(|id| &id[..]) };
        let call = match is_atomic {
            Some(is_atomic) => client::write_many(shards(), &writes, *is_atomic, options),
            None => client::write(shards(), &writes[0], options),
        };
        let call = call.expect("is valid");
        if *is_undone {
            return self.host.undone(&call);
        }
        let facts = |life: &Self| (life.host.machine.state().reserved, life.host.machine.state().layout);
        let before = facts(self);
        let reply = self.host.call(&call);
        assert_eq!(reply.effect, if *local && facts(self) == before { Effect::Local } else { Effect::Durable });
        let request = (call.path, call.body);
        let known = operation.and_then(|id| self.kept.operations.get(&id)).filter(|(.., ends)| *ends > self.now());
        match known {
            Some((known, outcome, _)) if *known == request => assert_eq!((reply.status, reply.body), *outcome),
            Some(_) => assert_eq!(client::put(reply.status, &reply.body), Err(Error::OperationReused)),
            None => {
                self.settle_all(&writes, *is_atomic, &reply);
                if let Some(id) = operation {
                    let ends = self.now() + WINDOW_MS.cast_signed();
                    self.kept.operations.insert(*id, (request, (reply.status, reply.body), ends));
                }
            }
        }
    }

    fn import(&mut self, rows: &[(usize, usize, i64, Option<i64>)], only_if_absent: bool) {
        let clock = self.host.machine.state().clock;
        let moving = |(key, value, version, end): &(usize, usize, i64, Option<i64>)| crate::kv::protocol::Moving {
            key: KEYS[*key],
            value: VALUES[*value],
            version: self.newest + version,
            expires_at_ms: end.map(|end| clock.host(clock.now() + end)),
        };
        let rows: Vec<_> = rows.iter().map(moving).collect();
        let reply = self.host.operate(&client::import(&rows, only_if_absent).expect("is valid"));
        let mut written = 0;
        for row in &rows {
            let ends = row.expires_at_ms.map(|at| self.host.machine.state().clock.at(at));
            let is_late = ends.is_some_and(|ends| ends <= self.now());
            let is_in_the_way = only_if_absent && self.row(row.key).is_some();
            if !is_late && !is_in_the_way {
                written += 1;
                self.kept.rows.insert(row.key.to_vec(), Known { value: row.value.to_vec(), version: 0, ends });
            }
        }
        assert_eq!(client::imported(reply.status, &reply.body).map(|imported| imported.written), Ok(written));
        let newest = rows.iter().map(|row| row.version).fold(self.newest, i64::max);
        let unknown: Vec<_> = self.kept.rows.iter().filter(|(_, row)| row.version == 0).map(|(key, _)| key.clone()).collect();
        for key in unknown {
            let version = self.host.get(&key).expect("is there").1;
            assert!(version > newest);
            self.newest = self.newest.max(version);
            self.kept.rows.get_mut(&key).expect("is there").version = version;
        }
    }

    fn alarm(&mut self) {
        let swept = self.host.fire();
        let now = self.now();
        let before = self.kept.rows.len();
        self.kept.rows.retain(|_, row| is_there(row, now));
        assert_eq!(swept.rows, (before - self.kept.rows.len()) as u64);
        self.kept.operations.retain(|_, (.., ends)| *ends > now);
        assert_eq!(self.host.rows(), i64::try_from(self.kept.rows.len()).expect("few"));
    }

    /// The alarm is set if, and not later than, anything ends.
    fn check_alarm(&self) {
        let linger = crate::limits::KV_OPERATION_LINGER_MS.cast_signed();
        let rows = self.kept.rows.values().filter_map(|row| row.ends);
        let operations = self.kept.operations.values().map(|(.., ends)| ends + linger);
        if let Some(first) = rows.chain(operations).min() {
            let clock = self.host.machine.state().clock;
            assert!(self.host.machine.alarm().is_some_and(|at| at <= clock.host(first)));
        }
    }

    fn list(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) {
        let all: Vec<_> = self
            .kept
            .rows
            .iter()
            .filter(|(key, row)| {
                is_there(row, self.now()) && key.starts_with(prefix) && after.is_none_or(|after| key.as_slice() > after)
            })
            .map(|(key, row)| OwnedListed {
                key: key.clone(),
                version: row.version,
                ttl_ms: row.ends.map(|ends| (ends - self.now()).unsigned_abs()),
                value: Some(row.value.clone()),
            })
            .collect();
        let (rows, has_more) = self.host.page(&List { prefix, after, limit, values: true });
        assert_eq!(rows, all[..all.len().min(limit as usize)]);
        assert_eq!(has_more, all.len() > limit as usize);
    }

    fn step(&mut self, step: &Step) {
        self.tick();
        self.host.effect = Effect::Read;
        match step {
            Step::Write { .. } => self.do_writes(step),
            Step::Get(key) => {
                let now = self.now();
                let left = |row: &Known| row.ends.map(|ends| (ends - now).unsigned_abs());
                let expected = self.row(KEYS[*key]).map(|row| (row.value.clone(), row.version, left(row)));
                assert_eq!(self.host.get(KEYS[*key]), expected);
            }
            Step::List(prefix, after, limit) => self.list(&KEYS[*prefix][..1], after.map(|key| KEYS[key]), *limit),
            Step::Import(rows, only_if_absent) => self.import(rows, *only_if_absent),
            Step::Alarm => self.alarm(),
            Step::Clock(by) => self.host.now = self.host.now.saturating_add_signed(*by),
            Step::Sleep => {
                self.host.wake();
                self.time = self.now();
            }
            Step::Crash => {
                self.host.crash();
                self.kept = self.durable.clone();
                self.time = self.now();
            }
        }
        if self.host.effect == Effect::Durable {
            self.durable = self.kept.clone();
        }
        self.tick();
        self.check_alarm();
        self.list(b"", None, 10);
        let there = self.kept.rows.values().filter(|row| is_there(row, self.now())).count();
        assert_eq!(self.host.count(), there as u64);
    }
}

fn wishes() -> impl Strategy<Value = Wish> {
    let number = prop_oneof![3 => -5..5_i64, 2 => 2_001..9_000_i64, 1 => Just(i64::MAX / 1_000_000)];
    (0..8_u8, 0..KEYS.len(), 0..VALUES.len(), 0..7_u8, number).prop_map(|(kind, key, value, expect, number)| Wish {
        kind,
        key,
        value,
        expect,
        number,
    })
}

fn writes() -> impl Strategy<Value = Step> {
    let many = prop::collection::vec(wishes(), 1..6);
    let is_atomic = prop_oneof![2 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (many, is_atomic, any::<bool>(), prop::option::weighted(0.25, 0..3_u8), prop::bool::weighted(0.15))
        .prop_map(|(wishes, is_atomic, local, operation, is_undone)| Step::Write { wishes, is_atomic, local, operation, is_undone })
}

fn list((prefix, after, limit): (usize, Option<usize>, u32)) -> Step {
    Step::List(prefix, after, limit)
}

fn steps() -> impl Strategy<Value = Step> {
    let row = (0..KEYS.len(), 0..VALUES.len(), 1..9_000_i64, prop::option::of(-500..5_000_i64));
    prop_oneof![
        12 => writes(),
        2 => (0..KEYS.len()).prop_map(Step::Get),
        2 => (0..KEYS.len(), prop::option::of(0..KEYS.len()), 1..6_u32).prop_map(list),
        1 => (prop::collection::vec(row, 1..4), any::<bool>()).prop_map(|(rows, absent)| Step::Import(rows, absent)),
        3 => Just(Step::Alarm),
        5 => prop_oneof![4 => 0..4_000_i64, 1 => 0..30_000_i64, 2 => -9_000..0_i64].prop_map(Step::Clock),
        1 => Just(Step::Sleep),
        2 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_shard_does_what_its_model_does(steps in prop::collection::vec(steps(), 1..40)) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step);
        }
    }
}
