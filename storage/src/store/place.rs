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

/// The partition of an address: `xxh3_64("class/name") mod 256`.
#[must_use]
pub fn partition(class: &str, name: &str) -> u32 {
    let mut text = String::with_capacity(class.len() + name.len() + 1);
    text.push_str(class);
    text.push('/');
    text.push_str(name);
    u32::try_from(xxh3_64(text.as_bytes()) % u64::from(PARTITIONS)).unwrap_or(0)
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
    fn a_partition_is_a_persisted_fact() {
        assert_eq!(partition("counter", "ann"), partition("counter", "ann"));
        let base = base_path(Path::new("d"), &Address::new("counter", "ann"));
        assert_eq!(base, Path::new("d/actors/counter").join(format!("{:02x}", partition("counter", "ann"))).join("ann.sqlite"));
    }
}
