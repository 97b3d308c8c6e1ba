//! Times that models do not learn from: maintenance, new nodes, tests.

use detect::Span;
use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{Connection, Row};
use workload::{NodeName, Timestamp};

use crate::audit;
use crate::store::{Store, StoreError};

/// A time that is excluded from training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exclusion {
    pub number: i64,
    /// Only this node; absent for the whole cluster.
    pub node: Option<NodeName>,
    pub from: Timestamp,
    pub to: Timestamp,
    pub reason: String,
    pub actor: String,
}

impl Exclusion {
    pub fn span(&self) -> Span {
        Span { node: self.node.clone(), ..Span::of_time(self.from, self.to) }
    }
}

impl Store {
    /// Excludes the time of a node, or of the whole cluster, from training.
    pub async fn add_exclusion(
        &self,
        span: &Span,
        reason: &str,
        actor: &str,
        now: Timestamp,
    ) -> Result<Exclusion, StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let row = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM exclusions").fetch_one(&mut *transaction);
        let number = row.await?.try_get::<i64, _>(0)? + 1;
        sqlx::query(
            "INSERT INTO exclusions (number, node, from_ms, to_ms, reason, actor, time_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(number)
        .bind(span.node.as_ref().map(|node| node.as_str().to_owned()))
        .bind(span.from.0)
        .bind(span.to.0)
        .bind(reason)
        .bind(actor)
        .bind(now.0)
        .execute(&mut *transaction)
        .await?;
        audit::append(&mut transaction, now, actor, "exclude", &format!("exclusion {number}: {reason}"))
            .await?;
        transaction.commit().await?;
        Ok(Exclusion {
            number,
            node: span.node.clone(),
            from: span.from,
            to: span.to,
            reason: reason.to_owned(),
            actor: actor.to_owned(),
        })
    }

    /// The exclusions in force, in order.
    pub async fn exclusions(&self) -> Result<Vec<Exclusion>, StoreError> {
        let rows = sqlx::query("SELECT * FROM exclusions WHERE removed_ms IS NULL ORDER BY number")
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(exclusion).collect()
    }

    /// Ends an exclusion.
    pub async fn remove_exclusion(&self, number: i64, actor: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let removed =
            sqlx::query("UPDATE exclusions SET removed_ms = $2 WHERE number = $1 AND removed_ms IS NULL")
                .bind(number)
                .bind(now.0)
                .execute(&mut *transaction)
                .await?;
        if removed.rows_affected() == 0 {
            return Err(StoreError::NotFound { what: format!("exclusion {number}") });
        }
        let detail = format!("exclusion {number}");
        audit::append(&mut transaction, now, actor, "remove exclusion", &detail).await?;
        Ok(transaction.commit().await?)
    }
}

fn exclusion(row: &AnyRow) -> Result<Exclusion, StoreError> {
    let node: Option<String> = row.try_get("node")?;
    let damaged = |error: workload::IdError| StoreError::Damaged(error.to_string());
    Ok(Exclusion {
        number: row.try_get("number")?,
        node: node.map(NodeName::new).transpose().map_err(damaged)?,
        from: Timestamp(row.try_get("from_ms")?),
        to: Timestamp(row.try_get("to_ms")?),
        reason: row.try_get("reason")?,
        actor: row.try_get("actor")?,
    })
}
