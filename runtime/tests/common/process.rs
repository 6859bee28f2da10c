//! A node in a process of its own, which can be killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use super::guest;

/// `wasmkeep serve` with one class, named like the guest that it runs, on any ports.
pub(crate) fn serve(data: &Path, class: &str, arguments: &[&str]) -> Command {
    let mut command = serve_configured(data, arguments);
    command.arg("--actor").arg(format!("{}={}", class.replace('_', "-"), guest(class).display()));
    command
}

/// The same with the classes of a configuration that the arguments name.
pub(crate) fn serve_configured(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WASMKEEP_")) {
        command.env_remove(name);
    }
    command
        .args(["serve", "--log", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(arguments)
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Option<JoinHandle<Vec<String>>>,
}

impl Process {
    /// Returns once it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut seen = Vec::new();
        let (http, admin) = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended before it served:\n{}", seen.join("\n"))).expect("reads");
            let json: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            seen.push(line);
            if json["message"].as_str().is_some_and(|text| text.starts_with("serving")) {
                let address = |name: &str| json[name].as_str().expect("an address").parse().expect("an address");
                break (address("http"), address("admin"));
            }
        };
        // Whatever it logs later must not fill the pipe.
        let log = std::thread::spawn(move || {
            seen.extend(lines.map_while(Result::ok));
            seen
        });
        Self { child, http, admin, log: Some(log) }
    }

    /// Memory it has in RAM, bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("reaps");
    }

    /// Stops it as an operator would; returns its status and all that it has logged.
    pub(crate) fn stop(mut self) -> (Option<i32>, Vec<String>) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        // SAFETY: kill has no memory preconditions, and the child is ours and not reaped yet.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        let status = self.child.wait().expect("ends").code();
        (status, self.log.take().expect("taken once").join().expect("reads on"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
