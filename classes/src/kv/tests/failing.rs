//! A database that fails at any statement: the request comes back as an error, and the host takes back that request alone.

use super::*;
use crate::database::{Database, Param, Row};
use crate::kv::Phase;
use crate::kv::protocol::Moving;

/// Fails at its n-th statement.
struct Failing<'a> {
    memory: &'a mut Memory,
    left: u32,
}

impl Failing<'_> {
    fn count(&mut self) -> Result<(), DatabaseError> {
        self.left = self.left.checked_sub(1).ok_or(DatabaseError::Full)?;
        Ok(())
    }
}

impl Database for Failing<'_> {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        self.count()?;
        self.memory.execute(sql, params)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        self.count()?;
        self.memory.query(sql, params, each)
    }
}

fn contents(host: &Host) -> Vec<i64> {
    ["kv", "kv_meta", "kv_facts", "kv_operations"]
        .map(|table| host.number(&format!("SELECT count(*) FROM wasmkeep_{table}")))
        .into_iter()
        .chain([host.number("SELECT seq FROM wasmkeep_kv_meta"), host.number("SELECT coalesce(sum(version), 0) FROM wasmkeep_kv")])
        .collect()
}

/// Lets the request fail at every statement, then succeed. Returns how many statements it took.
fn fail_everywhere(host: &mut Host, mut run: impl FnMut(&mut Machine, &mut dyn Database) -> Result<(), DatabaseError>) -> u32 {
    for statements in 0..100 {
        host.sql("BEGIN; SAVEPOINT one");
        let (state, before) = (host.machine.state(), contents(host));
        let result = run(&mut host.machine, &mut Failing { memory: &mut host.memory, left: statements });
        if result.is_ok() {
            host.sql("RELEASE one; COMMIT");
            return statements;
        }
        assert_eq!(result, Err(DatabaseError::Full));
        host.sql("ROLLBACK TO one; RELEASE one; COMMIT");
        host.machine.restore(state);
        assert_eq!((host.machine.state(), contents(host)), (state, before));
    }
    panic!("it never succeeds");
}

#[test]
fn a_statement_that_fails_fails_its_request_alone() {
    let writes = [
        Write::Put { key: b"a", value: b"1", expect: Expect::Absent, ttl_ms: Some(100) },
        Write::Increment { key: b"b", delta: 1 },
        Write::Delete { key: b"none", expect: Expect::Version(1) },
    ];
    let row = Moving { key: b"m", value: b"v", version: 9_000, expires_at_ms: None };
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let calls = [
        (client::write_many(shards(), &writes, false, Options::new().operation(b"op")), 11),
        (client::write_many(shards(), &writes, true, Options::new()), 3),
        (client::write(shards(), &writes[0], Options::new()), 2),
        (client::get_many(shards(), &keys), 2),
        (client::list(shards(), &List { prefix: b"", after: None, limit: 5, values: true }), 1),
        (client::import(&[row], true), 2),
        (client::export(None), 1),
        (client::set_layout(Phase::Moved(2), shards()), 3),
        (client::prune(9, Shards::new(2).expect("is valid"), None), 4),
    ];
    let mut host = Host::new();
    for (call, statements) in calls {
        let call = call.expect("is valid");
        let now = host.now;
        let took = fail_everywhere(&mut host, |machine, db| {
            let request = Request { path: call.path, body: &call.body, caller: "_operator/cli" };
            machine.handle(db, now, request).map(|reply| assert_ne!(reply.status, 400))
        });
        assert!(took >= statements, "{} took {took}", call.path);
    }
}

#[test]
fn an_alarm_that_fails_sweeps_nothing_and_comes_again() {
    let mut host = Host::with(Config { operation_window_ms: 50, ..Config::default() });
    host.write(&Write::Put { key: b"a", value: b"", expect: Expect::Any, ttl_ms: Some(50) }, Options::new().operation(b"op"));
    host.now += 20_000;
    let (now, alarm) = (host.now, host.machine.alarm());
    let took = fail_everywhere(&mut host, |machine, db| {
        assert_eq!(machine.alarm(), alarm);
        machine.on_alarm(db, now).map(|swept| assert_eq!((swept.rows, swept.operations), (1, 1)))
    });
    assert!(took >= 5);
    assert_eq!((host.machine.alarm(), host.rows()), (None, 0));
}
