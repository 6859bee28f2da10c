//! From a URL to an actor, from an actor to a core. Pure functions; which partition an actor is in is storage's.
//!
//! `/{class}/{name}/{path...}`: the class as it stands, the name percent-decoded once, the rest untouched for the guest.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use wasmkeep_storage::{Address, store};

use crate::config::{check_actor_name, check_class_name};
use crate::event::Problem;

/// A request's target, taken apart. The class obeys its grammar, but may not be served here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route<'a> {
    /// `[a-z][a-z0-9-]{0,62}`
    pub class: &'a str,
    /// 1 to 256 bytes of UTF-8 without control bytes, decoded.
    pub name: Cow<'a, str>,
    /// What the guest sees: from `/`, with the query, not decoded.
    pub path: Cow<'a, str>,
}

impl<'a> Route<'a> {
    /// Takes a path with an optional query apart.
    ///
    /// # Errors
    /// [`Problem::BadAddress`], which says what the address breaks.
    pub fn parse(target: &'a str) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::BadAddress(detail);
        let (path, query) = target.find('?').map_or((target, ""), |at| target.split_at(at));
        let rest = path.strip_prefix('/').ok_or_else(|| bad("an address is /{class}/{name}".into()))?;
        let (class, rest) = rest.split_once('/').unwrap_or((rest, ""));
        check_class_name(class).map_err(bad)?;
        let (name, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let name = decode(name).map_err(bad)?;
        check_actor_name(&name).map_err(bad)?;
        let path = match (path, query) {
            ("", "") => Cow::Borrowed("/"),
            ("", query) => Cow::Owned(format!("/{query}")),
            // The two are neighbours in `target`: no copy.
            (path, query) => Cow::Borrowed(&target[target.len() - path.len() - query.len()..]),
        };
        Ok(Self { class, name, path })
    }
}

/// Percent-decodes once. A broken escape is refused, not taken literally, so that one actor never has two readings.
fn decode(name: &str) -> Result<Cow<'_, str>, String> {
    let bytes = name.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        if !bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
            return Err("the actor's name has a '%' that is not followed by two hexadecimal digits".into());
        }
    }
    percent_decode_str(name).decode_utf8().map_err(|_| "the actor's name is not UTF-8".into())
}

/// The core that serves an actor on a node of `cores` cores.
#[must_use]
pub fn core_of(address: &Address, cores: usize) -> usize {
    store::core_of(store::partition(&address.class, &address.name), cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(target: &str) -> (String, String, String) {
        let route = Route::parse(target).unwrap_or_else(|problem| panic!("{target}: {problem}"));
        (route.class.into(), route.name.into(), route.path.into())
    }

    fn refused(target: &str) -> String {
        match Route::parse(target) {
            Err(Problem::BadAddress(detail)) => detail,
            other => panic!("{target}: {other:?}"),
        }
    }

    #[test]
    fn the_guest_sees_what_is_behind_its_address_untouched() {
        for (target, path) in [
            ("/c/n", "/"),
            ("/c/n/", "/"),
            ("/c/n?x=1", "/?x=1"),
            ("/c/n/?x=1", "/?x=1"),
            ("/c/n/a/b%2Fc/../d//e?q=%20/?&r", "/a/b%2Fc/../d//e?q=%20/?&r"),
            ("/c/n//", "//"),
            ("/c/n?/c/n", "/?/c/n"),
        ] {
            assert_eq!(parts(target), ("c".into(), "n".into(), path.into()), "{target}");
        }
    }

    #[test]
    fn odd_names_are_distinct_actors() {
        for (raw, name) in [
            (".", "."),
            ("..", ".."),
            ("%2e%2E", ".."),
            ("%2F", "/"),
            ("a%2fb", "a/b"),
            ("%2Fetc%2Fpasswd", "/etc/passwd"),
            ("a:b", "a:b"),
            ("a+b", "a+b"),
            ("%25", "%"),
            ("%2525", "%25"),
            ("%C3%A9", "é"),
            ("%F0%9F%A6%80", "🦀"),
            ("é", "é"),
            ("%20", " "),
            ("a%3Fb", "a?b"),
            ("'", "'"),
        ] {
            assert_eq!(parts(&format!("/c/{raw}/p")).1, name, "{raw}");
        }
    }

    #[test]
    fn names_outside_the_grammar_are_refused_with_the_rule() {
        for (raw, needle) in [
            ("%00", "control"),
            ("a%0Ab", "control"),
            ("%7F", "control"),
            ("%FF", "UTF-8"),
            ("%C3", "UTF-8"),
            ("%ED%A0%80", "UTF-8"),
            ("%", "hexadecimal"),
            ("%2", "hexadecimal"),
            ("%zz", "hexadecimal"),
            ("a%2", "hexadecimal"),
            ("", "missing"),
        ] {
            let detail = refused(&format!("/c/{raw}"));
            assert!(detail.contains(needle), "{raw}: {detail}");
        }
    }

    #[test]
    fn a_name_has_at_most_256_bytes_once_decoded() {
        assert_eq!(parts(&format!("/c/{}", "%C3%A9".repeat(128))).1.len(), 256);
        assert_eq!(parts(&format!("/c/{}", "a".repeat(256))).1.len(), 256);
        assert!(refused(&format!("/c/{}", "a".repeat(257))).contains("257 bytes"));
        assert!(refused(&format!("/c/{}a", "%C3%A9".repeat(128))).contains("257 bytes"));
    }

    #[test]
    fn targets_that_are_not_an_address_are_refused() {
        for target in ["", "*", "/", "//", "//n", "/c", "/c/", "/C/n", "/c_d/n", "/c%2Fn", "/favicon.ico", "c/n", "?", "/?", "/c?n"]
        {
            refused(target);
        }
        refused(&format!("/{}/n", "c".repeat(64)));
    }

    #[test]
    fn actors_spread_over_every_number_of_cores() {
        for cores in [1, 2, 3, 8] {
            let mut counts = vec![0u32; cores];
            for actor in 0..10_000 {
                counts[core_of(&Address::new("counter", &actor.to_string()), cores)] += 1;
            }
            let even = 10_000 / u32::try_from(cores).expect("small");
            assert!(counts.iter().all(|count| count.abs_diff(even) < even / 5), "{cores}: {counts:?}");
        }
    }
}
