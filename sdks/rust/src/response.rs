//! An answer, both as an actor gives it and as it receives one from another actor.

use crate::Error;
use crate::bindings::wasmkeep::actor::types;
use serde::{Serialize, de::DeserializeOwned};

/// The answer to a request.
///
/// ```
/// use wasmkeep_sdk::{Response, json};
///
/// let response = Response::json(&json!({ "id": 7 })).with_status(201).with_header("location", "/notes/7");
/// assert_eq!((response.status(), response.body()), (201, &br#"{"id":7}"#[..]));
/// assert_eq!(response.header("Location"), Some("/notes/7"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Response {
    wire: types::Response,
}

impl Response {
    /// An answer without headers or a body. A status outside 200 to 599 fails the event.
    pub fn new(status: u16) -> Self {
        Self::from_wire(types::Response { status, headers: Vec::new(), body: Vec::new() })
    }

    /// 200 with `text/plain; charset=utf-8`.
    pub fn text(body: impl Into<String>) -> Self {
        Self::new(200).with_header("content-type", "text/plain; charset=utf-8").with_body(body.into())
    }

    /// 200 with `application/json`. A value that cannot be written as JSON (a map whose keys are no strings) gives the answer
    /// of [`Error::internal`] instead.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(200).with_header("content-type", "application/json").with_body(body),
            Err(error) => Error::from(error).into_response(),
        }
    }

    /// 204, no body.
    pub fn no_content() -> Self {
        Self::new(204)
    }

    /// An `application/problem+json` answer (RFC 9457). Mostly made from an [`Error`].
    pub fn problem(status: u16, kind: &str, detail: &str) -> Self {
        let body = serde_json::json!({ "type": kind, "status": status, "detail": detail }).to_string();
        Self::new(status).with_header("content-type", "application/problem+json").with_body(body)
    }

    pub(crate) fn from_wire(wire: types::Response) -> Self {
        Self { wire }
    }

    pub(crate) fn into_wire(self) -> types::Response {
        self.wire
    }

    /// Replaces the status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.wire.status = status;
        self
    }

    /// Adds a header. One that is not valid HTTP (a line break in a value) fails the event.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.wire.headers.push(types::Header { name: name.into(), value: value.into() });
        self
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.wire.body = body.into();
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.wire.status
    }

    /// True from 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.wire.status)
    }

    /// The first header of that name (any case), if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.wire.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(&header.value).ok()
    }

    /// All headers in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.wire.headers.iter().map(|header| (header.name.as_str(), header.value.as_slice()))
    }

    /// The body; empty if there is none.
    pub fn body(&self) -> &[u8] {
        &self.wire.body
    }

    /// The body of a callee's answer, read as JSON.
    ///
    /// # Errors
    /// [`Error::internal`] if it is no JSON or not of the shape of `T`.
    pub fn read_json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        Ok(serde_json::from_slice(&self.wire.body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_says_that_it_is_text() {
        let response = Response::text("hi");
        assert_eq!((response.status(), response.body()), (200, &b"hi"[..]));
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(response.is_success() && !response.with_status(404).is_success());
    }

    #[test]
    fn an_answer_of_another_actor_is_read_as_json() {
        assert_eq!(Response::json(&[1, 2]).read_json::<Vec<i64>>(), Ok(vec![1, 2]));
        assert_eq!(Response::text("no").read_json::<Vec<i64>>().unwrap_err().status(), 500);
    }
}
