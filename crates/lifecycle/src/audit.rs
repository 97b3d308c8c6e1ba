//! The audit log: who did what, in rows that each contain the hash of the one before. A changed or removed row breaks
//! the chain. It does not show that its end was cut off: for that, every hash is also logged.

use learn::artifact::hexadecimal;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sqlx::{Any, Connection, Row, Transaction};
use workload::Timestamp;

use crate::store::{Store, StoreError};

/// One row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    pub number: i64,
    pub time: Timestamp,
    pub actor: String,
    pub action: String,
    pub detail: String,
    pub hash: String,
}

/// Where the chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the audit log was changed at or before row {number}")]
pub struct AuditError {
    pub number: i64,
}

impl Store {
    /// Adds a row and returns its hash.
    pub async fn audit(
        &self,
        time: Timestamp,
        actor: &str,
        action: &str,
        detail: &str,
    ) -> Result<String, StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let hash = append(&mut transaction, time, actor, action, detail).await?;
        transaction.commit().await?;
        Ok(hash)
    }

    /// The last rows, the newest first.
    pub async fn audit_log(&self, limit: i64) -> Result<Vec<AuditEntry>, StoreError> {
        let rows = sqlx::query("SELECT * FROM audit ORDER BY number DESC LIMIT $1")
            .bind(limit)
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(entry).collect()
    }

    /// Checks the whole chain and returns the last hash.
    pub async fn verify_audit(&self) -> Result<Result<String, AuditError>, StoreError> {
        let rows = sqlx::query("SELECT * FROM audit ORDER BY number").fetch_all(self.readers()).await?;
        let mut previous = String::new();
        for (row, number) in rows.iter().zip(1..) {
            let entry = entry(row)?;
            if entry.number != number || entry.hash != hash(&previous, &entry) {
                return Ok(Err(AuditError { number }));
            }
            previous = entry.hash;
        }
        Ok(Ok(previous))
    }
}

/// Adds a row as part of the change that it is about.
pub async fn append(
    transaction: &mut Transaction<'_, Any>,
    time: Timestamp,
    actor: &str,
    action: &str,
    detail: &str,
) -> Result<String, StoreError> {
    let last = sqlx::query("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1")
        .fetch_optional(&mut **transaction)
        .await?;
    let (number, previous): (i64, String) = match last {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (0, String::new()),
    };
    let mut entry = AuditEntry {
        number: number + 1,
        time,
        actor: actor.to_owned(),
        action: action.to_owned(),
        detail: detail.to_owned(),
        hash: String::new(),
    };
    entry.hash = hash(&previous, &entry);
    sqlx::query(
        "INSERT INTO audit (number, time_ms, actor, action, detail, hash) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(entry.number)
    .bind(entry.time.0)
    .bind(&entry.actor)
    .bind(&entry.action)
    .bind(&entry.detail)
    .bind(&entry.hash)
    .execute(&mut **transaction)
    .await?;
    // The log of the service shows later whether rows were cut off.
    tracing::info!("audit row {}: {actor}: {action} {detail} (hash {})", entry.number, entry.hash);
    Ok(entry.hash)
}

fn entry(row: &sqlx::any::AnyRow) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        number: row.try_get("number")?,
        time: Timestamp(row.try_get("time_ms")?),
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        detail: row.try_get("detail")?,
        hash: row.try_get("hash")?,
    })
}

/// The hash of a row and the one before. Every part is preceded by its length, so that no two rows look the same.
fn hash(previous: &str, entry: &AuditEntry) -> String {
    let (number, time) = (entry.number.to_string(), entry.time.0.to_string());
    let mut hasher = Sha256::new();
    for part in [previous, &number, &time, &entry.actor, &entry.action, &entry.detail] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hexadecimal(&hasher.finalize())
}
