//! The door's translation against the state machines themselves, without sockets and cores.

mod garbage;
mod kv;
mod many;
pub(crate) mod shards;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use wasmkeep_storage::Address;

use self::shards::Machines;
use super::{Answer, Book, Refusal, route};

/// A door to the key-value class `kv` and the queues of the class `mail`.
struct Door {
    book: Book,
    machines: Machines,
}

impl Door {
    fn new(shards: u32) -> Self {
        Self { book: shards::book(shards), machines: Machines::default() }
    }

    /// Asks as `_api/test`.
    fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, Refusal> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let header = |(name, value): &(&str, &str)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            (name, HeaderValue::from_str(value).expect("a value"))
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        let routed = route(&self.book, &method, target, &headers)?;
        let caller = Address::new("_api", "test");
        shards::run(routed.answer(&self.machines, &caller, Bytes::copy_from_slice(body), &mut |_| Ok(())))
    }

    fn get(&self, target: &str) -> Result<Answer, Refusal> {
        self.ask("GET", target, &[], b"")
    }

    fn put(&self, target: &str, value: &[u8]) -> Result<Answer, Refusal> {
        self.ask("PUT", target, &[], value)
    }

    fn json(&self, target: &str, body: &serde_json::Value) -> Result<serde_json::Value, Refusal> {
        let answer = self.ask("POST", target, &[("content-type", "application/json")], body.to_string().as_bytes())?;
        Ok(serde_json::from_slice(answer.body()).expect("JSON"))
    }

    fn list(&self, query: &str) -> serde_json::Value {
        serde_json::from_slice(self.get(&format!("/kv/kv{query}")).expect("lists").body()).expect("JSON")
    }
}

/// A key as it stands in a path.
fn encoded(key: &[u8]) -> String {
    percent_encoding::percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn etag(answer: &Answer) -> &str {
    answer.headers().get("etag").expect("an ETag").to_str().expect("is text")
}

/// The status and type of a refusal.
fn kind(refused: &Result<Answer, Refusal>) -> (u16, String) {
    let answer = refused.as_ref().expect_err("is refused").to_http();
    let body: serde_json::Value = serde_json::from_slice(answer.body()).expect("JSON");
    assert_eq!(body["status"], answer.status().as_u16());
    (answer.status().as_u16(), body["type"].as_str().expect("a text").to_owned())
}
