//! Pages: the web UI, which is part of the program if it was built before it, and a status page without scripts.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Redirect, Response};
use lifecycle::EventFilter;
use report::escaped;

use super::error::ApiError;
use super::extract::Path;
use crate::service::Service;

const N_EVENTS: usize = 20;

// The files of `ui/dist`: `FILES`, names and contents.
include!(concat!(env!("OUT_DIR"), "/ui_files.rs"));

/// The web UI; the status page if the program was built without it.
pub async fn home() -> Response {
    match file("index.html") {
        Some(content) => Html(content).into_response(),
        None => Redirect::to("/status").into_response(),
    }
}

/// A file of the web UI. Its name changes with its content, so browsers may keep it.
pub async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found(format!("the web UI has no file {name:?}"));
    let content = file(&format!("assets/{name}")).ok_or_else(missing)?;
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, content).into_response())
}

fn file(name: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, content)| *content)
}

/// The status page.
pub async fn status(State(service): State<Arc<Service>>) -> Result<Html<String>, ApiError> {
    let live = service.scoring.live();
    let events = service.store.events(&EventFilter::default(), None, N_EVENTS).await?.items;
    let mut event_rows = String::new();
    for one in &events {
        let event = &one.event;
        let what =
            event.jobs.first().map(|job| format!("job {job}")).unwrap_or_else(|| event.subject.to_string());
        let place = event.node.as_ref().map_or(String::new(), |node| format!(" on {node}"));
        let state = if event.is_open() { "open" } else { "over" };
        event_rows += &format!(
            "<tr class=\"{state}\"><td>{state}</td><td><a href=\"/api/v1/events/{}\">{}{}</a></td><td>{:.1}</td><td>{}</td></tr>\n",
            escaped(&event.id),
            escaped(&what),
            escaped(&place),
            event.strength,
            escaped(&event.why),
        );
    }
    let mut node_rows = String::new();
    for node in live.summaries() {
        let state = if node.max_score > 1.0 { "open" } else { "over" };
        node_rows += &format!(
            "<tr class=\"{state}\"><td><a href=\"/api/v1/nodes/{name}\">{name}</a></td><td>{}</td><td>{}</td><td>{:.2}</td>\
             <td>{}</td></tr>\n",
            node.n_threads,
            node.n_jobs,
            node.max_score,
            node.n_anomalous,
            name = escaped(node.node.as_str()),
        );
    }
    let nothing = "<tr><td colspan=\"5\">none</td></tr>";
    Ok(Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Tracewise: {cluster}</title>\
         <style>:root{{color-scheme:light dark}}body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;\
         padding:0 1rem}}table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.25rem .75rem .25rem 0;\
         border-bottom:1px solid #8884;vertical-align:top}}tr.open td:first-child{{font-weight:700;color:#c2410c}}</style>\
         </head><body><h1>{cluster}</h1><p>{state}</p><h2>Events</h2>\
         <table><tr><th>state</th><th>what</th><th>strength</th><th>why</th></tr>{events}</table>\
         <h2>Nodes</h2><table><tr><th>node</th><th>threads</th><th>jobs</th><th>largest score</th><th>threads above 1</th>\
         </tr>{nodes}</table><p><a href=\"/metrics\">metrics</a> · <a href=\"/openapi.json\">API</a></p></body></html>\n",
        cluster = escaped(&service.settings().cluster),
        state = escaped(&service.state()),
        events = if event_rows.is_empty() { nothing } else { &event_rows },
        nodes = if node_rows.is_empty() { nothing } else { &node_rows },
    )))
}
