//! The service door on a whole node: queues for programs that are no actors, who may come in, and how it ends.

mod common;

use std::time::Duration;

use common::disk::TestDisk;
use common::door::DoorClient;
use common::{TestNode, until};
use serde_json::json;
use wasmkeep::config::{ApiToken, NativeConfig, NodeConfig, Secret};
use wasmkeep_classes::queue::client as queue;
use wasmkeep_classes::queue::protocol::{Message, Outcome, Settled, Settlement};
use wasmkeep_classes::queue::{Config, decode_delivery};
use wasmkeep_storage::Address;

const FRAMES: &str = "content-type: application/vnd.wasmkeep.frames\r\n";

fn start(disk: Option<&TestDisk>, cores: usize, change: impl FnOnce(&mut NodeConfig)) -> TestNode {
    TestNode::start_on(disk, cores, |config| {
        config.classes.retain(|class| &*class.name == "test");
        config.api = Some(([127, 0, 0, 1], 0).into());
        config.natives = vec![NativeConfig::queue("mail", Config { ordering: true, ..Config::default() })];
        change(config);
    })
}

fn door(node: &TestNode) -> DoorClient {
    DoorClient::connect(node.api())
}

fn token(name: &str, token: &str) -> ApiToken {
    ApiToken { name: name.into(), token: Secret(token.into()) }
}

fn name_on(core: usize, cores: usize, class: &str) -> String {
    let core_of = |name: &str| wasmkeep::router::core_of(&Address::new(class, name), cores);
    (0..).map(|n| format!("n{n}")).find(|name| core_of(name) == core).expect("one of a few")
}

#[test]
fn a_message_goes_through_the_door_and_comes_back_on_every_core() {
    for cores in [1, 2] {
        let node = start(None, cores, |_| {});
        // Connections are dealt to the cores in turn: each asks a queue of each core.
        for _ in 0..cores {
            let mut client = door(&node);
            for core in 0..cores {
                let queue = format!("/queues/mail/{}", name_on(core, cores, "mail"));
                let sent = client.post(&queue, [0xff, 0, b'x']);
                assert_eq!((sent.status, sent.json()["duplicate"].as_bool()), (201, Some(false)));
                let leased = client.post(&format!("{queue}/lease?max=1&visibility=10s"), "").json();
                let message = &leased["messages"][0];
                assert_eq!((&message["id"], &message["body_base64"]), (&sent.json()["id"], &json!("/wB4")), "{leased}");
                let body = json!({ "outcomes": [{ "lease": message["lease"], "do": "ack" }] });
                assert_eq!(client.post_json(&format!("{queue}/settle"), &body).json(), json!({ "settled": ["done"] }));
                assert_eq!(client.post_json(&format!("{queue}/settle"), &body).json(), json!({ "settled": ["stale"] }));
                assert_eq!(client.get(&format!("{queue}/stats")).json()["visible"], 0);
            }
        }
    }
}

#[test]
fn a_delay_a_dedupe_id_and_an_ordering_key_are_parameters() {
    let node = start(None, 1, |_| {});
    let mut client = door(&node);
    let first = client.post("/queues/mail/a?dedupe=%00id&key=k", "one").json();
    let second = client.post("/queues/mail/a?dedupe=%00id&key=k", "one").json();
    assert_eq!((&second["id"], &second["duplicate"]), (&first["id"], &json!(true)));
    assert_eq!(client.post("/queues/mail/a?key=k", "two").status, 201);
    assert_eq!(client.post("/queues/mail/a?delay=1h", "later").status, 201);
    assert_eq!(client.post("/queues/mail/a?delay=3600000", "later").status, 201);
    let leased = client.post("/queues/mail/a/lease?max=10", "").json();
    assert_eq!(leased["messages"].as_array().map(Vec::len), Some(1), "{leased}");
    assert_eq!((&leased["messages"][0]["body"], &leased["messages"][0]["key"]), (&json!("one"), &json!("k")));
    let stats = client.get("/queues/mail/a/stats").json();
    assert_eq!((&stats["delayed"], &stats["blocked"], &stats["leased"]), (&json!(2), &json!(1), &json!(1)), "{stats}");
}

#[test]
fn batches_are_sent_as_json_and_as_frames_and_frames_come_back_to_who_sends_or_accepts_them() {
    let node = start(None, 1, |_| {});
    let mut client = door(&node);
    let body = json!({ "messages": [{ "body": "a", "key": "k" }, { "body_base64": "/w==", "delay_ms": 3_600_000 }] });
    let sent = client.post_json("/queues/mail/a/send", &body);
    assert_eq!((sent.status, sent.json()["sent"].as_array().map(Vec::len)), (201, Some(2)));
    let call = queue::send(&[Message { body: b"b", ..Message::default() }]).expect("is valid");
    let sent = client.send("POST", "/queues/mail/a", FRAMES, &call.body);
    assert_eq!((sent.status, sent.header("content-type")), (201, Some("application/vnd.wasmkeep.frames")));
    assert_eq!(queue::sent(200, &sent.body).expect("frames").len(), 1);
    let call = queue::lease(10, 1_000).expect("is valid");
    let leased = client.send("POST", "/queues/mail/a/lease", FRAMES, &call.body).body;
    let leased = decode_delivery(&leased).expect("frames");
    assert_eq!(leased.iter().map(|leased| leased.body).collect::<Vec<_>>(), [b"a", b"b"]);
    let outcomes: Vec<_> = leased.iter().map(|leased| Settlement { lease: leased.lease, outcome: Outcome::Ack }).collect();
    let call = queue::settle(&outcomes).expect("is valid");
    let settled = client.send("POST", "/queues/mail/a/settle", FRAMES, &call.body);
    assert_eq!(queue::settled(settled.status, &settled.body), Ok(vec![Settled::Done, Settled::Done]));
    let stats = client.send("GET", "/queues/mail/a/stats", "accept: application/vnd.wasmkeep.frames\r\n", "");
    assert_eq!(queue::stats_read(stats.status, &stats.body).expect("frames").delayed, 1);
    let refused = client.send("POST", "/queues/mail/a/settle", FRAMES, "garbage");
    assert_eq!(refused.problem(), (400, "bad-request".into()));
}

#[test]
fn what_is_not_handled_is_retried_extended_dead_lettered_redriven_and_purged() {
    let node = start(None, 1, |config| {
        config.natives = vec![NativeConfig::queue("mail", Config { max_attempts: 1, ..Config::default() })];
    });
    let mut client = door(&node);
    for body in ["a", "b"] {
        assert_eq!(client.post("/queues/mail/q", body).status, 201);
    }
    let leased = client.post("/queues/mail/q/lease", "").json();
    let leases: Vec<_> = (0..2).map(|at| leased["messages"][at]["lease"].clone()).collect();
    let extended = client.post_json("/queues/mail/q/extend?visibility=1h", &json!({ "leases": leases })).json();
    assert_eq!(extended, json!({ "settled": ["done", "done"] }));
    let failed: Vec<_> = leases.iter().map(|lease| json!({ "lease": lease, "do": "retry", "error": "no" })).collect();
    let settled = client.post_json("/queues/mail/q/settle", &json!({ "outcomes": failed })).json();
    assert_eq!(settled, json!({ "settled": ["dead", "dead"] }));
    let page = client.get("/queues/mail/q/dead?limit=1").json();
    let letter = &page["letters"][0];
    assert_eq!((&page["more"], &letter["body"], &letter["reason"]), (&json!(true), &json!("a"), &json!("no")), "{page}");
    let redriven = client.post_json("/queues/mail/q/redrive", &json!({ "dead_ids": [letter["id"]] })).json();
    assert_eq!(redriven, json!({ "count": 1, "next": null }));
    assert_eq!(client.post("/queues/mail/q/pause", "").status, 204);
    assert_eq!(client.post("/queues/mail/q/lease", "").json(), json!({ "messages": [] }));
    assert_eq!(client.get("/queues/mail/q/stats").json()["paused"], true);
    assert_eq!(client.post("/queues/mail/q/resume", "").status, 204);
    assert_eq!(client.post("/queues/mail/q/redrive", "").json()["count"], 1);
    assert_eq!(client.post_json("/queues/mail/q/purge", &json!({ "live": true })).json()["count"], 2);
    assert_eq!(client.get("/queues/mail/q/dead").json(), json!({ "letters": [], "more": false }));
}

#[test]
fn what_makes_no_sense_is_refused_in_words_that_say_what_would() {
    let node = start(None, 1, |_| {});
    let mut client = door(&node);
    let mut refused = |method: &str, target: &str, headers: &str, body: &str| {
        let answer = client.send(method, target, headers, body);
        let (status, kind) = answer.problem();
        (status, kind, answer.json()["detail"].as_str().expect("words").to_owned())
    };
    let json = "content-type: application/json\r\n";
    for (method, target, headers, body, status, kind, words) in [
        ("POST", "/queues/mail/a?dely=1", "", "", 400, "bad-request", "did you mean \"delay\"?"),
        ("POST", "/queues/mail/a?delay=1&delay=2", "", "", 400, "bad-request", "twice"),
        ("POST", "/queues/mail/a?delay=soon", "", "", 400, "bad-request", "7d, or a number of ms"),
        ("POST", "/queues/mail/a?delay=400d", "", "", 400, "bad-request", "at most"),
        ("POST", "/queues/mail/a?key=%zz", "", "", 400, "bad-request", "two hexadecimal digits"),
        ("POST", "/queues/mail/a?dedupe=", "", "", 400, "bad-request", "1 to 128 bytes"),
        ("POST", "/queues/mail/a/lease?max=0", "", "", 400, "bad-request", "at least 1"),
        ("POST", "/queues/mail/a/lease?visibility=13h", "", "", 400, "bad-request", "43200000"),
        ("POST", "/queues/mail/a/lease", "", "{}", 400, "bad-request", "takes no body"),
        ("POST", "/queues/mail/a/settle", "", "{}", 400, "bad-request", "application/json"),
        ("POST", "/queues/mail/a/settle", json, "{}", 400, "bad-request", "outcomes"),
        (
            "POST",
            "/queues/mail/a/settle",
            json,
            "{\"outcomes\":[{\"lease\":\"x\",\"do\":\"ack\"}]}",
            400,
            "bad-request",
            "no lease",
        ),
        ("POST", "/queues/mail/a/redrive", json, "{\"live\":true}", 400, "bad-request", "dead letters"),
        ("POST", "/queues/mail/a/purge", json, "{\"all\":true}", 400, "bad-request", "dead_ids"),
        ("PUT", "/queues/mail/a", "", "", 405, "method-not-allowed", "POST"),
        ("POST", "/queues/mail/a/stats", "", "", 405, "method-not-allowed", "GET"),
        ("POST", "/queues/mail/a/export", "", "", 404, "not-found", "redrive"),
        ("POST", "/queues/mail", "", "", 400, "bad-address", "missing"),
        ("POST", "/queues/nails/a", "", "", 404, "unknown-class", "nails"),
        ("POST", "/queues/test/a", "", "", 404, "unknown-class", "test"),
        ("GET", "/kv/mail/a", "", "", 404, "unknown-class", "mail"),
        ("GET", "/mail/a", "", "", 404, "not-found", "/kv/"),
    ] {
        let (found, type_, detail) = refused(method, target, headers, body);
        assert_eq!((found, type_.as_str()), (status, kind), "{method} {target}: {detail}");
        assert!(detail.contains(words), "{method} {target}: {detail}");
    }
    assert_eq!(client.post("/queues/mail/a", vec![b'x'; 1024 * 1024]).status, 201);
    assert_eq!(client.post("/queues/mail/a", vec![b'x'; 1024 * 1024 + 1]).problem(), (413, "too-large".into()));
    assert_eq!(door(&node).post("/queues/mail/a", vec![b'x'; 16 * 1024 * 1024 + 1]).problem(), (413, "too-large".into()));
    let many: Vec<_> = (0..1_001).map(|_| json!({ "body": "" })).collect();
    let answer = door(&node).post_json("/queues/mail/a/send", &json!({ "messages": many }));
    assert_eq!(answer.problem(), (413, "too-large".into()));
}

#[test]
fn without_tokens_only_programs_of_this_machine_come_in_and_no_pages_of_its_browsers() {
    let node = start(None, 1, |_| {});
    let mut client = door(&node);
    for host in ["localhost", "127.0.0.1:8081", "[::1]:8081", "LOCALHOST:1"] {
        assert_eq!(client.send("POST", "/queues/mail/a", &format!("host: {host}\r\n"), "m").status, 201, "{host}");
    }
    for target in ["/queues/mail/a", "/queues/unknown/a"] {
        let answer = client.send("POST", target, "host: evil.example\r\n", "m");
        assert_eq!((answer.problem(), answer.header("www-authenticate")), ((401, "unauthorized".into()), Some("Bearer")));
    }
    assert_eq!(client.send("POST", "http://evil.example/queues/mail/a", "", "m").status, 401);
    let page = client.send("POST", "/queues/mail/a", "origin: http://localhost:3000\r\n", "m");
    assert_eq!(page.problem(), (403, "forbidden".into()));
}

#[test]
fn with_tokens_nobody_comes_in_without_one_and_its_name_is_who_calls() {
    let node = start(None, 1, |config| {
        config.api_tokens =
            Some(vec![token("shop", "0123456789abcdef"), token("shop", "rotated-0123456789"), token("other", "fedcba9876543210")]);
        config.natives[0].allow = vec!["_api/shop".into(), "test".into()];
    });
    let mut client = door(&node);
    let mut ask = |authorization: &str| {
        let line = if authorization.is_empty() { String::new() } else { format!("authorization: {authorization}\r\n") };
        let answer = client.send("POST", "/queues/mail/a", &line, "m");
        (answer.status, answer.header("www-authenticate").is_some())
    };
    for right in ["Bearer 0123456789abcdef", "bearer  rotated-0123456789"] {
        assert_eq!(ask(right), (201, false), "{right}");
    }
    let wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer 0123456789abcdeg",
        "Bearer 0123456789abcde",
        "Bearer 0123456789abcdef0",
        "Basic 0123456789abcdef",
    ];
    for wrong in wrong {
        assert_eq!(ask(wrong), (401, true), "{wrong}");
    }
    // A token of somebody whom the class does not allow.
    assert_eq!(ask("Bearer fedcba9876543210"), (403, false));
}

#[test]
fn the_operator_has_the_same_door_whatever_a_class_allows_and_outsiders_have_none() {
    let node = start(None, 2, |config| config.natives[0].allow = vec!["test".into()]);
    assert_eq!(door(&node).post("/queues/mail/a", "m").problem(), (403, "forbidden".into()));
    let mut admin = DoorClient::connect(node.admin());
    for core in 0..2 {
        let queue = format!("/queues/mail/{}", name_on(core, 2, "mail"));
        assert_eq!(admin.post(&queue, "m").status, 201);
        assert_eq!(admin.post(&format!("{queue}/lease"), "").json()["messages"][0]["body"], "m");
    }
    assert_eq!(admin.post("/queues/nails/a", "m").problem(), (404, "unknown-class".into()));
    assert_eq!(admin.send("POST", "/queues/mail/a", "host: evil.example\r\n", "m").status, 401);
    assert_eq!(admin.send("POST", "/queues/mail/a", "origin: http://x\r\n", "m").problem(), (403, "forbidden".into()));
    let mut public = DoorClient::connect(node.http());
    assert_eq!(public.post("/mail/a/wasmkeep-queue/v1/send", "").problem(), (403, "forbidden".into()));
    assert_eq!(public.post("/queues/mail/a", "").problem(), (404, "unknown-class".into()));
}

#[test]
fn a_send_is_answered_when_it_is_durable_and_what_was_answered_survives_a_crash() {
    let disk = TestDisk::sim();
    let mut node = start(Some(&disk), 1, |_| {});
    assert_eq!(door(&node).post("/queues/mail/a", "first").status, 201);
    disk.pause();
    let mut waiting = door(&node);
    waiting.start("POST", "/queues/mail/a", "", "second");
    until("it has been done", || node.metric("wasmkeep_events_total{class=\"mail\"") >= 2.0);
    let crashed = disk.crashed(5);
    disk.fail();
    assert_eq!(waiting.answer(false).expect("an answer").problem(), (503, "unknown-outcome".into()));
    node.abort();
    node.disk = Some(crashed);
    node.again();
    let leased = door(&node).post("/queues/mail/a/lease", "").json();
    assert_eq!(leased["messages"][0]["body"], "first", "{leased}");
}

#[test]
fn a_node_that_stops_finishes_what_it_took_and_then_closes_the_door() {
    let disk = TestDisk::sim();
    let mut node = start(Some(&disk), 1, |config| config.budgets.drain = Duration::from_secs(20));
    let mut client = door(&node);
    assert_eq!(client.post("/queues/mail/a", "first").status, 201);
    let mut idle = door(&node);
    assert_eq!(idle.get("/queues/mail/a/stats").status, 200);
    disk.pause();
    client.start("POST", "/queues/mail/a", "", "second");
    until("it has been done", || node.metric("wasmkeep_events_total{class=\"mail\"") >= 3.0);
    let stopping = node.stop_later();
    assert!(idle.answer(false).is_err(), "an idle connection is closed");
    disk.release();
    let answer = client.answer(false).expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (201, Some("close")));
    stopping.join().expect("no panic");
}
