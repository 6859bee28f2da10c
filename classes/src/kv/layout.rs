//! Which shard has a key, and where a shard is in the life of its class's layout. It moves nothing itself.

use super::protocol::Invalid;
use crate::limits::KV_SHARDS_MAX;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a, 64 bits, of the concatenation of what it is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fnv(u64);

impl Fnv {
    pub(super) const fn new() -> Self {
        Self(FNV_OFFSET)
    }

    pub(super) fn add(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)))
    }

    pub(super) const fn get(self) -> u64 {
        self.0
    }
}

/// The shard of a key among `shards`: FNV-1a (64 bits) of the key modulo their number.
///
/// # Panics
/// Without any shard.
#[must_use]
pub fn shard_of(key: &[u8], shards: u32) -> u32 {
    let rest = Fnv::new().add(key).get() % u64::from(shards);
    u32::try_from(rest).expect("it is below the number of shards")
}

/// The number of shards of a class: part of its layout, so every request carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards(u32);

impl Shards {
    /// So many, 1..=4,096.
    ///
    /// # Errors
    /// `Invalid::Shards`.
    pub const fn new(count: u32) -> Result<Self, Invalid> {
        if count == 0 || count > KV_SHARDS_MAX { Err(Invalid::Shards(count)) } else { Ok(Self(count)) }
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// The index of the shard that has a key.
    #[must_use]
    pub fn of(self, key: &[u8]) -> u32 {
        shard_of(key, self.0)
    }

    /// The positions of the keys by the index of their shard, in the order of the shards and, within one, of the keys: what a call
    /// with many keys is split by.
    pub fn split<'a>(self, keys: impl IntoIterator<Item = &'a [u8]>) -> Vec<(u32, Vec<usize>)> {
        let mut split = std::collections::BTreeMap::<u32, Vec<usize>>::new();
        for (position, key) in keys.into_iter().enumerate() {
            split.entry(self.of(key)).or_default().push(position);
        }
        split.into_iter().collect()
    }
}

/// The name of the actor of a shard.
#[must_use]
pub fn shard_name(index: u32) -> String {
    format!("shard-{index}")
}

/// The index in the name of a shard's actor; `None` for what [`shard_name`] gives for no index there may be.
#[must_use]
pub fn shard_index(name: &str) -> Option<u32> {
    let index = name.strip_prefix("shard-")?.parse().ok()?;
    (index < KV_SHARDS_MAX && shard_name(index) == name).then_some(index)
}

/// Where a shard is in the life of its class's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Open,
    /// Its keys are being copied to where they are among so many shards: it serves reads and refuses writes.
    Moving(u32),
    /// Its keys are served from so many shards: it refuses both.
    Moved(u32),
}

/// What a shard knows of its class's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where it is.
    pub phase: Phase,
    /// The number of shards its rows were written for, 0 before the first. Requests for another number are refused.
    pub shards: u32,
}

/// Why a shard does not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misdirected {
    /// Whether a move is under way, so that the request may be tried again later as it is.
    pub(super) is_moving: bool,
    /// The number of shards to ask.
    pub(super) shards: u32,
}

impl Layout {
    fn counted(self, shards: u32) -> Result<(), Misdirected> {
        let is_ours = self.shards == 0 || self.shards == shards;
        if is_ours { Ok(()) } else { Err(Misdirected { is_moving: false, shards: self.shards }) }
    }

    pub(super) fn admit_read(self, shards: u32) -> Result<(), Misdirected> {
        match self.phase {
            Phase::Open | Phase::Moving(_) => self.counted(shards),
            Phase::Moved(shards) => Err(Misdirected { is_moving: false, shards }),
        }
    }

    pub(super) fn admit_write(self, shards: u32) -> Result<(), Misdirected> {
        match self.phase {
            Phase::Open => self.counted(shards),
            Phase::Moving(shards) => Err(Misdirected { is_moving: true, shards }),
            Phase::Moved(shards) => Err(Misdirected { is_moving: false, shards }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        let published: [(&[u8], u64); 6] = [
            (b"", 0xcbf2_9ce4_8422_2325),
            (b"a", 0xaf63_dc4c_8601_ec8c),
            (b"b", 0xaf63_df4c_8601_f1a5),
            (b"foobar", 0x8594_4171_f739_67e8),
            (b"fo", 0x0898_5907_b541_d342),
            (b"foo", 0xdcb2_7518_fed9_d577),
        ];
        for (bytes, hash) in published {
            assert_eq!(Fnv::new().add(bytes).get(), hash);
            assert_eq!(shard_of(bytes, 7), u32::try_from(hash % 7).expect("small"));
        }
        assert_eq!(Fnv::new().add(b"foo").add(b"bar").get(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_shard_s_name_and_index_are_one() {
        for index in [0, 1, 10, KV_SHARDS_MAX - 1] {
            assert_eq!(shard_index(&shard_name(index)), Some(index));
        }
        for name in ["shard-", "shard-01", "shard-+1", "shard-4096", "shard--1", "shard-1 ", "Shard-1", "1"] {
            assert_eq!(shard_index(name), None, "{name}");
        }
    }

    #[test]
    fn keys_are_split_by_shard_in_the_order_given() {
        let shards = Shards::new(3).expect("is valid");
        let keys: Vec<Vec<u8>> = (0..50_u8).map(|byte| vec![byte]).collect();
        let split = shards.split(keys.iter().map(Vec::as_slice));
        assert_eq!(split.iter().map(|(_, positions)| positions.len()).sum::<usize>(), 50);
        assert!(split.is_sorted_by_key(|(shard, _)| *shard));
        for (shard, positions) in split {
            assert!(positions.is_sorted() && positions.iter().all(|position| shards.of(&keys[*position]) == shard));
        }
    }

    #[test]
    fn no_shards_and_too_many_are_refused() {
        assert_eq!((Shards::new(0), Shards::new(4_097)), (Err(Invalid::Shards(0)), Err(Invalid::Shards(4_097))));
        assert_eq!((Shards::new(4_096).map(Shards::count), shard_name(7).as_str()), (Ok(4_096), "shard-7"));
    }
}
