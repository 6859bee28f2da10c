//! Many keys of a key-value class in one request: split by shard, each shard asked once or, while it leaves keys out, again; the
//! answers in the order of the keys.
//!
//! Shards answer for themselves. If one fails, what others wrote stays, and the whole is answered as of unknown outcome.

use std::rc::Rc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http::header::HeaderMap;
use wasmkeep_classes::host::Call;
use wasmkeep_classes::kv::protocol::{Found, Options, Outcome, Write};
use wasmkeep_classes::kv::{Shards, client, relay};
use wasmkeep_storage::Address;

use super::book::KvClass;
use super::kv::moved;
use super::kv_json as form;
use super::refusal::Refusal;
use super::target::Query;
use super::text::{self, Media, frames};
use super::{Answer, Room, ask};
use crate::event::Problem;
use crate::http::Actors;
use crate::limits::{DOOR_SHARDS_AT_ONCE, DOOR_VALUES_BYTES_MAX};

/// What shards may be asked in a row before a request is given up: each round answers one key of each shard at least.
const ROUNDS_MAX: usize = 64;

/// An operation on many keys.
pub(crate) struct Head {
    class: Rc<KvClass>,
    /// What frames hold; JSON says it itself.
    frames: Option<Kind>,
    media: Media,
    local: bool,
    operation: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}

impl Head {
    /// Understands headers and parameters.
    pub(super) fn read(class: Rc<KvClass>, mut query: Query<'_>, headers: &HeaderMap) -> Result<Self, Refusal> {
        let media = Media::of(headers, "application/octet-stream");
        if !media.frames_in {
            media.check_json()?;
            let head = Self { class, frames: None, media, local: query.flag("local")?, operation: query.bytes("op")? };
            query.end(&["local", "op"])?;
            return Ok(head);
        }
        let kind = match query.word("frames") {
            Some("get-many") => Kind::Read,
            Some("write-many") => Kind::Write,
            _ => return Err(Refusal::BadRequest("say what the frames are: ?frames=get-many or ?frames=write-many".into())),
        };
        query.end(&["frames"])?;
        Ok(Self { class, frames: Some(kind), media, local: false, operation: None })
    }
}

/// Who asks whom.
struct Asking<'a, A> {
    actors: &'a A,
    caller: &'a Address,
    class: &'a KvClass,
}

/// What one key was found to be; the value is a part of the reply it came in.
type OwnedFound = Option<(Bytes, i64, Option<u64>)>;

/// Does what is asked of many keys.
pub(super) async fn answer<A: Actors>(
    actors: &A,
    caller: &Address,
    head: &Head,
    body: &Bytes,
    room: Room<'_>,
) -> Result<Answer, Refusal> {
    // What is read out of the body, or the requests made of it, are about as large again.
    room(body.len())?;
    let asking = Asking { actors, caller, class: &head.class };
    match head.frames {
        Some(Kind::Read) => asking.read(&relay::keys(body)?, head.media, room).await,
        Some(Kind::Write) => {
            let relay::Writes { writes, is_atomic, options } = relay::writes(body)?;
            asking.write(&writes, is_atomic, options, head.media).await
        }
        None => match form::parse(body)? {
            form::Form::Get(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                relay::check_items(keys.len())?;
                asking.read(&keys, head.media, room).await
            }
            form::Form::Write { writes, is_atomic } => {
                let writes: Vec<Write<'_>> = writes.iter().map(form::OwnedWrite::write).collect();
                relay::check_items(writes.len())?;
                let options = Options { local: head.local, operation: head.operation.as_deref() };
                asking.write(&writes, is_atomic, options, head.media).await
            }
        },
    }
}

/// What is still to be asked for: positions of keys, by shard.
fn split<'k>(shards: Shards, pending: &[usize], key: impl Fn(usize) -> &'k [u8]) -> Vec<(u32, Vec<usize>)> {
    let mut split = shards.split(pending.iter().map(|position| key(*position)));
    for (_, positions) in &mut split {
        for position in positions {
            *position = pending[*position];
        }
    }
    split
}

impl<A: Actors> Asking<'_, A> {
    /// Asks some shards at once. The replies are in no order.
    async fn ask_all(&self, calls: Vec<(u32, Vec<usize>, Call)>) -> Vec<(Vec<usize>, Result<(u16, Bytes), Refusal>)> {
        let asked = calls.into_iter().map(async |(shard, positions, Call { path, body })| {
            (positions, ask(self.actors, self.caller, self.class.shard(shard), path, body.into()).await)
        });
        stream::iter(asked).buffer_unordered(DOOR_SHARDS_AT_ONCE).collect().await
    }

    async fn read(&self, keys: &[&[u8]], media: Media, room: Room<'_>) -> Result<Answer, Refusal> {
        let mut found: Vec<OwnedFound> = vec![None; keys.len()];
        let (mut pending, mut shards, mut held): (Vec<usize>, _, _) = ((0..keys.len()).collect(), self.class.shards(), 0);
        for _ in 0..ROUNDS_MAX {
            let mut calls = Vec::new();
            for (shard, positions) in split(shards, &pending, |position| keys[position]) {
                let of_shard: Vec<&[u8]> = positions.iter().map(|position| keys[*position]).collect();
                calls.push((shard, positions, client::get_many(shards, &of_shard)?));
            }
            pending.clear();
            for (positions, reply) in self.ask_all(calls).await {
                let (status, reply) = reply?;
                if let Some(told) = moved(status, &reply) {
                    self.class.learn(told);
                    shards = told;
                    pending.extend(positions);
                    continue;
                }
                held += reply.len();
                room(reply.len())?;
                if held > DOOR_VALUES_BYTES_MAX {
                    return Err(Problem::TooLarge("the values are too many bytes at once; ask for fewer keys".into()).into());
                }
                let some = client::got_many(status, &reply, positions.len())?;
                pending.extend(&positions[some.len()..]);
                for (position, one) in positions.into_iter().zip(some) {
                    found[position] = one.map(|one| (reply.slice_ref(one.value), one.version, one.ttl_ms));
                }
            }
            if pending.is_empty() {
                return Ok(found_answer(&found, media));
            }
            pending.sort_unstable();
        }
        Err(Problem::Unavailable("the keys are being moved; try again later".into()).into())
    }

    async fn write(&self, writes: &[Write<'_>], is_atomic: bool, options: Options<'_>, media: Media) -> Result<Answer, Refusal> {
        let mut outcomes = vec![Outcome::NotApplied; writes.len()];
        let (mut pending, mut shards): (Vec<usize>, _) = ((0..writes.len()).collect(), self.class.shards());
        let mut is_some_done = false;
        // A second round only for what was sent to a wrong number of shards.
        for _ in 0..2 {
            let of_shards = split(shards, &pending, |position| writes[position].key());
            if is_atomic && of_shards.len() > 1 {
                let words = "the keys of an atomic call must be of one shard, and these are not";
                return Err(Refusal::BadRequest(words.into()));
            }
            let mut calls = Vec::new();
            for (shard, positions) in of_shards {
                let of_shard: Vec<Write<'_>> = positions.iter().map(|position| writes[*position]).collect();
                calls.push((shard, positions, client::write_many(shards, &of_shard, is_atomic, options)?));
            }
            pending.clear();
            let mut refusal = None;
            for (positions, reply) in self.ask_all(calls).await {
                match reply.and_then(|(status, reply)| written(status, &reply)) {
                    Ok(Written::Done(some)) if some.len() == positions.len() => {
                        is_some_done |= some.iter().any(Outcome::is_done);
                        positions.into_iter().zip(some).for_each(|(position, outcome)| outcomes[position] = outcome);
                    }
                    Ok(Written::Done(_)) => refusal = Some(Problem::UnknownOutcome.into()),
                    Ok(Written::NotApplied(some)) => return Ok(outcomes_answer(StatusCode::CONFLICT, &some, media)),
                    Ok(Written::Moved(told)) => {
                        self.class.learn(told);
                        shards = told;
                        pending.extend(positions);
                    }
                    Err(why) => refusal = Some(why),
                }
            }
            match refusal {
                Some(_) if is_some_done => return Err(Problem::UnknownOutcome.into()),
                Some(why) => return Err(why),
                None if pending.is_empty() => return Ok(outcomes_answer(StatusCode::OK, &outcomes, media)),
                None => pending.sort_unstable(),
            }
        }
        Err(if is_some_done { Problem::UnknownOutcome.into() } else { client::Error::Moved { shards: shards.count() }.into() })
    }
}

enum Written {
    Done(Vec<Outcome>),
    NotApplied(Vec<Outcome>),
    Moved(Shards),
}

fn written(status: u16, reply: &Bytes) -> Result<Written, Refusal> {
    if let Some(told) = moved(status, reply) {
        return Ok(Written::Moved(told));
    }
    match client::written_many(status, reply) {
        Ok(outcomes) => Ok(Written::Done(outcomes)),
        Err(client::Error::NotApplied(outcomes)) => Ok(Written::NotApplied(outcomes)),
        Err(error) => Err(error.into()),
    }
}

fn found_answer(found: &[OwnedFound], media: Media) -> Answer {
    let found = found.iter().map(as_found);
    if media.frames_out { frames(StatusCode::OK, relay::found(found)) } else { text::json(StatusCode::OK, form::found(found)) }
}

fn as_found(one: &OwnedFound) -> Option<Found<'_>> {
    one.as_ref().map(|(value, version, ttl_ms)| Found { value, version: *version, ttl_ms: *ttl_ms })
}

fn outcomes_answer(status: StatusCode, outcomes: &[Outcome], media: Media) -> Answer {
    if media.frames_out {
        frames(status, relay::outcomes(outcomes))
    } else if status == StatusCode::CONFLICT {
        text::respond(status, "application/problem+json", form::not_applied(outcomes).into())
    } else {
        text::json(status, form::outcomes(outcomes))
    }
}
