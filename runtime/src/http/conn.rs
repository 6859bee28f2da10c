//! One client connection: its bytes, its protocol, its end.
//!
//! The protocol is chosen by the first bytes: HTTP/2 with prior knowledge if they are its preface, else HTTP/1. hyper does the
//! rest, without timers of its own; the core's sweep ends what overstays. Cancel-safety: dropping the task closes the socket and
//! drops the waits of its requests, whose events go on.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::exchange::{Service, exchange};
use super::front::{Command, Conn, Registered};
use crate::limits::{H2_STREAMS_MAX, H2_WINDOW_BYTES, HEAD_BYTES_MAX, REQUEST_BODY_BYTES_MAX};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that are read and thrown away once we are done with a connection, so that a client still sending a refused body can
/// read why. Above it the connection is reset.
const LINGER_BYTES_MAX: usize = 4 * REQUEST_BODY_BYTES_MAX;

/// Serves a connection to its end.
pub(super) async fn serve<S: Service>(service: S, entry: Registered, stream: TcpStream) {
    let conn = &entry.conn;
    let mut stream = Tracked { stream, conn: Rc::clone(conn), ahead: Vec::new(), eof: false, shut: false, discarded: 0 };
    let detected = drive(conn, stream.detect(), |_| {}).await;
    let Some(Ok(multiplexed)) = detected else { return };
    let service_conn = Rc::clone(conn);
    let service = service_fn(move |request| exchange(service.clone(), Rc::clone(&service_conn), request));
    let io = TokioIo::new(stream);
    // How a connection ended is its client's business: errors here are bad bytes, resets and timeouts of theirs.
    if multiplexed {
        conn.multiplex();
        let mut builder = http2::Builder::new(LocalExecutor);
        builder
            .max_concurrent_streams(H2_STREAMS_MAX)
            .initial_stream_window_size(H2_WINDOW_BYTES)
            .initial_connection_window_size(H2_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
        let _ended = drive(conn, builder.serve_connection(io, service), |c| c.as_mut().graceful_shutdown()).await;
    } else {
        let mut builder = http1::Builder::new();
        // No `max_headers`: its default is our limit, 100, and setting it costs an allocation per request.
        // No `pipeline_flush`: it keeps an answer back while unread bytes wait behind it, and loses it when those are a refused
        // body.
        builder.writev(false).header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
        let _ended = drive(conn, builder.serve_connection(io, service), |c| c.as_mut().graceful_shutdown()).await;
    }
}

/// Runs a future under the core's command; `None` if it was aborted.
async fn drive<F: Future>(conn: &Conn, future: F, finish: impl Fn(&mut Pin<&mut F>)) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut finishing = false;
    poll_fn(|cx| {
        match conn.command(cx) {
            Command::Serve => {}
            Command::Finish if finishing => {}
            Command::Finish => {
                finishing = true;
                finish(&mut future);
            }
            Command::Abort => return Poll::Ready(None),
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Runs HTTP/2 streams on the core they came in on.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// A socket that reports its progress, gives bytes read ahead back, and lingers when it is closed.
struct Tracked {
    stream: TcpStream,
    conn: Rc<Conn>,
    /// Read to find the protocol, not yet given to it; in reverse so that the next byte is the last.
    ahead: Vec<u8>,
    eof: bool,
    shut: bool,
    discarded: usize,
}

impl Tracked {
    /// Reads until the protocol is known: true for HTTP/2.
    async fn detect(&mut self) -> io::Result<bool> {
        let mut seen = Vec::with_capacity(PREFACE.len());
        let mut multiplexed = false;
        while PREFACE.starts_with(&seen) {
            let mut rest = [0u8; PREFACE.len()];
            let count = self.stream.read(&mut rest[..PREFACE.len() - seen.len()]).await?;
            if count == 0 {
                self.eof = true;
                break;
            }
            self.conn.received();
            seen.extend_from_slice(&rest[..count]);
            if seen == PREFACE {
                multiplexed = true;
                break;
            }
        }
        seen.reverse();
        self.ahead = seen;
        Ok(multiplexed)
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut trash = [0u8; 8192];
        while !self.eof && self.discarded < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut trash);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.discarded += buffer.filled().len(),
                _ => self.eof = true,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Tracked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            while buffer.remaining() > 0
                && let Some(byte) = self.ahead.pop()
            {
                buffer.put_slice(&[byte]);
            }
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.conn.received();
        } else {
            self.eof = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.conn.sent();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.shut = true;
            self.conn.linger();
        }
        self.poll_linger(cx)
    }
}
