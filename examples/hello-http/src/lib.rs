//! A component made for `wasi:http`, with nothing of WasmKeep in it: it is served as it is, as a resident actor that handles
//! one request at a time. `GET` greets, `POST` sends the body back, and a count in memory shows that the instance stays.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use wasi::exports::http::incoming_handler::Guest;
use wasi::http::types::{ErrorCode, Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam};

/// Requests this instance has handled. Memory only: gone when the actor is put to sleep.
static HANDLED: AtomicU64 = AtomicU64::new(0);

struct Hello;

impl Guest for Hello {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let handled = HANDLED.fetch_add(1, Ordering::Relaxed) + 1;
        let path = request.path_with_query().unwrap_or_else(|| "/".to_owned());
        let (status, body) = match request.method() {
            Method::Get => (200, Ok(format!("hello, {path} (request {handled} of this instance)\n").into_bytes())),
            Method::Post => (200, read_body(&request)),
            _ => (405, Ok(b"GET greets, POST echoes\n".to_vec())),
        };
        match body {
            Ok(body) => answer(out, status, handled, &body),
            Err(error) => ResponseOutparam::set(out, Err(ErrorCode::InternalError(Some(error.to_string())))),
        }
    }
}

fn read_body(request: &IncomingRequest) -> std::io::Result<Vec<u8>> {
    let refused = || std::io::Error::other("the body was taken already");
    let body = request.consume().map_err(|()| refused())?;
    let mut bytes = Vec::new();
    body.stream().map_err(|()| refused())?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn answer(out: ResponseOutparam, status: u16, handled: u64, bytes: &[u8]) {
    let headers = Fields::new();
    let text = |value: &str| [value.as_bytes().to_vec()];
    let set = [("content-type", text("text/plain; charset=utf-8")), ("x-handled", text(&handled.to_string()))];
    for (name, value) in set {
        headers.set(name, &value).expect("both headers are valid and may be set");
    }
    let response = OutgoingResponse::new(headers);
    response.set_status_code(status).expect("a valid status");
    let body = response.body().expect("the body is taken once");
    ResponseOutparam::set(out, Ok(response));
    // A caller that went away meanwhile is no error of ours: there is nobody left to tell.
    if let Ok(mut stream) = body.write() {
        let _ = stream.write_all(bytes).and_then(|()| Write::flush(&mut stream));
    }
    let _ = OutgoingBody::finish(body, None);
}

wasi::http::proxy::export!(Hello);
