//! The bytes of what clients and shards say to each other. Numbers and bytes are framed as in `wire`; a list is its length and its
//! items, a stream is items behind a 1 each and then a 0. Whoever changes any of it changes the version in the path.
//!
//! Rules are checked on both sides: encoders refuse what a shard would refuse.

use super::protocol::{
    Expect, Found, Imported, Invalid, List, Listed, Options, Outcome, Page, Write, check_items, check_key, check_list,
    check_operation,
};
use crate::wire::{Malformed, Reader, Writer};

const LOCAL: u8 = 1;
const ATOMIC: u8 = 2;

pub(super) fn length<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).expect("lists are bounded")
}

pub(super) fn take_flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

/// Decodes a whole message.
pub(super) fn whole<'a, T, E: From<Malformed>>(
    bytes: &'a [u8],
    take: impl FnOnce(&mut Reader<'a>) -> Result<T, E>,
) -> Result<T, E> {
    let mut reader = Reader::new(bytes);
    let taken = take(&mut reader)?;
    reader.end()?;
    Ok(taken)
}

/// The items of a list.
pub(super) fn list<'a, T, E: From<Malformed>>(
    reader: &mut Reader<'a>,
    item_bytes_min: usize,
    mut take: impl FnMut(&mut Reader<'a>) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let count = reader.count(item_bytes_min)?;
    (0..count).map(|_| take(reader)).collect()
}

/// The items of a stream.
pub(super) fn stream<'a, T>(
    reader: &mut Reader<'a>,
    mut take: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut items = Vec::new();
    while take_flag(reader)? {
        items.push(take(reader)?);
    }
    Ok(items)
}

fn put_expect(writer: &mut Writer, expect: Expect) {
    match expect {
        Expect::Any => writer.u8(0),
        Expect::Absent => writer.u8(1),
        Expect::Version(version) => writer.u8(2).i64(version),
    };
}

fn take_expect(reader: &mut Reader<'_>) -> Result<Expect, Malformed> {
    match reader.u8()? {
        0 => Ok(Expect::Any),
        1 => Ok(Expect::Absent),
        2 => reader.i64().map(Expect::Version),
        _ => Err(Malformed),
    }
}

/// What every write begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) shards: u32,
    pub(super) options: Options<'a>,
    pub(super) is_atomic: bool,
}

fn put_head(writer: &mut Writer, head: &Head<'_>) {
    let flags = u8::from(head.options.local) * LOCAL + u8::from(head.is_atomic) * ATOMIC;
    writer.u32(head.shards).u8(flags);
    match head.options.operation {
        Some(id) => writer.u8(1).bytes(id),
        None => writer.u8(0),
    };
}

fn take_head<'a>(reader: &mut Reader<'a>) -> Result<Head<'a>, Invalid> {
    let (shards, flags) = (reader.u32()?, reader.u8()?);
    if flags & !(LOCAL | ATOMIC) != 0 {
        return Err(Invalid::Malformed);
    }
    let operation = if take_flag(reader)? { Some(reader.bytes()?) } else { None };
    check_operation(operation)?;
    Ok(Head { shards, options: Options { local: flags & LOCAL != 0, operation }, is_atomic: flags & ATOMIC != 0 })
}

/// Which write a message holds: its path says so, or the byte before it in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Delete,
    Increment,
}

fn put_write(writer: &mut Writer, write: &Write<'_>) {
    writer.bytes(write.key());
    match write {
        Write::Put { value, expect, ttl_ms, .. } => {
            put_expect(writer, *expect);
            writer.option_u64(*ttl_ms).bytes(value)
        }
        Write::Delete { expect, .. } => {
            put_expect(writer, *expect);
            writer
        }
        Write::Increment { delta, .. } => writer.i64(*delta),
    };
}

fn take_write<'a>(reader: &mut Reader<'a>, kind: Kind) -> Result<Write<'a>, Invalid> {
    let key = reader.bytes()?;
    let write = match kind {
        Kind::Put => {
            let (expect, ttl_ms) = (take_expect(reader)?, reader.option_u64()?);
            Write::Put { key, value: reader.bytes()?, expect, ttl_ms }
        }
        Kind::Delete => Write::Delete { key, expect: take_expect(reader)? },
        Kind::Increment => Write::Increment { key, delta: reader.i64()? },
    };
    write.check()?;
    Ok(write)
}

pub(super) fn encode_write(shards: u32, options: Options<'_>, write: &Write<'_>) -> Result<Vec<u8>, Invalid> {
    check_operation(options.operation)?;
    write.check()?;
    let value = if let Write::Put { value, .. } = write { value.len() } else { 0 };
    let mut writer = Writer::with_capacity(128 + write.key().len() + value);
    put_head(&mut writer, &Head { shards, options, is_atomic: false });
    put_write(&mut writer, write);
    Ok(writer.into_bytes())
}

pub(super) fn decode_write(bytes: &[u8], kind: Kind) -> Result<(Head<'_>, Write<'_>), Invalid> {
    whole(bytes, |reader| {
        let head = take_head(reader)?;
        if head.is_atomic { Err(Invalid::Malformed) } else { Ok((head, take_write(reader, kind)?)) }
    })
}

pub(super) fn encode_writes(shards: u32, options: Options<'_>, is_atomic: bool, writes: &[Write<'_>]) -> Result<Vec<u8>, Invalid> {
    check_operation(options.operation)?;
    check_items(writes.len())?;
    let mut writer = Writer::new();
    put_head(&mut writer, &Head { shards, options, is_atomic });
    writer.u32(length(writes));
    for write in writes {
        write.check()?;
        writer.u8(match write {
            Write::Put { .. } => 0,
            Write::Delete { .. } => 1,
            Write::Increment { .. } => 2,
        });
        put_write(&mut writer, write);
    }
    Ok(writer.into_bytes())
}

pub(super) fn decode_writes(bytes: &[u8]) -> Result<(Head<'_>, Vec<Write<'_>>), Invalid> {
    whole(bytes, |reader| {
        let head = take_head(reader)?;
        check_items(reader.clone().u32()? as usize)?;
        let writes = list(reader, 6, |reader| {
            let kind = match reader.u8()? {
                0 => Kind::Put,
                1 => Kind::Delete,
                2 => Kind::Increment,
                _ => return Err(Invalid::Malformed),
            };
            take_write(reader, kind)
        })?;
        Ok((head, writes))
    })
}

pub(super) fn put_outcome(writer: &mut Writer, outcome: &Outcome) {
    match outcome {
        Outcome::Put { version } => writer.u8(0).i64(*version),
        Outcome::Deleted { existed } => writer.u8(1).u8((*existed).into()),
        Outcome::Incremented { value, version } => writer.u8(2).i64(*value).i64(*version),
        Outcome::Conflict { current } => writer.u8(3).option_u64(current.map(i64::cast_unsigned)),
        Outcome::NotANumber => writer.u8(4),
        Outcome::Overflow => writer.u8(5),
        Outcome::NotApplied => writer.u8(6),
    };
}

fn take_outcome(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    Ok(match reader.u8()? {
        0 => Outcome::Put { version: reader.i64()? },
        1 => Outcome::Deleted { existed: take_flag(reader)? },
        2 => Outcome::Incremented { value: reader.i64()?, version: reader.i64()? },
        3 => Outcome::Conflict { current: reader.option_u64()?.map(u64::cast_signed) },
        4 => Outcome::NotANumber,
        5 => Outcome::Overflow,
        6 => Outcome::NotApplied,
        _ => return Err(Malformed),
    })
}

pub(super) fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    let mut writer = Writer::with_capacity(24);
    put_outcome(&mut writer, outcome);
    writer.into_bytes()
}

pub(super) fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Malformed> {
    whole(bytes, take_outcome)
}

pub(super) fn encode_outcomes(outcomes: &[Outcome]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32(length(outcomes));
    for outcome in outcomes {
        put_outcome(&mut writer, outcome);
    }
    writer.into_bytes()
}

pub(super) fn decode_outcomes(bytes: &[u8]) -> Result<Vec<Outcome>, Malformed> {
    whole(bytes, |reader| list(reader, 1, take_outcome))
}

pub(super) fn encode_get(shards: u32, key: &[u8]) -> Result<Vec<u8>, Invalid> {
    check_key(key)?;
    let mut writer = Writer::with_capacity(8 + key.len());
    writer.u32(shards).bytes(key);
    Ok(writer.into_bytes())
}

pub(super) fn decode_get(bytes: &[u8]) -> Result<(u32, &[u8]), Invalid> {
    let (shards, key) = whole::<_, Malformed>(bytes, |reader| Ok((reader.u32()?, reader.bytes()?)))?;
    check_key(key)?;
    Ok((shards, key))
}

pub(super) fn encode_get_many(shards: u32, keys: &[&[u8]]) -> Result<Vec<u8>, Invalid> {
    check_items(keys.len())?;
    let mut writer = Writer::new();
    writer.u32(shards).u32(length(keys));
    for key in keys {
        check_key(key)?;
        writer.bytes(key);
    }
    Ok(writer.into_bytes())
}

pub(super) fn decode_get_many(bytes: &[u8]) -> Result<(u32, Vec<&[u8]>), Invalid> {
    whole(bytes, |reader| {
        let shards = reader.u32()?;
        check_items(reader.clone().u32()? as usize)?;
        let keys = list(reader, 5, |reader| {
            let key = reader.bytes()?;
            check_key(key).map(|()| key)
        })?;
        Ok((shards, keys))
    })
}

pub(super) fn put_found(writer: &mut Writer, found: Option<&Found<'_>>) {
    match found {
        Some(Found { value, version, ttl_ms }) => writer.u8(1).i64(*version).option_u64(*ttl_ms).bytes(value),
        None => writer.u8(0),
    };
}

fn take_found<'a>(reader: &mut Reader<'a>) -> Result<Option<Found<'a>>, Malformed> {
    if !take_flag(reader)? {
        return Ok(None);
    }
    let (version, ttl_ms) = (reader.i64()?, reader.option_u64()?);
    Ok(Some(Found { value: reader.bytes()?, version, ttl_ms }))
}

pub(super) fn decode_found(bytes: &[u8]) -> Result<Option<Found<'_>>, Malformed> {
    whole(bytes, take_found)
}

/// What is found for some keys is a stream: the shard does not know beforehand for how many there is room.
pub(super) fn decode_found_many(bytes: &[u8]) -> Result<Vec<Option<Found<'_>>>, Malformed> {
    whole(bytes, |reader| stream(reader, take_found))
}

pub(super) fn encode_list(shards: u32, list: &List<'_>) -> Result<Vec<u8>, Invalid> {
    check_list(list)?;
    let mut writer = Writer::new();
    writer.u32(shards).bytes(list.prefix);
    put_after(&mut writer, list.after);
    writer.u32(list.limit).u8(list.values.into());
    Ok(writer.into_bytes())
}

pub(super) fn put_after(writer: &mut Writer, after: Option<&[u8]>) {
    match after {
        Some(key) => writer.u8(1).bytes(key),
        None => writer.u8(0),
    };
}

pub(super) fn take_after<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    if take_flag(reader)? { reader.bytes().map(Some) } else { Ok(None) }
}

pub(super) fn decode_list(bytes: &[u8]) -> Result<(u32, List<'_>), Invalid> {
    let (shards, list) = whole::<_, Malformed>(bytes, |reader| {
        let (shards, prefix, after) = (reader.u32()?, reader.bytes()?, take_after(reader)?);
        Ok((shards, List { prefix, after, limit: reader.u32()?, values: take_flag(reader)? }))
    })?;
    check_list(&list)?;
    Ok((shards, list))
}

/// One row of a page, a stream.
pub(super) fn put_listed(writer: &mut Writer, listed: &Listed<'_>) {
    writer.u8(1).bytes(listed.key).i64(listed.version).option_u64(listed.ttl_ms);
    put_after(writer, listed.value);
}

pub(super) fn end_page(mut writer: Writer, has_more: bool) -> Vec<u8> {
    writer.u8(0).u8(has_more.into());
    writer.into_bytes()
}

pub(super) fn decode_page<'a, T>(
    bytes: &'a [u8],
    take: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Page<T>, Malformed> {
    whole(bytes, |reader| Ok(Page { rows: stream(reader, take)?, has_more: take_flag(reader)? }))
}

pub(super) fn take_listed<'a>(reader: &mut Reader<'a>) -> Result<Listed<'a>, Malformed> {
    let (key, version, ttl_ms) = (reader.bytes()?, reader.i64()?, reader.option_u64()?);
    Ok(Listed { key, version, ttl_ms, value: take_after(reader)? })
}

pub(super) fn encode_imported(imported: Imported) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32(imported.written).u32(imported.skipped);
    writer.into_bytes()
}

pub(super) fn decode_imported(bytes: &[u8]) -> Result<Imported, Malformed> {
    whole(bytes, |reader| Ok(Imported { written: reader.u32()?, skipped: reader.u32()? }))
}
