//! The one listener, and how its connections are dealt to the cores: in turn, because connections that the kernel spreads
//! (SO_REUSEPORT) are few and skewed.
//!
//! Runs on a small thread of its own. A core whose queue is full is passed over; when all are full the acceptor waits, and with
//! it the kernel's backlog.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::limits::LISTEN_BACKLOG;
use crate::node::Stop;

/// How long the acceptor waits when the process is out of descriptors or memory.
const RESOURCE_PAUSE: Duration = Duration::from_millis(100);

/// Takes the address without listening on it yet, so that a node finds out early that it cannot have it.
///
/// # Errors
/// What the system says.
pub fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.port() != 0 {
        // A restart takes the port although connections of the last run linger. With a port of the system's choice it would
        // share one that another socket has bound and does not listen on yet.
        socket.set_reuseaddr(true)?;
    }
    socket.bind(address)?;
    Ok(socket)
}

/// Listens on a bound socket; needs a runtime.
///
/// # Errors
/// What the system says.
pub fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(LISTEN_BACKLOG.unsigned_abs())
}

/// Deals connections until the node stops; then deals those that wait in the backlog and closes the listener.
pub async fn deal(listener: TcpListener, cores: Vec<mpsc::Sender<std::net::TcpStream>>, mut stop: watch::Receiver<Stop>) {
    let mut next = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop != Stop::No) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // While every core's queue is full, only a stop goes first.
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop != Stop::No) => break,
                    () = hand_over(stream, &cores, &mut next) => {}
                }
            }
            Err(error) => pause_after(&error).await,
        }
    }
    // Clients in the backlog have a connection as far as they know: they get an answer, not a reset.
    tokio::task::yield_now().await;
    while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
        if hand_over(stream, &cores, &mut next).now_or_never().is_none() {
            break;
        }
    }
}

async fn hand_over(stream: TcpStream, cores: &[mpsc::Sender<std::net::TcpStream>], next: &mut usize) {
    // Neither can fail in a way that matters: the connection is dropped and its client sees that.
    let _slower = stream.set_nodelay(true);
    let Ok(mut stream) = stream.into_std() else { return };
    let first = *next;
    *next = (first + 1) % cores.len();
    for turn in 0..cores.len() {
        match cores[(first + turn) % cores.len()].try_send(stream) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => stream = back,
        }
    }
    let _core_is_gone = cores[first].send(stream).await;
}

/// A client that left before it was accepted is nothing; a lack of descriptors would spin.
async fn pause_after(error: &io::Error) {
    let client_left =
        matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted);
    if !client_left {
        tracing::warn!("cannot accept a connection: {error}");
        tokio::time::sleep(RESOURCE_PAUSE).await;
    }
}
