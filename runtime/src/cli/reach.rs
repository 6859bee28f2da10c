//! How commands reach a running node, and what they name there.

use std::ffi::OsStr;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value as Json;
use wasmkeep_storage::Address;

use crate::admin::client::{AdminClient, DoorAnswer, DoorRequest, encode};
use crate::config::{Secret, check_actor_name, check_class_name, parse_duration, parse_socket_address};
use crate::limits::REQUEST_BODY_BYTES_MAX;

/// How to reach a running node.
#[derive(Args, Clone)]
pub(super) struct Reach {
    /// The node's admin listener
    #[arg(long, value_name = "HOST:PORT", env = "WASMKEEP_ADMIN", default_value = "127.0.0.1:9090", value_parser = parse_socket_address)]
    admin: SocketAddr,
    /// A file with the admin listener's token
    #[arg(long, value_name = "FILE", env = "WASMKEEP_ADMIN_TOKEN")]
    admin_token: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Reach {
    pub(super) fn client(&self) -> Result<AdminClient, String> {
        let read = |path| std::fs::read_to_string(path).map_err(|error| format!("--admin-token: {error}"));
        let token = self.admin_token.as_ref().map(read).transpose()?.map(|token| Secret(token.trim().to_string()));
        Ok(AdminClient { address: self.admin, token })
    }

    /// Asks the service door.
    pub(super) fn door(&self, request: &DoorRequest) -> Result<DoorAnswer, String> {
        self.client()?.ask_door(request)
    }

    /// Asks the service door for JSON.
    pub(super) fn door_json(&self, request: &DoorRequest) -> Result<Json, String> {
        let answer = self.door(request)?;
        serde_json::from_slice(&answer.body).map_err(|error| format!("the node's answer is no JSON: {error}"))
    }
}

/// A request without conditions and body.
pub(super) fn request(method: &'static str, target: String) -> DoorRequest {
    DoorRequest { method, target, headers: Vec::new(), body: Vec::new(), is_json: false }
}

/// The parameters of a request, of those that are given.
#[derive(Default)]
pub(super) struct Parameters(String);

impl Parameters {
    pub(super) fn with(mut self, name: &str, value: Option<&[u8]>) -> Self {
        if let Some(value) = value {
            self.push(&format!("{name}={}", encode(value)));
        }
        self
    }

    pub(super) fn flag(mut self, name: &str, is_set: bool) -> Self {
        if is_set {
            self.push(name);
        }
        self
    }

    fn push(&mut self, parameter: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(parameter);
    }

    /// The path with them.
    pub(super) fn of(self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// `class/name`, the name as it is, not percent-encoded.
pub(super) fn parse_address(text: &str) -> Result<Address, String> {
    let (class, name) = text.split_once('/').ok_or("an address is CLASS/NAME")?;
    check_class_name(class)?;
    check_actor_name(name)?;
    Ok(Address::new(class, name))
}

/// A class's name.
pub(super) fn parse_class(text: &str) -> Result<String, String> {
    check_class_name(text).map(|()| text.to_owned())
}

/// A duration, checked here so that the refusal names the flag; the node reads it as it is.
pub(super) fn parse_wait(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned())
}

/// The bytes of an argument: whatever the shell gave.
pub(super) fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// All of standard input, binary-safe.
pub(super) fn from_stdin() -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let most = REQUEST_BODY_BYTES_MAX as u64;
    std::io::stdin().lock().take(most + 1).read_to_end(&mut body).map_err(|error| format!("standard input: {error}"))?;
    if body.len() as u64 > most {
        return Err(format!("standard input has more than {most} bytes, which no request may have"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_on_the_command_line_are_not_encoded() {
        assert_eq!(parse_address("c/a/b%2F").expect("valid").name.as_ref(), "a/b%2F");
        for text in ["c", "c/", "C/x", "c/\u{7}"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parameters_are_encoded_and_only_those_given_are_there() {
        assert_eq!(Parameters::default().of("/kv/c"), "/kv/c");
        let some = Parameters::default().with("prefix", Some(b"a&\xff")).with("after", None).flag("values", true).flag("x", false);
        assert_eq!(some.of("/kv/c"), "/kv/c?prefix=a%26%FF&values");
    }
}
