//! Sends: what is stored, when it is due, what is remembered of it.

use super::*;
use crate::limits::{QUEUE_BATCH_MAX, QUEUE_DELAY_MS_MAX, QUEUE_MESSAGE_BYTES_MAX, QUEUE_SWEEP_LINGER_MS};
use crate::queue::protocol::Invalid;
use crate::queue::sql;

fn dedupe(body: &'static str, id: &'static str, delay_ms: u64) -> Message<'static> {
    Message { body: body.as_bytes(), dedupe_id: Some(id.as_bytes()), delay_ms, ..Message::default() }
}

#[test]
fn the_tables_are_those_of_the_decision() {
    let host = Host::new(Config::default());
    let ddl = |table: &str| {
        let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1";
        let text: String = host.memory.connection.query_row(sql, [table], |row| row.get(0)).expect("there is one");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let queue = "CREATE TABLE wasmkeep_queue (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, \
                 enqueued_at INTEGER NOT NULL, visible_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT)";
    let dead = "CREATE TABLE wasmkeep_queue_dead (id INTEGER PRIMARY KEY, body BLOB NOT NULL, enqueued_at INTEGER NOT NULL, \
                attempts INTEGER NOT NULL, failed_at INTEGER NOT NULL, reason TEXT NOT NULL)";
    assert_eq!((ddl("wasmkeep_queue").as_str(), ddl("wasmkeep_queue_dead").as_str()), (queue, dead));
}

#[test]
fn a_batch_is_stored_whole_and_leased_in_its_order() {
    let mut host = Host::new(Config::default());
    let bodies: Vec<String> = (0..QUEUE_BATCH_MAX).map(|n| n.to_string()).collect();
    let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
    let sent = host.send(&messages);
    assert_eq!(sent.iter().map(|sent| sent.id).collect::<Vec<_>>(), (1..=1_000).collect::<Vec<_>>());
    host.crash();
    let got = host.lease(1_000, 1_000);
    assert_eq!(
        got.iter().map(|got| got.body.clone()).collect::<Vec<_>>(),
        bodies.iter().map(|b| b.clone().into_bytes()).collect::<Vec<_>>()
    );
}

#[test]
fn a_batch_with_one_bad_message_stores_none() {
    let mut host = Host::new(Config::default());
    let keyed = Message { ordering_key: Some(b"k"), ..message("b") };
    let call = client::send(&[message("a"), keyed]).expect("valid");
    let reply = host.call(&call);
    assert_eq!((reply.status, reply.effect), (400, Effect::Read));
    assert_eq!(client::sent(400, &reply.body), Err(client::Error::Refused(Invalid::NoOrdering.to_string())));
    assert_eq!((host.counts(), host.send_all(&["c"])), ((0, 0, 0, 0, 0), vec![1]));
}

#[test]
fn limits_are_refused_by_name_on_both_sides() {
    let large = vec![0; QUEUE_MESSAGE_BYTES_MAX + 1];
    let refused = |message: Message<'_>| client::send(&[message]).expect_err("refused");
    assert_eq!(refused(Message { body: &large, ..Message::default() }), Invalid::MessageBytes(large.len()));
    assert_eq!(refused(Message { delay_ms: u64::MAX, ..Message::default() }), Invalid::Delay(u64::MAX));
    assert_eq!(refused(Message { dedupe_id: Some(b""), ..Message::default() }), Invalid::DedupeId(0));
    assert_eq!(refused(Message { ordering_key: Some(&[0; 129]), ..Message::default() }), Invalid::OrderingKey(129));
    assert_eq!(client::send(&vec![Message::default(); 1_001]).expect_err("refused"), Invalid::Batch(1_001));
    let megabyte = &large[1..];
    let seventeen = vec![Message { body: megabyte, ..Message::default() }; 17];
    assert!(matches!(client::send(&seventeen), Err(Invalid::RequestBytes(_))));
    for (max, visibility, invalid) in [(0, 1, Invalid::Limit(0)), (1_001, 1, Invalid::Limit(1_001)), (1, 0, Invalid::Visibility(0))]
    {
        assert_eq!(client::lease(max, visibility), Err(invalid));
    }
    let lease = Lease { id: 1, attempt: 1, epoch: 1 };
    assert_eq!(client::retry(lease, Some(QUEUE_DELAY_MS_MAX + 1), ""), Err(Invalid::Delay(QUEUE_DELAY_MS_MAX + 1)));
    assert_eq!(client::extend(lease, 43_200_001), Err(Invalid::Visibility(43_200_001)));

    let mut host = Host::new(Config::default());
    let mut request = client::send(&[Message { body: megabyte, ..Message::default() }]).expect("valid");
    request.body.push(0);
    let length = request.body.len() - 1 - megabyte.len() - 4;
    request.body[length..length + 4].copy_from_slice(&u32::try_from(large.len()).expect("fits").to_le_bytes());
    assert_eq!(
        (host.call(&request).status, host.handle("wasmkeep-queue/v1/send", &vec![0; 16 * 1024 * 1024 + 1]).status),
        (413, 413)
    );
    assert_eq!((host.handle("wasmkeep-queue/v2/send", b"").status, host.handle("wasmkeep-queue/v1/nope", b"").status), (400, 404));
    assert_eq!(host.handle("/wasmkeep-queue/v1/stats", b"").status, 200);
}

#[test]
fn ids_are_never_reused() {
    let mut host = Host::new(Config::default());
    assert_eq!(host.send_all(&["a", "b"]), [1, 2]);
    let got = host.lease(10, 1_000);
    assert_eq!(host.settle(&[(got[0].lease, Outcome::Ack), (got[1].lease, Outcome::Ack)]), [Settled::Done; 2]);
    host.wake();
    assert_eq!(host.send_all(&["c"]), [3]);
    host.purge(&Which::Live);
    host.crash();
    assert_eq!(host.send_all(&["d"]), [4]);
}

#[test]
fn a_request_that_is_rolled_back_leaves_nothing_in_memory_either() {
    let mut host = Host::new(Config { ordering: true, ..pushed() });
    let messages = [Message { ordering_key: Some(b"k"), delay_ms: 5, ..message("a") }, dedupe("b", "d", 0)];
    host.undone(&client::send(&messages).expect("valid"));
    assert_eq!((host.machine.alarm(), host.counts()), (None, (0, 0, 0, 0, 0)));
    assert_eq!(host.send(&messages).iter().map(|sent| (sent.id, sent.is_duplicate)).collect::<Vec<_>>(), [(1, false), (2, false)]);
    host.undone(&client::lease(10, 1_000).expect("valid"));
    host.undone(&client::pause());
    host.undone(&client::purge(&Which::Live).expect("valid"));
    assert_eq!((host.counts(), host.stats().counters.leased, host.stats().is_paused), ((1, 1, 0, 0, 0), 0, false));
}

#[test]
fn a_thousand_delayed_messages_fire_on_time_without_further_sends_and_across_a_restart() {
    let mut host = Host::new(Config { batch: 1, ..pushed() });
    let delays: Vec<u64> = (0..1_000).map(|n| 2_000 + n * 7_919 % 3_598_000).collect();
    let messages: Vec<_> = delays.iter().map(|delay| Message { delay_ms: *delay, ..message("x") }).collect();
    host.send(&messages);
    let mut expected: Vec<_> = (1_u64..).zip(&delays).map(|(id, delay)| (START + delay, id)).collect();
    expected.sort_unstable();
    for (fired, (due, id)) in expected.into_iter().enumerate() {
        if fired == 500 {
            host.crash();
            // The crash forgot the acks, whose leases it forgot as well.
            assert!(host.counts().0 > 0);
            while host.stats().visible > 0 {
                let again = host.fire().expect("what was acked is delivered again");
                host.answer(again.number, &[(contents(&again)[0].lease, Outcome::Ack)]);
            }
        }
        let delivery = host.fire_when_due().expect("one is due");
        let got = contents(&delivery);
        assert_eq!((host.now, ids(&got)), (due, vec![id]));
        host.answer(delivery.number, &[(got[0].lease, Outcome::Ack)]);
    }
    assert_eq!((host.machine.alarm(), host.counts()), (None, (0, 0, 0, 0, 0)));
}

#[test]
fn the_same_idempotent_delayed_send_twice_is_one_message_with_one_due_time() {
    let mut host = Host::new(Config::default());
    let first = host.send(&[dedupe("a", "d", 60_000)])[0];
    assert_eq!((first.due_at_ms, first.is_duplicate), (START + 60_000, false));
    host.now += 1_000;
    host.crash();
    let again = Sent { is_duplicate: true, ..first };
    assert_eq!(host.send(&[dedupe("a", "d", 60_000), dedupe("a", "d", 7)]), [again; 2]);
    assert_eq!(host.counts(), (0, 1, 0, 0, 0));
    let both = host.send(&[dedupe("x", "e", 0), dedupe("x", "e", 0), dedupe("x", "f", 0)]);
    assert_eq!(both.iter().map(|sent| (sent.id, sent.is_duplicate)).collect::<Vec<_>>(), [(2, false), (2, true), (3, false)]);
}

#[test]
fn a_dedupe_id_outlives_its_message_but_not_its_window_and_is_swept() {
    let mut host = Host::new(Config { dedupe_window_ms: 1_000, ..Config::default() });
    host.send(&[dedupe("a", "d", 0)]);
    let lease = host.lease(1, 10)[0].lease;
    host.ack(lease);
    host.now += 999;
    assert!(host.send(&[dedupe("a", "d", 0)])[0].is_duplicate);
    host.now += 1;
    assert_eq!(host.send(&[dedupe("a", "d", 0)]), [Sent { id: 2, due_at_ms: host.now, is_duplicate: false }]);
    let lease = host.lease(1, 10)[0].lease;
    host.ack(lease);
    // One sweep takes both.
    host.fire_when_due();
    assert_eq!(host.now, START + 1_000 + QUEUE_SWEEP_LINGER_MS);
    assert_eq!((host.machine.alarm(), host.count("SELECT count(*) FROM wasmkeep_queue_dedupe")), (None, 0));
}

#[test]
fn dedupe_ids_are_swept_in_batches() {
    let mut host = Host::new(Config::default());
    let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let messages: Vec<_> = names.iter().map(|name| Message { dedupe_id: Some(name.as_bytes()), ..Message::default() }).collect();
    host.send(&messages);
    host.fire_when_due();
    assert_eq!((host.count("SELECT count(*) FROM wasmkeep_queue_dedupe"), host.machine.alarm()), (500, Some(host.now)));
    host.fire_when_due();
    assert_eq!((host.count("SELECT count(*) FROM wasmkeep_queue_dedupe"), host.machine.alarm()), (0, None));
}

#[test]
fn without_a_window_dedupe_ids_are_refused() {
    let mut host = Host::new(Config { dedupe_window_ms: 0, ..Config::default() });
    let reply = host.call(&client::send(&[dedupe("a", "d", 0)]).expect("valid"));
    assert_eq!((reply.status, String::from_utf8(reply.body).expect("text")), (400, Invalid::NoDedupe.to_string()));
}

#[test]
fn the_oldest_age_is_that_of_the_oldest_message_still_there() {
    let mut host = Host::new(Config::default());
    assert_eq!((host.stats().oldest_age_ms, host.machine.gauges().oldest_enqueued_at_ms), (None, None));
    host.send_all(&["a"]);
    host.now += 1_000;
    host.send_all(&["b"]);
    host.now += 500;
    assert_eq!((host.stats().oldest_age_ms, host.machine.gauges().oldest_enqueued_at_ms), (Some(1_500), Some(START)));
    let lease = host.lease(1, 1_000)[0].lease;
    host.ack(lease);
    assert_eq!((host.stats().oldest_age_ms, host.machine.gauges().depth), (Some(500), 1));
}

#[test]
fn what_waits_in_a_config_out_of_range_is_said() {
    let wrong = [
        Config { batch: 0, ..Config::default() },
        Config { visibility_ms: 0, ..Config::default() },
        Config { max_attempts: 0, ..Config::default() },
        Config { dedupe_window_ms: u64::MAX, ..Config::default() },
        Config { concurrency: 65, ..Config::default() },
    ];
    for config in wrong {
        assert!(config.check().expect_err("out of range").to_string().contains("must be from"));
        assert!(Machine::open(&mut Memory::new(), config, START).is_err());
    }
    assert_eq!(Config::default().check(), Ok(()));
    assert_eq!(sql::TABLES.len(), 12);
}
