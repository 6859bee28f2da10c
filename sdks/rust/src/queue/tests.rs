//! The hosted machine against SQLite in memory, and the clients' side against the machine. What is left to a real node is the
//! database behind the bindings.

use super::consumer::{answer_delivery, is_delivery};
use super::{Config, Error, Message, Outcome, Settled, Which, guest};
use crate::actors::{Address, CallError};
use crate::hosted::{self, Node, Values, database_error, is_allowed, values};
use crate::{Request, Response, db};
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, params_from_iter};
use std::time::Duration;
use wasmkeep_classes::database::{Database, DatabaseError, Param, Row};
use wasmkeep_classes::host::Effect;
use wasmkeep_classes::queue::{Machine, client as wire, protocol};

type Consumer = Box<dyn FnMut(&Request) -> Result<Response, CallError>>;

/// A node in memory with one queue.
pub(crate) struct Fake {
    connection: Connection,
    pub(crate) now_ms: u64,
    pub(crate) alarm: Option<u64>,
    commits: Vec<Effect>,
    fails_commit: bool,
    consumer: Consumer,
    calls: u32,
    machine: Option<Machine>,
    config: Config,
}

impl Fake {
    pub(crate) fn new(config: Config) -> Self {
        let mut fake = Self {
            connection: Connection::open_in_memory().unwrap(),
            now_ms: 1_000_000,
            alarm: None,
            commits: Vec::new(),
            fails_commit: false,
            consumer: Box::new(|_| panic!("nothing is to be delivered")),
            calls: 0,
            machine: None,
            config,
        };
        fake.run(|fake, machine, config| hosted::open_only(fake, machine, &config.machine)).unwrap();
        fake
    }

    /// Runs one event, with the machine and the configuration beside the node, as the real host has them.
    fn run<T>(&mut self, event: impl FnOnce(&mut Self, &mut Option<Machine>, &Config) -> T) -> T {
        let (mut machine, config) = (self.machine.take(), self.config.clone());
        let outcome = event(self, &mut machine, &config);
        self.machine = machine;
        outcome
    }

    fn ask(&mut self, call: &wire::Call) -> Response {
        let request = Request::post(format!("/{}", call.path)).with_body(call.body.clone());
        let caller = Address::new("web", "main");
        self.run(|fake, machine, config| hosted::answer(fake, machine, &config.machine, &[], Some(&caller), &request))
    }

    fn send(&mut self, message: Message<'_>) -> protocol::Sent {
        let answer = self.ask(&wire::send(&[message.as_wire()]).unwrap());
        wire::sent(answer.status(), answer.body()).unwrap()[0]
    }

    fn stats(&mut self) -> protocol::Stats {
        let answer = self.ask(&wire::stats());
        wire::stats_read(answer.status(), answer.body()).unwrap()
    }

    fn fire(&mut self) -> Result<(), DatabaseError> {
        self.now_ms = self.now_ms.max(self.alarm.expect("an alarm is set"));
        self.run(guest::on_alarm)
    }

    fn deliver_to(&mut self, consumer: impl FnMut(&Request) -> Result<Response, CallError> + 'static) {
        self.consumer = Box::new(consumer);
    }
}

fn bound(params: &[Param<'_>]) -> Vec<SqlValue> {
    let value = |value| match value {
        db::Value::Null => SqlValue::Null,
        db::Value::Integer(value) => SqlValue::Integer(value),
        db::Value::Real(value) => SqlValue::Real(value),
        db::Value::Text(text) => SqlValue::Text(text),
        db::Value::Blob(bytes) => SqlValue::Blob(bytes),
    };
    values(params).into_iter().map(value).collect()
}

fn found(value: ValueRef<'_>) -> db::Value {
    match value {
        ValueRef::Null => db::Value::Null,
        ValueRef::Integer(value) => db::Value::Integer(value),
        ValueRef::Real(value) => db::Value::Real(value),
        ValueRef::Text(text) => db::Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => db::Value::Blob(bytes.to_vec()),
    }
}

impl Database for Fake {
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, DatabaseError> {
        Ok(self.connection.execute(sql, params_from_iter(bound(params))).unwrap() as u64)
    }

    fn query(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> bool,
    ) -> Result<(), DatabaseError> {
        let mut statement = self.connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(bound(params))).unwrap();
        // All rows, whatever `each` wants: that is how a node answers a guest.
        let mut all = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            all.push((0..columns).map(|column| found(row.get_ref(column).unwrap())).collect::<Vec<_>>());
        }
        let _ = all.iter().try_for_each(|row| each(&Values(row)).then_some(()));
        Ok(())
    }
}

impl Node for Fake {
    fn now_ms(&mut self) -> u64 {
        self.now_ms
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        self.execute("BEGIN", &[]).map(drop)
    }

    fn commit(&mut self, effect: Effect) -> Result<(), DatabaseError> {
        if self.fails_commit {
            return Err(DatabaseError::Full);
        }
        self.commits.push(effect);
        self.execute("COMMIT", &[]).map(drop)
    }

    fn roll_back(&mut self) {
        self.execute("ROLLBACK", &[]).unwrap();
    }

    fn set_alarm(&mut self, at_ms: Option<u64>) {
        self.alarm = at_ms;
    }

    fn call(&mut self, target: &Address, request: &Request, _timeout: Duration) -> Result<Response, CallError> {
        assert!(self.connection.is_autocommit(), "no transaction is open while the consumer works");
        assert_eq!(target.to_string(), "consumer/main");
        self.calls += 1;
        (self.consumer)(request)
    }
}

fn push() -> Config {
    Config::new().consumer("consumer/main").max_attempts(2)
}

fn queue() -> Address {
    Address::new("mail", "welcome")
}

#[test]
fn a_send_is_committed_durably_and_wakes_the_delivery() {
    let mut fake = Fake::new(push());
    assert_eq!(fake.alarm, None, "a queue without messages has no alarm");
    assert_eq!(fake.send(Message::new("hello")).id, 1);
    assert_eq!((fake.commits.last(), fake.alarm), (Some(&Effect::Durable), Some(1_000_000)));
    fake.deliver_to(|request| {
        assert!(is_delivery(request));
        Ok(answer_delivery(request, Some(&queue()), &[], |message| {
            assert_eq!((message.queue(), message.id(), message.attempt(), message.body()), ("mail/welcome", 1, 1, &b"hello"[..]));
            Outcome::Ack
        }))
    });
    fake.fire().unwrap();
    let stats = fake.stats();
    assert_eq!((fake.calls, stats.counters.acked, stats.visible + stats.leased, fake.alarm), (1, 1, 0, None));
}

#[test]
fn a_message_that_keeps_failing_becomes_a_dead_letter_with_its_last_error_and_can_be_redriven() {
    let mut fake = Fake::new(push());
    fake.send(Message::new("poison"));
    fake.deliver_to(|request| Ok(answer_delivery(request, Some(&queue()), &[], |_| Err::<(), _>("no such address"))));
    fake.fire().unwrap();
    assert_eq!(fake.alarm, Some(1_001_000), "again after the first pause");
    fake.fire().unwrap();
    assert_eq!((fake.calls, fake.alarm), (2, None));
    let answer = fake.ask(&wire::dead_letters(0, 10).unwrap());
    let page = wire::dead_letters_read(answer.status(), answer.body()).unwrap();
    assert_eq!((page.letters[0].reason, page.letters[0].attempts), ("no such address", 2));
    let answer = fake.ask(&wire::redrive(&Which::DeadOlderThan { age_ms: 0 }).unwrap());
    assert_eq!(wire::moved(answer.status(), answer.body()).unwrap().count, 1);
    fake.deliver_to(|request| Ok(answer_delivery(request, Some(&queue()), &[], |_| Outcome::Ack)));
    fake.fire().unwrap();
    assert_eq!((fake.stats().dead, fake.stats().counters.acked), (0, 1));
}

#[test]
fn a_consumer_that_fails_or_answers_garbage_gets_the_whole_batch_again() {
    let ends: [(Result<Response, CallError>, &str); 3] = [
        (Ok(Response::new(500).with_body("boom")), "the consumer answered 500: boom"),
        (Ok(Response::text("garbage")), "the consumer's answer was refused"),
        (Err(CallError::Timeout), "calling the consumer: the call ran out of time"),
    ];
    for (end, reason) in ends {
        let mut fake = Fake::new(push().max_attempts(1));
        fake.send(Message::new("one"));
        fake.send(Message::new("two"));
        fake.deliver_to(move |_| end.clone());
        fake.fire().unwrap();
        let answer = fake.ask(&wire::dead_letters(0, 10).unwrap());
        let page = wire::dead_letters_read(answer.status(), answer.body()).unwrap();
        assert_eq!((fake.calls, page.letters.len()), (1, 2), "{reason}");
        assert!(page.letters.iter().all(|letter| letter.reason.starts_with(reason)), "{page:?}");
    }
}

#[test]
fn a_delivery_that_a_stopping_node_did_not_take_is_no_attempt() {
    let mut fake = Fake::new(push().max_attempts(1));
    fake.send(Message::new("one"));
    fake.deliver_to(|_| Err(CallError::Unavailable));
    fake.fire().unwrap();
    assert_eq!((fake.stats().dead, fake.stats().delayed, fake.alarm), (0, 1, Some(1_001_000)));
}

#[test]
fn what_was_not_committed_is_not_remembered() {
    let mut fake = Fake::new(push());
    fake.fails_commit = true;
    let answer = fake.ask(&wire::send(&[Message::new("lost").as_wire()]).unwrap());
    assert_eq!((answer.status(), fake.machine.is_none()), (507, true));
    assert_eq!(wire::sent(answer.status(), answer.body()).map_err(Error::from), Err(Error::Full));
    fake.fails_commit = false;
    assert_eq!((fake.stats().visible, fake.send(Message::new("kept")).id), (0, 1));
}

#[test]
fn a_queue_that_slept_goes_on_where_it_was() {
    let mut fake = Fake::new(push());
    fake.send(Message::new("one").after(Duration::from_secs(60)));
    (fake.machine, fake.alarm) = (None, None);
    assert_eq!((fake.stats().delayed, fake.alarm), (1, Some(1_060_000)), "the first event after the sleep finds the alarm");
}

#[test]
fn pulled_messages_are_settled_once() {
    let mut fake = Fake::new(Config::new());
    fake.send(Message::new("one"));
    assert_eq!(fake.alarm, None, "nobody is to be woken");
    let answer = fake.ask(&wire::lease(10, 30_000).unwrap());
    let lease = wire::leased(answer.status(), answer.body()).unwrap()[0].lease;
    for expected in [Settled::Done, Settled::Stale] {
        let answer = fake.ask(&wire::ack(lease).unwrap());
        assert_eq!(wire::settled(answer.status(), answer.body()), Ok(vec![expected]));
    }
}

#[test]
fn outsiders_and_callers_that_are_not_allowed_are_answered_403() {
    let mut fake = Fake::new(Config::new());
    let request = Request::post("/wasmkeep-queue/v1/stats");
    let mut ask = |caller: Option<Address>, allow: &[&str]| {
        fake.run(|fake, machine, config| hosted::answer(fake, machine, &config.machine, allow, caller.as_ref(), &request)).status()
    };
    let web = || Some(Address::new("web", "main"));
    assert_eq!((ask(None, &[]), ask(web(), &[])), (403, 200));
    assert_eq!((ask(web(), &["orders"]), ask(web(), &["orders", "web"]), ask(web(), &["web/other"])), (403, 200, 403));
    assert!(is_allowed(&Address::new("web", "a/b"), &["web/a/b"]));
}

#[test]
fn a_queue_in_a_component_refuses_more_than_one_delivery_at_once() {
    let refused = Config::new().concurrency(2).check().unwrap_err();
    assert!(refused.contains("concurrency = 2"), "{refused}");
    assert!(Config::new().batch(0).check().unwrap_err().contains("batch"));
    assert_eq!(push().check(), Ok(()));
}

#[test]
fn a_delivery_from_outside_or_from_another_queue_is_refused_and_other_requests_are_left_alone() {
    assert!(!is_delivery(&Request::get("/")) && !is_delivery(&Request::post("/wasmkeep-queue/v1/send")));
    let request = Request::post("/wasmkeep-queue/v1/deliver").with_body([0]);
    let status = |caller: Option<&Address>, allow: &[&str]| answer_delivery(&request, caller, allow, |_| Outcome::Ack).status();
    assert_eq!((status(None, &[]), status(Some(&queue()), &["jobs"]), status(Some(&queue()), &["mail"])), (403, 403, 200));
    let garbage = Request::post("/wasmkeep-queue/v1/deliver").with_body("garbage");
    assert_eq!(answer_delivery(&garbage, Some(&queue()), &[], |_| Outcome::Ack).status(), 400);
}

#[test]
fn errors_say_whether_anything_may_have_been_done() {
    assert_eq!(Error::from(CallError::Busy), Error::NotReached(CallError::Busy));
    assert!(Error::from(CallError::Timeout).is_unknown() && Error::from(CallError::UnknownOutcome).is_unknown());
    assert!(Error::from(wire::Error::Failed { status: 500, words: "trap".into() }).is_unknown());
    assert!(!Error::from(wire::Error::Refused("no".into())).is_unknown());
    assert_eq!(crate::Error::from(Error::from(CallError::Timeout)).kind(), "unknown-outcome");
    assert_eq!(crate::Error::from(Error::from(CallError::Busy)).kind(), "mailbox-full");
    let too_many = vec![Message::new("x").as_wire(); 1_001];
    assert!(matches!(wire::send(&too_many).map_err(Error::from), Err(Error::TooLarge(_))));
}

#[test]
fn a_results_error_becomes_the_reason_of_a_retry() {
    assert_eq!(Outcome::from(Ok::<(), Error>(())), Outcome::Ack);
    assert_eq!(Outcome::from(Err::<(), _>("why")), Outcome::Retry { after: None, error: "why".into() });
    assert_eq!(database_error(db::Error::Full), DatabaseError::Full);
}
