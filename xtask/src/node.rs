//! A node that serves the examples, as a child process.

use crate::guests;
use crate::shell::{Shell, run};
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// How long a node may take from its start to readiness. Compiling three components takes seconds on a slow machine.
const READY_TRIES_MAX: u32 = 1_200;
const READY_PAUSE: Duration = Duration::from_millis(50);

/// What is needed to start nodes: the built program and components.
pub(crate) struct Built {
    program: PathBuf,
    components: PathBuf,
    config: PathBuf,
    /// The components lie where the configuration file looks for them.
    in_place: bool,
}

/// Where a node listens and keeps its data.
pub(crate) struct Place {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) data: PathBuf,
}

/// Builds the node and the examples.
pub(crate) fn build(shell: &Shell) -> Result<Built> {
    let components = guests::build_examples(shell)?;
    run(&mut shell.cargo(["build", "--locked", "--release", "--package", "wasmkeep"]))?;
    Ok(Built {
        program: shell.target.join("release/wasmkeep"),
        components,
        config: shell.root.join("examples/wasmkeep.toml"),
        in_place: shell.target == shell.root.join("target"),
    })
}

impl Built {
    /// The command that serves the examples.
    pub(crate) fn serve(&self, place: &Place, cores: Option<usize>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(&self.config).arg("--data").arg(&place.data);
        command.args(["--listen", &place.listen.to_string(), "--admin", &place.admin.to_string()]);
        if let Some(cores) = cores {
            command.args(["--cores", &cores.to_string()]);
        }
        if !self.in_place {
            for (class, package) in guests::EXAMPLES {
                let file = guests::component(&self.components, package);
                command.arg("--actor").arg(format!("{class}={}", file.display()));
            }
        }
        command
    }
}

/// A node that is ready. Killed when dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(built: &Built, place: &Place) -> Result<Self> {
        let child = built.serve(place, None).spawn().with_context(|| format!("starting {}", built.program.display()))?;
        let mut running = Self(child);
        for _ in 0..READY_TRIES_MAX {
            if let Some(status) = running.0.try_wait()? {
                bail!("the node ended before it was ready: {status}");
            }
            if is_ready(place.admin) {
                return Ok(running);
            }
            std::thread::sleep(READY_PAUSE);
        }
        bail!("the node did not become ready");
    }

    /// Waits for the end of a node that something else has ended or asked to.
    pub(crate) fn wait(mut self) -> Result<()> {
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&admin, READY_PAUSE)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// A place that nothing else uses: free ports and a directory of its own.
pub(crate) fn private_place(dir: &Path) -> Result<Place> {
    // Both are held until both are known, so that they differ.
    let listeners = [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
    Ok(Place { listen: listeners[0].local_addr()?, admin: listeners[1].local_addr()?, data: dir.join("data") })
}
