//! What the process does on signals, as PID 1 too.
//!
//! The first SIGTERM or SIGINT drains; a second one, or one that comes before the node serves, ends the process at once with
//! 128 + its number: every acknowledged write is in the journal already. SIGHUP reloads. One thread waits for them all.

use std::sync::mpsc;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::fatal::Fatal;
use crate::node::Stopper;

/// What signals act upon once a node serves.
struct Target {
    stopper: Stopper,
    reload: Box<dyn FnMut() + Send>,
}

/// The thread that waits for signals.
#[derive(Debug)]
pub struct Signals(mpsc::Sender<Target>);

impl Signals {
    /// Starts to wait for signals.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn watch() -> Result<Self, Fatal> {
        let system = |source| Fatal::System { what: "waiting for signals", source };
        let (sender, targets) = mpsc::channel();
        // The handlers are in place when this returns, not when the thread gets to run.
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system)?;
        let sources = {
            let _context = runtime.enter();
            Sources {
                terminate: signal(SignalKind::terminate()).map_err(system)?,
                interrupt: signal(SignalKind::interrupt()).map_err(system)?,
                hangup: signal(SignalKind::hangup()).map_err(system)?,
            }
        };
        let wait = move || runtime.block_on(sources.wait(&targets));
        thread::Builder::new().name("wk-signals".into()).spawn(wait).map_err(system)?;
        Ok(Self(sender))
    }

    /// From now on signals stop and reload this node.
    pub fn attach(&self, stopper: Stopper, reload: impl FnMut() + Send + 'static) {
        let _thread_lives = self.0.send(Target { stopper, reload: Box::new(reload) });
    }
}

struct Sources {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Sources {
    async fn wait(mut self, targets: &mpsc::Receiver<Target>) {
        let mut target: Option<Target> = None;
        let mut draining = false;
        loop {
            let number = tokio::select! {
                _ = self.terminate.recv() => libc::SIGTERM,
                _ = self.interrupt.recv() => libc::SIGINT,
                _ = self.hangup.recv() => libc::SIGHUP,
            };
            target = targets.try_recv().ok().or(target);
            match &mut target {
                Some(target) if number == libc::SIGHUP => (target.reload)(),
                None if number == libc::SIGHUP => tracing::warn!("SIGHUP is ignored until the node serves"),
                Some(target) if !draining => {
                    draining = true;
                    tracing::info!("stopping; another signal ends the process at once");
                    target.stopper.drain();
                }
                _ => exit_now(128 + number),
            }
        }
    }
}

/// Ends the process without any clean-up.
fn exit_now(status: i32) -> ! {
    // SAFETY: _exit has no precondition; nothing of ours relies on destructors or exit handlers to be durable.
    unsafe { libc::_exit(status) }
}
