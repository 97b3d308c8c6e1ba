//! The one format of errors: `{"error": {"code": "not_found", "message": "…"}}`.

use axum::Json;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lifecycle::{RegistryError, StoreError, VettingError};
use serde::Serialize;
use utoipa::ToSchema;

/// The body of every error.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// A word for programs.
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// An error of the API.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

impl ApiError {
    pub fn not_found(what: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "not_found", message: what.into() }
    }

    pub fn bad_request(what: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad_request", message: what.into() }
    }

    pub fn unauthorized() -> Self {
        let message = "send a token as `Authorization: Bearer tw_…`, or log in".into();
        Self { status: StatusCode::UNAUTHORIZED, code: "unauthorized", message }
    }

    pub fn unavailable(what: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "unavailable", message: what.into() }
    }

    pub fn forbidden(what: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, code: "forbidden", message: what.into() }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { .. } => Self::not_found(error.to_string()),
            other => {
                // Error messages of a database may contain data that this client may not see.
                tracing::warn!("{other}");
                Self::unavailable("the metadata store does not respond; try again")
            }
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Store(error) => error.into(),
            RegistryError::NoEarlier => Self::not_found(error.to_string()),
            other => Self { status: StatusCode::CONFLICT, code: "conflict", message: other.to_string() },
        }
    }
}

impl From<VettingError> for ApiError {
    fn from(error: VettingError) -> Self {
        match error {
            VettingError::Registry(error) => error.into(),
            VettingError::Kind => Self::bad_request(error.to_string()),
            VettingError::Archive(error) => {
                tracing::warn!("{error}");
                Self::unavailable("the archive cannot be read; try again")
            }
            VettingError::NotAccepted { .. } | VettingError::FewWindows { .. } => {
                Self { status: StatusCode::CONFLICT, code: "conflict", message: error.to_string() }
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: ErrorDetail { code: self.code, message: self.message } };
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
