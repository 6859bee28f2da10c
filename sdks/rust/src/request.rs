//! A request, both as an actor receives it and as it sends one to another actor.

use crate::Error;
use crate::bindings::wasmkeep::actor::types;
use serde::{Serialize, de::DeserializeOwned};
use std::cell::OnceCell;

/// A request event.
///
/// ```
/// use wasmkeep_sdk::Request;
///
/// let request = Request::new("GET", "/notes/caf%C3%A9?limit=10&tag=a+b");
/// assert_eq!(request.path(), "/notes/caf%C3%A9");
/// assert_eq!(request.segments(), ["notes", "café"]);
/// assert_eq!(request.query("tag").as_deref(), Some("a b"));
/// assert_eq!(request.query("page"), None);
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    wire: types::Request,
    segments: OnceCell<Vec<String>>,
}

impl Request {
    /// A request without headers or a body. `target` is the path behind the actor's address, from `/`, with its query.
    pub fn new(method: impl Into<String>, target: impl Into<String>) -> Self {
        Self::from_wire(types::Request { method: method.into(), path: target.into(), headers: Vec::new(), body: Vec::new() })
    }

    /// A GET request for [`actors::call`](crate::actors::call).
    pub fn get(target: impl Into<String>) -> Self {
        Self::new("GET", target)
    }

    /// A POST request for [`actors::call`](crate::actors::call).
    pub fn post(target: impl Into<String>) -> Self {
        Self::new("POST", target)
    }

    pub(crate) fn from_wire(wire: types::Request) -> Self {
        Self { wire, segments: OnceCell::new() }
    }

    pub(crate) fn as_wire(&self) -> &types::Request {
        &self.wire
    }

    /// Adds a header. Names are sent in lower case.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.wire.headers.push(types::Header { name: name.to_ascii_lowercase(), value: value.into() });
        self
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.wire.body = body.into();
        self
    }

    /// Replaces the body by JSON and says so in `content-type`.
    ///
    /// # Errors
    /// The value cannot be written as JSON (a map whose keys are no strings).
    pub fn with_json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, Error> {
        let body = serde_json::to_vec(value)?;
        Ok(self.with_header("content-type", "application/json").with_body(body))
    }

    /// The HTTP method as it came, such as `GET`.
    pub fn method(&self) -> &str {
        &self.wire.method
    }

    /// Path and query as they came.
    pub fn target(&self) -> &str {
        &self.wire.path
    }

    /// The path as it came, from `/`, without the query and not decoded.
    pub fn path(&self) -> &str {
        self.wire.path.split('?').next().unwrap_or_default()
    }

    /// The parts of the path between slashes, percent-decoded; empty parts are left out. Made for matching:
    ///
    /// ```
    /// # use wasmkeep_sdk::Request;
    /// let request = Request::get("/notes/7");
    /// let id = match (request.method(), request.segments().as_slice()) {
    ///     ("GET", ["notes", id]) => id.parse().unwrap_or(0),
    ///     _ => 0,
    /// };
    /// assert_eq!(id, 7);
    /// ```
    pub fn segments(&self) -> Vec<&str> {
        let decode = || self.path().split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
        self.segments.get_or_init(decode).iter().map(String::as_str).collect()
    }

    /// The decoded value of the first query parameter of that name; empty if it has no `=`.
    pub fn query(&self, name: &str) -> Option<String> {
        self.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// All query parameters, decoded, in order.
    pub fn query_pairs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let query = self.wire.path.split_once('?').map_or("", |(_, query)| query);
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key, true), decode(value, true))
        })
    }

    /// The first header of that name (any case), if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        str::from_utf8(value).ok()
    }

    /// All headers in order. Names are in lower case; values are bytes, because HTTP does not promise text.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.wire.headers.iter().map(|header| (header.name.as_str(), header.value.as_slice()))
    }

    /// The body; empty if there was none.
    pub fn body(&self) -> &[u8] {
        &self.wire.body
    }

    /// The body, without a copy.
    pub fn into_body(self) -> Vec<u8> {
        self.wire.body
    }

    /// The body as text.
    ///
    /// # Errors
    /// [`Error::bad_request`] if it is no UTF-8.
    pub fn text(&self) -> Result<&str, Error> {
        str::from_utf8(&self.wire.body).map_err(|_| Error::bad_request("the body is no UTF-8 text"))
    }

    /// The body read as JSON. The content type is not looked at.
    ///
    /// # Errors
    /// [`Error::bad_request`], saying what is wrong and where, if it is no JSON or not of the shape of `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.wire.body)
            .map_err(|error| Error::bad_request(format!("the body is not the JSON expected: {error}")))
    }
}

/// Percent-decodes. What is no valid escape stays as it is, and what is no UTF-8 becomes U+FFFD: a guest sees text for any
/// input and can refuse it by its own rules.
fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten().and_then(hex_byte);
        match (bytes[at], escaped) {
            (_, Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', None) if plus_is_space => out.push(b' '),
            (byte, None) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(digit(digits[0])? << 4 | digit(digits[1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_escapes_are_left_alone() {
        let cases = [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("100%", "100%"), ("%41%", "A%"), ("%+1", "%+1"), ("a+b", "a+b")];
        for (text, decoded) in cases {
            assert_eq!(decode(text, false), decoded, "{text}");
        }
        assert_eq!(decode("%FFx", false), "\u{fffd}x");
    }

    #[test]
    fn an_escaped_slash_does_not_split_a_segment() {
        assert_eq!(Request::get("//a%2Fb//c/").segments(), ["a/b", "c"]);
        assert!(Request::get("/").segments().is_empty());
    }

    #[test]
    fn query_parameters_keep_their_order_and_may_be_empty() {
        let request = Request::get("/?a=1&b&a=2&&c=%26%3D?");
        let pairs: Vec<_> = request.query_pairs().collect();
        let expected = [("a", "1"), ("b", ""), ("a", "2"), ("c", "&=?")];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(request.query("a").as_deref(), Some("1"));
        assert!(Request::get("/path").query_pairs().next().is_none());
    }

    #[test]
    fn headers_are_found_in_any_case_and_only_as_text() {
        let request = Request::get("/").with_header("X-One", "1").with_header("x-raw", vec![0xff]);
        assert_eq!(request.header("x-one"), Some("1"));
        assert_eq!(request.header("X-ONE"), Some("1"));
        assert_eq!(request.header("x-raw"), None);
        assert_eq!(request.headers().count(), 2);
    }

    #[test]
    fn a_body_of_the_wrong_shape_is_the_callers_mistake() {
        let error = Request::post("/").with_body("{\"a\": }").json::<serde_json::Value>().unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(error.detail().contains("line 1"), "{error}");
        assert_eq!(Request::post("/").with_body(vec![0xff]).text().unwrap_err().status(), 400);
    }
}
