//! What clients see of a node that stops.

use std::net::TcpStream;

use super::fixture::{Seen, Served};
use crate::node::Stop;

const LATER: Stop = Stop::Drain { until_ms: 1_000 };

#[test]
fn a_request_in_flight_is_finished_and_its_connection_closed() {
    let served = Served::start();
    let mut busy = served.client();
    busy.send("POST /c/n/hold HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nok");
    served.request();
    let mut idle = served.client();
    assert_eq!(idle.get("/c/n/big/1").body, b"x");
    served.stop.send_replace(LATER);
    assert_eq!(idle.rest(), b"", "an idle connection is closed");
    served.release.add_permits(1);
    let answer = busy.answer();
    assert_eq!((answer.body.as_slice(), answer.header("connection")), (b"ok".as_slice(), Some("close")));
    assert_eq!(busy.rest(), b"");
    served.join();
}

#[test]
fn a_request_that_comes_too_late_is_told_so() {
    let served = Served::start();
    let mut late = served.client();
    late.send("POST /c/n HTTP/1.1\r\nhost: h\r\n");
    let mut busy = served.client();
    busy.send("GET /c/n/hold HTTP/1.1\r\nhost: h\r\n\r\n");
    served.request();
    served.settle();
    served.stop.send_replace(LATER);
    // Once the listener is gone, so is the chance to be served.
    while TcpStream::connect(served.address).is_ok() {
        std::thread::yield_now();
    }
    late.send("content-length: 0\r\n\r\n");
    let answer = late.answer();
    assert_eq!((answer.status, answer.problem().as_str(), answer.header("retry-after")), (503, "draining", Some("1")));
    assert_eq!(answer.header("connection"), Some("close"));
    served.release.add_permits(1);
    assert_eq!(busy.answer().status, 200);
    served.join();
}

#[test]
fn what_is_not_finished_within_the_drain_is_dropped() {
    let served = Served::start();
    let mut busy = served.client();
    busy.send("GET /c/n/hold HTTP/1.1\r\nhost: h\r\n\r\n");
    served.request();
    served.stop.send_replace(LATER);
    served.time.advance_ms(999);
    assert!(served.seen.try_recv().is_err(), "it was dropped early");
    served.time.advance_ms(1);
    assert!(matches!(served.seen.recv(), Ok(Seen::GivenUp)));
    assert_eq!(busy.rest(), b"");
    served.join();
}

#[test]
fn a_stop_without_drain_drops_everything() {
    let served = Served::start();
    let mut busy = served.client();
    busy.send("GET /c/n/hold HTTP/1.1\r\nhost: h\r\n\r\n");
    served.request();
    served.stop.send_replace(Stop::Now);
    assert_eq!(busy.rest(), b"");
    served.join();
}

#[test]
fn a_client_that_stays_silent_does_not_hold_the_stop_up() {
    let served = Served::start();
    let silent = served.client();
    served.settle();
    served.stop.send_replace(Stop::Drain { until_ms: u64::MAX });
    served.time.advance_ms(1_000);
    assert_eq!(silent.rest(), b"");
    served.join();
}
