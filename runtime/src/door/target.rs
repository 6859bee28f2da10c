//! What stands in a request's target and conditional headers: percent-encoded bytes, parameters, durations, versions.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::refusal::Refusal;
use crate::config::{nearest, parse_duration, shown};

/// Percent-decodes once; '+' is a '+'. A broken escape is refused, not taken literally, so that no key has two readings.
pub(super) fn decode<'a>(what: &str, text: &'a str) -> Result<Cow<'a, [u8]>, Refusal> {
    let bytes = text.as_bytes();
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if escapes.any(|(at, _)| !bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))) {
        return Err(Refusal::BadRequest(format!(
            "{what} has a '%' that is not followed by two hexadecimal digits; write it as %25"
        )));
    }
    Ok(percent_decode_str(text).into())
}

/// The parameters of a target, taken one by one, so that what is left is what nobody knows.
pub(super) struct Query<'a> {
    pairs: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Query<'a> {
    /// Takes what stands behind the '?' apart. A parameter may be given once.
    pub(super) fn parse(text: &'a str) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').map_or((pair, None), |(name, value)| (name, Some(value)));
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(Refusal::BadRequest(format!("parameter {} is given twice", shown(name))));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    fn take(&mut self, name: &str) -> Option<Option<&'a str>> {
        let at = self.pairs.iter().position(|(known, _)| *known == name)?;
        Some(self.pairs.swap_remove(at).1)
    }

    /// Bytes, percent-decoded.
    pub(super) fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        Ok(Some(decode(name, value.unwrap_or_default())?.into_owned()))
    }

    /// A word as it stands.
    pub(super) fn word(&mut self, name: &str) -> Option<&'a str> {
        self.take(name).map(Option::unwrap_or_default)
    }

    /// A whole number.
    pub(super) fn number<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let value = value.unwrap_or_default();
        value.parse().map(Some).map_err(|_| Refusal::BadRequest(format!("{name} is a whole number, not {}", shown(value))))
    }

    /// Whether it is there; `name=true` and `name=false` say so too.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take(name) {
            None | Some(Some("false")) => Ok(false),
            Some(None | Some("true")) => Ok(true),
            Some(Some(value)) => Err(Refusal::BadRequest(format!("{name} stands alone or is true or false, not {}", shown(value)))),
        }
    }

    /// A duration such as `30s`, or a number of ms; ms.
    pub(super) fn duration_ms(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let value = value.unwrap_or_default();
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            return value.parse().map(Some).map_err(|_| Refusal::BadRequest(format!("{name} is too long")));
        }
        let duration = parse_duration(value).map_err(|words| Refusal::BadRequest(format!("{name}: {words}, or a number of ms")))?;
        Ok(Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Nothing may be left.
    pub(super) fn end(self, valid: &[&str]) -> Result<(), Refusal> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        let list = if valid.is_empty() { "none".to_owned() } else { valid.join(", ") };
        Err(Refusal::BadRequest(format!("unknown parameter {}{} (valid: {list})", shown(name), nearest(name, valid))))
    }
}

/// What a header of versions says: `*`, or versions, of which those that are none are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Versions {
    Any,
    These(Vec<i64>),
}

/// The version that an ETag is, `"7"`.
fn version(tag: &str) -> Option<i64> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Reads If-None-Match of a read, where a weak ETag is as good as another.
pub(super) fn versions(headers: &HeaderMap, name: HeaderName) -> Option<Versions> {
    let mut found = None;
    for value in headers.get_all(name) {
        let tags = value.to_str().unwrap_or_default();
        let these = found.get_or_insert_with(Vec::new);
        for tag in tags.split(',').map(str::trim) {
            if tag == "*" {
                return Some(Versions::Any);
            }
            these.extend(version(tag.strip_prefix("W/").unwrap_or(tag)));
        }
    }
    found.map(Versions::These)
}

/// Reads If-Match of a write: one version.
pub(super) fn one_version(headers: &HeaderMap, name: &HeaderName) -> Result<Option<i64>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || Refusal::BadRequest(format!("{name} takes one version, as an ETag gave it: \"7\", in its quotes"));
    let version = value.to_str().ok().and_then(|text| version(text.trim()));
    if values.next().is_some() { Err(wrong()) } else { version.map(Some).ok_or_else(wrong) }
}

/// Splits a target at its '?'.
pub(super) fn split_query(target: &str) -> (&str, &str) {
    target.split_once('?').unwrap_or((target, ""))
}
