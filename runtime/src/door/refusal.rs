//! Why a request at the service door is refused, as users see it: RFC 9457, with types that never change.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use serde_json::json;
use wasmkeep_classes::{kv, queue};

use crate::event::Problem;

/// What is answered instead of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// One that users of actors know too.
    Problem(Problem),
    /// 400 `bad-request`: a parameter, a header or the body breaks a rule, which the words say.
    BadRequest(String),
    /// 401 `unauthorized`: no token, or one that is not known.
    Unauthorized,
    /// 404 `not-found`: there is nothing of that name.
    NotFound(String),
    /// 405 `method-not-allowed`: what is there takes these methods.
    Method(&'static str),
    /// 412 `conflict`: the key is not what was expected; its version, `None` if it is absent.
    Conflict(Option<i64>),
    /// 422 `not-a-number`: the value cannot be incremented.
    NotANumber,
    /// 422 `overflow`: the sum does not fit 64 bits.
    Overflow,
    /// 422 `operation-reused`: the operation id belongs to another request.
    OperationReused,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl Refusal {
    const fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            // Whose type and status are their own.
            Self::Problem(_) => (StatusCode::INTERNAL_SERVER_ERROR, ""),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not-found"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed"),
            Self::Conflict(_) => (StatusCode::PRECONDITION_FAILED, "conflict"),
            Self::NotANumber => (StatusCode::UNPROCESSABLE_ENTITY, "not-a-number"),
            Self::Overflow => (StatusCode::UNPROCESSABLE_ENTITY, "overflow"),
            Self::OperationReused => (StatusCode::UNPROCESSABLE_ENTITY, "operation-reused"),
        }
    }

    /// What is told.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Problem(problem) => problem.to_string(),
            Self::BadRequest(words) | Self::NotFound(words) => words.clone(),
            Self::Unauthorized => "a bearer token of the service door is needed".into(),
            Self::Method(valid) => format!("this takes {valid}"),
            Self::Conflict(Some(version)) => format!("the key has version {version}"),
            Self::Conflict(None) => "the key is absent".into(),
            Self::NotANumber => "the value is not a number in ASCII decimal".into(),
            Self::Overflow => "the sum does not fit 64 bits".into(),
            Self::OperationReused => "the operation id belongs to another request".into(),
        }
    }

    /// The whole answer.
    pub(crate) fn to_http(&self) -> Response<Bytes> {
        if let Self::Problem(problem) = self {
            return problem.to_http();
        }
        let (status, kind) = self.kind();
        let body = json!({ "type": kind, "title": status.canonical_reason(), "status": status.as_u16(), "detail": self.words() });
        let mut answer = Response::new(Bytes::from(body.to_string()));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            Self::Unauthorized => drop(headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::Method(valid) => drop(headers.insert(header::ALLOW, HeaderValue::from_static(valid))),
            Self::Conflict(Some(version)) => put_etag(headers, *version),
            _ => {}
        }
        answer
    }
}

/// A version as an ETag.
pub(super) fn put_etag(headers: &mut HeaderMap, version: i64) {
    // Digits in quotes are a valid value.
    if let Ok(value) = HeaderValue::try_from(format!("\"{version}\"")) {
        headers.insert(header::ETAG, value);
    }
}

impl From<kv::client::Error> for Refusal {
    fn from(error: kv::client::Error) -> Self {
        use kv::client::Error;
        match error {
            Error::Conflict { current } => Self::Conflict(current),
            Error::NotANumber => Self::NotANumber,
            Error::Overflow => Self::Overflow,
            Error::OperationReused => Self::OperationReused,
            Error::Moving { .. } | Error::Moved { .. } => Self::Problem(Problem::Unavailable(format!("{error}; try again later"))),
            Error::Refused(words) => Self::BadRequest(words),
            Error::Forbidden => Self::Problem(Problem::Forbidden(error.to_string())),
            Error::TooLarge(words) => Self::Problem(Problem::TooLarge(words)),
            Error::Full => Self::Problem(Problem::StorageFull),
            // Nothing else is answered by what the node itself serves, so it is not known what was done.
            Error::NotApplied(_) | Error::Failed { .. } | Error::Malformed => Self::Problem(Problem::UnknownOutcome),
        }
    }
}

impl From<kv::protocol::Invalid> for Refusal {
    fn from(invalid: kv::protocol::Invalid) -> Self {
        if invalid.status() == 413 { Problem::TooLarge(invalid.to_string()).into() } else { Self::BadRequest(invalid.to_string()) }
    }
}

impl From<queue::client::Error> for Refusal {
    fn from(error: queue::client::Error) -> Self {
        use queue::client::Error;
        match error {
            Error::Refused(words) => Self::BadRequest(words),
            Error::Forbidden => Self::Problem(Problem::Forbidden(error.to_string())),
            Error::TooLarge(words) => Self::Problem(Problem::TooLarge(words)),
            Error::Full => Self::Problem(Problem::StorageFull),
            Error::Failed { .. } | Error::Malformed => Self::Problem(Problem::UnknownOutcome),
        }
    }
}

impl From<queue::protocol::Invalid> for Refusal {
    fn from(invalid: queue::protocol::Invalid) -> Self {
        if invalid.status() == 413 { Problem::TooLarge(invalid.to_string()).into() } else { Self::BadRequest(invalid.to_string()) }
    }
}
