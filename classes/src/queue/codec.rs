//! The bytes of what clients, queues and consumers say to each other. Numbers and bytes are framed as in `wire`; a list is its
//! length and its items, a stream is items behind a 1 each and then a 0. Whoever changes any of it changes the version in the
//! path.
//!
//! Rules are checked on both sides: encoders refuse what the queue would refuse.

use super::protocol::{
    Counters, DeadLetter, DeadPage, Invalid, Lease, Leased, Message, Moved, Outcome, Sent, Settled, Settlement, Stats, Which,
    check_batch, check_limit, check_visibility,
};
use crate::limits::{QUEUE_ERROR_BYTES_MAX, QUEUE_REQUEST_BYTES_MAX};
use crate::wire::{Malformed, Reader, Writer};

/// Reads a list whose items take at least `item_bytes_min` each. Its length is checked before anything is allocated.
fn list<'a, T>(
    reader: &mut Reader<'a>,
    item_bytes_min: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let count = reader.count(item_bytes_min)?;
    check_batch(count)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Ok(items)
}

/// Decodes a message that is nothing but a list.
fn only_list<'a, T>(
    bytes: &'a [u8],
    item_bytes_min: usize,
    item: impl FnMut(&mut Reader<'a>) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let mut reader = Reader::new(bytes);
    let items = list(&mut reader, item_bytes_min, item)?;
    reader.end()?;
    Ok(items)
}

/// The length of a list. Lists are bounded by `QUEUE_BATCH_MAX`.
fn length<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).expect("lists are bounded")
}

fn put_key(writer: &mut Writer, key: Option<&[u8]>) {
    match key {
        Some(key) => writer.u8(1).bytes(key),
        None => writer.u8(0),
    };
}

fn take_key<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => reader.bytes().map(Some),
        _ => Err(Malformed),
    }
}

fn take_flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

pub(super) fn decode_nothing(bytes: &[u8]) -> Result<(), Invalid> {
    Ok(Reader::new(bytes).end()?)
}

pub(super) fn encode_send(messages: &[Message<'_>]) -> Result<Vec<u8>, Invalid> {
    check_batch(messages.len())?;
    let mut writer = Writer::new();
    writer.u32(length(messages));
    let mut bytes = 0;
    for message in messages {
        message.check()?;
        bytes += message.body.len();
        if bytes > QUEUE_REQUEST_BYTES_MAX {
            return Err(Invalid::RequestBytes(bytes));
        }
        writer.u64(message.delay_ms);
        put_key(&mut writer, message.dedupe_id);
        put_key(&mut writer, message.ordering_key);
        writer.bytes(message.body);
    }
    Ok(writer.into_bytes())
}

pub(super) fn decode_send(bytes: &[u8]) -> Result<Vec<Message<'_>>, Invalid> {
    only_list(bytes, 14, |reader| {
        let delay_ms = reader.u64()?;
        let (dedupe_id, ordering_key) = (take_key(reader)?, take_key(reader)?);
        let message = Message { body: reader.bytes()?, delay_ms, dedupe_id, ordering_key };
        message.check()?;
        Ok(message)
    })
}

pub(super) fn encode_sent(sent: &[Sent]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32(length(sent));
    for sent in sent {
        writer.u64(sent.id).u64(sent.due_at_ms).u8(sent.is_duplicate.into());
    }
    writer.into_bytes()
}

pub(super) fn decode_sent(bytes: &[u8]) -> Result<Vec<Sent>, Invalid> {
    only_list(bytes, 17, |reader| Ok(Sent { id: reader.u64()?, due_at_ms: reader.u64()?, is_duplicate: take_flag(reader)? }))
}

pub(super) fn encode_lease(max: u32, visibility_ms: u64) -> Result<Vec<u8>, Invalid> {
    check_limit(max)?;
    check_visibility(visibility_ms)?;
    let mut writer = Writer::new();
    writer.u32(max).u64(visibility_ms);
    Ok(writer.into_bytes())
}

pub(super) fn decode_lease(bytes: &[u8]) -> Result<(u32, u64), Invalid> {
    let mut reader = Reader::new(bytes);
    let (max, visibility_ms) = (reader.u32()?, reader.u64()?);
    reader.end()?;
    check_limit(max)?;
    check_visibility(visibility_ms)?;
    Ok((max, visibility_ms))
}

/// One leased message of a stream. The queue writes them as it reads them.
pub(super) fn put_leased(writer: &mut Writer, leased: &Leased<'_>) {
    writer.u8(1);
    put_lease(writer, leased.lease);
    writer.u64(leased.enqueued_at_ms);
    put_key(writer, leased.ordering_key);
    writer.bytes(leased.body);
}

/// Ends a stream.
pub(super) fn end_stream(mut writer: Writer) -> Vec<u8> {
    writer.u8(0);
    writer.into_bytes()
}

fn stream<'a, T>(reader: &mut Reader<'a>, mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
    let mut items = Vec::new();
    while take_flag(reader)? {
        check_batch(items.len() + 1)?;
        items.push(item(reader)?);
    }
    Ok(items)
}

fn put_lease(writer: &mut Writer, lease: Lease) {
    writer.u64(lease.id).u32(lease.attempt).u64(lease.epoch);
}

fn take_lease(reader: &mut Reader<'_>) -> Result<Lease, Malformed> {
    Ok(Lease { id: reader.u64()?, attempt: reader.u32()?, epoch: reader.u64()? })
}

/// The messages of a lease's reply, or of a delivery.
///
/// # Errors
/// `Invalid::Malformed`, and `Invalid::Batch` for more than a queue gives.
pub fn decode_delivery(bytes: &[u8]) -> Result<Vec<Leased<'_>>, Invalid> {
    let mut reader = Reader::new(bytes);
    let leased = stream(&mut reader, |reader| {
        let (lease, enqueued_at_ms) = (take_lease(reader)?, reader.u64()?);
        Ok(Leased { lease, enqueued_at_ms, ordering_key: take_key(reader)?, body: reader.bytes()? })
    })?;
    reader.end()?;
    Ok(leased)
}

/// A consumer's reply to a delivery, or a settle's request. What a reply does not mention waits for its lease to run out.
///
/// # Errors
/// The rule that an outcome breaks.
pub fn encode_outcomes(settlements: &[Settlement<'_>]) -> Result<Vec<u8>, Invalid> {
    check_batch(settlements.len())?;
    let mut writer = Writer::new();
    writer.u32(length(settlements));
    for Settlement { lease, outcome } in settlements {
        outcome.check()?;
        put_lease(&mut writer, *lease);
        match outcome {
            Outcome::Ack => writer.u8(0),
            Outcome::Retry { delay_ms, error } => writer.u8(1).option_u64(*delay_ms).text(cut(error)),
            Outcome::Extend { visibility_ms } => writer.u8(2).u64(*visibility_ms),
        };
    }
    Ok(writer.into_bytes())
}

pub(super) fn decode_outcomes(bytes: &[u8]) -> Result<Vec<Settlement<'_>>, Invalid> {
    only_list(bytes, 21, |reader| {
        let lease = take_lease(reader)?;
        let outcome = match reader.u8()? {
            0 => Outcome::Ack,
            1 => Outcome::Retry { delay_ms: reader.option_u64()?, error: cut(reader.text()?) },
            2 => Outcome::Extend { visibility_ms: reader.u64()? },
            _ => return Err(Invalid::Malformed),
        };
        outcome.check()?;
        Ok(Settlement { lease, outcome })
    })
}

/// As much of an error text as is kept.
pub(super) fn cut(error: &str) -> &str {
    &error[..error.floor_char_boundary(QUEUE_ERROR_BYTES_MAX)]
}

pub(super) fn encode_settled(settled: &[Settled]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32(length(settled));
    for settled in settled {
        writer.u8(match settled {
            Settled::Done => 0,
            Settled::Stale => 1,
            Settled::Dead => 2,
        });
    }
    writer.into_bytes()
}

pub(super) fn decode_settled(bytes: &[u8]) -> Result<Vec<Settled>, Invalid> {
    only_list(bytes, 1, |reader| match reader.u8()? {
        0 => Ok(Settled::Done),
        1 => Ok(Settled::Stale),
        2 => Ok(Settled::Dead),
        _ => Err(Invalid::Malformed),
    })
}

pub(super) fn encode_stats(stats: &Stats) -> Vec<u8> {
    let Stats { visible, delayed, leased, blocked, dead, oldest_age_ms, is_paused, counters } = stats;
    let mut writer = Writer::new();
    writer.u64(*visible).u64(*delayed).u64(*leased).u64(*blocked).u64(*dead);
    writer.option_u64(*oldest_age_ms).u8((*is_paused).into());
    let Counters { sent, duplicates, leased, acked, retried, stale, dead, redriven } = counters;
    writer.u64(*sent).u64(*duplicates).u64(*leased).u64(*acked).u64(*retried).u64(*stale).u64(*dead).u64(*redriven);
    writer.into_bytes()
}

pub(super) fn decode_stats(bytes: &[u8]) -> Result<Stats, Invalid> {
    let mut reader = Reader::new(bytes);
    let stats = Stats {
        visible: reader.u64()?,
        delayed: reader.u64()?,
        leased: reader.u64()?,
        blocked: reader.u64()?,
        dead: reader.u64()?,
        oldest_age_ms: reader.option_u64()?,
        is_paused: take_flag(&mut reader)?,
        counters: Counters {
            sent: reader.u64()?,
            duplicates: reader.u64()?,
            leased: reader.u64()?,
            acked: reader.u64()?,
            retried: reader.u64()?,
            stale: reader.u64()?,
            dead: reader.u64()?,
            redriven: reader.u64()?,
        },
    };
    reader.end()?;
    Ok(stats)
}

pub(super) fn encode_dead(after: u64, limit: u32) -> Result<Vec<u8>, Invalid> {
    check_limit(limit)?;
    let mut writer = Writer::new();
    writer.u64(after).u32(limit);
    Ok(writer.into_bytes())
}

pub(super) fn decode_dead(bytes: &[u8]) -> Result<(u64, u32), Invalid> {
    let mut reader = Reader::new(bytes);
    let (after, limit) = (reader.u64()?, reader.u32()?);
    reader.end()?;
    check_limit(limit)?;
    Ok((after, limit))
}

/// One dead letter of a stream.
pub(super) fn put_dead_letter(writer: &mut Writer, letter: &DeadLetter<'_>) {
    writer.u8(1).u64(letter.id).u64(letter.enqueued_at_ms).u32(letter.attempts).u64(letter.failed_at_ms).text(letter.reason);
    put_key(writer, letter.ordering_key);
    writer.bytes(letter.body);
}

pub(super) fn end_dead_page(mut writer: Writer, has_more: bool) -> Vec<u8> {
    writer.u8(0).u8(has_more.into());
    writer.into_bytes()
}

pub(super) fn decode_dead_page(bytes: &[u8]) -> Result<DeadPage<'_>, Invalid> {
    let mut reader = Reader::new(bytes);
    let letters = stream(&mut reader, |reader| {
        let (id, enqueued_at_ms, attempts) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let (failed_at_ms, reason) = (reader.u64()?, reader.text()?);
        let (ordering_key, body) = (take_key(reader)?, reader.bytes()?);
        Ok(DeadLetter { id, enqueued_at_ms, attempts, failed_at_ms, reason, ordering_key, body })
    })?;
    let has_more = take_flag(&mut reader)?;
    reader.end()?;
    Ok(DeadPage { letters, has_more })
}

fn put_which(writer: &mut Writer, which: &Which) {
    match which {
        Which::DeadIds(ids) => {
            writer.u8(1).u32(length(ids));
            for id in ids {
                writer.u64(*id);
            }
        }
        Which::DeadOlderThan { age_ms } => {
            writer.u8(2).u64(*age_ms);
        }
        Which::DeadFailedBy { at_ms } => {
            writer.u8(3).u64(*at_ms);
        }
        Which::Live => {
            writer.u8(4);
        }
        Which::LiveUpTo { id } => {
            writer.u8(5).u64(*id);
        }
    }
}

fn take_which(kind: u8, reader: &mut Reader<'_>) -> Result<Which, Invalid> {
    Ok(match kind {
        1 => Which::DeadIds(list(reader, 8, |reader| Ok(reader.u64()?))?),
        2 => Which::DeadOlderThan { age_ms: reader.u64()? },
        3 => Which::DeadFailedBy { at_ms: reader.u64()? },
        4 => Which::Live,
        5 => Which::LiveUpTo { id: reader.u64()? },
        _ => return Err(Invalid::Malformed),
    })
}

pub(super) fn encode_which(which: &Which) -> Result<Vec<u8>, Invalid> {
    if let Which::DeadIds(ids) = which {
        check_batch(ids.len())?;
    }
    let mut writer = Writer::new();
    put_which(&mut writer, which);
    Ok(writer.into_bytes())
}

pub(super) fn decode_which(bytes: &[u8]) -> Result<Which, Invalid> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u8()?;
    let which = take_which(kind, &mut reader)?;
    reader.end()?;
    Ok(which)
}

pub(super) fn encode_moved(moved: &Moved) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u64(moved.count);
    match &moved.next {
        Some(which) => put_which(&mut writer, which),
        None => {
            writer.u8(0);
        }
    }
    writer.into_bytes()
}

pub(super) fn decode_moved(bytes: &[u8]) -> Result<Moved, Invalid> {
    let mut reader = Reader::new(bytes);
    let count = reader.u64()?;
    let next = match reader.u8()? {
        0 => None,
        kind => Some(take_which(kind, &mut reader)?),
    };
    reader.end()?;
    Ok(Moved { count, next })
}
