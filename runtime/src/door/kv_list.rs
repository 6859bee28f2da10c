//! A listing of a key-value class: pages of all shards, merged in byte order.

use std::rc::Rc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde_json::{Map, Value, json};
use wasmkeep_classes::host::Call;
use wasmkeep_classes::kv::merge::{Merge, OwnedListed};
use wasmkeep_classes::kv::protocol::{List, Page};
use wasmkeep_classes::kv::{Shards, client};
use wasmkeep_classes::limits::KV_LIST_MAX;
use wasmkeep_storage::Address;

use super::book::KvClass;
use super::kv::moved;
use super::refusal::Refusal;
use super::target::Query;
use super::text::{self, put};
use super::{Answer, Room, ask};
use crate::event::Problem;
use crate::http::Actors;
use crate::limits::{DOOR_LIST_ROWS, DOOR_LISTING_BYTES_MAX, DOOR_SHARDS_AT_ONCE};

/// Rows that a shard is asked for beyond its share, so that most listings need one page of each.
const SPARE_ROWS: u32 = 16;

/// A listing.
pub(crate) struct Head {
    class: Rc<KvClass>,
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    limit: u32,
    values: bool,
}

impl Head {
    /// Understands the parameters.
    pub(super) fn read(class: Rc<KvClass>, mut query: Query<'_>) -> Result<Self, Refusal> {
        let head = Self {
            class,
            prefix: query.bytes("prefix")?.unwrap_or_default(),
            after: query.bytes("after")?,
            limit: query.number("limit")?.unwrap_or(DOOR_LIST_ROWS),
            values: query.flag("values")?,
        };
        query.end(&["after", "limit", "prefix", "values"])?;
        if !(1..=KV_LIST_MAX).contains(&head.limit) {
            return Err(Refusal::BadRequest(format!("limit is a number from 1 to {KV_LIST_MAX}")));
        }
        Ok(head)
    }

    fn list(&self) -> List<'_> {
        List { prefix: &self.prefix, after: self.after.as_deref(), limit: self.limit, values: self.values }
    }
}

/// Why a listing did not end: the class has so many shards, or a refusal.
enum Ended {
    Moved(Shards),
    Refused(Refusal),
}

/// Lists, once more if the class turns out to have another number of shards.
pub(super) async fn answer<A: Actors>(actors: &A, caller: &Address, head: &Head, room: Room<'_>) -> Result<Answer, Refusal> {
    let first = list(actors, caller, head, head.class.shards(), room).await;
    let ended = match first {
        Err(Ended::Moved(shards)) => {
            head.class.learn(shards);
            list(actors, caller, head, shards, room).await
        }
        ended => ended,
    };
    match ended {
        Ok(page) => Ok(text::json(StatusCode::OK, to_json(&page))),
        Err(Ended::Refused(refusal)) => Err(refusal),
        Err(Ended::Moved(shards)) => Err(client::Error::Moved { shards: shards.count() }.into()),
    }
}

async fn list<A: Actors>(
    actors: &A,
    caller: &Address,
    head: &Head,
    shards: Shards,
    room: Room<'_>,
) -> Result<Page<OwnedListed>, Ended> {
    let refused = |refusal: Refusal| Ended::Refused(refusal);
    let mut merge = Merge::new(shards, &head.list()).map_err(|invalid| refused(invalid.into()))?;
    let share = head.limit.div_ceil(shards.count()).saturating_mul(2).saturating_add(SPARE_ROWS);
    let mut held = 0;
    loop {
        let mut calls = Vec::new();
        for (shard, list) in merge.wanted() {
            let list = List { limit: list.limit.min(share), ..list };
            let Call { path, body } = client::list(shards, &list).map_err(|invalid| refused(invalid.into()))?;
            calls.push((shard, path, Bytes::from(body)));
        }
        if calls.is_empty() {
            return Ok(merge.finish());
        }
        let asked = calls
            .into_iter()
            .map(async |(shard, path, body)| (shard, ask(actors, caller, head.class.shard(shard), path, body).await));
        let mut replies = stream::iter(asked).buffer_unordered(DOOR_SHARDS_AT_ONCE);
        while let Some((shard, reply)) = replies.next().await {
            let (status, reply) = reply.map_err(refused)?;
            if let Some(told) = moved(status, &reply) {
                return Err(Ended::Moved(told));
            }
            held += reply.len();
            room(reply.len()).map_err(|problem| refused(problem.into()))?;
            if held > DOOR_LISTING_BYTES_MAX {
                let words = "the rows of this listing are too many bytes at once; ask for a smaller limit, or without values";
                return Err(refused(Problem::TooLarge(words.into()).into()));
            }
            let page = client::listed(status, &reply).map_err(|error| refused(error.into()))?;
            merge.give(shard, &page);
        }
    }
}

/// `{"rows": [{"key": "..", "version": 1, "ttl_ms": 1, "value": ".."}], "more": false}`
fn to_json(page: &Page<OwnedListed>) -> Vec<u8> {
    let mut rows = Vec::with_capacity(page.rows.len());
    for OwnedListed { key, version, ttl_ms, value } in &page.rows {
        let mut object = Map::new();
        put(&mut object, "key", key);
        object.insert("version".into(), (*version).into());
        if let Some(ttl_ms) = ttl_ms {
            object.insert("ttl_ms".into(), (*ttl_ms).into());
        }
        if let Some(value) = value {
            put(&mut object, "value", value);
        }
        rows.push(Value::from(object));
    }
    json!({ "rows": rows, "more": page.has_more }).to_string().into_bytes()
}
