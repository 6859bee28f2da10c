//! One key at a time.

use wasmkeep_classes::kv::{Phase, shard_of};

use super::{Door, encoded, etag, kind};
use crate::event::Problem;

#[test]
fn what_is_put_is_got_with_its_version_and_deleted_once() {
    let door = Door::new(4);
    assert_eq!(kind(&door.get("/kv/kv/a")), (404, "not-found".into()));
    let put = door.put("/kv/kv/a", b"one").expect("puts");
    assert_eq!((put.status().as_u16(), put.body().is_empty()), (204, true));
    let got = door.get("/kv/kv/a").expect("is there");
    assert_eq!((got.status().as_u16(), &got.body()[..], etag(&got)), (200, &b"one"[..], etag(&put)));
    assert!(got.headers().get("x-wasmkeep-ttl-ms").is_none());
    assert_eq!(door.ask("DELETE", "/kv/kv/a", &[], b"").expect("deletes").status(), 204);
    assert_eq!(kind(&door.ask("DELETE", "/kv/kv/a", &[], b"")), (404, "not-found".into()));
}

#[test]
fn conditions_compare_versions_and_a_failed_one_names_the_current() {
    let door = Door::new(4);
    let absent = [("if-none-match", "*")];
    let first = door.ask("PUT", "/kv/kv/a", &absent, b"1").expect("was absent");
    let refused = door.ask("PUT", "/kv/kv/a", &absent, b"2");
    assert_eq!(kind(&refused), (412, "conflict".into()));
    assert_eq!(etag(&refused.expect_err("is refused").to_http()), etag(&first));
    let matching = [("if-match", etag(&first))];
    let second = door.ask("PUT", "/kv/kv/a", &matching, b"2").expect("matches");
    for method in ["PUT", "DELETE"] {
        let answer = door.ask(method, "/kv/kv/a", &matching, b"").expect_err("is stale").to_http();
        assert_eq!((answer.status().as_u16(), etag(&answer)), (412, etag(&second)));
    }
    let gone = door.ask("PUT", "/kv/kv/b", &matching, b"").expect_err("is absent").to_http();
    assert_eq!((gone.status().as_u16(), gone.headers().get("etag")), (412, None));
    for known in [etag(&second), "*", &format!("\"1\", W/{}", etag(&second))] {
        let answer = door.ask("GET", "/kv/kv/a", &[("if-none-match", known)], b"").expect("is there");
        assert_eq!((answer.status().as_u16(), answer.body().len(), etag(&answer)), (304, 0, etag(&second)), "{known}");
    }
    for unknown in [etag(&first), "\"x\"", ""] {
        assert_eq!(door.ask("GET", "/kv/kv/a", &[("if-none-match", unknown)], b"").expect("is there").status(), 200, "{unknown}");
    }
    assert_eq!(door.ask("DELETE", "/kv/kv/a", &[("if-match", etag(&second))], b"").expect("matches").status(), 204);
}

#[test]
fn a_time_to_live_ends_and_is_told_until_then() {
    let door = Door::new(2);
    for (target, ms) in [("/kv/kv/a?ttl=30s", 30_000), ("/kv/kv/b?ttl=1500&local", 1_500)] {
        door.put(target, b"v").expect("puts");
        let key = &target[..8];
        assert_eq!(door.get(key).expect("is there").headers()["x-wasmkeep-ttl-ms"], ms.to_string());
    }
    door.machines.pass(1_500);
    assert_eq!(kind(&door.get("/kv/kv/b")), (404, "not-found".into()));
    assert_eq!(door.get("/kv/kv/a").expect("is there").headers()["x-wasmkeep-ttl-ms"], "28500");
    door.put("/kv/kv/a", b"w").expect("puts");
    assert!(door.get("/kv/kv/a").expect("is there").headers().get("x-wasmkeep-ttl-ms").is_none());
}

#[test]
fn numbers_are_added_to_and_an_operation_id_is_done_once() {
    let door = Door::new(2);
    let add = |target: &str| door.ask("POST", target, &[], b"");
    assert_eq!(&add("/kv/kv/n?increment=5").expect("adds").body()[..9], b"{\"value\":");
    for _ in 0..2 {
        assert!(add("/kv/kv/n?increment=-2&op=%00id").expect("adds").body().starts_with(b"{\"value\":3,"));
    }
    assert_eq!(kind(&add("/kv/kv/n?increment=1&op=%00id")), (422, "operation-reused".into()));
    assert_eq!(door.get("/kv/kv/n").expect("is there").body(), "3");
    assert_eq!(kind(&add(&format!("/kv/kv/n?increment={}", i64::MAX))), (422, "overflow".into()));
    door.put("/kv/kv/n", b"x").expect("puts");
    assert_eq!(kind(&add("/kv/kv/n?increment=1")), (422, "not-a-number".into()));
}

#[test]
fn any_bytes_are_a_key_and_a_value() {
    let door = Door::new(5);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut keys: Vec<Vec<u8>> =
        vec![b"/".to_vec(), b"..".to_vec(), b"a/b?c".to_vec(), vec![0], vec![0xff; 2_048], b"%2F".to_vec()];
    keys.extend((0..200).map(|_| (0..random.usize(1..40)).map(|_| random.u8(..)).collect()));
    for key in &keys {
        let value: Vec<u8> = (0..random.usize(..100)).map(|_| random.u8(..)).collect();
        let target = format!("/kv/kv/{}", encoded(key));
        door.put(&target, &value).expect("puts");
        assert_eq!(door.get(&target).expect("is there").body(), &value, "{key:?}");
        let after = format!("?prefix={}&limit=1", encoded(key));
        let listed = &door.list(&after)["rows"][0];
        match std::str::from_utf8(key) {
            Ok(text) => assert_eq!(listed["key"], text),
            Err(_) => assert!(listed["key"].is_null() && listed["key_base64"].is_string(), "{listed}"),
        }
    }
}

#[test]
fn a_value_may_have_eight_mebibytes_and_no_more() {
    let door = Door::new(1);
    let most = vec![7; 8 * 1024 * 1024];
    door.put("/kv/kv/big", &most).expect("puts");
    assert_eq!(door.get("/kv/kv/big").expect("is there").body(), &most);
    assert_eq!(kind(&door.put("/kv/kv/big", &[&most[..], b"x"].concat())), (413, "too-large".into()));
}

#[test]
fn what_makes_no_sense_is_refused_in_words_that_say_what_would() {
    let door = Door::new(2);
    let long = "k".repeat(2_049);
    for (method, target, header, status, words) in [
        ("PUT", "/kv/kv/a?tll=1", ("", ""), 400, "did you mean \"ttl\"?"),
        ("PUT", "/kv/kv/a?ttl=0", ("", ""), 400, "must be from 1"),
        ("PUT", "/kv/kv/a?ttl=", ("", ""), 400, "or a number of ms"),
        ("PUT", "/kv/kv/a?ttl=99999999999999999999", ("", ""), 400, "too long"),
        ("PUT", "/kv/kv/a?local=yes", ("", ""), 400, "true or false"),
        ("PUT", "/kv/kv/a?op=", ("", ""), 400, "operation id"),
        ("PUT", "/kv/kv/a", ("if-match", "7"), 400, "in its quotes"),
        ("PUT", "/kv/kv/a", ("if-match", "*"), 400, "in its quotes"),
        ("PUT", "/kv/kv/a", ("if-match", "\"0\""), 400, "a version of 0"),
        ("PUT", "/kv/kv/a", ("if-none-match", "\"7\""), 400, "must be absent"),
        ("GET", "/kv/kv/a", ("if-match", "\"7\""), 400, "PUT and DELETE"),
        ("DELETE", "/kv/kv/a", ("if-none-match", "*"), 400, "GET and PUT"),
        ("GET", "/kv/kv/a?local", ("", ""), 400, "valid: none"),
        ("GET", "/kv/kv/a/b", ("", ""), 400, "%2F"),
        ("GET", "/kv/kv/", ("", ""), 400, "/kv/{class}/{key}"),
        ("GET", "/kv/kv/%", ("", ""), 400, "%25"),
        ("GET", &format!("/kv/kv/{long}"), ("", ""), 400, "2048"),
        ("POST", "/kv/kv/a", ("", ""), 400, "?increment=1"),
        ("POST", "/kv/kv/a?increment=1.5", ("", ""), 400, "whole number"),
        ("PATCH", "/kv/kv/a", ("", ""), 405, "PUT"),
        ("PUT", "/kv/kv", ("", ""), 405, "POST"),
        ("GET", "/kv/kv?limit=0", ("", ""), 400, "from 1 to 1000"),
        ("GET", "/kv/kv?after=", ("", ""), 400, "a key of 0 bytes"),
        ("GET", "/kv/vk/a", ("", ""), 404, "vk"),
        ("GET", "/kv/mail/a", ("", ""), 404, "mail"),
        ("GET", "/kv/K%C3/a", ("", ""), 400, "a class is"),
        ("GET", "/kvs/kv/a", ("", ""), 404, "/kv/{class}"),
    ] {
        let headers = if header.0.is_empty() { &[][..] } else { &[header][..] };
        let answer = door.ask(method, target, headers, b"").expect_err(target).to_http();
        let body = String::from_utf8_lossy(answer.body()).into_owned();
        assert_eq!(answer.status().as_u16(), status, "{method} {target}: {body}");
        assert!(body.replace("\\\"", "\"").contains(words), "{method} {target}: {body}");
    }
    assert_eq!(door.machines.seen(), [""; 0], "it reached an actor");
}

#[test]
fn a_class_that_has_another_number_of_shards_is_asked_again_and_remembered() {
    let door = Door::new(2);
    for shard in 0..2 {
        door.machines.set(shard, Phase::Moved(3), 2);
    }
    for shard in 0..3 {
        if shard == 2 {
            door.machines.set(shard, Phase::Open, 3);
        }
    }
    // A key whose old shard is not its new one, which is new.
    let key = (0..).map(|n: u32| n.to_string()).find(|key| shard_of(key.as_bytes(), 3) == 2).expect("one of a few");
    let target = format!("/kv/kv/{key}");
    door.put(&target, b"v").expect("puts");
    assert_eq!(door.machines.seen().len(), 2);
    assert_eq!(door.get(&target).expect("is there").body(), "v");
    assert_eq!(door.machines.seen().len(), 1);
}

#[test]
fn a_class_on_the_move_is_read_and_asks_writers_to_come_back() {
    let door = Door::new(1);
    door.put("/kv/kv/a", b"v").expect("puts");
    door.machines.set(0, Phase::Moving(2), 1);
    assert_eq!(door.get("/kv/kv/a").expect("is there").body(), "v");
    let refused = door.put("/kv/kv/a", b"w").expect_err("moves").to_http();
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    assert!(String::from_utf8_lossy(refused.body()).contains("\"unavailable\""));
}

#[test]
fn what_the_node_says_instead_of_a_shard_is_passed_on() {
    let door = Door::new(1);
    for (problem, status) in [(Problem::MailboxFull, 503), (Problem::UnknownOutcome, 503), (Problem::StorageFull, 507)] {
        door.machines.fail(0, problem.clone());
        assert_eq!(kind(&door.put("/kv/kv/a", b"v")), (status, problem.slug().into()));
    }
}

#[test]
fn only_what_is_for_everybody_is_ever_asked_of_a_shard() {
    let door = Door::new(1);
    for operation in ["layout", "set-layout", "export", "import", "prune", "count", "wasmkeep-kv%2Fv1%2Fexport"] {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            for target in [format!("/kv/kv/{operation}"), format!("/kv/kv?{operation}"), format!("/kv/kv?frames={operation}")] {
                let _whatever = door.ask(method, &target, &[("content-type", "application/octet-stream")], b"");
            }
        }
    }
    let everybodys = ["get", "get-many", "put", "delete", "increment", "write-many", "list"];
    let seen = door.machines.seen();
    let is_everybodys = |path: &String| path.strip_prefix("wasmkeep-kv/v1/").is_some_and(|name| everybodys.contains(&name));
    assert!(!seen.is_empty() && seen.iter().all(is_everybodys), "{seen:?}");
}
