//! The bytes of what moves rows between shards: export, import, prune, and the layout of a shard. See `moving` for what they do.

use super::codec::{decode_page, length, list, put_after, take_after, take_flag, whole};
use super::layout::{Layout, Phase};
use super::protocol::{Invalid, Moving, Page, Pruned, check_items, check_key, check_value, check_version};
use crate::limits::KV_SHARDS_MAX;
use crate::wire::{Malformed, Reader, Writer};

fn check_shards(shards: u32) -> Result<(), Invalid> {
    if shards == 0 || shards > KV_SHARDS_MAX { Err(Invalid::Shards(shards)) } else { Ok(()) }
}

pub(super) fn encode_after(after: Option<&[u8]>) -> Result<Vec<u8>, Invalid> {
    after.map_or(Ok(()), check_key)?;
    let mut writer = Writer::new();
    put_after(&mut writer, after);
    Ok(writer.into_bytes())
}

pub(super) fn decode_after(bytes: &[u8]) -> Result<Option<&[u8]>, Invalid> {
    let after = whole(bytes, take_after)?;
    after.map_or(Ok(()), check_key)?;
    Ok(after)
}

/// One row of an export, a stream, or of an import, a list.
pub(super) fn put_moving(writer: &mut Writer, row: &Moving<'_>) {
    writer.bytes(row.key).i64(row.version).option_u64(row.expires_at_ms).bytes(row.value);
}

fn take_moving<'a>(reader: &mut Reader<'a>) -> Result<Moving<'a>, Malformed> {
    let (key, version, expires_at_ms) = (reader.bytes()?, reader.i64()?, reader.option_u64()?);
    Ok(Moving { key, value: reader.bytes()?, version, expires_at_ms })
}

pub(super) fn decode_export(bytes: &[u8]) -> Result<Page<Moving<'_>>, Malformed> {
    decode_page(bytes, take_moving)
}

fn check_moving(row: &Moving<'_>) -> Result<(), Invalid> {
    check_key(row.key)?;
    check_value(row.value)?;
    check_version(row.version)
}

pub(super) fn encode_import(only_if_absent: bool, rows: &[Moving<'_>]) -> Result<Vec<u8>, Invalid> {
    check_items(rows.len())?;
    let mut writer = Writer::new();
    writer.u8(only_if_absent.into()).u32(length(rows));
    for row in rows {
        check_moving(row)?;
        put_moving(&mut writer, row);
    }
    Ok(writer.into_bytes())
}

pub(super) fn decode_import(bytes: &[u8]) -> Result<(bool, Vec<Moving<'_>>), Invalid> {
    whole(bytes, |reader| {
        let only_if_absent = take_flag(reader)?;
        check_items(reader.clone().u32()? as usize)?;
        let rows = list(reader, 17, |reader| {
            let row = take_moving(reader)?;
            check_moving(&row).map(|()| row)
        })?;
        Ok((only_if_absent, rows))
    })
}

pub(super) fn encode_prune(index: u32, shards: u32, after: Option<&[u8]>) -> Result<Vec<u8>, Invalid> {
    check_shards(shards)?;
    after.map_or(Ok(()), check_key)?;
    let mut writer = Writer::new();
    writer.u32(index).u32(shards);
    put_after(&mut writer, after);
    Ok(writer.into_bytes())
}

pub(super) fn decode_prune(bytes: &[u8]) -> Result<(u32, u32, Option<&[u8]>), Invalid> {
    let (index, shards, after) = whole::<_, Malformed>(bytes, |reader| Ok((reader.u32()?, reader.u32()?, take_after(reader)?)))?;
    check_shards(shards)?;
    after.map_or(Ok(()), check_key)?;
    Ok((index, shards, after))
}

pub(super) fn encode_pruned(pruned: &Pruned<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32(pruned.count);
    put_after(&mut writer, pruned.next);
    writer.into_bytes()
}

pub(super) fn decode_pruned(bytes: &[u8]) -> Result<Pruned<'_>, Malformed> {
    whole(bytes, |reader| Ok(Pruned { count: reader.u32()?, next: take_after(reader)? }))
}

/// The layout a shard is told: where it is, and, when it opens, for how many shards.
pub(super) fn encode_layout(layout: Layout) -> Vec<u8> {
    let mut writer = Writer::new();
    let (phase, target) = phase_numbers(layout.phase);
    writer.u8(phase).u32(target).u32(layout.shards);
    writer.into_bytes()
}

pub(super) fn decode_layout(bytes: &[u8]) -> Result<Layout, Malformed> {
    whole(bytes, |reader| {
        let phase = phase_of(reader.u8()?, reader.u32()?).ok_or(Malformed)?;
        Ok(Layout { phase, shards: reader.u32()? })
    })
}

pub(super) fn encode_phase(phase: Phase, shards: u32) -> Result<Vec<u8>, Invalid> {
    check_shards(if let Phase::Moving(to) | Phase::Moved(to) = phase { to } else { shards })?;
    Ok(encode_layout(Layout { phase, shards }))
}

pub(super) fn decode_phase(bytes: &[u8]) -> Result<Layout, Invalid> {
    let layout = decode_layout(bytes)?;
    check_shards(if let Phase::Moving(to) | Phase::Moved(to) = layout.phase { to } else { layout.shards })?;
    Ok(layout)
}

/// A phase as two numbers: which, and its number of shards.
pub(super) const fn phase_numbers(phase: Phase) -> (u8, u32) {
    match phase {
        Phase::Open => (0, 0),
        Phase::Moving(shards) => (1, shards),
        Phase::Moved(shards) => (2, shards),
    }
}

/// The other way round.
pub(super) const fn phase_of(phase: u8, shards: u32) -> Option<Phase> {
    match (phase, shards) {
        (0, 0) => Some(Phase::Open),
        (1, shards) => Some(Phase::Moving(shards)),
        (2, shards) => Some(Phase::Moved(shards)),
        _ => None,
    }
}
