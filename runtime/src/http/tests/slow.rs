//! Clients that are slow or silent: each costs a bounded time and bounded bytes, and hurts nobody else.

use std::io::Write;
use std::rc::Rc;

use super::fixture::{Served, classes};
use crate::config::{Access, AppName};
use crate::http::front::{Front, Hold};
use crate::limits::{
    BODY_BYTES_IN_FLIGHT_MAX, CONNECTIONS_MAX, HEAD_WAIT_MS_MAX, KEEP_ALIVE_MS_MAX, TRANSFER_MS_MAX, TRANSFER_STALL_MS_MAX,
};
use crate::metrics::Metrics;
use wasmkeep_storage::clock::Clock;

#[test]
fn a_head_that_never_ends_is_waited_for_ten_seconds_and_others_are_served() {
    let served = Served::start();
    let mut slow: Vec<_> = (0..50).map(|_| served.client()).collect();
    for client in &mut slow {
        client.send("GET /c/n HTTP/1.1\r\nx-a: ");
    }
    assert_eq!(served.client().get("/c/n/big/1").body, b"x");
    served.settle();
    served.time.advance_ms(HEAD_WAIT_MS_MAX + 1_000);
    for client in slow {
        assert_eq!(client.rest(), b"");
    }
    served.await_metric("wasmkeep_http_connections_expired_total{core=\"0\"} 50");
}

#[test]
fn bytes_that_keep_a_head_growing_do_not_buy_it_time() {
    let served = Served::start();
    let mut client = served.client();
    client.send("GET /c/n HTTP/1.1\r\nx-a: ");
    for _ in 0..=HEAD_WAIT_MS_MAX / 1_000 {
        served.settle();
        served.time.advance_ms(1_000);
        if client.stream.write_all(b"x").is_err() {
            break;
        }
    }
    assert_eq!(client.rest(), b"");
}

#[test]
fn an_idle_connection_is_kept_for_seventy_five_seconds() {
    let served = Served::start();
    let mut client = served.client();
    assert_eq!(client.get("/c/n/big/1").body, b"x");
    served.time.advance_ms(KEEP_ALIVE_MS_MAX - 5_000);
    assert_eq!(client.get("/c/n/big/1").body, b"x");
    served.time.advance_ms(KEEP_ALIVE_MS_MAX + 1_000);
    assert_eq!(client.rest(), b"");
}

#[test]
fn a_body_that_stops_is_waited_for_thirty_seconds() {
    let served = Served::start();
    let mut client = served.client();
    client.send("POST /c/n HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n12345");
    served.await_metric("wasmkeep_http_body_bytes{core=\"0\"} 5");
    served.time.advance_ms(TRANSFER_STALL_MS_MAX + 1_000);
    assert_eq!(client.rest(), b"");
    served.await_metric("wasmkeep_http_body_bytes{core=\"0\"} 0");
    assert!(served.seen.try_recv().is_err(), "half a body reached an actor");
}

#[test]
fn a_body_that_trickles_is_waited_for_five_minutes() {
    let served = Served::start();
    let mut client = served.client();
    client.send("POST /c/n HTTP/1.1\r\nhost: h\r\ncontent-length: 1000\r\n\r\n");
    for turn in 1..=TRANSFER_MS_MAX / 10_000 {
        client.send("x");
        served.await_metric(&format!("wasmkeep_http_body_bytes{{core=\"0\"}} {turn}"));
        served.time.advance_ms(10_000);
    }
    served.time.advance_ms(2_000);
    assert_eq!(client.rest(), b"");
}

#[test]
fn a_reader_that_stops_loses_its_connection_and_gives_its_bytes_back() {
    let served = Served::start();
    let mut client = served.client();
    client.send("GET /c/n/big/33554432 HTTP/1.1\r\nhost: h\r\n\r\n");
    served.request();
    served.await_metric("wasmkeep_http_body_bytes{core=\"0\"} 33554432");
    assert_eq!(served.client().get("/c/n/big/1").body, b"x");
    served.time.advance_ms(TRANSFER_STALL_MS_MAX + 1_000);
    served.await_metric("wasmkeep_http_body_bytes{core=\"0\"} 0");
    assert!(client.rest().len() < 33_554_432);
}

#[test]
fn an_event_may_take_its_time_while_its_client_is_silent() {
    let served = Served::start();
    let mut client = served.client();
    client.send("GET /c/n/hold HTTP/1.1\r\nhost: h\r\n\r\n");
    served.request();
    let mut idle = served.client();
    assert_eq!(idle.get("/c/n/big/1").body, b"x");
    served.time.advance_ms(10 * TRANSFER_MS_MAX);
    assert_eq!(idle.rest(), b"");
    served.release.add_permits(1);
    assert_eq!(client.answer().status, 200);
}

fn front() -> Rc<Front> {
    Front::new(classes(Access::Public), Metrics::new(AppName::default()).core(0), Clock::manual().0)
}

#[test]
fn bodies_of_a_core_share_one_bound_and_give_back_what_they_held() {
    let front = front();
    let mut first = Hold::new(&front).expect("empty");
    first.grow(BODY_BYTES_IN_FLIGHT_MAX - 1).expect("fits");
    let mut second = Hold::new(&front).expect("one byte is left");
    second.grow(1).expect("fits");
    assert_eq!(second.grow(1).expect_err("full").slug(), "unavailable");
    // An answer that exists is sent, and counts against those that come after it.
    second.replace(100);
    assert!(Hold::new(&front).is_err());
    drop(second);
    drop(first);
    Hold::new(&front).expect("empty again").grow(BODY_BYTES_IN_FLIGHT_MAX).expect("all of it");
}

#[test]
fn a_core_takes_a_bounded_number_of_connections() {
    let front = front();
    let mut entries: Vec<_> = (0..CONNECTIONS_MAX).map(|_| front.enter().expect("a place")).collect();
    assert!(front.enter().is_none());
    entries.pop();
    assert!(front.enter().is_some());
    drop(entries);
    assert!(front.is_empty());
}
