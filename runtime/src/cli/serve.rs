//! `wasmkeep serve`: from settings to a node, and from its end to an exit status.

use crate::config::{NodeConfig, Settings, load};
use crate::fatal::Fatal;
use crate::logging;
use crate::memory;
use crate::node::{Node, Reloader};
use crate::signals::Signals;

pub(super) fn serve(settings: &Settings) -> Result<(), Fatal> {
    let config = load(settings)?;
    logging::start(config.log);
    memory::decline_huge_pages();
    let signals = Signals::watch()?;
    raise_descriptor_limit();
    if config.classes.is_empty() && config.natives.is_empty() {
        tracing::warn!("no class of actors is configured: every request will be answered 404 (see --actor and wasmkeep.toml)");
    }
    let (cores, classes) = (config.cores, class_names(&config));
    let node = Node::start(config)?;
    let (settings, reloader) = (settings.clone(), node.reloader());
    signals.attach(node.stopper(), move || reload(&settings, &reloader));
    let (http, admin) = (node.http_addr(), node.admin_addr());
    if let Some(api) = node.api_addr() {
        tracing::info!(%api, "the service door is open");
    }
    tracing::info!(%http, %admin, cores, classes, pid = std::process::id(), "serving");
    node.wait()?;
    tracing::info!("stopped");
    Ok(())
}

fn class_names(config: &NodeConfig) -> String {
    let natives = config.natives.iter().map(|class| &*class.name);
    config.classes.iter().map(|class| &*class.name).chain(natives).collect::<Vec<_>>().join(",")
}

/// SIGHUP: a configuration that is wrong changes nothing.
fn reload(settings: &Settings, reloader: &Reloader) {
    match load(settings) {
        Err(error) => tracing::error!("the configuration is not reloaded: {error}"),
        Ok(config) => {
            let waiting = reloader.reload(&config);
            tracing::info!("access and variables are reloaded");
            if !waiting.is_empty() {
                tracing::warn!("these changes wait for a restart: {}", waiting.join(", "));
            }
        }
    }
}

/// Every connection and every awake actor is an open file: take as many as the system lets us.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if known && limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a valid rlimit to read from.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            tracing::warn!("the limit of open files stays low: {}", std::io::Error::last_os_error());
        }
    }
}
