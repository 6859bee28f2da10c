//! Queues over HTTP: what is asked of which queue, as a request of the queues' protocol, and what its reply is over HTTP.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use wasmkeep_classes::host::Call;
use wasmkeep_classes::queue::client;
use wasmkeep_classes::queue::protocol::Message;
use wasmkeep_storage::Address;

use super::book::{Book, QueueClass};
use super::queue_json as form;
use super::refusal::Refusal;
use super::target::{Query, split_query};
use super::text::{Media, frames, json, no_content};
use super::{Answer, text};
use crate::router::Route;

/// Dead letters in one page, unless asked otherwise.
const DEAD_LIMIT: u32 = 100;

/// An operation on a queue.
pub(crate) struct Head {
    class: Rc<QueueClass>,
    name: Arc<str>,
    what: What,
    media: Media,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The body is one message.
    Send {
        delay_ms: u64,
        dedupe_id: Option<Vec<u8>>,
        ordering_key: Option<Vec<u8>>,
    },
    /// The body holds messages.
    SendMany,
    Lease {
        max: u32,
        visibility_ms: u64,
    },
    Settle,
    Extend {
        visibility_ms: u64,
    },
    Pause,
    Resume,
    Redrive,
    Purge,
    Stats,
    Dead {
        after: u64,
        limit: u32,
    },
}

impl What {
    /// Where the actor takes it: what the client of the class says for the same.
    pub(super) const fn path(&self) -> &'static str {
        match self {
            Self::Send { .. } | Self::SendMany => "wasmkeep-queue/v1/send",
            Self::Lease { .. } => "wasmkeep-queue/v1/lease",
            Self::Settle | Self::Extend { .. } => "wasmkeep-queue/v1/settle",
            Self::Pause => "wasmkeep-queue/v1/pause",
            Self::Resume => "wasmkeep-queue/v1/resume",
            Self::Redrive => "wasmkeep-queue/v1/redrive",
            Self::Purge => "wasmkeep-queue/v1/purge",
            Self::Stats => "wasmkeep-queue/v1/stats",
            Self::Dead { .. } => "wasmkeep-queue/v1/dead",
        }
    }
}

impl Head {
    /// Understands `/{class}/{name}` and what follows.
    pub(super) fn read(book: &Book, method: &Method, target: &str, headers: &HeaderMap) -> Result<Self, Refusal> {
        let route = Route::parse(target)?;
        let class = book.queue(route.class)?;
        let (path, query) = split_query(&route.path);
        let media = Media::of(headers, "");
        let mut query = Query::parse(query)?;
        let (methods, valid): (_, &[&str]) = match path {
            "/" => ("POST", if media.frames_in { &[] } else { &["dedupe", "delay", "key"] }),
            "/lease" if !media.frames_in => ("POST", &["max", "visibility"]),
            "/extend" => ("POST", &["visibility"]),
            "/send" | "/lease" | "/settle" | "/pause" | "/resume" | "/redrive" | "/purge" => ("POST", &[]),
            "/stats" => ("GET, HEAD", &[]),
            "/dead" => ("GET, HEAD", &["after", "limit"]),
            _ => {
                let words = "a queue has send, lease, settle, extend, pause, resume, redrive, purge, stats and dead";
                return Err(Refusal::NotFound(words.into()));
            }
        };
        if !methods.split(", ").any(|valid| valid == method.as_str()) {
            return Err(Refusal::Method(methods));
        }
        let what = what(path, media, &class, &mut query)?;
        query.end(valid)?;
        Ok(Self { name: Arc::from(route.name), class, what, media })
    }

    /// The queue.
    pub(super) fn address(&self) -> Address {
        Address { class: Arc::clone(&self.class.name), name: Arc::clone(&self.name) }
    }

    /// The request. Frames are what the queue reads anyway: they are passed on as they came, and judged there.
    pub(super) fn request(&self, body: Bytes) -> Result<(&'static str, Bytes), Refusal> {
        if self.media.frames_in {
            return Ok((self.what.path(), body));
        }
        let Call { path, body } = match &self.what {
            What::Send { delay_ms, dedupe_id, ordering_key } => client::send(&[Message {
                body: &body,
                delay_ms: *delay_ms,
                dedupe_id: dedupe_id.as_deref(),
                ordering_key: ordering_key.as_deref(),
            }])?,
            What::SendMany => form::send(self.json(&body)?)?,
            What::Settle => form::settle(self.json(&body)?)?,
            What::Extend { visibility_ms } => form::extend(self.json(&body)?, *visibility_ms)?,
            What::Redrive if body.is_empty() => client::redrive(&form::EVERY_DEAD_LETTER)?,
            What::Redrive => client::redrive(&form::which(self.json(&body)?)?)?,
            What::Purge => client::purge(&form::which(self.json(&body)?)?)?,
            _ if !body.is_empty() => return Err(Refusal::BadRequest("this takes no body".into())),
            What::Lease { max, visibility_ms } => client::lease(*max, *visibility_ms)?,
            What::Pause => client::pause(),
            What::Resume => client::resume(),
            What::Stats => client::stats(),
            What::Dead { after, limit } => client::dead_letters(*after, *limit)?,
        };
        Ok((path, body.into()))
    }

    fn json<'b>(&self, body: &'b Bytes) -> Result<&'b [u8], Refusal> {
        self.media.check_json().map(|()| &**body)
    }

    /// The answer to the queue's reply.
    pub(super) fn answer(&self, status: u16, reply: &Bytes) -> Result<Answer, Refusal> {
        let made = matches!(self.what, What::Send { .. } | What::SendMany);
        let code = if made { StatusCode::CREATED } else { StatusCode::OK };
        if self.media.frames_out && status == 200 && !matches!(self.what, What::Pause | What::Resume) {
            return Ok(frames(code, reply.clone()));
        }
        let text = match &self.what {
            What::Send { .. } => form::sent_one(&client::sent(status, reply)?)?,
            What::SendMany => form::sent(&client::sent(status, reply)?),
            What::Lease { .. } => form::leased(&client::leased(status, reply)?),
            What::Settle | What::Extend { .. } => form::settled(&client::settled(status, reply)?),
            What::Redrive | What::Purge => form::moved(client::moved(status, reply)?),
            What::Stats => form::stats(&client::stats_read(status, reply)?),
            What::Dead { .. } => form::dead(&client::dead_letters_read(status, reply)?),
            What::Pause | What::Resume => {
                client::done(status, reply)?;
                return Ok(no_content());
            }
        };
        Ok(json(code, text))
    }
}

fn what(path: &str, media: Media, class: &QueueClass, query: &mut Query<'_>) -> Result<What, Refusal> {
    Ok(match path {
        "/" if media.frames_in => What::SendMany,
        "/" => What::Send {
            delay_ms: query.duration_ms("delay")?.unwrap_or(0),
            dedupe_id: query.bytes("dedupe")?,
            ordering_key: query.bytes("key")?,
        },
        "/send" => What::SendMany,
        // With frames these two numbers are in the body.
        "/lease" if media.frames_in => What::Lease { max: 0, visibility_ms: 0 },
        "/lease" => What::Lease {
            max: query.number("max")?.unwrap_or(class.batch),
            visibility_ms: query.duration_ms("visibility")?.unwrap_or(class.visibility_ms),
        },
        "/extend" if media.frames_in => {
            return Err(Refusal::BadRequest(format!(
                "frames are for settle, which extends too; extend takes JSON, not {}",
                text::FRAMES
            )));
        }
        "/extend" => What::Extend { visibility_ms: query.duration_ms("visibility")?.unwrap_or(class.visibility_ms) },
        "/settle" => What::Settle,
        "/pause" => What::Pause,
        "/resume" => What::Resume,
        "/redrive" => What::Redrive,
        "/purge" => What::Purge,
        "/dead" => What::Dead { after: query.number("after")?.unwrap_or(0), limit: query.number("limit")?.unwrap_or(DEAD_LIMIT) },
        _ => What::Stats,
    })
}
