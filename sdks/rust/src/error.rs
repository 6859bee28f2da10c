//! What a handler may fail with, and the answer that comes of it.

use crate::Response;
use core::fmt;
use std::borrow::Cow;

/// Why an event failed: a status for the caller, a short name for programs and a sentence for people.
///
/// Returned from [`Actor::request`](crate::Actor::request), it becomes an answer of type `application/problem+json`
/// (RFC 9457). Statuses from 500 up are the actor's own trouble: their detail goes to the log and not to the caller.
///
/// ```
/// use wasmkeep_sdk::Error;
///
/// let error = Error::not_found("no note 7");
/// assert_eq!((error.status(), error.kind()), (404, "not-found"));
/// assert_eq!(error.to_string(), "not-found: no note 7");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    status: u16,
    kind: Cow<'static, str>,
    detail: String,
}

impl Error {
    /// Any status from 400 to 599, with a stable name (`kind`, lower case with hyphens) that callers can tell it by.
    pub fn new(status: u16, kind: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self { status, kind: kind.into(), detail: detail.into() }
    }

    /// 400: the request is malformed.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "bad-request", detail)
    }

    /// 403: the caller may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "forbidden", detail)
    }

    /// 404: there is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "not-found", detail)
    }

    /// 405: the path exists, but not with this method.
    pub fn method_not_allowed(detail: impl Into<String>) -> Self {
        Self::new(405, "method-not-allowed", detail)
    }

    /// 409: the request is at odds with what is stored.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(409, "conflict", detail)
    }

    /// 422: the request can be read, but a value in it breaks a rule.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(422, "invalid", detail)
    }

    /// 500: the actor's own trouble. The detail is logged; the caller does not see it.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(500, "internal", detail)
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The stable name; it is the `type` of the answer.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The answer a caller gets. Logs the detail if the status is 500 or more.
    pub fn into_response(self) -> Response {
        let detail = if self.status >= 500 {
            crate::log::write(crate::log::Level::Error, &self.to_string());
            "the actor could not do this; its log says why"
        } else {
            self.detail.as_str()
        };
        Response::problem(self.status, &self.kind, detail)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

impl std::error::Error for Error {}

impl From<crate::db::Error> for Error {
    fn from(error: crate::db::Error) -> Self {
        use crate::db::Error as Db;
        let (status, kind) = match &error {
            Db::TooLarge => (413, "too-large"),
            Db::Full => (507, "storage-full"),
            Db::Deadline => (504, "deadline"),
            Db::Sql { .. } | Db::NotAllowed(_) | Db::Column(_) => (500, "database"),
        };
        Self::new(status, kind, error.to_string())
    }
}

impl From<crate::actors::CallError> for Error {
    fn from(error: crate::actors::CallError) -> Self {
        use crate::actors::CallError as Call;
        let (status, kind) = match error {
            Call::Busy => (503, "mailbox-full"),
            Call::Timeout | Call::UnknownOutcome => (503, "unknown-outcome"),
            Call::Unavailable => (503, "unavailable"),
            Call::NoSuchClass | Call::Forbidden | Call::ReEntry => (500, "call"),
        };
        Self::new(status, kind, error.to_string())
    }
}

impl From<serde_json::Error> for Error {
    /// Only for JSON of the actor's own making; what a caller sent is read with [`Request::json`](crate::Request::json),
    /// whose errors are the caller's.
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("JSON: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_mistake_is_explained_in_the_answer() {
        let response = Error::invalid("title is empty").into_response();
        assert_eq!(response.status(), 422);
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body, serde_json::json!({ "type": "invalid", "status": 422, "detail": "title is empty" }));
    }

    #[test]
    fn storage_errors_keep_their_kind() {
        assert_eq!(Error::from(crate::db::Error::Full).status(), 507);
        assert_eq!(Error::from(crate::db::Error::Deadline).kind(), "deadline");
        let sql = crate::db::Error::Sql { code: 1, message: "no such table: t".into() };
        assert_eq!(Error::from(sql).detail(), "SQLite refused the statement: no such table: t (code 1)");
    }
}
