//! Many keys in JSON: what is asked and what became of each, in order. Bytes are spelled as in `text`.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use wasmkeep_classes::kv::protocol::{Expect, Found, Outcome, Write};

use super::refusal::Refusal;
use super::text;

/// A request.
pub(super) enum Form {
    Get(Vec<Vec<u8>>),
    Write { writes: Vec<OwnedWrite>, is_atomic: bool },
}

/// A write that owns its bytes.
pub(super) enum OwnedWrite {
    Put { key: Vec<u8>, value: Vec<u8>, expect: Expect, ttl_ms: Option<u64> },
    Delete { key: Vec<u8>, expect: Expect },
    Increment { key: Vec<u8>, delta: i64 },
}

impl OwnedWrite {
    pub(super) fn write(&self) -> Write<'_> {
        match self {
            Self::Put { key, value, expect, ttl_ms } => Write::Put { key, value, expect: *expect, ttl_ms: *ttl_ms },
            Self::Delete { key, expect } => Write::Delete { key, expect: *expect },
            Self::Increment { key, delta } => Write::Increment { key, delta: *delta },
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestForm {
    get: Option<Vec<KeyForm>>,
    write: Option<Vec<WriteForm>>,
    #[serde(default)]
    atomic: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyForm {
    key: Option<String>,
    key_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum WriteForm {
    Put {
        key: Option<String>,
        key_base64: Option<String>,
        value: Option<String>,
        value_base64: Option<String>,
        if_version: Option<i64>,
        #[serde(default)]
        if_absent: bool,
        ttl_ms: Option<u64>,
    },
    Delete {
        key: Option<String>,
        key_base64: Option<String>,
        if_version: Option<i64>,
    },
    Increment {
        key: Option<String>,
        key_base64: Option<String>,
        by: i64,
    },
}

impl WriteForm {
    fn own(self) -> Result<OwnedWrite, Refusal> {
        Ok(match self {
            Self::Put { key, key_base64, value, value_base64, if_version, if_absent, ttl_ms } => OwnedWrite::Put {
                key: text::take("key", key, key_base64)?,
                value: text::take("value", value, value_base64)?,
                expect: expect(if_version, if_absent)?,
                ttl_ms,
            },
            Self::Delete { key, key_base64, if_version } => {
                OwnedWrite::Delete { key: text::take("key", key, key_base64)?, expect: expect(if_version, false)? }
            }
            Self::Increment { key, key_base64, by } => {
                OwnedWrite::Increment { key: text::take("key", key, key_base64)?, delta: by }
            }
        })
    }
}

fn expect(version: Option<i64>, absent: bool) -> Result<Expect, Refusal> {
    match (version, absent) {
        (None, false) => Ok(Expect::Any),
        (None, true) => Ok(Expect::Absent),
        (Some(version), false) => Ok(Expect::Version(version)),
        (Some(_), true) => Err(Refusal::BadRequest("give if_version or if_absent, not both".into())),
    }
}

/// `{"get": [{"key": ".."}]}` or `{"write": [{"do": "put", "key": "..", "value": ".."}], "atomic": false}`
pub(super) fn parse(body: &[u8]) -> Result<Form, Refusal> {
    match text::parse(body)? {
        RequestForm { get: Some(keys), write: None, atomic: false } => {
            let keys = keys.into_iter().map(|form| text::take("key", form.key, form.key_base64));
            Ok(Form::Get(keys.collect::<Result<_, _>>()?))
        }
        RequestForm { get: None, write: Some(writes), atomic } => {
            let writes = writes.into_iter().map(WriteForm::own).collect::<Result<_, _>>()?;
            Ok(Form::Write { writes, is_atomic: atomic })
        }
        _ => Err(Refusal::BadRequest("give a list of keys as get, or one of writes as write; atomic is for writes".into())),
    }
}

/// `{"found": [null | {"value": "..", "version": 1, "ttl_ms": 1}]}`
pub(super) fn found<'a>(found: impl Iterator<Item = Option<Found<'a>>>) -> Vec<u8> {
    let one = |Found { value, version, ttl_ms }: Found<'_>| {
        let mut object = Map::new();
        text::put(&mut object, "value", value);
        object.insert("version".into(), version.into());
        if let Some(ttl_ms) = ttl_ms {
            object.insert("ttl_ms".into(), ttl_ms.into());
        }
        Value::from(object)
    };
    let found: Vec<Value> = found.map(|found| found.map_or(Value::Null, one)).collect();
    json!({ "found": found }).to_string().into_bytes()
}

fn one(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Put { version } => json!({ "version": version }),
        Outcome::Deleted { existed } => json!({ "deleted": existed }),
        Outcome::Incremented { value, version } => json!({ "value": value, "version": version }),
        Outcome::Conflict { current } => json!({ "error": "conflict", "version": current }),
        Outcome::NotANumber => json!({ "error": "not-a-number" }),
        Outcome::Overflow => json!({ "error": "overflow" }),
        Outcome::NotApplied => json!({ "error": "not-applied" }),
    }
}

/// `{"results": [..]}`
pub(super) fn outcomes(outcomes: &[Outcome]) -> Vec<u8> {
    let results: Vec<Value> = outcomes.iter().map(one).collect();
    json!({ "results": results }).to_string().into_bytes()
}

/// An atomic call of which a write failed, so that none was done: a problem with the results.
pub(super) fn not_applied(outcomes: &[Outcome]) -> Vec<u8> {
    let results: Vec<Value> = outcomes.iter().map(one).collect();
    let detail = "nothing was written: not all of the writes could be done";
    json!({ "type": "conflict", "title": "Conflict", "status": 409, "detail": detail, "results": results }).to_string().into_bytes()
}
