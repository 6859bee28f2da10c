//! What a relay between clients and shards needs that takes a call with many keys apart, asks each shard for its own, and puts the
//! replies together: the same messages as a shard's, read and written from its side.

use super::codec;
use super::protocol::{self, Found, Invalid, Options, Outcome, Write};
use crate::wire::Writer;

/// Writes as a client has put them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes<'a> {
    /// They.
    pub writes: Vec<Write<'a>>,
    /// Whether all are to be done, or none.
    pub is_atomic: bool,
    /// How.
    pub options: Options<'a>,
}

/// Whether so many keys or writes may be in one call.
///
/// # Errors
/// `Invalid::Items`.
pub const fn check_items(count: usize) -> Result<(), Invalid> {
    protocol::check_items(count)
}

/// The keys of `client::get_many`. The number of shards in it is the client's belief and is passed over.
///
/// # Errors
/// The rule that the message breaks.
pub fn keys(message: &[u8]) -> Result<Vec<&[u8]>, Invalid> {
    codec::decode_get_many(message).map(|(_, keys)| keys)
}

/// The writes of `client::write_many`; as for `keys`.
///
/// # Errors
/// The rule that the message breaks.
pub fn writes(message: &[u8]) -> Result<Writes<'_>, Invalid> {
    let (codec::Head { options, is_atomic, .. }, writes) = codec::decode_writes(message)?;
    Ok(Writes { writes, is_atomic, options })
}

/// What `client::got_many` reads.
pub fn found<'a>(found: impl IntoIterator<Item = Option<Found<'a>>>) -> Vec<u8> {
    let mut writer = Writer::new();
    for found in found {
        writer.u8(1);
        codec::put_found(&mut writer, found.as_ref());
    }
    writer.u8(0);
    writer.into_bytes()
}

/// What `client::written_many` reads.
#[must_use]
pub fn outcomes(outcomes: &[Outcome]) -> Vec<u8> {
    codec::encode_outcomes(outcomes)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Shards;
    use super::super::protocol::Expect;
    use super::*;
    use crate::kv::client;

    #[test]
    fn what_clients_write_is_read_and_what_is_written_they_read() {
        let shards = Shards::new(3).expect("is valid");
        let call = client::get_many(shards, &[b"a", b"b"]).expect("is valid");
        assert_eq!(keys(&call.body), Ok(vec![&b"a"[..], b"b"]));
        let put = Write::Put { key: b"a", value: b"v", expect: Expect::Absent, ttl_ms: Some(5) };
        let options = Options::new().operation(b"id");
        let call = client::write_many(shards, &[put], true, options).expect("is valid");
        assert_eq!(writes(&call.body), Ok(Writes { writes: vec![put], is_atomic: true, options }));
        let rows = [Some(Found { value: b"v", version: 7, ttl_ms: None }), None];
        assert_eq!(client::got_many(200, &found(rows), 2), Ok(rows.to_vec()));
        let done = [Outcome::Put { version: 7 }, Outcome::Conflict { current: None }];
        assert_eq!(client::written_many(200, &outcomes(&done)), Ok(done.to_vec()));
    }
}
