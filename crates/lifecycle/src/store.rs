//! Opens a store: SQLite in a file, or PostgreSQL by address.

use std::path::Path;
use std::str::FromStr;
use std::sync::Once;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection, Executor};

use crate::schema;

/// How long a statement waits for a connection, or for another writer.
const PATIENCE: Duration = Duration::from_secs(10);
const N_READERS: u32 = 4;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the metadata store: {0}")]
    Database(#[from] sqlx::Error),
    #[error(
        "the metadata store has version {found}, this program knows versions up to {known}: use a newer Tracewise"
    )]
    Newer { found: i64, known: i64 },
    #[error("the metadata store contains a damaged row: {0}")]
    Damaged(String),
    #[error("there is no {what}")]
    NotFound { what: String },
}

/// Events, deliveries, tokens and the audit log.
#[derive(Debug, Clone)]
pub struct Store {
    /// One connection: SQLite has one writer, and changes are numbered in order.
    writer: AnyPool,
    readers: AnyPool,
    is_postgres: bool,
}

impl Store {
    /// Opens the store in a file, which is created if it does not exist.
    pub async fn open_file(path: &Path) -> Result<Self, StoreError> {
        let mut url = url_of(path);
        url.push_str("?mode=rwc");
        Self::open(&url).await
    }

    /// Opens a store by address: `postgres://user@host/database` or `sqlite://path`.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        static DRIVERS: Once = Once::new();
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let is_postgres = url.starts_with("postgres:") || url.starts_with("postgresql:");
        let pool = |n_connections: u32| {
            let options = AnyPoolOptions::new().max_connections(n_connections).acquire_timeout(PATIENCE);
            options.after_connect(move |connection, _| Box::pin(prepare(connection, is_postgres)))
        };
        let options = AnyConnectOptions::from_str(url)?.disable_statement_logging();
        if !is_postgres {
            // A pool would try again for a while, and then not say why.
            let mut connection = AnyConnection::connect_with(&options).await?;
            prepare(&mut connection, is_postgres).await?;
            connection.close().await?;
        }
        let writer = pool(1).connect_with(options.clone()).await?;
        let readers = pool(N_READERS).connect_with(options).await?;
        let store = Self { writer, readers, is_postgres };
        schema::migrate(&store).await?;
        Ok(store)
    }

    /// The connection that writes.
    pub(crate) async fn writer(&self) -> Result<PoolConnection<Any>, StoreError> {
        Ok(self.writer.acquire().await?)
    }

    pub(crate) fn readers(&self) -> &AnyPool {
        &self.readers
    }

    /// Whether the store is PostgreSQL, and not SQLite.
    pub fn is_postgres(&self) -> bool {
        self.is_postgres
    }

    /// Whether the store responds.
    pub async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.readers).await?;
        Ok(())
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.writer.close().await;
        self.readers.close().await;
    }
}

/// The address of a file, with characters that mean something in an address escaped.
fn url_of(path: &Path) -> String {
    let mut url = String::from("sqlite://");
    for character in path.to_string_lossy().chars() {
        match character {
            '%' => url.push_str("%25"),
            '?' => url.push_str("%3f"),
            '#' => url.push_str("%23"),
            other => url.push(other),
        }
    }
    url
}

async fn prepare(connection: &mut AnyConnection, is_postgres: bool) -> Result<(), sqlx::Error> {
    let settings = if is_postgres {
        "SET statement_timeout = '30s'"
    } else {
        // What was acknowledged survives a power loss.
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 10000; \
         PRAGMA trusted_schema = OFF"
    };
    connection.execute(settings).await?;
    Ok(())
}
