//! Who may come in through the service door, and as whom: a token's name, or `local` for programs of this machine if there are no
//! tokens.
//!
//! Tokens are found by a hash whose key nobody knows and then compared in a time that does not depend on where they differ.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use http::Uri;
use http::header::{self, HeaderMap, HeaderValue};
use wasmkeep_storage::Address;

use super::refusal::Refusal;
use crate::config::{ApiToken, CALLERS, LOCAL, Secret};
use crate::event::Problem;

/// What decides.
pub struct Entrance {
    /// By the hash of the token; `None` if none is needed.
    tokens: Option<Vec<(u64, Secret, Address)>>,
    hasher: RandomState,
    is_loopback: bool,
    local: Address,
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrance").finish_non_exhaustive()
    }
}

impl Entrance {
    /// With these tokens; without any only programs of this machine come in, and only if nobody else reaches the listener.
    #[must_use]
    pub fn new(tokens: Option<&[ApiToken]>, is_loopback: bool) -> Self {
        let hasher = RandomState::new();
        let entry =
            |token: &ApiToken| (hasher.hash_one(token.token.0.as_bytes()), token.token.clone(), Address::new(CALLERS, &token.name));
        let tokens = tokens.map(|tokens| {
            let mut table: Vec<_> = tokens.iter().map(entry).collect();
            table.sort_by_key(|(hash, _, _)| *hash);
            table
        });
        Self { tokens, hasher, is_loopback, local: Address::new(CALLERS, LOCAL) }
    }

    /// Who asks.
    pub(crate) fn caller(&self, uri: &Uri, headers: &HeaderMap) -> Result<Address, Refusal> {
        let Some(tokens) = &self.tokens else {
            return if self.is_loopback && is_for_this_machine(uri, headers) {
                refuse_pages(headers).map(|()| self.local.clone())
            } else {
                Err(Refusal::Unauthorized)
            };
        };
        let token = bearer(headers).ok_or(Refusal::Unauthorized)?;
        let hash = self.hasher.hash_one(token);
        let first = tokens.partition_point(|(known, _, _)| *known < hash);
        let same = tokens[first..].iter().take_while(|(known, _, _)| *known == hash);
        let mut right = same.filter(|(_, known, _)| equal(token, known.0.as_bytes()));
        right.next().map(|(_, _, caller)| caller.clone()).ok_or(Refusal::Unauthorized)
    }
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let (_, token) = given.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))?;
    Some(token.trim_ascii())
}

/// Compares in a time that depends on the given text's length only.
pub(crate) fn equal(given: &[u8], token: &[u8]) -> bool {
    let mut different = u8::from(given.len() != token.len());
    for (at, byte) in given.iter().enumerate() {
        different |= byte ^ token[at % token.len().max(1)];
    }
    std::hint::black_box(different) == 0
}

/// Whether the host that is asked for is this machine, or none is named: a foreign name in a browser may lead here as well.
pub(crate) fn is_for_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let named = headers.get(header::HOST).map_or(Ok(""), HeaderValue::to_str).unwrap_or("?");
    let is_ours = |host: &str| host.is_empty() || is_local(host);
    is_ours(named) && uri.authority().is_none_or(|authority| is_local(authority.as_str()))
}

/// Without tokens, a page in a browser of this machine could write here: it need not read the answer for that.
pub(crate) fn refuse_pages(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(header::ORIGIN) {
        let words = "a request from a page in a browser (it has an Origin) needs a token";
        return Err(Problem::Forbidden(words.into()).into());
    }
    Ok(())
}

fn is_local(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
