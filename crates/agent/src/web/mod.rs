//! The HTTP endpoints: `/metrics`, `/samples`, `/healthz`, and an overview page.

pub mod auth;
pub mod config;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use crate::service::Shared;
use config::WebConfig;

/// Timeout of the TLS handshake, of reading a request header, and of writing a response.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_CONNECTIONS: usize = 64;

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>, web: Arc<WebConfig>) {
    let free = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = free.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example, no file descriptors are left; that is temporary.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let (shared, web) = (shared.clone(), web.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            // A client that does not read its response is disconnected.
            let mut stream = Box::pin(TimeoutStream::new(stream));
            stream.as_mut().set_write_timeout_pinned(Some(PATIENCE));
            match web.tls() {
                None => answer(stream, peer, shared, web).await,
                Some(acceptor) => match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => answer(stream, peer, shared, web).await,
                    Ok(Err(error)) => tracing::debug!("{peer}: no TLS: {error}"),
                    Err(_) => tracing::debug!("{peer}: no TLS in time"),
                },
            }
        });
    }
}

async fn answer<S>(stream: S, peer: SocketAddr, shared: Arc<Shared>, web: Arc<WebConfig>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, web) = (shared.clone(), web.clone());
        async move {
            let mut response = if web.admits(request.headers()).await {
                routes::answer(&request, &shared)
            } else {
                routes::unauthorised()
            };
            web.add_headers(response.headers_mut());
            Ok::<Response<_>, std::convert::Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("{peer}: {error}");
    }
}
