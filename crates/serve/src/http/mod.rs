//! The HTTP side of the service: routes, limits, TLS.

pub mod access;
pub mod api;
mod diagnoses;
pub mod error;
mod etag;
mod event_schema;
mod events;
mod extract;
mod job_traces;
pub mod limits;
pub mod metrics;
mod models;
pub mod oidc;
mod operations;
mod page;
pub mod queries;
mod session;
mod stored;
mod threads;
mod usage;
mod verdicts;
mod workflow_schema;
mod workflows;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use remote_write::MAX_DECODED;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::service::Service;
use error::ApiError;
use limits::Connections;

/// The path of remote write.
const WRITE: &str = "/api/v1/write";
/// Timeout of a request header and of a TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long connections may take to end when the service stops.
const GRACE: Duration = Duration::from_secs(3);
/// The largest body of a request.
const MAX_BODY: usize = 1 << 20;

#[derive(OpenApi)]
#[openapi(info(
    title = "Tracewise",
    description = "State and events of a monitored cluster. Lists are `{\"items\": […], \"next\": cursor or null}`."
))]
struct Document;

/// The routes of the API, and their description.
fn documented() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(api::cluster))
        .routes(routes!(api::layout))
        .routes(routes!(api::nodes))
        .routes(routes!(api::node))
        .routes(routes!(threads::threads))
        .routes(routes!(usage::node_usage))
        .routes(routes!(api::jobs))
        .routes(routes!(api::job))
        .routes(routes!(events::events))
        .routes(routes!(events::event))
        .routes(routes!(events::vetting))
        .routes(routes!(verdicts::verdicts, verdicts::give))
        .routes(routes!(verdicts::preview))
        .routes(routes!(verdicts::undo))
        .routes(routes!(diagnoses::diagnoses, diagnoses::diagnose))
        .routes(routes!(diagnoses::remove))
        .routes(routes!(verdicts::exclusions, verdicts::exclude))
        .routes(routes!(verdicts::include))
        .routes(routes!(verdicts::competitions))
        .routes(routes!(models::models))
        .routes(routes!(models::model))
        .routes(routes!(models::promotions))
        .routes(routes!(models::promote))
        .routes(routes!(models::rollback))
        .routes(routes!(api::timings))
        .routes(routes!(events::stream))
        .routes(routes!(session::current, session::log_in, session::log_out))
        .routes(routes!(operations::operations))
        .routes(routes!(operations::operation, operations::cancel))
        .routes(routes!(operations::backtest))
        .routes(routes!(operations::embeddings))
        .routes(routes!(operations::sampling))
        .routes(routes!(operations::similar_jobs))
        .routes(routes!(job_traces::generators))
        .routes(routes!(job_traces::traces))
        .routes(routes!(job_traces::trace, job_traces::store, job_traces::remove))
        .routes(routes!(job_traces::file))
        .routes(routes!(job_traces::synthesise))
        .routes(routes!(job_traces::compare))
        .routes(routes!(workflows::runs))
        .routes(routes!(workflows::run, workflows::store, workflows::remove))
        .routes(routes!(workflows::file))
        .routes(routes!(workflows::chart))
        .routes(routes!(workflows::compare))
        .routes(routes!(workflows::label, workflows::remove_label))
        .routes(routes!(workflows::classifier, workflows::train, workflows::go_back))
        .routes(routes!(oidc::begin))
        .routes(routes!(oidc::end))
}

/// What every route may respond with.
const COMMON_RESPONSES: [(&str, &str); 3] = [
    ("400", "a parameter cannot be used"),
    ("429", "too many requests or failed logins of this address"),
    ("503", "the service is busy, or the metadata store does not respond"),
];

/// The OpenAPI document.
pub fn openapi() -> String {
    let mut document = documented().into_openapi();
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.delete, &mut item.put];
        for operation in operations.into_iter().flatten() {
            for (status, description) in COMMON_RESPONSES {
                let content = Content::new(Some(Ref::from_schema_name("ErrorBody")));
                let response = ResponseBuilder::new()
                    .description(description)
                    .content("application/json", content)
                    .build();
                operation.responses.responses.entry(status.to_owned()).or_insert_with(|| response.into());
            }
        }
    }
    document.to_pretty_json().unwrap_or_default() + "\n"
}

/// All routes.
pub fn router(service: Arc<Service>) -> Router {
    let (api, _) = documented().split_for_parts();
    let document = openapi();
    api.route("/", get(page::home))
        .route("/assets/{file}", get(page::asset))
        .route("/status", get(page::status))
        .route("/metrics", get(metrics::page))
        .route(WRITE, post(write::write).layer(DefaultBodyLimit::max(MAX_DECODED)))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(move || async { ([(CONTENT_TYPE, "application/json")], document) }))
        .route_layer(axum::middleware::from_fn_with_state(service.clone(), access::check))
        .fallback(|| async { ApiError::not_found("there is no such page; / lists what there is") })
        .layer(axum::middleware::from_fn(etag::add))
        .layer(axum::middleware::from_fn_with_state(service.clone(), limits::check))
        .layer(CompressionLayer::new())
        .layer(axum::middleware::from_fn(access::add_headers))
        .layer(axum::middleware::from_fn(limits::close_after_refusal))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(service)
}

async fn ready(State(service): State<Arc<Service>>) -> Response {
    match service.store.check().await {
        Ok(()) => (StatusCode::OK, "ready\n").into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the metadata store does not respond\n").into_response(),
    }
}

/// Answers requests until `stop`, then lets those that are being answered end.
pub async fn listen(listener: TcpListener, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let app = router(service.clone());
    let limits = service.settings().limits.clone();
    let places = Arc::new(Semaphore::new(limits.connections));
    let of_addresses = Arc::new(Connections::default());
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Without a place, the connection is closed here.
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let Some(of_address) = of_addresses.place(peer.ip(), limits.connections_per_address) else {
                    continue;
                };
                let (app, service) = (app.clone(), service.clone());
                connections.spawn(async move {
                    attend(stream, peer, app, &service).await;
                    drop((place, of_address));
                });
            }
            Err(error) => {
                // For example, no file descriptors are left; that is temporary.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
    let all_end = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, all_end).await;
}

async fn attend(stream: TcpStream, peer: SocketAddr, app: Router, service: &Service) {
    let _ = stream.set_nodelay(true);
    match service.web_config.tls() {
        None => converse(stream, peer, app, service).await,
        Some(acceptor) => match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => converse(stream, peer, app, service).await,
            Ok(Err(error)) => tracing::debug!("{peer}: no TLS: {error}"),
            Err(_) => tracing::debug!("{peer}: no TLS in time"),
        },
    }
}

async fn converse<S>(stream: S, peer: SocketAddr, app: Router, service: &Service)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let app = app.layer(axum::Extension(ConnectInfo(peer)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    let mut stop = service.stop.clone();
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("{peer}: {error}");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::access::{Access, ROUTES, needed};
    use super::*;

    #[test]
    fn every_route_of_the_document_is_in_the_table_of_permissions() {
        let document = documented().into_openapi();
        let mut n_routes = 0;
        for (path, item) in &document.paths.paths {
            let operations =
                [("GET", &item.get), ("POST", &item.post), ("DELETE", &item.delete), ("PUT", &item.put)];
            for (method, _) in operations.into_iter().filter(|(_, operation)| operation.is_some()) {
                let method = method.parse().unwrap();
                assert!(needed(&method, path).is_some(), "{method} {path} is not in the table");
                n_routes += 1;
            }
        }
        // Remote write has a specification of its own.
        let is_documented = |path: &str| path.starts_with("/api/") && path != "/api/v1/write";
        assert_eq!(n_routes, ROUTES.iter().filter(|(_, path, _)| is_documented(path)).count());
        let public: Vec<&str> = ROUTES
            .iter()
            .filter(|(.., access)| *access == Access::Public)
            .map(|(_, path, _)| *path)
            .collect();
        let expected = [
            "/",
            "/assets/{file}",
            "/healthz",
            "/readyz",
            "/openapi.json",
            "/api/v1/session",
            "/api/v1/session",
            "/api/v1/session",
            "/api/v1/login",
            "/api/v1/login/callback",
        ];
        assert_eq!(public, expected);
    }

    #[test]
    fn the_document_in_the_repository_is_current() {
        testbed::check_document("openapi.json", &openapi());
    }

    /// The reference of routes and metrics.
    pub fn reference(metrics: &str) -> String {
        let document = documented().into_openapi();
        let mut routes = String::new();
        for (method, path, access) in ROUTES {
            let item = document.paths.paths.get(path);
            let operation = item.and_then(|item| match method {
                "GET" => item.get.as_ref(),
                "POST" => item.post.as_ref(),
                "PUT" => item.put.as_ref(),
                _ => item.delete.as_ref(),
            });
            let summary = match (operation.and_then(|operation| operation.summary.clone()), path) {
                (Some(summary), _) => summary,
                (None, "/") => "The web UI.".into(),
                (None, "/assets/{file}") => "A file of the web UI.".into(),
                (None, "/status") => "Nodes and events as a page without scripts.".into(),
                (None, WRITE) => "Takes samples by remote write 1.0 or 2.0.".into(),
                (None, "/healthz") => "Whether the process responds.".into(),
                (None, "/readyz") => "Whether the metadata store responds, too.".into(),
                (None, "/metrics") => "Metrics for Prometheus.".into(),
                (None, "/openapi.json") => "The OpenAPI document.".into(),
                (None, other) => panic!("{other} has no description"),
            };
            let role = match access {
                Access::Public => "everybody".to_owned(),
                Access::Role(role) => role.to_string(),
            };
            routes += &format!("| `{method} {path}` | {role} | {summary} |\n");
        }
        format!(
            "# Reference of the service\n\nGenerated from the code; a test checks that it is current. Settings: \
             [settings.md](settings.md). API: [openapi.json](openapi.json).\n\n## Routes\n\n| route | role | content |\n\
             |---|---|---|\n{routes}\n## Metrics\n\nThose of `/metrics`, which are also sent by remote write.\n\n\
             | metric | type | meaning |\n|---|---|---|\n{metrics}"
        )
    }
}
