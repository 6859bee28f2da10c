//! Bytes in JSON: a field `NAME` holds a text, a field `NAME_base64` any bytes. What is written is the first if it is UTF-8.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::event::Problem;
use crate::limits::DOOR_JSON_BYTES_MAX;

/// The media type of messages as the classes' own clients write them.
pub(crate) const FRAMES: &str = "application/vnd.wasmkeep.frames";

const JSON: &str = "application/json";

/// Writes a field of bytes.
pub(crate) fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Reads a field of bytes of an answer.
pub(crate) fn read(object: &Value, name: &str) -> Result<Vec<u8>, String> {
    let field = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
    take(name, field(name), field(&format!("{name}_base64"))).map_err(|refusal| refusal.words())
}

/// Reads a field of bytes, of which one spelling may be given; `None` for neither.
pub(super) fn take_optional(name: &str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, Refusal> {
    match (text, base64) {
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => {
            let bytes = STANDARD.decode(base64);
            bytes.map(Some).map_err(|error| Refusal::BadRequest(format!("{name}_base64 is not base64: {error}")))
        }
        (Some(_), Some(_)) => Err(Refusal::BadRequest(format!("{name} and {name}_base64 are both given; give one"))),
        (None, None) => Ok(None),
    }
}

/// Reads a field of bytes that must be there.
pub(super) fn take(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Refusal> {
    let missing = || Refusal::BadRequest(format!("{name} is missing; give it as {name} (a text) or {name}_base64 (any bytes)"));
    take_optional(name, text, base64)?.ok_or_else(missing)
}

/// Reads a body of JSON.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    if body.len() > DOOR_JSON_BYTES_MAX {
        let words = format!("a body of JSON has at most {DOOR_JSON_BYTES_MAX} bytes; larger batches are sent as {FRAMES}");
        return Err(Problem::TooLarge(words).into());
    }
    serde_json::from_slice(body).map_err(|error| Refusal::BadRequest(format!("the body: {error}")))
}

/// The media type of a request's body, in lower case and without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// What a body and its answer are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Media {
    /// The body is frames.
    pub(super) frames_in: bool,
    /// The body is JSON.
    pub(super) json_in: bool,
    /// The answer is to be frames.
    pub(super) frames_out: bool,
}

impl Media {
    /// As the headers say. Who sends frames gets frames unless it accepts JSON.
    pub(super) fn of(headers: &HeaderMap, also_frames: &str) -> Self {
        let kind = if headers.contains_key(header::CONTENT_TYPE) { media_type(headers) } else { String::new() };
        let frames_in = kind == FRAMES || (kind == also_frames && !kind.is_empty());
        let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let frames_out = accepted.contains(FRAMES) || (frames_in && !accepted.contains(JSON));
        Self { frames_in, json_in: kind == JSON, frames_out }
    }

    /// The body must be JSON.
    pub(super) fn check_json(self) -> Result<(), Refusal> {
        let wrong = || Refusal::BadRequest(format!("the body must be {JSON} or {FRAMES}, as its content-type"));
        if self.json_in { Ok(()) } else { Err(wrong()) }
    }
}

/// An answer of a body and its media type.
pub(super) fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// An answer of frames.
pub(super) fn frames(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    respond(status, FRAMES, body.into())
}

/// An answer of JSON.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    respond(status, JSON, body.into())
}

/// An answer without a body.
pub(super) fn no_content() -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}
