//! What is asked of queues, and what they reply, in JSON. Bytes are spelled as in `text`; times are ms by the queue's clock.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use wasmkeep_classes::host::Call;
use wasmkeep_classes::queue::client;
use wasmkeep_classes::queue::protocol::{
    DeadPage, Lease, Leased, Message, Moved, Outcome, Sent, Settled, Settlement, Stats, Which,
};

use super::refusal::Refusal;
use super::text;
use crate::event::Problem;

/// What a redrive is of that names nothing.
pub(super) const EVERY_DEAD_LETTER: Which = Which::DeadOlderThan { age_ms: 0 };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendForm {
    messages: Vec<MessageForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageForm {
    body: Option<String>,
    body_base64: Option<String>,
    #[serde(default)]
    delay_ms: u64,
    dedupe: Option<String>,
    dedupe_base64: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
}

/// `{"messages": [{"body": "..", "delay_ms": 0, "dedupe": "..", "key": ".."}]}`
pub(super) fn send(body: &[u8]) -> Result<Call, Refusal> {
    let mut read = Vec::new();
    for form in text::parse::<SendForm>(body)?.messages {
        let body = text::take("body", form.body, form.body_base64)?;
        let dedupe = text::take_optional("dedupe", form.dedupe, form.dedupe_base64)?;
        let key = text::take_optional("key", form.key, form.key_base64)?;
        read.push((body, form.delay_ms, dedupe, key));
    }
    let messages: Vec<Message<'_>> = read
        .iter()
        .map(|(body, delay_ms, dedupe, key)| Message {
            body,
            delay_ms: *delay_ms,
            dedupe_id: dedupe.as_deref(),
            ordering_key: key.as_deref(),
        })
        .collect();
    Ok(client::send(&messages)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleForm {
    outcomes: Vec<OutcomeForm>,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum OutcomeForm {
    Ack {
        lease: String,
    },
    Retry {
        lease: String,
        delay_ms: Option<u64>,
        #[serde(default)]
        error: String,
    },
    Extend {
        lease: String,
        visibility_ms: u64,
    },
}

/// `{"outcomes": [{"lease": "..", "do": "ack" | "retry" | "extend", ..}]}`
pub(super) fn settle(body: &[u8]) -> Result<Call, Refusal> {
    let form: SettleForm = text::parse(body)?;
    let mut settlements = Vec::with_capacity(form.outcomes.len());
    for form in &form.outcomes {
        let (lease, outcome) = match form {
            OutcomeForm::Ack { lease } => (lease, Outcome::Ack),
            OutcomeForm::Retry { lease, delay_ms, error } => (lease, Outcome::Retry { delay_ms: *delay_ms, error }),
            OutcomeForm::Extend { lease, visibility_ms } => (lease, Outcome::Extend { visibility_ms: *visibility_ms }),
        };
        settlements.push(Settlement { lease: parse_lease(lease)?, outcome });
    }
    Ok(client::settle(&settlements)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtendForm {
    leases: Vec<String>,
}

/// `{"leases": [".."]}`
pub(super) fn extend(body: &[u8], visibility_ms: u64) -> Result<Call, Refusal> {
    let form: ExtendForm = text::parse(body)?;
    let extend = |lease: &String| Ok(Settlement { lease: parse_lease(lease)?, outcome: Outcome::Extend { visibility_ms } });
    let settlements = form.leases.iter().map(extend).collect::<Result<Vec<_>, Refusal>>()?;
    Ok(client::settle(&settlements)?)
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum WhichForm {
    DeadIds(Vec<u64>),
    DeadOlderThanMs(u64),
    DeadFailedByMs(u64),
    Live(bool),
    LiveUpToId(u64),
}

/// `{"dead_ids": [1]}`, `{"dead_older_than_ms": 0}`, `{"dead_failed_by_ms": 1}`, `{"live": true}` or `{"live_up_to_id": 1}`
pub(super) fn which(body: &[u8]) -> Result<Which, Refusal> {
    Ok(match text::parse(body)? {
        WhichForm::DeadIds(ids) => Which::DeadIds(ids),
        WhichForm::DeadOlderThanMs(age_ms) => Which::DeadOlderThan { age_ms },
        WhichForm::DeadFailedByMs(at_ms) => Which::DeadFailedBy { at_ms },
        WhichForm::Live(true) => Which::Live,
        WhichForm::Live(false) => return Err(Refusal::BadRequest("live is true, or is not said".into())),
        WhichForm::LiveUpToId(id) => Which::LiveUpTo { id },
    })
}

fn which_form(which: Which) -> WhichForm {
    match which {
        Which::DeadIds(ids) => WhichForm::DeadIds(ids),
        Which::DeadOlderThan { age_ms } => WhichForm::DeadOlderThanMs(age_ms),
        Which::DeadFailedBy { at_ms } => WhichForm::DeadFailedByMs(at_ms),
        Which::Live => WhichForm::Live(true),
        Which::LiveUpTo { id } => WhichForm::LiveUpToId(id),
    }
}

/// A lease is one text, so that nobody has to know what it is made of.
fn lease_text(lease: Lease) -> String {
    format!("{}-{}-{}", lease.id, lease.attempt, lease.epoch)
}

fn parse_lease(text: &str) -> Result<Lease, Refusal> {
    let mut parts = text.split('-');
    let lease = (|| {
        let (id, attempt, epoch) = (parts.next()?, parts.next()?, parts.next()?);
        let lease = Lease { id: id.parse().ok()?, attempt: attempt.parse().ok()?, epoch: epoch.parse().ok()? };
        parts.next().is_none().then_some(lease)
    })();
    lease.ok_or_else(|| {
        Refusal::BadRequest(format!("{} is no lease; give it as the lease of a message said it", crate::config::shown(text)))
    })
}

/// `{"id": 1, "due_at_ms": 1, "duplicate": false}`
pub(super) fn sent_one(sent: &[Sent]) -> Result<Vec<u8>, Refusal> {
    let [sent] = sent else { return Err(Problem::UnknownOutcome.into()) };
    Ok(one(sent).into_bytes())
}

fn one(sent: &Sent) -> String {
    format!("{{\"id\":{},\"due_at_ms\":{},\"duplicate\":{}}}", sent.id, sent.due_at_ms, sent.is_duplicate)
}

/// `{"sent": [..]}`, each as of one.
pub(super) fn sent(sent: &[Sent]) -> Vec<u8> {
    let each: Vec<_> = sent.iter().map(one).collect();
    format!("{{\"sent\":[{}]}}", each.join(",")).into_bytes()
}

/// `{"messages": [{"lease": "..", "id": 1, "attempt": 1, "enqueued_at_ms": 1, "key": "..", "body": ".."}]}`
pub(super) fn leased(leased: &[Leased<'_>]) -> Vec<u8> {
    let message = |leased: &Leased<'_>| {
        let Leased { lease, enqueued_at_ms, ordering_key, body } = leased;
        let mut object = Map::new();
        object.insert("lease".into(), lease_text(*lease).into());
        object.insert("id".into(), lease.id.into());
        object.insert("attempt".into(), lease.attempt.into());
        object.insert("enqueued_at_ms".into(), (*enqueued_at_ms).into());
        if let Some(key) = ordering_key {
            text::put(&mut object, "key", key);
        }
        text::put(&mut object, "body", body);
        Value::from(object)
    };
    let messages: Vec<_> = leased.iter().map(message).collect();
    json!({ "messages": messages }).to_string().into_bytes()
}

/// `{"settled": ["done" | "stale" | "dead"]}`
pub(super) fn settled(settled: &[Settled]) -> Vec<u8> {
    let word = |settled: &Settled| match settled {
        Settled::Done => "done",
        Settled::Stale => "stale",
        Settled::Dead => "dead",
    };
    let words: Vec<_> = settled.iter().map(word).collect();
    json!({ "settled": words }).to_string().into_bytes()
}

/// `{"count": 1, "next": null | {..}}`: what to ask for to go on, as it is asked for.
pub(super) fn moved(moved: Moved) -> Vec<u8> {
    json!({ "count": moved.count, "next": moved.next.map(which_form) }).to_string().into_bytes()
}

/// The queue in numbers.
pub(super) fn stats(stats: &Stats) -> Vec<u8> {
    let Stats { visible, delayed, leased, blocked, dead, oldest_age_ms, is_paused, counters } = stats;
    let since_opened = json!({
        "sent": counters.sent,
        "duplicates": counters.duplicates,
        "leased": counters.leased,
        "acked": counters.acked,
        "retried": counters.retried,
        "stale": counters.stale,
        "dead": counters.dead,
        "redriven": counters.redriven,
    });
    json!({
        "visible": visible,
        "delayed": delayed,
        "leased": leased,
        "blocked": blocked,
        "dead": dead,
        "oldest_age_ms": oldest_age_ms,
        "paused": is_paused,
        "since_opened": since_opened,
    })
    .to_string()
    .into_bytes()
}

/// `{"letters": [{"id": 1, "enqueued_at_ms": 1, "attempts": 1, "failed_at_ms": 1, "reason": "..", "key": "..", "body": ".."}], "more": false}`
pub(super) fn dead(page: &DeadPage<'_>) -> Vec<u8> {
    let mut letters = Vec::with_capacity(page.letters.len());
    for letter in &page.letters {
        let mut object = Map::new();
        object.insert("id".into(), letter.id.into());
        object.insert("enqueued_at_ms".into(), letter.enqueued_at_ms.into());
        object.insert("attempts".into(), letter.attempts.into());
        object.insert("failed_at_ms".into(), letter.failed_at_ms.into());
        object.insert("reason".into(), letter.reason.into());
        if let Some(key) = letter.ordering_key {
            text::put(&mut object, "key", key);
        }
        text::put(&mut object, "body", letter.body);
        letters.push(Value::from(object));
    }
    json!({ "letters": letters, "more": page.has_more }).to_string().into_bytes()
}
