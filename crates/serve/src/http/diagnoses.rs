//! `/api/v1/diagnoses`: selections of windows that people named.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::time::SystemTime;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use lifecycle::{DiagnosedWindow, Diagnosis, MIN_DIAGNOSED, NewDiagnosis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use workload::{Cpu, IdError, JobId, Millis, NodeName, Timestamp};

use super::access::Client;
use super::api::{List, Shared, seconds, time_of};
use super::error::{ApiError, ErrorBody};
use super::extract::{JsonBody, Path};
use super::verdicts::vet;

const MAX_WINDOWS: usize = 1_000;
const MAX_KIND: usize = 100;
const MAX_COMMENT: usize = 2_000;
const MAX_WINDOW_SECONDS: f64 = 86_400.0;

/// A window of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowItem {
    pub node: String,
    pub cpu: u16,
    pub job: String,
    /// When it begins, in seconds since 1970.
    pub start: f64,
}

/// Windows to be named.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiagnosisRequest {
    /// What these windows are, such as `slow-storage`.
    #[schema(min_length = 1, max_length = 100)]
    pub kind: String,
    /// Whether similar windows are a problem. They open events then.
    pub is_anomalous: bool,
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub comment: String,
    /// The length of the windows.
    #[schema(exclusive_minimum = 0, maximum = 86400)]
    pub window_seconds: f64,
    /// At least 3 and at most 1,000 windows of jobs.
    #[schema(min_items = 3, max_items = 1000)]
    pub windows: Vec<WindowItem>,
}

/// Windows that were named.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiagnosisItem {
    pub number: i64,
    pub kind: String,
    pub is_anomalous: bool,
    pub comment: String,
    pub actor: String,
    /// In seconds since 1970.
    pub time: f64,
    pub windows: usize,
    pub jobs: Vec<String>,
}

impl From<Diagnosis> for DiagnosisItem {
    fn from(one: Diagnosis) -> Self {
        Self {
            number: one.number,
            jobs: one.jobs().into_iter().map(JobId::to_string).collect(),
            windows: one.windows.len(),
            kind: one.kind,
            is_anomalous: one.is_anomalous,
            comment: one.comment,
            actor: one.actor,
            time: seconds(one.time),
        }
    }
}

/// The diagnoses in force.
#[utoipa::path(get, path = "/api/v1/diagnoses", tag = "verdicts", responses(
    (status = 200, body = List<DiagnosisItem>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn diagnoses(State(service): Shared) -> Result<Json<List<DiagnosisItem>>, ApiError> {
    let diagnoses = service.store.diagnoses().await?;
    Ok(List::whole(diagnoses.into_iter().map(DiagnosisItem::from).collect()))
}

/// Names windows. Later events that resemble them report the name.
#[utoipa::path(post, path = "/api/v1/diagnoses", request_body = DiagnosisRequest, tag = "verdicts", responses(
    (status = 200, body = DiagnosisItem), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 415, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub async fn diagnose(
    State(service): Shared,
    Extension(client): Extension<Client>,
    JsonBody(request): JsonBody<DiagnosisRequest>,
) -> Result<Json<DiagnosisItem>, ApiError> {
    let diagnosis = requested(request, client.actor)?;
    let now = Timestamp::from(SystemTime::now());
    let given =
        vet(service, move |vetting, runtime| runtime.block_on(vetting.diagnose(&diagnosis, now))).await?;
    Ok(Json(given.into()))
}

fn requested(request: DiagnosisRequest, actor: String) -> Result<NewDiagnosis, ApiError> {
    let kind = request.kind.trim().to_owned();
    if kind.is_empty() || kind.len() > MAX_KIND {
        return Err(ApiError::bad_request(format!("kind must have 1 to {MAX_KIND} bytes")));
    }
    if request.comment.len() > MAX_COMMENT {
        return Err(ApiError::bad_request(format!("the comment may have {MAX_COMMENT} bytes")));
    }
    if !(MIN_DIAGNOSED..=MAX_WINDOWS).contains(&request.windows.len()) {
        let message = format!("a diagnosis has between {MIN_DIAGNOSED} and {MAX_WINDOWS} windows");
        return Err(ApiError::bad_request(message));
    }
    if !(0.001..=MAX_WINDOW_SECONDS).contains(&request.window_seconds) {
        return Err(ApiError::bad_request("windows have between 0.001 and 86,400 seconds"));
    }
    let bad = |error: IdError| ApiError::bad_request(error.to_string());
    let window = |one: WindowItem| {
        Ok(DiagnosedWindow {
            node: NodeName::new(one.node).map_err(bad)?,
            cpu: Cpu(one.cpu),
            job: JobId::new(one.job).map_err(bad)?,
            start: start_of(one.start)?,
        })
    };
    Ok(NewDiagnosis {
        kind,
        is_anomalous: request.is_anomalous,
        comment: request.comment,
        actor,
        window_length: Millis((request.window_seconds * 1_000.0) as i64),
        windows: request.windows.into_iter().map(window).collect::<Result<_, ApiError>>()?,
    })
}

/// The start of a window, to the millisecond: a number of seconds may be a little less.
fn start_of(seconds: f64) -> Result<Timestamp, ApiError> {
    time_of(Some(seconds))?;
    Ok(Timestamp((seconds * 1e3).round() as i64))
}

/// Removes a diagnosis with all of its effects.
#[utoipa::path(delete, path = "/api/v1/diagnoses/{number}", params(("number" = i64, Path)), tag = "verdicts",
    responses(
    (status = 204, description = "it is removed"), (status = 404, body = ErrorBody),
    (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub async fn remove(
    State(service): Shared,
    Extension(client): Extension<Client>,
    Path(number): Path<i64>,
) -> Result<StatusCode, ApiError> {
    service.store.remove_diagnosis(number, &client.actor, Timestamp::from(SystemTime::now())).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(n_windows: usize, kind: &str) -> DiagnosisRequest {
        let window = |cpu: usize| WindowItem {
            node: "n1".into(),
            cpu: cpu as u16,
            job: "17".into(),
            start: 1_800_000_000.1,
        };
        DiagnosisRequest {
            kind: kind.into(),
            is_anomalous: true,
            comment: String::new(),
            window_seconds: 60.0,
            windows: (0..n_windows).map(window).collect(),
        }
    }

    #[test]
    fn a_diagnosis_needs_a_name_and_enough_windows() {
        let refused = |request| requested(request, "ann".into()).unwrap_err().message;
        assert!(refused(request(12, "  ")).contains("kind"));
        assert!(refused(request(2, "a")).contains("between 3"));
        assert!(refused(request(1_001, "a")).contains("between 3"));
        assert!(
            refused(DiagnosisRequest { window_seconds: f64::NAN, ..request(12, "a") }).contains("seconds")
        );
        let mut odd = request(12, "a");
        odd.windows[3].start = f64::INFINITY;
        assert!(refused(odd).contains("1970"));
        let new = requested(request(12, " slow-storage "), "ann".into()).unwrap();
        assert_eq!(
            (new.kind.as_str(), new.windows.len(), new.window_length),
            ("slow-storage", 12, Millis(60_000))
        );
        assert_eq!(new.windows[0].start, Timestamp(1_800_000_000_100));
    }
}
