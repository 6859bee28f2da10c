//! Many keys at once, and listings.

use serde_json::{Value, json};
use wasmkeep_classes::kv::client;
use wasmkeep_classes::kv::protocol::{Expect, Options, Outcome, Write};
use wasmkeep_classes::kv::{Phase, Shards, shard_of};

use super::{Door, Refusal, kind};
use crate::event::Problem;

const FRAMES: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

fn fill(door: &Door, count: usize) -> Vec<String> {
    let keys: Vec<String> = (0..count).map(|n| format!("key-{n:03}")).collect();
    for key in &keys {
        door.put(&format!("/kv/kv/{key}"), key.as_bytes()).expect("puts");
    }
    keys
}

fn texts(list: &Value) -> Vec<&str> {
    list["rows"].as_array().expect("a list").iter().map(|row| row["key"].as_str().expect("a text")).collect()
}

#[test]
fn a_listing_is_in_byte_order_over_all_shards_and_goes_on_behind_a_key() {
    for shards in [1, 2, 7, 64] {
        let door = Door::new(shards);
        let keys = fill(&door, 50);
        door.put("/kv/kv/other", b"").expect("puts");
        let mut got = Vec::new();
        loop {
            let after = got.last().map(|key| format!("&after={key}")).unwrap_or_default();
            let page = door.list(&format!("?prefix=key-&limit=7{after}"));
            got.extend(texts(&page).into_iter().map(str::to_owned));
            if page["more"] == false {
                break;
            }
        }
        assert_eq!(got, keys);
        let row = door.list("?prefix=key-049&values")["rows"][0].clone();
        assert_eq!(row["value"], "key-049");
        assert!(door.list("?prefix=key-049")["rows"][0]["value"].is_null());
    }
}

#[test]
fn a_listing_that_is_too_large_says_so() {
    let door = Door::new(2);
    for n in 0..9 {
        door.put(&format!("/kv/kv/{n}"), &vec![0; 8 * 1024 * 1024]).expect("puts");
    }
    assert_eq!(kind(&door.get("/kv/kv?values")), (413, "too-large".into()));
    assert_eq!(door.list("?values&limit=2")["rows"].as_array().map(Vec::len), Some(2));
    let keys: Vec<_> = (0..9).map(|n| json!({ "key": n.to_string() })).collect();
    let refused = door.json("/kv/kv", &json!({ "get": keys }));
    assert!(matches!(refused, Err(Refusal::Problem(Problem::TooLarge(_)))), "{refused:?}");
    let some = door.json("/kv/kv", &json!({ "get": keys[..3] })).expect("fits");
    assert_eq!(some["found"].as_array().map(Vec::len), Some(3));
}

#[test]
fn many_keys_are_written_and_read_in_the_order_given() {
    let door = Door::new(4);
    door.put("/kv/kv/text", b"x").expect("puts");
    let writes = json!({ "write": [
        { "do": "put", "key": "a", "value": "1" },
        { "do": "increment", "key": "n", "by": 7 },
        { "do": "put", "key_base64": "/w==", "value_base64": "/w==", "ttl_ms": 5_000 },
        { "do": "delete", "key": "nothing" },
        { "do": "put", "key": "text", "value": "y", "if_absent": true },
        { "do": "increment", "key": "text", "by": 1 },
        { "do": "put", "key": "text", "value": "y", "if_version": 1 },
    ] });
    let results = door.json("/kv/kv?op=id", &writes).expect("writes")["results"].clone();
    assert!(results[0]["version"].is_i64() && results[2]["version"].is_i64(), "{results}");
    assert_eq!((&results[1]["value"], &results[3]), (&json!(7), &json!({ "deleted": false })), "{results}");
    assert_eq!((&results[4]["error"], &results[5]["error"]), (&json!("conflict"), &json!("not-a-number")), "{results}");
    assert!(results[6]["version"].is_i64(), "{results}");
    assert_eq!(door.json("/kv/kv?op=id", &writes).expect("was done")["results"], results);
    let keys = json!({ "get": [{ "key": "n" }, { "key": "nothing" }, { "key_base64": "/w==" }, { "key": "text" }] });
    let found = door.json("/kv/kv", &keys).expect("reads")["found"].clone();
    assert_eq!((&found[0]["value"], &found[1], &found[2]["value_base64"]), (&json!("7"), &Value::Null, &json!("/w==")));
    assert_eq!((&found[2]["ttl_ms"], &found[3]["value"]), (&json!(5_000), &json!("y")));
}

#[test]
fn frames_are_split_by_shard_and_answered_in_order() {
    let door = Door::new(3);
    let shards = Shards::new(1).expect("is valid");
    let keys: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n, 0xff]).collect();
    let put = |key| Write::Put { key, value: key, expect: Expect::Absent, ttl_ms: None };
    let writes: Vec<_> = keys.iter().map(|key| put(&key[..])).collect();
    let call = client::write_many(shards, &writes, false, Options::new()).expect("is valid");
    let answer = door.ask("POST", "/kv/kv?frames=write-many", &FRAMES, &call.body).expect("writes");
    let outcomes = client::written_many(200, answer.body()).expect("frames");
    assert!(outcomes.len() == 100 && outcomes.iter().all(Outcome::is_done));
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).chain([&b"nothing"[..]]).collect();
    let call = client::get_many(shards, &asked).expect("is valid");
    let answer = door.ask("POST", "/kv/kv?frames=get-many", &FRAMES, &call.body).expect("reads");
    let found = client::got_many(200, answer.body(), 101).expect("frames");
    let values: Vec<_> = found.iter().map(|found| found.map(|found| found.value)).collect();
    let expected: Vec<_> = keys.iter().map(|key| Some(&key[..])).chain([None]).collect();
    assert_eq!(values, expected);
    let json = [FRAMES[0], ("accept", "application/json")];
    let answer = door.ask("POST", "/kv/kv?frames=get-many", &json, &call.body).expect("reads");
    assert_eq!(answer.headers()["content-type"], "application/json");
}

#[test]
fn values_that_do_not_fit_one_reply_are_asked_for_again() {
    let door = Door::new(1);
    for n in 0..5 {
        door.put(&format!("/kv/kv/{n}"), &vec![b'0' + n; 3 * 1024 * 1024]).expect("puts");
    }
    door.machines.seen();
    let keys: Vec<_> = (0..5).map(|n| json!({ "key": n.to_string() })).collect();
    let found = door.json("/kv/kv", &json!({ "get": keys })).expect("reads")["found"].clone();
    for n in 0..5 {
        assert!(found[n]["value"].as_str().is_some_and(|value| value.starts_with(&n.to_string())));
    }
    assert!(door.machines.seen().len() > 1);
}

#[test]
fn an_atomic_call_is_of_one_shard_and_does_all_or_nothing() {
    let door = Door::new(2);
    let on = |shard: u32| (0..).map(|n: u32| n.to_string()).filter(move |key| shard_of(key.as_bytes(), 2) == shard);
    let (here, there): (Vec<_>, Vec<_>) = (on(0).take(2).collect(), on(1).take(1).collect());
    let put = |key: &str| json!({ "do": "put", "key": key, "value": "v", "if_absent": true });
    let atomic = |keys: &[&String]| {
        let writes: Vec<_> = keys.iter().map(|key| put(key)).collect();
        json!({ "write": writes, "atomic": true })
    };
    let apart = door.json("/kv/kv", &atomic(&[&here[0], &there[0]]));
    assert!(matches!(&apart, Err(Refusal::BadRequest(words)) if words.contains("of one shard")), "{apart:?}");
    door.put(&format!("/kv/kv/{}", here[1]), b"old").expect("puts");
    let body = atomic(&[&here[0], &here[1]]).to_string();
    let answer = door.ask("POST", "/kv/kv", &[("content-type", "application/json")], body.as_bytes()).expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (409, &"application/problem+json".parse().expect("valid"))
    );
    let problem: Value = serde_json::from_slice(answer.body()).expect("JSON");
    assert_eq!((&problem["type"], &problem["results"][0]["error"]), (&json!("conflict"), &json!("not-applied")), "{problem}");
    assert_eq!(door.list("")["rows"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_shard_that_fails_among_many_makes_the_outcome_unknown_only_if_others_wrote() {
    let door = Door::new(2);
    let keys: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let writes: Vec<_> = keys.iter().map(|key| json!({ "do": "put", "key": key, "value": "" })).collect();
    let both = json!({ "write": writes });
    door.machines.fail(1, Problem::MailboxFull);
    assert_eq!(door.json("/kv/kv", &both), Err(Problem::UnknownOutcome.into()));
    door.machines.fail(0, Problem::MailboxFull);
    door.machines.fail(1, Problem::MailboxFull);
    assert_eq!(door.json("/kv/kv", &both), Err(Problem::MailboxFull.into()));
    assert_eq!(door.json("/kv/kv", &both).expect("writes")["results"].as_array().map(Vec::len), Some(20));
}

#[test]
fn batches_and_listings_follow_a_class_to_its_new_number_of_shards() {
    let door = Door::new(2);
    for shard in 0..2 {
        door.machines.set(shard, Phase::Open, 3);
    }
    let keys: Vec<_> = (0..30).map(|n| json!({ "do": "put", "key": n.to_string(), "value": "v" })).collect();
    let results = door.json("/kv/kv", &json!({ "write": keys })).expect("writes")["results"].clone();
    assert!((0..30).all(|n| results[n]["version"].is_i64()), "{results}");
    assert_eq!(texts(&door.list("")).len(), 30);
    let again = Door { book: super::shards::book(2), machines: door.machines.clone() };
    assert_eq!(texts(&again.list("")).len(), 30);
    let again = Door { book: super::shards::book(2), machines: door.machines };
    let found = again.json("/kv/kv", &json!({ "get": [{ "key": "7" }, { "key": "x" }] })).expect("reads");
    assert_eq!(found["found"][0]["value"], "v");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let door = Door::new(2);
    let too_many: Vec<_> = (0..1_001).map(|_| json!({ "key": "a" })).collect();
    for (body, words) in [
        (json!({}), "give a list"),
        (json!({ "get": [], "write": [] }), "give a list"),
        (json!({ "get": [{ "key": "a" }], "atomic": true }), "atomic is for writes"),
        (json!({ "get": [{}] }), "key is missing"),
        (json!({ "get": [{ "key": "a", "key_base64": "" }] }), "give one"),
        (json!({ "get": [{ "key_base64": "?" }] }), "not base64"),
        (json!({ "get": [] }), "from 1 to 1000"),
        (json!({ "write": [{ "do": "put", "key": "a" }] }), "value is missing"),
        (json!({ "write": [{ "do": "put", "key": "a", "value": "", "if_absent": true, "if_version": 1 }] }), "not both"),
        (json!({ "write": [{ "do": "export", "key": "a" }] }), "increment"),
    ] {
        match door.json("/kv/kv", &body) {
            Err(Refusal::BadRequest(found)) => assert!(found.contains(words), "{body}: {found}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    assert!(matches!(door.json("/kv/kv", &json!({ "get": too_many })), Err(Refusal::Problem(Problem::TooLarge(_)))));
    let large = json!({ "write": [{ "do": "put", "key": "a", "value": "x".repeat(2 * 1024 * 1024) }] });
    assert!(matches!(door.json("/kv/kv", &large), Err(Refusal::Problem(Problem::TooLarge(words))) if words.contains("frames")));
    assert_eq!(kind(&door.ask("POST", "/kv/kv", &FRAMES, b"")), (400, "bad-request".into()));
    assert_eq!(kind(&door.ask("POST", "/kv/kv?frames=get-many", &FRAMES, b"x")), (400, "bad-request".into()));
    assert_eq!(kind(&door.ask("POST", "/kv/kv", &[], b"{}")), (400, "bad-request".into()));
    assert_eq!(door.machines.seen(), [""; 0], "it reached an actor");
}
