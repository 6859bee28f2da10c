//! `cargo xtask demo`: from a fresh clone to a node that serves all examples, with one command.

use crate::node::{self, Place};
use crate::shell::Shell;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cores [default: all this process may use]
    #[arg(long)]
    cores: Option<usize>,
    /// The data directory; kept, so that the next demo finds what this one wrote [default: wasmkeep-data in the repository]
    #[arg(long)]
    data: Option<PathBuf>,
    /// The port for requests
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The port for the operator
    #[arg(long, default_value_t = 9090)]
    admin_port: u16,
}

pub(crate) fn run(shell: &Shell, args: &Args) -> Result<()> {
    let built = node::build(shell)?;
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let data = match &args.data {
        Some(dir) => std::path::absolute(dir)?,
        None => shell.root.join("wasmkeep-data"),
    };
    let place = Place { listen: local(args.port), admin: local(args.admin_port), data };
    print_commands(&place);
    // The node takes this process's place, so that Ctrl-C and signals reach it and it alone.
    let error = built.serve(&place, args.cores).exec();
    Err(error).context("starting the node")
}

fn print_commands(place: &Place) {
    let Place { listen, admin, data } = place;
    println!(
        "
Serving counter, notes, hello and jobs from {data}. Once the node says \"serving\", try in another terminal:

  curl -X POST http://{listen}/counter/apples            # adds one, durably
  curl -X POST http://{listen}/counter/apples/local      # adds one; a crash may lose it
  curl http://{listen}/counter/apples
  curl -d '{{\"title\":\"Shopping\",\"body\":\"milk and bread\"}}' http://{listen}/notes/ada
  curl 'http://{listen}/notes/ada/search?q=milk'
  curl http://{listen}/hello/world
  curl -d '{{\"to\":\"jobs-receiver/ada\",\"body\":\"hi\"}}' http://{listen}/jobs-web/main/deliveries     # through a queue
  curl http://{listen}/jobs-receiver/ada
  curl http://{admin}/metrics

Kill it with kill -9 {pid} and run the same command again: every acknowledged count is still there. Ctrl-C drains and stops.
",
        data = data.display(),
        pid = std::process::id()
    );
}
