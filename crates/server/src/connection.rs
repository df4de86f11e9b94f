//! Connections of clients, told apart so that each has a session of its own where a client says nothing of one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::Extensions;
use tonic::transport::server::{Connected, TlsConnectInfo};

use crate::metrics::Metrics;
use crate::sessions::ClientSession;

/// How long accepting waits after it failed, as it does where no more files can be opened.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection as its requests see it. It goes when the connection is closed and its requests are over.
pub(crate) struct Peer {
    pub address: SocketAddr,
    /// The sessions that clients have by this connection alone, by who they are.
    pub sessions: Mutex<HashMap<String, Arc<ClientSession>>>,
    metrics: Arc<Metrics>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

/// A connection, in what tonic hands from it to its requests.
#[derive(Clone)]
pub(crate) struct PeerInfo(pub Arc<Peer>);

impl PeerInfo {
    /// The connection that a request came by.
    pub fn of(extensions: &Extensions) -> Option<Arc<Peer>> {
        let plain = extensions.get::<PeerInfo>();
        let encrypted = || extensions.get::<TlsConnectInfo<PeerInfo>>().map(TlsConnectInfo::get_ref);
        plain.or_else(encrypted).map(|info| Arc::clone(&info.0))
    }
}

/// The bytes of a connection.
pub(crate) struct Connection {
    stream: TcpStream,
    peer: PeerInfo,
}

impl Connected for Connection {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Waits until the server drains.
async fn drains(draining: &mut watch::Receiver<bool>) {
    // A server that is gone drains no more.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// The connections that come in. Once the server drains there are no more, and the address is free; the stream does not end, as its
/// end would close those that there are.
pub(crate) fn incoming(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    draining: watch::Receiver<bool>,
) -> impl Stream<Item = io::Result<Connection>> {
    futures::stream::unfold((Some(listener), metrics, draining), async |(listener, metrics, mut draining)| {
        let Some(open) = listener else { return std::future::pending().await };
        loop {
            let accepted = tokio::select! {
                () = drains(&mut draining) => {
                    drop(open);
                    return std::future::pending().await;
                }
                accepted = open.accept() => accepted,
            };
            let Ok((stream, address)) = accepted else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            // Small answers go out at once.
            let _ = stream.set_nodelay(true);
            metrics.connections.inc();
            let sessions = Mutex::default();
            let peer = PeerInfo(Arc::new(Peer { address, sessions, metrics: Arc::clone(&metrics) }));
            return Some((Ok(Connection { stream, peer }), (Some(open), metrics, draining)));
        }
    })
}
