//! What crosses between guests and HTTP must be HTTP: checks of guests' responses and of the requests they send.

use super::guest_log::cut;
use super::limits::{FAILURE_TEXT_BYTES_MAX, RESPONSE_BODY_BYTES_MAX, RESPONSE_HEADER_BYTES_MAX};
use crate::event::{Request, Response};
use http::{HeaderName, HeaderValue, Method};

/// Headers that concern one connection, and the length, which whoever sends the body knows.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Headers that only the node sets.
const RESERVED_PREFIX: &str = "x-wasmkeep-";

/// The response as it may leave, or what is wrong with it.
pub(crate) fn checked_response(mut response: Response) -> Result<Response, String> {
    if !(200..=599).contains(&response.status) {
        return Err(format!("status {} is not between 200 and 599", response.status));
    }
    if response.body.len() > RESPONSE_BODY_BYTES_MAX {
        return Err(format!("its body has {} bytes; the limit is {RESPONSE_BODY_BYTES_MAX}", response.body.len()));
    }
    check_headers(&mut response.headers)?;
    Ok(response)
}

/// A guest's request to another actor as it may leave, or what is wrong with it.
pub(crate) fn checked_request(mut request: Request) -> Result<Request, String> {
    if Method::from_bytes(request.method.as_bytes()).is_err() {
        return Err(format!("{} is not an HTTP method", quoted(&request.method)));
    }
    if !request.path.starts_with('/') || http::uri::PathAndQuery::try_from(&request.path).is_err() {
        return Err(format!("{} is not a path: it begins with / and is percent-encoded", quoted(&request.path)));
    }
    if request.body.len() > RESPONSE_BODY_BYTES_MAX {
        return Err(format!("its body has {} bytes; the limit is {RESPONSE_BODY_BYTES_MAX}", request.body.len()));
    }
    check_headers(&mut request.headers)?;
    request.headers.retain(|(name, _)| !name.starts_with(RESERVED_PREFIX));
    Ok(request)
}

/// Lower-cases names, drops what concerns one connection, refuses what is not HTTP.
fn check_headers(headers: &mut Vec<(String, Vec<u8>)>) -> Result<(), String> {
    let mut bytes = 0usize;
    for (name, value) in headers.iter_mut() {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(format!("{} is not a header name", quoted(name)));
        }
        name.make_ascii_lowercase();
        if HeaderValue::from_bytes(value).is_err() {
            return Err(format!("the value of header {name} has bytes that no header may have"));
        }
        bytes += name.len() + value.len();
    }
    if bytes > RESPONSE_HEADER_BYTES_MAX {
        return Err(format!("its headers have {bytes} bytes; the limit is {RESPONSE_HEADER_BYTES_MAX}"));
    }
    headers.retain(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()));
    Ok(())
}

/// A guest's text within ours.
fn quoted(text: &str) -> String {
    format!("{:?}", cut(text, FAILURE_TEXT_BYTES_MAX / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&str, &[u8])]) -> Response {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        Response { status, headers, body: bytes::Bytes::new() }
    }

    #[test]
    fn statuses_from_200_to_599_are_answers_and_others_are_not() {
        for (status, ok) in
            [(0, false), (101, false), (199, false), (200, true), (404, true), (599, true), (600, false), (65_535, false)]
        {
            assert_eq!(checked_response(response(status, &[])).is_ok(), ok, "{status}");
        }
    }

    #[test]
    fn headers_of_the_connection_are_dropped_and_the_rest_keeps_its_order_and_bytes() {
        let given =
            response(200, &[("Connection", b"close"), ("X-B", b"\xff"), ("Content-Length", b"7"), ("x-a", b"1"), ("X-A", b"2")]);
        let headers = checked_response(given).unwrap().headers;
        let expected = [("x-b", &b"\xff"[..]), ("x-a", b"1"), ("x-a", b"2")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_vec())));
    }

    #[test]
    fn what_no_header_may_have_is_refused() {
        for (name, value) in [("a b", &b"1"[..]), ("", b"1"), ("x:y", b""), ("x", b"a\nb"), ("x", b"\0"), ("ü", b"1")] {
            assert!(checked_response(response(200, &[(name, value)])).is_err(), "{name:?}: {value:?}");
        }
        let big = vec![b'x'; RESPONSE_HEADER_BYTES_MAX];
        assert!(checked_response(response(200, &[("x", &big)])).unwrap_err().contains("limit"));
    }

    #[test]
    fn a_request_to_another_actor_must_be_http_and_cannot_forge_the_nodes_headers() {
        let good = Request { method: "GET".into(), path: "/a?b".into(), ..Request::default() };
        let mut forged = good.clone();
        forged.headers = vec![("X-WasmKeep-Caller".into(), b"a/b".to_vec()), ("x-own".into(), b"1".to_vec())];
        assert_eq!(checked_request(forged).unwrap().headers, [("x-own".to_owned(), b"1".to_vec())]);
        for (method, path) in [("G T", "/"), ("", "/"), ("GET", ""), ("GET", "a"), ("GET", "/ä b"), ("GET", "http://h/")] {
            let bad = Request { method: method.into(), path: path.into(), ..good.clone() };
            assert!(checked_request(bad).is_err(), "{method} {path}");
        }
    }
}
