//! Tasks that follow the settings: one for each item that is wanted.

use std::collections::BTreeMap;
use std::future::Future;

use tokio::task::{AbortHandle, JoinSet};

/// One task for each item.
#[derive(Debug)]
pub struct Tasks<K> {
    running: BTreeMap<K, AbortHandle>,
    tasks: JoinSet<()>,
}

impl<K: Ord + Clone> Tasks<K> {
    pub fn new() -> Self {
        Self { running: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Ends the tasks of items that are not wanted any more, and starts those of new ones.
    pub fn keep<F>(&mut self, wanted: &[K], start: impl Fn(K) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.tasks.try_join_next().is_some() {}
        self.running.retain(|item, task| {
            let is_wanted = wanted.contains(item);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for item in wanted {
            let new = || self.tasks.spawn(start(item.clone()));
            self.running.entry(item.clone()).or_insert_with(new);
        }
    }

    /// Ends all tasks.
    pub async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn tasks_follow_what_is_wanted() {
        let started = Arc::new(AtomicUsize::new(0));
        let start = |_| {
            let started = started.clone();
            async move {
                started.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
        };
        let mut tasks = Tasks::new();
        for wanted in [&["a", "b"][..], &["b", "c"], &["b", "c"]] {
            tasks.keep(wanted, start);
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.running.keys().copied().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(started.load(Ordering::Relaxed), 3);
        tasks.end().await;
    }
}
