//! The HTTP endpoints: `/metrics`, `/samples`, `/healthz`, and an overview page.

pub mod auth;
pub mod config;
mod guesses;
pub mod listener;
mod peer;
pub mod places;
mod routes;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;

use crate::counts::count;
use crate::service::Shared;
use auth::Admission;
use config::WebConfig;
use listener::{Listener, Stream};
use peer::Peer;
use places::{Busy, Limits, Place, Places};

/// Timeout of the TLS handshake, of reading a request header, and of writing a response.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all listeners share.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
    config: Arc<WebConfig>,
    places: Arc<Places>,
}

impl Server {
    pub fn new(shared: Arc<Shared>, config: WebConfig, limits: Limits) -> Self {
        let places = Places::new(limits, shared.served.clone());
        Self { shared, config: Arc::new(config), places }
    }

    /// Serves until the process ends.
    pub async fn serve(self, listener: Listener) {
        loop {
            match listener.accept().await {
                // Without a place, the connection is closed here.
                Ok((stream, peer)) => {
                    if let Some(place) = self.places.take(peer, Instant::now()) {
                        tokio::spawn(self.clone().attend(stream, peer, place));
                    }
                }
                Err(error) => {
                    // For example, no file descriptors are left; that is temporary.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn attend(self, stream: Box<dyn Stream>, peer: Peer, place: Place) {
        let place = Arc::new(place);
        tokio::select! {
            biased;
            () = place.lost() => tracing::debug!("{peer}: closed to make room, or because it was slow"),
            () = self.answer_all(stream, peer, &place) => {}
        }
    }

    async fn answer_all(&self, stream: Box<dyn Stream>, peer: Peer, place: &Arc<Place>) {
        // A client that does not read its response is disconnected.
        let mut stream = Box::pin(TimeoutStream::new(stream));
        stream.as_mut().set_write_timeout_pinned(Some(PATIENCE));
        match self.config.tls() {
            None => self.converse(stream, peer, place).await,
            Some(acceptor) => match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => self.converse(stream, peer, place).await,
                Ok(Err(error)) => tracing::debug!("{peer}: no TLS: {error}"),
                Err(_) => tracing::debug!("{peer}: no TLS in time"),
            },
        }
    }

    async fn converse<S>(&self, stream: S, peer: Peer, place: &Arc<Place>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request: Request<Incoming>| async move {
            let busy = place.begin(Instant::now());
            let mut response = match self.config.admit(request.headers(), peer).await {
                Admission::Admitted => routes::answer(&request, &self.shared),
                refused => self.refuse(refused, peer),
            };
            self.config.add_headers(response.headers_mut());
            Ok::<_, Infallible>(response.map(|body| Answering { body, _busy: busy }))
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

    fn refuse(&self, why: Admission, peer: Peer) -> Response<BoxBody<Bytes, Infallible>> {
        let served = &self.shared.served;
        match why {
            Admission::Admitted | Admission::Anonymous => return routes::unauthorised(),
            Admission::WrongPassword => count(&served.wrong_passwords),
            Admission::TooManyGuesses => count(&served.too_many_guesses),
        }
        if let Some(n_failed) = self.config.failures_to_log(Instant::now()) {
            tracing::warn!("failed logins: {n_failed}, the last from {peer}");
        }
        if why == Admission::WrongPassword { routes::unauthorised() } else { routes::too_many_guesses() }
    }
}

/// The body of a response. Its connection is idle when this is dropped.
struct Answering {
    body: BoxBody<Bytes, Infallible>,
    _busy: Busy,
}

impl Body for Answering {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
