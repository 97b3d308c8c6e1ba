//! The tables. Each version is a list of statements; a store is brought up to date when it is opened.

use sqlx::{Connection, Row};

use crate::store::{Store, StoreError};

/// The statements of each version. A version that was released is never changed. SQLite accepts the names of types of
/// PostgreSQL.
const VERSIONS: [&[&str]; 5] = [
    &[
        "CREATE TABLE events (
        id TEXT PRIMARY KEY,
        model TEXT NOT NULL,
        node TEXT,
        start_ms BIGINT NOT NULL,
        opened_ms BIGINT NOT NULL,
        end_ms BIGINT,
        strength DOUBLE PRECISION NOT NULL,
        jobs TEXT NOT NULL,
        document TEXT NOT NULL,
        embedding BYTEA NOT NULL
    )",
        "CREATE INDEX events_by_opening ON events (opened_ms, id)",
        "CREATE TABLE changes (
        number BIGINT PRIMARY KEY,
        event TEXT NOT NULL REFERENCES events (id),
        what TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        document TEXT NOT NULL
    )",
        "CREATE TABLE deliveries (receiver TEXT PRIMARY KEY, delivered BIGINT NOT NULL)",
        "CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        nodes TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        revoked_ms BIGINT
    )",
        "CREATE TABLE sessions (
        hash TEXT PRIMARY KEY,
        actor TEXT NOT NULL,
        role TEXT NOT NULL,
        token TEXT REFERENCES tokens (id),
        expires_ms BIGINT NOT NULL
    )",
        "CREATE TABLE audit (
        number BIGINT PRIMARY KEY,
        time_ms BIGINT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        detail TEXT NOT NULL,
        hash TEXT NOT NULL
    )",
    ],
    &[
        "CREATE TABLE models (
        version TEXT PRIMARY KEY,
        number BIGINT NOT NULL UNIQUE,
        document TEXT NOT NULL
    )",
        "CREATE TABLE promotions (
        number BIGINT PRIMARY KEY,
        alias TEXT NOT NULL,
        version TEXT NOT NULL REFERENCES models (version),
        what TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        actor TEXT NOT NULL,
        reason TEXT NOT NULL
    )",
    ],
    &[
        // The verdict that hides it.
        "ALTER TABLE events ADD COLUMN hidden_by BIGINT",
        "CREATE TABLE verdicts (
        number BIGINT PRIMARY KEY,
        event TEXT NOT NULL REFERENCES events (id),
        answer TEXT NOT NULL,
        kind TEXT,
        comment TEXT NOT NULL,
        actor TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        scope TEXT NOT NULL,
        expires_ms BIGINT NOT NULL,
        undone_ms BIGINT,
        undone_by TEXT
    )",
        "CREATE INDEX verdicts_by_event ON verdicts (event)",
        "CREATE TABLE regions (
        verdict BIGINT NOT NULL REFERENCES verdicts (number),
        model TEXT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (verdict, model)
    )",
        "CREATE TABLE exclusions (
        number BIGINT PRIMARY KEY,
        node TEXT,
        from_ms BIGINT NOT NULL,
        to_ms BIGINT NOT NULL,
        reason TEXT NOT NULL,
        actor TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        removed_ms BIGINT
    )",
        "CREATE TABLE competitions (
        number BIGINT PRIMARY KEY,
        time_ms BIGINT NOT NULL,
        document TEXT NOT NULL
    )",
    ],
    &[
        "CREATE INDEX changes_by_event ON changes (event)",
        // For how long challengers have scored in shadow mode, and what they would have reported.
        "CREATE TABLE shadows (
        model TEXT PRIMARY KEY,
        from_ms BIGINT NOT NULL,
        to_ms BIGINT NOT NULL,
        scored_ms BIGINT NOT NULL
    )",
        "CREATE TABLE shadow_events (
        model TEXT NOT NULL,
        id TEXT NOT NULL,
        opened_ms BIGINT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (model, id)
    )",
        "CREATE TABLE silences (
        receiver TEXT NOT NULL,
        verdict BIGINT NOT NULL REFERENCES verdicts (number),
        id TEXT NOT NULL,
        PRIMARY KEY (receiver, verdict)
    )",
    ],
    &["CREATE TABLE diagnoses (
        number BIGINT PRIMARY KEY,
        kind TEXT NOT NULL,
        is_anomalous BIGINT NOT NULL,
        comment TEXT NOT NULL,
        actor TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        window_ms BIGINT NOT NULL,
        windows TEXT NOT NULL,
        removed_ms BIGINT,
        removed_by TEXT
    )"],
];

/// The version that this program writes.
pub const CURRENT: i64 = VERSIONS.len() as i64;

/// Creates the tables, or brings them up to date.
pub async fn migrate(store: &Store) -> Result<(), StoreError> {
    let mut connection = store.writer().await?;
    let mut transaction = connection.begin().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        .execute(&mut *transaction)
        .await?;
    let row = sqlx::query("SELECT MAX(version) FROM schema_version").fetch_one(&mut *transaction).await?;
    let found = row.try_get::<Option<i64>, _>(0)?.unwrap_or(0);
    if found > CURRENT {
        return Err(StoreError::Newer { found, known: CURRENT });
    }
    for (version, statements) in (1..).zip(VERSIONS).skip(found.max(0) as usize) {
        for statement in statements {
            sqlx::query(*statement).execute(&mut *transaction).await?;
        }
        sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
            .bind(version as i64)
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction.commit().await?)
}
