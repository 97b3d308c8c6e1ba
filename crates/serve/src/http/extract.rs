//! Parameters and bodies of requests. What cannot be read is answered in the one format of errors.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// The parameters behind the question mark.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let found = axum::extract::Query::from_request_parts(parts, state).await;
        found
            .map(|query| Self(query.0))
            .map_err(|error: QueryRejection| ApiError::bad_request(error.body_text()))
    }
}

/// The parameters in the path.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let found = axum::extract::Path::from_request_parts(parts, state).await;
        found
            .map(|path| Self(path.0))
            .map_err(|error: PathRejection| ApiError::bad_request(error.body_text()))
    }
}

/// A body in JSON.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let found = axum::Json::from_request(request, state).await;
        found.map(|json| Self(json.0)).map_err(|error: JsonRejection| ApiError {
            status: error.status(),
            code: "bad_request",
            message: error.body_text(),
        })
    }
}
