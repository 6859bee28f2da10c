//! A guest's stdout and stderr as lines of its log.

use super::guest_log::{GuestLog, Level};
use super::limits::LOG_LINE_BYTES_MAX;
use bytes::Bytes;
use send_wrapper::SendWrapper;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// Bytes a guest may write at once.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// One of the two streams. All handles that a guest opens for it share one unfinished line.
#[derive(Clone)]
pub(crate) struct Stdio {
    inner: SendWrapper<Rc<Inner>>,
}

struct Inner {
    log: Rc<GuestLog>,
    level: Level,
    /// What came after the last line break; shorter than `LOG_LINE_BYTES_MAX`.
    unfinished: RefCell<Vec<u8>>,
}

impl Stdio {
    pub(crate) fn new(log: Rc<GuestLog>, level: Level) -> Self {
        Self { inner: SendWrapper::new(Rc::new(Inner { log, level, unfinished: RefCell::default() })) }
    }

    /// Logs the unfinished line, if there is one: at the end of an event, so that no line mixes two events.
    pub(crate) fn finish_line(&self) {
        let line = self.inner.unfinished.take();
        if !line.is_empty() {
            self.log(&line);
        }
    }

    fn log(&self, line: &[u8]) {
        self.inner.log.write(self.inner.level, &String::from_utf8_lossy(line));
    }

    fn take(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
            let mut line = self.inner.unfinished.take();
            line.extend_from_slice(&rest[..at]);
            self.log(&line);
            rest = &rest[at + 1..];
        }
        self.inner.unfinished.borrow_mut().extend_from_slice(rest);
        if self.inner.unfinished.borrow().len() >= LOG_LINE_BYTES_MAX {
            self.finish_line();
        }
    }
}

impl IsTerminal for Stdio {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdio {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only wasi 0.3 asks for this one, and no world of it is linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Stdio {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

impl Pollable for Stdio {
    fn ready<'a, 'b>(&'a mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(std::future::ready(()))
    }
}
