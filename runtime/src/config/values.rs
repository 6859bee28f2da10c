//! The grammars of single values, each with an error that says what would be right.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::{Access, AppName};
use crate::limits::{ACTOR_NAME_BYTES_MAX, CLASS_NAME_BYTES_MAX};

/// Checks `[a-z][a-z0-9-]{0,62}`.
///
/// # Errors
/// Says which rule the name breaks.
pub fn check_class_name(name: &str) -> Result<(), String> {
    let rule = "a class is 1 to 63 characters: a lower-case letter, then lower-case letters, digits and hyphens";
    let bytes = name.as_bytes();
    let Some((first, rest)) = bytes.split_first() else { return Err(format!("the class is empty; {rule}")) };
    let fits = first.is_ascii_lowercase() && rest.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
    if fits && bytes.len() <= CLASS_NAME_BYTES_MAX { Ok(()) } else { Err(format!("{} is not a class; {rule}", shown(name))) }
}

/// Checks an actor's name, already decoded: 1 to 256 bytes of UTF-8 without control bytes.
///
/// # Errors
/// Says which rule the name breaks.
pub fn check_actor_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the actor's name is missing; an address is /{class}/{name}".into());
    }
    if name.len() > ACTOR_NAME_BYTES_MAX {
        return Err(format!("the actor's name has {} bytes; at most {ACTOR_NAME_BYTES_MAX} are allowed", name.len()));
    }
    if name.bytes().any(|b| b.is_ascii_control()) {
        return Err("the actor's name has a control character".into());
    }
    Ok(())
}

/// A name as an error may show it: quoted, escaped and not too long.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Reads "250ms", "60s", "5m", "2h", "7d".
///
/// # Errors
/// Says how a duration is written.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{} is not a duration; write a whole number and a unit: 250ms, 60s, 5m, 2h, 7d", shown(text));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| format!("{} is too long", shown(text)))
}

/// Reads `HOST:PORT`; a host name stands for its first address.
///
/// # Errors
/// Says how an address is written, or that the name is not known.
pub fn parse_socket_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let known = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    known.ok_or_else(|| format!("{} is not an address that can be used here; write HOST:PORT, such as 127.0.0.1:8080", shown(text)))
}

pub(crate) fn parse_access(text: &str) -> Result<Access, String> {
    match text {
        "public" => Ok(Access::Public),
        "internal" => Ok(Access::Internal),
        other => Err(format!(
            "{} is not an access; it is \"public\" or \"internal\"{}",
            shown(other),
            nearest(other, &["public", "internal"])
        )),
    }
}

pub(crate) fn parse_app(text: &str) -> Result<AppName, String> {
    let rule = || {
        format!("{} is not an app; write \"tenant/app\", each a lower-case letter, then letters, digits and hyphens", shown(text))
    };
    let (tenant, app) = text.split_once('/').ok_or_else(rule)?;
    if check_class_name(tenant).is_err() || check_class_name(app).is_err() {
        return Err(rule());
    }
    Ok(AppName { tenant: Arc::from(tenant), app: Arc::from(app) })
}

pub(crate) fn check_env(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{} cannot be the name of a variable; it must not be empty or contain '=' or NUL", shown(name)));
    }
    if value.contains('\0') {
        return Err(format!("the value of {} contains NUL", shown(name)));
    }
    Ok(())
}

/// `; did you mean "x"?` for the valid name that is nearest to a wrong one, or nothing.
pub(crate) fn nearest(wrong: &str, valid: &[&str]) -> String {
    let folded = wrong.to_ascii_lowercase().replace('_', "-");
    let best = valid.iter().map(|name| (strsim::damerau_levenshtein(&folded, name), name)).min();
    match best {
        Some((distance, name)) if distance <= 2.max(name.len() / 3) => format!("; did you mean \"{name}\"?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_whole_number_and_a_unit() {
        for (text, ms) in [("250ms", 250), ("60s", 60_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "60", "s", "1.5s", "-1s", " 1s", "1 s", "1S", "1min", "99999999999999999999s", "99999999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn classes_obey_their_grammar() {
        let longest = "a".repeat(63);
        for name in ["a", "a0", "a-", "my-class-2", &longest] {
            assert_eq!(check_class_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(64);
        for name in ["", "0a", "-a", "A", "aB", "a_b", "a.b", "é", "a/b", "a b", "_front", &too_long] {
            assert!(check_class_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_nearest_name_is_offered_only_when_it_is_near() {
        assert_eq!(nearest("acess", &["access", "component", "env"]), "; did you mean \"access\"?");
        assert_eq!(nearest("event_wall", &["event-wall", "event-cpu"]), "; did you mean \"event-wall\"?");
        assert_eq!(nearest("replicas", &["access", "component", "env"]), "");
    }
}
