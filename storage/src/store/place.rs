//! Where things are: which partition an address falls in, which file holds an actor.
//!
//! Both are persisted facts. Changing either is a migration.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::types::Address;

/// Partitions of a node's actors, fixed at the first start of a data directory.
pub const PARTITIONS: u32 = 256;

/// Escaped names longer than this are cut and finished with a hash, because file systems end names at 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// The class under which the catalogs' own databases stand in the journal. No guest class can be called so: of a class, `_` is
/// not a letter.
pub(crate) const CATALOG_CLASS: &str = "_catalog";

/// What precedes the number of a key-value shard in its actor's name.
const SHARD_PREFIX: &str = "shard-";

/// The partition of an address: `xxh3_64("class/name") mod 256`; for a name that is `shard-` and a number `i`, which is what the
/// shards of key-value classes are called, `(xxh3_64(class) + i) mod 256`, so that a few shards spread evenly over cores.
#[must_use]
pub fn partition(class: &str, name: &str) -> u32 {
    let hash = match shard_number(name) {
        Some(index) => xxh3_64(class.as_bytes()).wrapping_add(index.into()),
        None => hash(class, name),
    };
    u32::try_from(hash % u64::from(PARTITIONS)).unwrap_or(0)
}

/// Of `class/name`, put together on the stack if it fits: every request asks for its core.
fn hash(class: &str, name: &str) -> u64 {
    let mut text = [0_u8; 64 + 256];
    let length = class.len() + 1 + name.len();
    if length > text.len() {
        return xxh3_64(format!("{class}/{name}").as_bytes());
    }
    text[..class.len()].copy_from_slice(class.as_bytes());
    text[class.len()] = b'/';
    text[class.len() + 1..length].copy_from_slice(name.as_bytes());
    xxh3_64(&text[..length])
}

/// The number of a shard, written as `u32` is: no sign, no zeros before it.
fn shard_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(SHARD_PREFIX)?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
    if is_plain { digits.parse().ok() } else { None }
}

/// The core that has a partition.
#[must_use]
pub const fn core_of(partition: u32, cores: usize) -> usize {
    partition as usize % cores
}

/// The core that has a database, a catalog's or an actor's.
pub(crate) fn core_of_database(address: &Address, cores: usize) -> usize {
    core_of(partition_of_database(address), cores)
}

/// The partition of a database, a catalog's or an actor's.
pub(crate) fn partition_of_database(address: &Address) -> u32 {
    match &*address.class {
        CATALOG_CLASS => address.name.parse().unwrap_or(0),
        class => partition(class, &address.name),
    }
}

/// The database of a partition's catalog.
pub(crate) fn catalog_address(partition: u32) -> Address {
    Address::new(CATALOG_CLASS, &partition.to_string())
}

/// The base file of a database, below the data directory: `actors/<class>/<2 hex>/<escaped name>.sqlite`, or
/// `catalog/<partition>.sqlite`.
#[must_use]
pub fn base_path(data: &Path, address: &Address) -> PathBuf {
    let partition = partition_of_database(address);
    if &*address.class == CATALOG_CLASS {
        return data.join("catalog").join(format!("{partition}.sqlite"));
    }
    data.join("actors").join(&*address.class).join(format!("{partition:02x}")).join(format!("{}.sqlite", escape(&address.name)))
}

/// Letters, digits, `-`, `_` and inner dots stand for themselves, every other byte is `%XX`. A long name keeps its beginning and
/// gets `~` and a hash of the whole; `~` itself is escaped, so that no short name can look like a cut one.
fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || (byte == b'.' && index > 0) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    if out.len() > NAME_BYTES_MAX {
        out.truncate(NAME_BYTES_MAX - 33);
        out.push('~');
        out.push_str(&format!("{:032x}", xxh3_128(name.as_bytes())));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_get_distinct_files_with_legal_names() {
        let long = "é".repeat(128);
        let longer = format!("{}x", "é".repeat(127));
        let names = ["a", "A", ".", "..", "a/b", "a%2Fb", "a~b", "a b", "é", "_", "%", &long, &longer];
        let mut files: Vec<_> = names.iter().map(|name| escape(name)).collect();
        for file in &files {
            assert!(file.len() <= NAME_BYTES_MAX && !file.contains('/') && !file.starts_with('.'), "{file}");
        }
        files.sort();
        files.dedup();
        assert_eq!(files.len(), names.len());
    }

    #[test]
    fn shards_follow_one_another_and_only_their_own_names_do() {
        let first = partition("settings", "shard-0");
        assert_eq!(u64::from(first), xxh3_64(b"settings") % 256);
        for (name, index) in
            [("shard-1", 1), ("shard-10", 10), ("shard-255", 255), ("shard-256", 256), ("shard-4294967295", u32::MAX)]
        {
            assert_eq!(partition("settings", name), (first + index % 256) % 256, "{name}");
        }
        for name in ["shard-", "shard-01", "shard-+1", "shard-1 ", "Shard-1", "shard-4294967296", "shard"] {
            assert_eq!(u64::from(partition("settings", name)), xxh3_64(format!("settings/{name}").as_bytes()) % 256, "{name}");
        }
    }

    #[test]
    fn a_partition_is_a_persisted_fact() {
        // A data directory written by one version is read by the next.
        let known = [("counter", "a"), ("counter", "b"), ("orders", "é"), ("a", "/"), ("a", "x/y")];
        assert_eq!(known.map(|(class, name)| partition(class, name)), [159, 102, 176, 165, 214]);
        let (class, longest) = ("c".repeat(63), "n".repeat(256));
        for name in [&longest, &format!("{longest}n")] {
            assert_eq!(u64::from(partition(&class, name)), xxh3_64(format!("{class}/{name}").as_bytes()) % 256);
        }
        let base = base_path(Path::new("d"), &Address::new("counter", "ann"));
        assert_eq!(base, Path::new("d/actors/counter").join(format!("{:02x}", partition("counter", "ann"))).join("ann.sqlite"));
    }
}
