//! What a client of one core sees, over real sockets.

mod fixture;
mod multiplexed;
mod slow;
mod stopping;

use std::io::Write;
use std::net::Shutdown;

use self::fixture::{Seen, Served, classes};
use crate::config::Access;
use crate::limits::REQUEST_BODY_BYTES_MAX;

#[test]
fn requests_on_one_connection_are_answered_in_turn() {
    let served = Served::start();
    let mut client = served.client();
    for turn in 0..3 {
        let answer = client.post("/c/n/echo", format!("body {turn}").as_bytes());
        assert_eq!((answer.status, answer.body), (200, format!("body {turn}").into_bytes()));
    }
    served.await_metric("wasmkeep_http_connections_total{core=\"0\"} 1");
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let served = Served::start();
    let mut client = served.client();
    client.send("POST /c/n/hold HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\n1GET /c/n/big/2 HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(served.request().1.path, "/hold");
    served.release.add_permits(1);
    assert_eq!(client.answer().body, b"1");
    assert_eq!(client.answer().body, b"xx");
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let served = Served::start();
    let mut client = served.client();
    client.send("GET /c/n/big/2 HTTP/1.1\r\nhost: h\r\n\r\nGET /c/n/big/3 HTT");
    assert_eq!(client.answer().body, b"xx");
    client.send("P/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(client.answer().body, b"xxx");
}

#[test]
fn a_request_that_arrives_byte_by_byte_is_one_request() {
    let served = Served::start();
    let mut client = served.client();
    for byte in b"PUT /c/n/p HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab" {
        client.send([*byte]);
    }
    assert_eq!(client.answer().body, b"ab");
}

#[test]
fn a_chunked_body_reaches_the_actor_whole() {
    let served = Served::start();
    let mut client = served.client();
    client.send("POST /c/n/echo HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n");
    for chunk in ["5\r\nhello\r\n", "1;x=y\r\n \r\n", "5\r\nworld\r\n", "0\r\nx-trailer: 1\r\n\r\n"] {
        client.send(chunk);
    }
    assert_eq!(client.answer().body, b"hello world");
    let (_, request) = served.request();
    assert_eq!(request.body, "hello world");
    assert!(request.headers.iter().all(|(name, _)| name != "transfer-encoding" && name != "x-trailer"));
}

#[test]
fn what_belongs_to_the_host_or_the_connection_does_not_reach_the_guest() {
    let served = Served::start();
    let mut client = served.client();
    client.send(
        "GET /c/n/p?q=1 HTTP/1.1\r\nHost: shop.example\r\nX-WasmKeep-Caller: admin/root\r\nx-wasmkeep-anything: 1\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-Kept: a\r\nX-Kept: b\r\nCookie: \u{e9}\r\n\r\n",
    );
    client.answer();
    let (address, request) = served.request();
    assert_eq!((address.to_string().as_str(), request.method.as_str(), request.path.as_str()), ("c/n", "GET", "/p?q=1"));
    let headers: Vec<(&str, &[u8])> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let kept: [(&str, &[u8]); 4] = [("host", b"shop.example"), ("x-kept", b"a"), ("x-kept", b"b"), ("cookie", "\u{e9}".as_bytes())];
    assert_eq!(headers, kept);
}

#[test]
fn encoded_names_are_decoded_once_and_paths_stay_as_they_are() {
    let served = Served::start();
    let mut client = served.client();
    for (target, name, path) in [
        ("/c/a%2Fb/x%2Fy?z=%20", "a/b", "/x%2Fy?z=%20"),
        ("/c/../in/secret", "..", "/in/secret"),
        ("/c/%2e%2e", "..", "/"),
        ("/c/%E2%82%AC", "€", "/"),
        ("http://elsewhere/c/n/x", "n", "/x"),
    ] {
        assert_eq!(client.get(target).status, 200, "{target}");
        let (address, request) = served.request();
        assert_eq!((&*address.class, &*address.name, request.path.as_str()), ("c", name, path), "{target}");
    }
    for target in ["/c/%00", "/c/%FF", "/c/%zz", "/c", "/", "/C/n", "/c%2Fn"] {
        assert_eq!(client.get(target).problem(), "bad-address", "{target}");
    }
    assert!(served.seen.try_recv().is_err(), "a bad address reached an actor");
}

#[test]
fn an_unknown_class_is_a_problem_and_leaves_no_series_behind() {
    let served = Served::start();
    let mut client = served.client();
    for number in 0..50 {
        let answer = client.get(&format!("/c{number}/n"));
        assert_eq!((answer.status, answer.problem().as_str()), (404, "unknown-class"));
    }
    let page = served.metrics.render();
    assert!(!page.contains("c17"), "{page}");
    assert!(page.contains("wasmkeep_http_problems_total{type=\"unknown-class\"} 50"), "{page}");
}

#[test]
fn an_internal_class_answers_nobody_outside_until_a_reload_makes_it_public() {
    let served = Served::start();
    let mut client = served.client();
    let answer = client.get("/in/n");
    assert_eq!((answer.status, answer.problem().as_str()), (403, "forbidden"));
    assert!(served.seen.try_recv().is_err(), "it reached an actor");
    served.classes.send_replace(classes(Access::Public));
    // The core learns of it in its own time.
    while client.get("/in/n").status != 200 {
        std::thread::yield_now();
    }
}

#[test]
fn problems_of_actors_have_their_status_and_say_when_to_come_back() {
    let served = Served::start();
    let mut client = served.client();
    let full = client.get("/c/n/full");
    assert_eq!((full.status, full.problem().as_str(), full.header("retry-after")), (503, "mailbox-full", Some("1")));
    let trap = client.get("/c/n/trap");
    assert_eq!((trap.status, trap.problem().as_str(), trap.header("retry-after")), (500, "trap", None));
}

#[test]
fn an_answer_that_is_not_http_is_a_trap_and_lies_about_length_are_dropped() {
    let served = Served::start();
    let mut client = served.client();
    for path in ["/c/n/bad-header", "/c/n/bad-value", "/c/n/status/101", "/c/n/status/99", "/c/n/status/600"] {
        assert_eq!(client.get(path).problem(), "trap", "{path}");
    }
    let answer = client.get("/c/n/headers");
    assert_eq!((answer.header("content-length"), answer.body.as_slice()), (Some("4"), b"body".as_slice()));
    assert_eq!(answer.all("set-cookie"), ["a", "b"]);
    assert_eq!(answer.header("transfer-encoding"), None);
    for status in [204, 304] {
        let answer = client.get(&format!("/c/n/status/{status}"));
        assert_eq!((answer.status, answer.body.len()), (status, 0));
    }
    assert_eq!(client.get("/c/n/status/599").body, b"body");
}

#[test]
fn head_is_answered_with_the_length_and_without_the_body() {
    let served = Served::start();
    let mut client = served.client();
    for (path, status, length) in [("/c/n/big/1000", 200, "1000"), ("/c/n/length-only", 200, "42"), ("/c/n/big/0", 200, "0")] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nhost: h\r\n\r\n"));
        let answer = client.answer_to_head();
        assert_eq!((answer.status, answer.header("content-length")), (status, Some(length)), "{path}");
    }
    client.send("HEAD /nope/n HTTP/1.1\r\nhost: h\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/problem+json")));
    // Had a body followed one of them, this would read it as its head.
    assert_eq!(client.get("/c/n/big/1").body, b"x");
}

#[test]
fn an_announced_body_above_the_limit_is_refused_before_it_is_sent() {
    let served = Served::start();
    let mut client = served.client();
    let length = REQUEST_BODY_BYTES_MAX + 1;
    client.send(format!("POST /c/n HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
    assert!(served.seen.try_recv().is_err(), "it reached an actor");
}

#[test]
fn a_client_that_sends_a_refused_body_all_the_same_can_read_why() {
    let served = Served::start();
    for _ in 0..20 {
        let mut client = served.client();
        let length = REQUEST_BODY_BYTES_MAX + REQUEST_BODY_BYTES_MAX / 4;
        client.send(format!("POST /c/n HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n"));
        client.send(vec![0; length]);
        assert_eq!(client.answer().problem(), "too-large");
    }
}

#[test]
fn a_chunked_body_is_refused_once_it_is_above_the_limit_and_accepted_at_it() {
    let served = Served::start();
    let piece = vec![b'z'; 1024 * 1024];
    for (extra, status) in [(&b""[..], 200), (&b"1\r\nz\r\n"[..], 413)] {
        let mut client = served.client();
        client.send("POST /c/n/status/200 HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..REQUEST_BODY_BYTES_MAX / piece.len() {
            client.send(format!("{:x}\r\n", piece.len()));
            client.send(&piece);
            client.send("\r\n");
        }
        client.send(extra);
        client.send("0\r\n\r\n");
        assert_eq!(client.answer().status, status);
    }
    assert_eq!(served.request().1.body.len(), REQUEST_BODY_BYTES_MAX);
    served.await_metric("wasmkeep_http_body_bytes{core=\"0\"} 0");
}

#[test]
fn a_head_above_its_limit_is_refused() {
    let served = Served::start();
    let mut client = served.client();
    client.send(format!("GET /c/n HTTP/1.1\r\nhost: h\r\nx-long: {}\r\n\r\n", "x".repeat(60_000)));
    assert_eq!(client.answer().status, 200);
    let mut client = served.client();
    // The node may close before it has read all of it.
    let _closed = client.stream.write_all(format!("GET /c/n HTTP/1.1\r\nx-long: {}\r\n\r\n", "x".repeat(200_000)).as_bytes());
    assert_eq!(client.answer().status, 431);
}

#[test]
fn garbage_on_the_port_hurts_nobody_else() {
    let served = Served::start();
    let mut neighbour = served.client();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..200 {
        let mut client = served.client();
        let mut bytes: Vec<u8> = (0..random.usize(..600)).map(|_| random.u8(..)).collect();
        match round % 4 {
            0 => bytes.splice(..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").for_each(drop),
            1 => bytes.splice(..0, *b"POST /c/n HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n").for_each(drop),
            2 => bytes.splice(..0, *b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").for_each(drop),
            _ => {}
        }
        let _closed_early = client.stream.write_all(&bytes);
        let _closed_early = client.stream.shutdown(Shutdown::Write);
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(!answer.starts_with("HTTP/1.1 2"), "garbage was answered: {answer}");
        assert_eq!(neighbour.get("/c/n/big/1").body, b"x", "round {round}");
    }
    served.await_metric("wasmkeep_http_connections{core=\"0\"} 1");
}

#[test]
fn a_client_that_goes_away_gives_up_its_wait_and_nothing_else() {
    let served = Served::start();
    let mut leaver = served.client();
    leaver.send("GET /c/n/hold HTTP/1.1\r\nhost: h\r\n\r\n");
    served.request();
    drop(leaver);
    assert!(matches!(served.seen.recv(), Ok(Seen::GivenUp)));
    assert_eq!(served.client().get("/c/n/big/1").body, b"x");
}
