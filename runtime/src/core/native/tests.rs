//! One transaction of a queue over a database in memory: what is kept, undone, and what memory is left with.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use wasmkeep_classes::database::DatabaseError;
use wasmkeep_classes::host::Effect;
use wasmkeep_classes::queue::Config;
use wasmkeep_classes::queue::client;
use wasmkeep_classes::queue::protocol::Message;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::sql::{Commit, CommitSink, Connection, ConnectionOptions, EventBudget, Pages};
use wasmkeep_storage::{Lsn, Refused};

use super::batch::{Batch, End, Failed, Item, run};
use super::database::{Tables, database_error};
use super::machine::Machine;
use crate::config::NativeKind;

#[derive(Default)]
struct Sink {
    last: Cell<u64>,
    refuse: Cell<Option<Refused>>,
}

impl CommitSink for Sink {
    fn append(&self, _commit: &Commit<'_>) -> Result<Lsn, Refused> {
        self.refuse.get().map_or(Ok(()), Err)?;
        self.last.set(self.last.get() + 1);
        Ok(Lsn(self.last.get()))
    }
}

struct Fixture {
    sink: Rc<Sink>,
    connection: Connection,
    machine: Machine,
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn open(config: Config, database_bytes_max: u64) -> Fixture {
    let sink: Rc<Sink> = Rc::default();
    let pages = Rc::new(RefCell::new(Pages::new(None, 0)));
    let budget = Rc::new(EventBudget::new(Clock::System, u64::MAX));
    let options = ConnectionOptions { database_bytes_max, guest: true };
    let dynamic: Rc<dyn CommitSink> = Rc::clone(&sink) as Rc<dyn CommitSink>;
    let connection = Connection::open(pages, dynamic, budget, &options).expect("opens");
    let machine = block_on(connection.run(|db| {
        db.begin().map_err(database_error)?;
        let machine = Machine::open(&mut Tables(db), &NativeKind::Queue(config), 1_000)?;
        db.commit(false).map_err(database_error)?;
        Ok::<_, DatabaseError>(machine)
    }));
    Fixture { machine: machine.expect("runs").expect("opens"), sink, connection }
}

impl Fixture {
    fn run(&mut self, now_ms: u64, items: &[Item], may_push: bool) -> Result<Batch, Failed> {
        let Self { connection, machine, .. } = self;
        block_on(connection.run(|db| run(db, machine, now_ms, items, may_push))).expect("nothing else runs")
    }
}

impl Fixture {
    fn depth(&mut self) -> u64 {
        self.machine.queue().expect("it is a queue").gauges().depth
    }
}

fn request(call: client::Call) -> Item {
    Item::Request { path: call.path.into(), body: call.body.into(), caller: "a/b".into() }
}

fn send(body: &[u8]) -> Item {
    request(client::send(&[Message { body, ..Message::default() }]).expect("it is small enough"))
}

fn pushed() -> Config {
    Config { consumer: Some("c/d".into()), ..Config::default() }
}

fn ids(batch: &Batch) -> Vec<Option<u64>> {
    let id = |done: &Result<Option<wasmkeep_classes::host::Reply>, DatabaseError>| {
        let reply = done.as_ref().ok()?.as_ref()?;
        Some(client::sent(reply.status, &reply.body).ok()?[0].id)
    };
    batch.done.iter().map(id).collect()
}

#[test]
fn a_request_without_room_takes_the_transaction_away_and_the_others_work_without_it() {
    let mut queue = open(Config::default(), 512 * 1024);
    let big = vec![7; 1_000_000];
    let failed = queue.run(2_000, &[send(b"a"), send(&big), send(b"b")], true);
    assert!(matches!(failed, Err(Failed::Item(DatabaseError::Full))));
    assert_eq!(queue.depth(), 0);
    let batch = queue.run(2_000, &[send(b"a"), send(b"b")], true).unwrap_or_else(|_| panic!("there is room"));
    assert_eq!((ids(&batch), batch.effect), (vec![Some(1), Some(2)], Effect::Durable));
    assert_eq!(queue.connection.positions().gate, Lsn(queue.sink.last.get()));
}

#[test]
fn a_commit_that_is_refused_leaves_memory_as_it_was() {
    let mut queue = open(pushed(), 1 << 30);
    queue.sink.refuse.set(Some(Refused::Full));
    assert!(matches!(queue.run(2_000, &[send(b"a")], true), Err(Failed::Commit(DatabaseError::Full))));
    assert_eq!((queue.depth(), queue.machine.alarm()), (0, None));
    queue.sink.refuse.set(None);
    let batch = queue.run(2_000, &[send(b"b")], true).unwrap_or_else(|_| panic!("there is room"));
    assert_eq!((ids(&batch), batch.deliveries.len()), (vec![Some(1)], 1));
}

#[test]
fn a_transaction_that_vanished_is_told_apart_and_leaves_memory_as_it_was() {
    let mut queue = open(Config::default(), 1 << 30);
    queue.connection.budget().abort();
    let failed = queue.run(2_000, &[send(b"a")], true);
    assert!(matches!(failed, Err(Failed::Item(_) | Failed::Commit(DatabaseError::Deadline))));
    queue.connection.budget().reset(u64::MAX);
    let batch = queue.run(2_000, &[send(b"b")], true).unwrap_or_else(|_| panic!("it works again"));
    assert_eq!((ids(&batch), queue.depth()), (vec![Some(1)], 1));
}

#[test]
fn what_is_due_leaves_in_the_transaction_that_made_it_due_unless_the_node_stops() {
    let mut queue = open(pushed(), 1 << 30);
    let batch = queue.run(2_000, &[send(b"a")], false).unwrap_or_else(|_| panic!("it works"));
    assert_eq!((batch.deliveries.len(), queue.machine.alarm()), (0, Some(2_000)));
    let batch = queue.run(2_001, &[Item::Alarm, send(b"b")], true).unwrap_or_else(|_| panic!("it works"));
    assert_eq!((batch.deliveries.len(), batch.deliveries[0].number), (1, 1));
    // One may be out, so nothing is due.
    assert_eq!(queue.machine.alarm(), None);
    // It never ran: its messages come again, and the attempt does not count.
    let ended = [Item::Ended { number: 1, end: End::NeverRan }];
    let batch = queue.run(2_002, &ended, true).unwrap_or_else(|_| panic!("it works"));
    assert_eq!((batch.deliveries.len(), queue.machine.alarm()), (0, Some(3_002)));
    let batch = queue.run(3_002, &[Item::Alarm], true).unwrap_or_else(|_| panic!("it works"));
    let leased = wasmkeep_classes::queue::decode_delivery(&batch.deliveries[0].body).expect("reads");
    assert_eq!(leased.iter().map(|leased| leased.lease.attempt).collect::<Vec<_>>(), [1, 1]);
    // An answer that means nothing is a failure like any other: both rest.
    let ended = [Item::Ended { number: 2, end: End::Answer(Bytes::from_static(b"?")) }];
    let batch = queue.run(3_003, &ended, true).unwrap_or_else(|_| panic!("it works"));
    assert_eq!((batch.deliveries.len(), queue.machine.alarm()), (0, Some(4_003)));
}
