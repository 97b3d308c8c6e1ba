//! Queries that read files and compute for seconds. Few of them run at a time, and a client that gives up ends its query.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use workload::Stop;

use super::error::ApiError;

/// How long a query waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Places for queries.
#[derive(Debug)]
pub struct Queries(Arc<Semaphore>);

impl Queries {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Runs a query in a thread that may wait, when it is its turn. It is asked to stop if the request ends before it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Stop) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let busy = || ApiError::unavailable("too many queries are running; try again");
        let place = tokio::time::timeout(PATIENCE, self.0.clone().acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or_else(busy)?;
        let request = RequestEnd(Stop::default());
        let stop = request.0.clone();
        let work = move || {
            let _place = place;
            work(&stop)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| ApiError::unavailable("the query failed; see the log of the service"))
    }
}

/// Stops a query when its request ends, also because the client has gone or waited too long.
struct RequestEnd(Stop);

impl Drop for RequestEnd {
    fn drop(&mut self) {
        self.0.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_query_stops_with_its_request_and_gives_up_its_place() {
        let queries = Arc::new(Queries::new(1));
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let waiting = queries.run(move |stop| {
            let is_stopped = stop.wait(Duration::from_secs(30));
            let _ = ended.send(is_stopped);
        });
        assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err(), "it is given up");
        assert!(has_ended.await.unwrap(), "the query was told");
        assert_eq!(queries.run(|stop| stop.is_set()).await.ok(), Some(false));
    }
}
