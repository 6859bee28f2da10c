//! The service door on a whole node: native key-value for programs that are no actors.

mod common;

use std::time::Duration;

use common::disk::TestDisk;
use common::door::DoorClient;
use common::{TestNode, until};
use serde_json::{Value, json};
use wasmkeep::config::{NativeConfig, NodeConfig};
use wasmkeep_classes::kv::client;
use wasmkeep_classes::kv::protocol::{Expect, Options, Outcome, Write};
use wasmkeep_classes::kv::{Shards, shard_of};

const SHARDS: u32 = 4;

fn start(disk: Option<&TestDisk>, cores: usize, change: impl FnOnce(&mut NodeConfig)) -> TestNode {
    TestNode::start_on(disk, cores, |config| {
        config.classes.retain(|class| &*class.name == "test");
        config.api = Some(([127, 0, 0, 1], 0).into());
        config.natives = vec![NativeConfig::kv("settings", SHARDS)];
        change(config);
    })
}

fn door(node: &TestNode) -> DoorClient {
    DoorClient::connect(node.api())
}

/// A key of each shard.
fn keys() -> Vec<String> {
    let of = |shard: u32| (0..).map(|n: u32| format!("key-{n}")).find(|key| shard_of(key.as_bytes(), SHARDS) == shard);
    (0..SHARDS).map(|shard| of(shard).expect("one of a few")).collect()
}

#[test]
fn what_is_put_on_any_shard_is_got_from_any_core_and_deleted() {
    for cores in [1, 2] {
        let node = start(None, cores, |_| {});
        // Connections are dealt to the cores in turn.
        for _ in 0..cores {
            let mut client = door(&node);
            for key in keys() {
                let target = format!("/kv/settings/{key}");
                let put = client.put(&target, &key);
                let got = client.get(&target);
                assert_eq!((put.status, got.status, &got.body[..]), (204, 200, key.as_bytes()));
                assert_eq!((put.header("etag").is_some(), got.header("etag")), (true, put.header("etag")));
                let head = client.send("HEAD", &target, "", "");
                let length = key.len().to_string();
                assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some(&length[..]), 0));
                assert_eq!(client.send("DELETE", &target, "", "").status, 204);
                assert_eq!(client.get(&target).problem(), (404, "not-found".into()));
                assert_eq!(client.send("HEAD", &target, "", "").status, 404);
            }
        }
    }
}

#[test]
fn one_of_two_writers_that_compare_wins() {
    let node = start(None, 2, |_| {});
    let (mut one, mut other) = (door(&node), door(&node));
    let target = "/kv/settings/a%2Fb%00%ff";
    assert_eq!(one.send("PUT", target, "if-none-match: *\r\n", "1").status, 204);
    let lost = other.send("PUT", target, "if-none-match: *\r\n", "2");
    assert_eq!(lost.problem(), (412, "conflict".into()));
    let condition = format!("if-match: {}\r\n", lost.header("etag").expect("the version"));
    let won = other.send("PUT", target, &condition, "3");
    assert_eq!(won.status, 204);
    let lost = one.send("DELETE", target, &condition, "");
    assert_eq!((lost.problem(), lost.header("etag")), ((412, "conflict".into()), won.header("etag")));
    let known = format!("if-none-match: {}\r\n", won.header("etag").expect("the version"));
    assert_eq!(one.send("GET", target, &known, "").status, 304);
    assert_eq!(one.get(target).body, b"3");
}

#[test]
fn a_time_to_live_ends() {
    let node = start(None, 1, |_| {});
    let mut client = door(&node);
    assert_eq!(client.put("/kv/settings/a?ttl=200", "v").status, 204);
    until("it has ended", || client.get("/kv/settings/a").status == 404);
    assert_eq!(client.put("/kv/settings/a?ttl=1h", "v").status, 204);
    let left: u64 = client.get("/kv/settings/a").header("x-wasmkeep-ttl-ms").expect("it ends").parse().expect("ms");
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
}

#[test]
fn the_largest_value_fits_and_a_larger_one_does_not() {
    let node = start(None, 1, |_| {});
    let mut client = door(&node);
    let most = vec![0xfe; 8 * 1024 * 1024];
    assert_eq!(client.put("/kv/settings/big", &most).status, 204);
    assert_eq!(client.get("/kv/settings/big").body, most);
    assert_eq!(client.put("/kv/settings/big", [&most[..], b"x"].concat()).problem(), (413, "too-large".into()));
    assert_eq!(door(&node).put("/kv/settings/big", vec![0; 16 * 1024 * 1024 + 1]).problem(), (413, "too-large".into()));
    assert_eq!(door(&node).get("/kv/settings/big").body, most);
}

#[test]
fn many_keys_and_listings_span_shards_and_cores() {
    for cores in [1, 2] {
        let node = start(None, cores, |_| {});
        let mut client = door(&node);
        let names: Vec<String> = (0..40).map(|n| format!("n-{n:02}")).collect();
        let writes: Vec<Value> = names.iter().map(|key| json!({ "do": "put", "key": key, "value": key })).collect();
        let written = client.post_json("/kv/settings?op=once", &json!({ "write": writes })).json();
        assert!((0..40).all(|n| written["results"][n]["version"].is_i64()), "{written}");
        assert_eq!(client.post_json("/kv/settings?op=once", &json!({ "write": writes })).json(), written);
        let page = client.get("/kv/settings?prefix=n-&limit=30&values").json();
        let listed: Vec<_> = page["rows"].as_array().expect("a list").iter().map(|row| row["value"].as_str()).collect();
        assert_eq!((listed, &page["more"]), (names[..30].iter().map(|name| Some(name.as_str())).collect(), &json!(true)));
        assert_eq!(client.get("/kv/settings?after=n-29").json()["rows"].as_array().map(Vec::len), Some(10));
        let keys: Vec<Value> = names.iter().rev().map(|key| json!({ "key": key })).collect();
        let found = client.post_json("/kv/settings", &json!({ "get": keys })).json();
        assert_eq!((&found["found"][0]["value"], &found["found"][39]["value"]), (&json!("n-39"), &json!("n-00")));
        let frames = "content-type: application/octet-stream\r\n";
        let put = Write::Put { key: b"\xff", value: b"\xff", expect: Expect::Any, ttl_ms: None };
        let call = client::write_many(Shards::new(1).expect("is valid"), &[put], true, Options::new()).expect("is valid");
        let answer = client.send("POST", "/kv/settings?frames=write-many", frames, &call.body);
        let outcomes = client::written_many(answer.status, &answer.body).expect("frames");
        assert!(outcomes.len() == 1 && outcomes.iter().all(Outcome::is_done));
        assert_eq!(client.get("/kv/settings?prefix=%ff").json()["rows"][0]["key_base64"], "/w==");
        assert_eq!(client.post("/kv/settings/visits?increment=2", "").json()["value"], 2);
    }
}

#[test]
fn a_put_is_answered_when_it_is_durable_a_local_one_at_once_and_what_was_answered_is_kept() {
    let disk = TestDisk::sim();
    let mut node = start(Some(&disk), 1, |_| {});
    let key = &keys()[0];
    let target = format!("/kv/settings/{key}");
    let mut client = door(&node);
    assert_eq!(client.put(&target, "durable").status, 204);
    disk.pause();
    let mut waiting = door(&node);
    waiting.start("PUT", &target, "", "on its way");
    until("it has been done", || node.metric("wasmkeep_events_total{class=\"settings\"") >= 2.0);
    let crashed = disk.crashed(11);
    disk.fail();
    assert_eq!(waiting.answer(false).expect("an answer").problem(), (503, "unknown-outcome".into()));
    node.abort();
    node.disk = Some(crashed);
    node.again();
    // What was not answered may have been kept.
    let kept = door(&node).get(&target).body;
    assert!([&b"durable"[..], b"on its way"].contains(&&kept[..]), "{kept:?}");
    // The first write after a start reserves versions durably; later local ones wait for nothing.
    assert_eq!(door(&node).put(&target, "durable").status, 204);
    let disk = node.disk.clone().expect("it has one");
    disk.pause();
    assert_eq!(door(&node).put(&format!("{target}?local"), "local").status, 204);
    disk.release();
}

#[test]
fn shards_answer_outsiders_403_actors_that_are_not_allowed_too_and_the_operator_always() {
    let node = start(None, 2, |config| {
        config.natives[0].allow = vec!["test".into()];
        config.budgets.drain = Duration::from_secs(5);
    });
    let mut public = DoorClient::connect(node.http());
    assert_eq!(public.post("/settings/shard-0/wasmkeep-kv/v1/get", "").problem(), (403, "forbidden".into()));
    assert_eq!(public.get("/kv/settings/a").problem(), (404, "unknown-class".into()));
    assert_eq!(door(&node).put("/kv/settings/a", "v").problem(), (403, "forbidden".into()));
    let mut operator = DoorClient::connect(node.admin());
    for key in keys() {
        assert_eq!(operator.put(&format!("/kv/settings/{key}"), "v").status, 204);
    }
    assert_eq!(operator.get("/kv/settings").json()["rows"].as_array().map(Vec::len), Some(SHARDS as usize));
}
