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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use wasmkeep_storage::Address;
    use wasmkeep_storage::clock::Clock;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What the log says when a guest writes these pieces to its stdout in one event.
    fn logged(pieces: &[&[u8]]) -> Vec<String> {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            let stdio = Stdio::new(Rc::new(GuestLog::new(Address::new("a", "b"), Clock::System)), Level::INFO);
            for piece in pieces {
                stdio.p2_stream().write(Bytes::copy_from_slice(piece)).unwrap();
            }
            stdio.finish_line();
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| line.trim_start_matches(" INFO guest: ").to_owned()).collect()
    }

    #[test]
    fn pieces_become_lines_and_the_last_one_ends_with_its_event() {
        let lines = logged(&[b"a", b"b\nc\n\nd", b"\xff"]);
        assert_eq!(lines, ["ab actor=a/b", "c actor=a/b", "d\u{fffd} actor=a/b"]);
    }

    #[test]
    fn a_line_without_end_is_logged_in_pieces_and_cannot_fake_another() {
        let lines = logged(&[&[b'x'; 3 * LOG_LINE_BYTES_MAX], b"\r\x1b[2KINFO faked"]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].len() < LOG_LINE_BYTES_MAX + 100);
        assert!(lines[1].starts_with("\\r\\u{1b}[2KINFO faked"), "{}", lines[1]);
    }
}
