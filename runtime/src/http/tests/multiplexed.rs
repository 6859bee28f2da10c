//! HTTP/2 over plain TCP, with prior knowledge.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::fixture::Served;
use crate::limits::{KEEP_ALIVE_MS_MAX, REQUEST_BODY_BYTES_MAX};
use crate::node::Stop;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("builds")
}

/// A client, and a task that ends with its connection.
async fn connect(served: &Served) -> (SendRequest<Bytes>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(served.address).await.expect("connects");
    let (client, connection) = h2::client::handshake(stream).await.expect("shakes hands");
    let task = tokio::spawn(async move {
        let _ended = connection.await;
    });
    (client, task)
}

fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://shop.example{path}")).body(()).expect("a request")
}

async fn body(response: Response<h2::RecvStream>) -> Vec<u8> {
    let mut stream = response.into_body();
    let mut whole = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.expect("a frame");
        stream.flow_control().release_capacity(data.len()).expect("releases");
        whole.extend_from_slice(&data);
    }
    whole
}

#[test]
fn streams_of_one_connection_are_answered_each_in_its_own_time() {
    let served = Served::start();
    runtime().block_on(async {
        let (client, _task) = connect(&served).await;
        let mut client = client.ready().await.expect("ready");
        let (held, _) = client.send_request(request(Method::GET, "/c/n/hold"), true).expect("sends");
        let (quick, mut stream) = client.send_request(request(Method::POST, "/c/a%2Fb/echo?q"), false).expect("sends");
        stream.send_data(Bytes::from_static(b"hello"), true).expect("sends");
        let quick = quick.await.expect("answers");
        assert_eq!(quick.status(), 200);
        assert_eq!(body(quick).await, b"hello");
        served.release.add_permits(1);
        assert_eq!(held.await.expect("answers").status(), 200);
    });
    let seen = [served.request(), served.request()];
    let (address, request) = seen.iter().find(|(_, request)| request.method == "POST").expect("it came");
    assert_eq!((&*address.name, request.path.as_str()), ("a/b", "/echo?q"));
    assert!(request.headers.contains(&("host".into(), b"shop.example".to_vec())));
}

#[test]
fn large_answers_pass_through_small_windows() {
    let served = Served::start();
    runtime().block_on(async {
        let (client, _task) = connect(&served).await;
        let mut client = client.ready().await.expect("ready");
        let (answer, _) = client.send_request(request(Method::GET, "/c/n/big/3000000"), true).expect("sends");
        assert_eq!(body(answer.await.expect("answers")).await.len(), 3_000_000);
    });
}

#[test]
fn head_has_a_length_and_no_body_on_a_stream_too() {
    let served = Served::start();
    runtime().block_on(async {
        let (client, _task) = connect(&served).await;
        let mut client = client.ready().await.expect("ready");
        let (answer, _) = client.send_request(request(Method::HEAD, "/c/n/big/1000"), true).expect("sends");
        let answer = answer.await.expect("answers");
        assert_eq!(answer.headers()["content-length"], "1000");
        assert!(body(answer).await.is_empty());
    });
}

#[test]
fn a_body_above_the_limit_is_refused_on_its_stream_and_the_connection_goes_on() {
    let served = Served::start();
    runtime().block_on(async {
        let (client, _task) = connect(&served).await;
        let mut client = client.ready().await.expect("ready");
        let mut large = request(Method::POST, "/c/n");
        large.headers_mut().insert("content-length", (REQUEST_BODY_BYTES_MAX + 1).into());
        let (answer, _stream) = client.send_request(large, false).expect("sends");
        let answer = answer.await.expect("answers");
        assert_eq!(answer.status(), 413);
        let mut client = client.ready().await.expect("ready");
        let (answer, _) = client.send_request(request(Method::GET, "/c/n/big/1"), true).expect("sends");
        assert_eq!(body(answer.await.expect("answers")).await, b"x");
    });
}

#[test]
fn a_stop_finishes_open_streams_and_ends_the_connection() {
    let served = Served::start();
    runtime().block_on(async {
        let (client, task) = connect(&served).await;
        let mut client = client.ready().await.expect("ready");
        let (held, _) = client.send_request(request(Method::GET, "/c/n/hold"), true).expect("sends");
        tokio::task::yield_now().await;
        loop {
            // The client's own connection needs to run for the request to leave.
            tokio::task::yield_now().await;
            if served.seen.try_recv().is_ok() {
                break;
            }
        }
        served.stop.send_replace(Stop::Drain { until_ms: u64::MAX });
        served.release.add_permits(1);
        assert_eq!(held.await.expect("answers").status(), 200);
        drop(client);
        task.await.expect("the connection ends");
    });
    served.join();
}

#[test]
fn an_idle_connection_ends_although_its_client_pings() {
    let served = Served::start();
    runtime().block_on(async {
        let stream = TcpStream::connect(served.address).await.expect("connects");
        let (client, mut connection) = h2::client::handshake(stream).await.expect("shakes hands");
        let mut pings = connection.ping_pong().expect("pings");
        let task = tokio::spawn(async move {
            let _ended = connection.await;
        });
        pings.ping(h2::Ping::opaque()).await.expect("pong");
        served.time.advance_ms(KEEP_ALIVE_MS_MAX + 1_000);
        while pings.ping(h2::Ping::opaque()).await.is_ok() {}
        task.await.expect("the connection ends");
        drop(client);
    });
}
