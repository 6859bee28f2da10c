//! Databases that fail in the middle of something, and queues that are opened again between any two steps.

use super::*;
use crate::database::{Database, DatabaseError, Param, Row};

/// A database that fails as full after so many statements.
struct Failing<'a> {
    memory: &'a mut Memory,
    left: usize,
}

impl Failing<'_> {
    fn spend(&mut self) -> Result<(), DatabaseError> {
        self.left = self.left.checked_sub(1).ok_or(DatabaseError::Full)?;
        Ok(())
    }
}

impl Database for Failing<'_> {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        self.spend()?;
        self.memory.execute(sql, params)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        self.spend()?;
        self.memory.query(sql, params, each)
    }
}

/// Does something with databases that fail after 0, 1, 2 ... statements, each time taken back, and then with one that works. The
/// queue must be as if only the last had been. Returns what that gave and how many failed.
fn insist<T>(host: &mut Host, mut act: impl FnMut(&mut Machine, &mut dyn Database, u64) -> Result<T, DatabaseError>) -> (T, usize) {
    for statements in 0.. {
        host.sql("BEGIN; SAVEPOINT one");
        let state = host.machine.state();
        let mut failing = Failing { memory: &mut host.memory, left: statements };
        match act(&mut host.machine, &mut failing, host.now) {
            Ok(done) => {
                host.sql("RELEASE one; COMMIT");
                host.check();
                return (done, statements);
            }
            Err(error) => {
                assert_eq!(error, DatabaseError::Full);
                host.sql("ROLLBACK TO one; RELEASE one; COMMIT");
                host.machine.restore(state.clone());
                assert_eq!(host.machine.state(), state);
                host.check();
            }
        }
    }
    unreachable!("some number of statements is enough")
}

fn insist_on(host: &mut Host, call: &Call) -> Reply {
    let request = Request { path: call.path, body: &call.body, caller: "web/main" };
    let (reply, failed) = insist(host, |machine, db, now| machine.handle(db, now, request));
    assert!(failed > 0 && reply.status == 200);
    reply
}

#[test]
fn a_request_whose_database_fails_anywhere_leaves_no_trace() {
    let mut host = Host::new(Config { ordering: true, max_attempts: 2, batch: 3, visibility_ms: 500, ..pushed() });
    let keyed = Message { ordering_key: Some(b"k"), dedupe_id: Some(b"d"), ..message("a") };
    let follower = Message { dedupe_id: None, ..keyed };
    let sent = insist_on(&mut host, &client::send(&[keyed, follower, keyed, message("b"), message("c")]).expect("valid"));
    let sent = client::sent(sent.status, &sent.body).expect("sent");
    assert_eq!(sent.iter().map(|sent| sent.id).collect::<Vec<_>>(), [1, 2, 1, 3, 4]);

    let (alarmed, failed) = insist(&mut host, |machine, db, now| machine.on_alarm(db, now));
    let delivery = alarmed.delivery.expect("a batch");
    let got = contents(&delivery);
    assert_eq!((ids(&got), delivery.number, failed > 4), (vec![1, 3, 4], 1, true));
    let outcomes = [Outcome::Ack, retry("no"), Outcome::Extend { visibility_ms: 9_000 }];
    let settlements: Vec<_> = got.iter().zip(outcomes).map(|(got, outcome)| Settlement { lease: got.lease, outcome }).collect();
    let body = crate::queue::encode_outcomes(&settlements).expect("valid");
    insist(&mut host, |machine, db, now| machine.delivered(db, now, 1, Ok(&body)));
    assert_eq!(host.counts(), (1, 1, 1, 0, 0));

    let leased = insist_on(&mut host, &client::lease(5, 100).expect("valid"));
    let leased = owned(&client::leased(200, &leased.body).expect("leased"));
    assert_eq!(ids(&leased), [2]);
    insist_on(&mut host, &client::retry(leased[0].lease, Some(0), "once").expect("valid"));
    host.now += 1_000;
    let (alarmed, _) = insist(&mut host, |machine, db, now| machine.on_alarm(db, now));
    let number = alarmed.delivery.expect("a batch").number;
    insist(&mut host, |machine, db, now| machine.delivered(db, now, number, Err("down")));
    assert_eq!(host.dead(), [(2, 2, "down".to_owned()), (3, 2, "down".to_owned())]);

    insist_on(&mut host, &client::redrive(&Which::DeadOlderThan { age_ms: 0 }).expect("valid"));
    assert_eq!(host.counts(), (2, 0, 1, 0, 0));
    let (alarmed, _) = insist(&mut host, |machine, db, now| machine.on_alarm(db, now));
    let number = alarmed.delivery.expect("a batch").number;
    insist(&mut host, |machine, db, now| machine.withdraw(db, now, number, 10));
    for call in [client::pause(), client::resume(), client::purge(&Which::Live).expect("valid")] {
        insist_on(&mut host, &call);
    }
    assert_eq!(host.counts(), (0, 0, 0, 0, 0));
}

/// A message from its send to its second end. `between` happens between any two steps. Returns all that was observed.
fn life(between: fn(&mut Host)) -> Vec<String> {
    let mut host = Host::new(Config { ordering: true, max_attempts: 2, ..Config::default() });
    let mut seen = Vec::new();
    let first = Message { delay_ms: 50, dedupe_id: Some(b"d"), ordering_key: Some(b"k"), ..message("a") };
    let mut lease = None;
    for step in 0..16 {
        let observed = match step {
            0 => format!("{:?}", host.send(&[first, Message { dedupe_id: None, ..first }])),
            1 => format!("{:?}", host.send(&[first])),
            3 | 5 | 7 | 12 | 14 => {
                let got = host.lease(5, 100);
                lease = got.first().map(|got| got.lease);
                format!("{:?}", got.iter().map(|got| (got.lease.id, got.lease.attempt)).collect::<Vec<_>>())
            }
            4 => format!("{:?}", host.settle(&[(lease.expect("leased"), Outcome::Retry { delay_ms: Some(70), error: "first" })])),
            8 => format!("{:?}", host.settle(&[(lease.expect("leased"), Outcome::Extend { visibility_ms: 900 })])),
            9 => format!("{:?}", host.fire_when_due()),
            10 => format!("{:?}", host.dead()),
            11 => format!("{:?}", host.redrive(&Which::DeadIds(vec![1]))),
            13 | 15 => format!("{:?}", host.ack(lease.expect("leased"))),
            _ => {
                host.now += 100;
                format!("{:?}", host.counts())
            }
        };
        let alarm = host.machine.alarm().map(|at| at - START);
        seen.push(format!("{step} at {}: {observed}, {:?}, alarm {alarm:?}", host.now - START, host.counts()));
        between(&mut host);
    }
    seen
}

#[test]
fn a_restart_between_every_two_steps_of_a_message_changes_nothing() {
    let expected = life(|_| ());
    assert_eq!(life(Host::wake), expected);
    let durable_each_time = |host: &mut Host| {
        host.keep(Effect::Durable);
        host.crash();
    };
    assert_eq!(life(durable_each_time), expected);
    let tells = |step: usize, what: &str| expected[step].contains(what);
    assert!(tells(9, "at 1100") && tells(10, "first") && tells(14, "[(1, 1)]") && tells(15, "(0, 0, 0, 0, 0), alarm Some(310000)"));
}
