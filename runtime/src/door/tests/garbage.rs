//! Whatever comes in, something sensible comes out.

use http::StatusCode;
use wasmkeep_classes::queue::client;
use wasmkeep_classes::queue::protocol::{Lease, Message, Outcome, Settlement, Which};

use super::super::queue::What;
use super::Door;

/// What targets are put together from.
const PIECES: &str = "/kv/ /queues/ kv mail / a ? & = % %2F %00 %ff .. ttl delay limit op local increment frames get-many write-many \
    after prefix values max visibility lease settle send extend purge redrive pause stats dead 1 -1 99999999999999999999 30s + é";
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"];
const KINDS: [&str; 5] =
    ["application/json", "application/octet-stream", "application/vnd.wasmkeep.frames", "text/plain; q=\"", ""];
const TAGS: [&str; 6] = ["*", "\"1\"", "W/\"1\"", "\"", "\"x\",,", "\"99999999999999999999\""];
const BODIES: [&[u8]; 6] = [b"", b"{}", b"{\"get\":[{\"key\":\"a\"}]}", b"{\"outcomes\":[]}", &[0; 40], &[0xff; 9]];

#[test]
fn requests_are_sent_where_the_clients_of_the_class_send_them() {
    let lease = Lease { id: 1, attempt: 1, epoch: 1 };
    let settle = [Settlement { lease, outcome: Outcome::Ack }];
    let paths = [
        (What::SendMany, client::send(&[Message::default()])),
        (What::Lease { max: 1, visibility_ms: 1 }, client::lease(1, 1)),
        (What::Settle, client::settle(&settle)),
        (What::Extend { visibility_ms: 1 }, client::settle(&settle)),
        (What::Pause, Ok(client::pause())),
        (What::Resume, Ok(client::resume())),
        (What::Redrive, client::redrive(&Which::DeadOlderThan { age_ms: 0 })),
        (What::Purge, client::purge(&Which::Live)),
        (What::Stats, Ok(client::stats())),
        (What::Dead { after: 0, limit: 1 }, client::dead_letters(0, 1)),
    ];
    for (what, call) in paths {
        assert_eq!(what.path(), call.expect("is valid").path);
    }
}

#[test]
fn garbage_is_refused_or_answered_and_nothing_panics() {
    let door = Door::new(3);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces: Vec<&str> = PIECES.split_whitespace().collect();
    let mut done = 0;
    for _ in 0..20_000 {
        let first = if random.bool() { "/kv/kv/" } else { "/queues/mail/" };
        let rest: String = (0..random.usize(..8)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        let mut headers = vec![("content-type", KINDS[random.usize(..KINDS.len())])];
        match random.u8(..4) {
            0 => headers.push(("if-match", TAGS[random.usize(..TAGS.len())])),
            1 => headers.push(("if-none-match", TAGS[random.usize(..TAGS.len())])),
            _ => {}
        }
        let random_body: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..4)).collect();
        let body = if random.bool() { BODIES[random.usize(..BODIES.len())] } else { &random_body };
        match door.ask(METHODS[random.usize(..METHODS.len())], &format!("{first}{rest}"), &headers, body) {
            Ok(_) => done += 1,
            Err(refusal) => {
                let answer = refusal.to_http();
                assert!(answer.status() != StatusCode::INTERNAL_SERVER_ERROR && answer.status() != StatusCode::OK, "{refusal:?}");
                let body: serde_json::Value = serde_json::from_slice(answer.body()).expect("JSON");
                assert!(body["type"].as_str().is_some_and(|kind| !kind.is_empty()));
            }
        }
    }
    assert!(done > 100, "{done}");
}
