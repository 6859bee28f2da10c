//! How a [`Problem`] looks over HTTP: RFC 9457, with types that never change.

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};
use serde::Serialize;

use crate::event::Problem;

/// Seconds after which a refused request may be worth another try.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The body of `application/problem+json`.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    /// Every type there is; an interface.
    pub const SLUGS: [&'static str; 11] = [
        "unknown-class",
        "bad-address",
        "too-large",
        "forbidden",
        "mailbox-full",
        "deadline",
        "trap",
        "unknown-outcome",
        "unavailable",
        "storage-full",
        "draining",
    ];

    /// The position of this problem's type in [`Problem::SLUGS`].
    #[must_use]
    pub const fn slug_index(&self) -> usize {
        match self {
            Self::UnknownClass(_) => 0,
            Self::BadAddress(_) => 1,
            Self::TooLarge(_) => 2,
            Self::Forbidden(_) => 3,
            Self::MailboxFull => 4,
            Self::Deadline => 5,
            Self::Trap(_) => 6,
            Self::UnknownOutcome => 7,
            Self::Unavailable(_) => 8,
            Self::StorageFull => 9,
            Self::Draining => 10,
        }
    }

    /// The problem's type.
    #[must_use]
    pub const fn slug(&self) -> &'static str {
        Self::SLUGS[self.slug_index()]
    }

    /// The status it is answered with.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::BadAddress(_) => 400,
            Self::Forbidden(_) => 403,
            Self::UnknownClass(_) => 404,
            Self::TooLarge(_) => 413,
            Self::Trap(_) => 500,
            Self::MailboxFull | Self::UnknownOutcome | Self::Unavailable(_) | Self::Draining => 503,
            Self::Deadline => 504,
            Self::StorageFull => 507,
        }
    }

    const fn title(&self) -> &'static str {
        match self {
            Self::UnknownClass(_) => "Unknown class",
            Self::BadAddress(_) => "Bad address",
            Self::TooLarge(_) => "Too large",
            Self::Forbidden(_) => "Forbidden",
            Self::MailboxFull => "Mailbox full",
            Self::Deadline => "Deadline passed",
            Self::Trap(_) => "The guest failed",
            Self::UnknownOutcome => "Unknown outcome",
            Self::Unavailable(_) => "Unavailable",
            Self::StorageFull => "Storage full",
            Self::Draining => "Draining",
        }
    }

    /// Seconds for Retry-After, where nothing ran and another try may succeed.
    #[must_use]
    pub const fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::MailboxFull | Self::Unavailable(_) | Self::Draining => Some(RETRY_AFTER_SECONDS),
            _ => None,
        }
    }

    /// The `application/problem+json` text.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let detail = self.to_string();
        let body = Body { r#type: self.slug(), title: self.title(), status: self.status(), detail: &detail };
        // Strings and a number: this cannot fail.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The whole answer.
    #[must_use]
    pub fn to_http(&self) -> http::Response<Bytes> {
        let mut answer = http::Response::new(Bytes::from(self.to_json()));
        *answer.status_mut() = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_statuses_are_the_documented_interface() {
        let text = String::new;
        for (problem, slug, status, retry) in [
            (Problem::UnknownClass(text()), "unknown-class", 404, None),
            (Problem::BadAddress(text()), "bad-address", 400, None),
            (Problem::TooLarge(text()), "too-large", 413, None),
            (Problem::Forbidden(text()), "forbidden", 403, None),
            (Problem::MailboxFull, "mailbox-full", 503, Some(1)),
            (Problem::Deadline, "deadline", 504, None),
            (Problem::Trap(text()), "trap", 500, None),
            (Problem::UnknownOutcome, "unknown-outcome", 503, None),
            (Problem::Unavailable(text()), "unavailable", 503, Some(1)),
            (Problem::StorageFull, "storage-full", 507, None),
            (Problem::Draining, "draining", 503, Some(1)),
        ] {
            assert_eq!((problem.slug(), problem.status(), problem.retry_after_seconds()), (slug, status, retry));
        }
    }

    #[test]
    fn the_body_is_json_whatever_the_detail_holds() {
        let problem = Problem::Trap("\"quoted\" \u{1} \n".into());
        let body: serde_json::Value = serde_json::from_slice(&problem.to_json()).expect("JSON");
        assert_eq!(body["type"], "trap");
        assert_eq!(body["status"], 500);
        assert_eq!(body["detail"], "the guest failed: \"quoted\" \u{1} \n");
    }
}
