//! Files that people send and fetch again: job traces and workflow runs.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use workload::{Stop, Timestamp};

use super::error::ApiError;
use crate::service::Service;
use crate::uploads::{NewUpload, UploadError, UploadName, Uploads};

const CHUNK: usize = 256 << 10;

impl From<UploadError> for ApiError {
    fn from(error: UploadError) -> Self {
        let message = error.to_string();
        let (status, code) = match error {
            UploadError::Name { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
            UploadError::Exists(_) => (StatusCode::CONFLICT, "conflict"),
            UploadError::Missing(_) => (StatusCode::NOT_FOUND, "not_found"),
            UploadError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            UploadError::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "full"),
            UploadError::Content(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unusable"),
            UploadError::File(_) => {
                tracing::warn!("{message}");
                let reason = "a file cannot be read or written; see the log of the service";
                return Self::unavailable(reason);
            }
        };
        Self { status, code, message }
    }
}

/// Receives a file under a name.
pub async fn receive<A: Serialize + DeserializeOwned>(
    service: &Service,
    uploads: &Uploads<A>,
    name: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<NewUpload, ApiError> {
    let new = uploads.begin(&UploadName::new(name)?)?;
    let limits = service.settings().limits.clone();
    let limit = limits.upload_bytes;
    let stored = service.job_traces.uploads().bytes()? + service.workflow_runs.uploads().bytes()?;
    let left = limits.stored_bytes.saturating_sub(stored);
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > limit) {
        return Err(UploadError::TooLarge(limit).into());
    }
    if announced.unwrap_or(1) > left {
        return Err(UploadError::Full(limits.stored_bytes).into());
    }
    let path = new.path();
    let failed = |error| ApiError::from(UploadError::from(files::Error::io(&path)(error)));
    let mut file = files::create_new(&path).map_err(UploadError::from)?;
    let (mut body, mut n_bytes) = (body.into_data_stream(), 0_u64);
    while let Some(chunk) = body.next().await {
        let chunk =
            chunk.map_err(|_| ApiError::bad_request("the connection ended before the whole file came"))?;
        n_bytes += chunk.len() as u64;
        if n_bytes > limit {
            return Err(UploadError::TooLarge(limit).into());
        }
        if n_bytes > left {
            return Err(UploadError::Full(limits.stored_bytes).into());
        }
        file.write_all(&chunk).map_err(failed)?;
    }
    Ok(new)
}

/// Runs a query that reads files, when it is its turn.
pub async fn query<T: Send + 'static>(
    service: &Service,
    work: impl FnOnce() -> Result<T, UploadError> + Send + 'static,
) -> Result<T, ApiError> {
    Ok(service.stored_queries.run(|_| work()).await??)
}

/// Adds a file that was received, and notes who did it, even if the client has gone by then.
pub async fn add<T: Send + 'static>(
    service: &Arc<Service>,
    action: &'static str,
    name: String,
    actor: String,
    work: impl FnOnce(&Service, &str) -> Result<T, UploadError> + Send + 'static,
) -> Result<T, ApiError> {
    let (worker, runtime) = (service.clone(), tokio::runtime::Handle::current());
    let work = move |_: &Stop| {
        let added = work(&worker, &actor)?;
        runtime.block_on(note(&worker, &actor, action, &name))?;
        Ok(added)
    };
    service.stored_queries.run(work).await?
}

/// Sends a file.
pub fn send(name: &UploadName, path: &Path) -> Result<Response, ApiError> {
    let file = File::open(path).map_err(|error| UploadError::from(files::Error::io(path)(error)))?;
    let length = file.metadata().map(|metadata| metadata.len()).unwrap_or_default();
    let chunks = stream::unfold(file, |mut file| async move {
        let mut chunk = vec![0; CHUNK];
        match file.read(&mut chunk) {
            Ok(0) => None,
            Ok(n_bytes) => {
                chunk.truncate(n_bytes);
                Some((Ok(Bytes::from(chunk)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        // The name has neither quotes nor line breaks.
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, Body::from_stream(chunks.fuse())).into_response())
}

/// Removes a file, and notes who did it.
pub async fn remove<A: Serialize + DeserializeOwned>(
    service: &Service,
    uploads: &Uploads<A>,
    name: &str,
    actor: &str,
) -> Result<StatusCode, ApiError> {
    uploads.remove(&UploadName::new(name)?)?;
    note(service, actor, "delete", name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Writes what somebody did with a file to the audit log.
pub async fn note(service: &Service, actor: &str, action: &str, name: &str) -> Result<(), ApiError> {
    service.store.audit(Timestamp::from(SystemTime::now()), actor, action, name).await?;
    Ok(())
}
