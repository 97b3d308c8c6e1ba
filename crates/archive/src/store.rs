//! Access to the files of an archive, in a directory or an S3 bucket.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use workload::{Stop, Timestamp};

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// How buckets are reached. Keys come from the usual `AWS_*` environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Settings {
    /// The URL of the service, unless it is Amazon S3.
    pub endpoint: Option<String>,
    /// The region of the bucket; default: `AWS_REGION`, else `us-east-1`.
    pub region: Option<String>,
}

/// One object below the archive's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub path: String,
    pub bytes: u64,
    pub modified: Timestamp,
}

/// Reads, lists, publishes and deletes what lies below an archive's root. Calls block.
#[derive(Clone)]
pub struct Store {
    address: String,
    /// The URL of the service of a bucket.
    endpoint: String,
    folder: Option<PathBuf>,
    objects: Arc<dyn ObjectStore>,
    runtime: Runtime,
    /// Ends calls, except those that make something visible.
    stop: Stop,
    /// What has been warned of, so that it is not repeated.
    warned: Arc<Mutex<BTreeSet<String>>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.address).finish()
    }
}

impl Store {
    /// `address` is a directory or `s3://bucket/prefix`. Nothing is created.
    pub fn open(address: &str, s3: &S3Settings, runtime: Option<&Handle>) -> Result<Self> {
        let refused = |reason: String| Error::Address { address: address.to_owned(), reason };
        let runtime = Runtime::new(runtime).map_err(|error| refused(error.to_string()))?;
        let (folder, objects): (_, Arc<dyn ObjectStore>) = match address.split_once("://") {
            Some(("s3", rest)) => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(refused("there is no bucket; write s3://bucket/prefix".into()));
                }
                let prefix = ObjectPath::parse(prefix).map_err(|error| refused(error.to_string()))?;
                let bucket = open_bucket(bucket, s3).map_err(|error| refused(error.to_string()))?;
                (None, Arc::new(PrefixStore::new(bucket, prefix)))
            }
            Some((scheme, _)) => {
                return Err(refused(format!(
                    "{scheme}:// is not supported; use a directory or s3://bucket/prefix"
                )));
            }
            None => {
                let root = std::path::absolute(address).map_err(Error::io(Path::new(address)))?;
                if root.is_file() {
                    return Err(refused("it is a file".into()));
                }
                let prefix = ObjectPath::from_absolute_path(&root).map_err(|e| refused(e.to_string()))?;
                (Some(root), Arc::new(PrefixStore::new(LocalFileSystem::new(), prefix)))
            }
        };
        let endpoint = s3.endpoint.clone().unwrap_or_default();
        let address = address.trim_end_matches('/').to_owned();
        Ok(Self {
            address,
            endpoint,
            folder,
            objects,
            runtime,
            stop: Stop::default(),
            warned: Arc::default(),
        })
    }

    /// The same place, whose calls end within a second of `stop`.
    pub fn with_stop(&self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self.clone() }
    }

    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    pub fn check_stop(&self) -> Result<()> {
        Ok(self.stop.check()?)
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// A name that is unique to this service, bucket and prefix.
    pub fn identity(&self) -> String {
        let whole = format!("{} {}", self.endpoint, self.address);
        utf8_percent_encode(&whole, NON_ALPHANUMERIC).to_string().replace('%', "_")
    }

    /// The directory of a local archive.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The full path of an object, for messages.
    pub fn full_path(&self, path: &str) -> String {
        format!("{}/{path}", self.address)
    }

    /// The error of a file that Tracewise did not write.
    pub fn foreign(&self, path: &str) -> Error {
        Error::Foreign { path: self.full_path(path) }
    }

    /// Warns, once, of something that is left out.
    pub fn warn_of(&self, problem: &impl ToString) {
        let problem = problem.to_string();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if !warned.contains(&problem) {
            tracing::warn!("{problem}; it is left out");
            warned.insert(problem);
        }
    }

    /// What [`warn_of`](Self::warn_of) was told, in any copy of this store.
    pub fn warned_of(&self) -> BTreeSet<String> {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything below `folder`, sorted by path.
    pub fn list(&self, folder: &str) -> Result<Vec<Object>> {
        let prefix = self.object_path(folder)?;
        let list =
            |objects: Arc<dyn ObjectStore>| async move { objects.list(Some(&prefix)).try_collect().await };
        let found: Vec<ObjectMeta> = self.wait(folder, list)?;
        let mut found: Vec<Object> = found
            .into_iter()
            .map(|meta| Object {
                path: meta.location.as_ref().to_owned(),
                bytes: meta.size,
                modified: Timestamp(meta.last_modified.timestamp_millis()),
            })
            .collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The names of the directories directly below `folder`, sorted.
    pub fn subfolders(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.object_path(folder)?;
        let listing =
            self.wait(folder, |objects| async move { objects.list_with_delimiter(Some(&path)).await })?;
        let last_part = |path: &ObjectPath| Some(path.parts().next_back()?.as_ref().to_owned());
        let mut names: Vec<String> = listing.common_prefixes.iter().filter_map(last_part).collect();
        names.sort();
        Ok(names)
    }

    /// A whole object, if it is there.
    pub fn read(&self, path: &str) -> Result<Option<Bytes>> {
        let location = self.object_path(path)?;
        match self.wait(path, |objects| async move { objects.get(&location).await?.bytes().await }) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn exists(&self, path: &str) -> Result<bool> {
        if let Some(root) = &self.folder {
            return Ok(root.join(path).exists());
        }
        let location = self.object_path(path)?;
        match self.wait(path, |objects| async move { objects.head(&location).await }) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let location = self.object_path(path)?;
        self.wait(path, |objects| async move { objects.get_range(&location, range).await })
    }

    /// Makes a prepared file, which is on stable storage already, visible at `path`: whole and
    /// durable, or not at all.
    pub fn publish(&self, prepared: &Path, path: &str) -> Result<()> {
        let Some(root) = &self.folder else {
            let bytes = fs::read(prepared).map_err(Error::io(prepared))?;
            let location = self.object_path(path)?;
            // Publishing is not cancelled once it has started.
            let to_the_end = self.with_stop(&Stop::default());
            to_the_end.wait(path, |objects| async move { objects.put(&location, bytes.into()).await })?;
            return fs::remove_file(prepared).map_err(Error::io(prepared));
        };
        let target = root.join(path);
        let folder = target.parent().unwrap_or(root);
        files::create_dirs(folder)?;
        fs::rename(prepared, &target).map_err(Error::io(&target))?;
        Ok(files::sync_dir(folder)?)
    }

    /// Removes an object. It is not an error if the object is already gone.
    pub fn delete(&self, path: &str) -> Result<()> {
        let location = self.object_path(path)?;
        match self.wait(path, |objects| async move { objects.delete(&location).await }) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        if let Some(root) = &self.folder {
            let mut emptied = root.join(path);
            while emptied.pop() && emptied != *root && fs::remove_dir(&emptied).is_ok() {}
        }
        Ok(())
    }

    fn object_path(&self, path: &str) -> Result<ObjectPath> {
        ObjectPath::parse(path)
            .map_err(|error| Error::Address { address: self.full_path(path), reason: error.to_string() })
    }

    fn wait<T, F>(&self, path: &str, call: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let waited = self.runtime.wait(&self.stop, call(self.objects.clone()))?;
        waited.map_err(|cause| self.failed(path, cause))
    }

    fn failed(&self, path: &str, cause: object_store::Error) -> Error {
        Error::Store { path: self.full_path(path), cause }
    }
}

fn open_bucket(bucket: &str, s3: &S3Settings) -> object_store::Result<impl ObjectStore> {
    net::install_tls_provider();
    let retry =
        RetryConfig { max_retries: 4, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
    if let Some(region) = &s3.region {
        builder = builder.with_region(region);
    }
    match &s3.endpoint {
        Some(endpoint) => {
            builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://")).build()
        }
        None => builder.build(),
    }
}
