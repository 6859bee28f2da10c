//! The product's binary as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A node in a process of its own; it is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Process {
    /// Starts it and waits until it serves. Actors hibernate after a second.
    pub(crate) fn start(data: &Path, io: &str, cores: usize, classes: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WASMKEEP_")) {
            command.env_remove(name);
        }
        command.arg("serve");
        for (class, file) in classes {
            command.arg("--actor").arg(format!("{class}={}", super::guest(file).display()));
        }
        let mut child = command
            .args(["--log", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--io", io, "--idle", "1s"])
            .args(["--cores", &cores.to_string(), "--journal-mb", "64", "--data"])
            .arg(data)
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut seen = String::new();
        let (http, admin) = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended before it served:\n{seen}")).expect("reads");
            let json: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if json["message"].as_str().is_some_and(|text| text.starts_with("serving")) {
                let address = |name: &str| json[name].as_str().expect("an address").parse().expect("an address");
                break (address("http"), address("admin"));
            }
            seen.push_str(&line);
        };
        // Whatever it logs later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, http, admin }
    }

    /// Memory it has in RAM, bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
