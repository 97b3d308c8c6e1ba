//! Silences in Alertmanagers: one for each verdict that hides events, and where it has been created.

use sqlx::Row;
use workload::Timestamp;

use crate::store::{Store, StoreError};
use crate::verdicts::{Answer, Standing, Verdict};

/// A silence that exists in an Alertmanager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    pub verdict: i64,
    /// The id that the Alertmanager gave it.
    pub id: String,
}

impl Store {
    /// The verdicts that hide events now.
    pub async fn hiding_verdicts(&self, now: Timestamp) -> Result<Vec<Verdict>, StoreError> {
        let of_events = self.verdicts_by_event().await?.into_values();
        let normal = of_events.filter(|verdicts| Standing::of(verdicts) == Standing::Normal);
        let is_hiding = |verdict: &Verdict| {
            verdict.answer == Answer::Normal && verdict.undone.is_none() && verdict.expires > now
        };
        Ok(normal.flatten().filter(is_hiding).collect())
    }

    /// The silences in an Alertmanager, as far as they are known.
    pub async fn silences(&self, receiver: &str) -> Result<Vec<Silence>, StoreError> {
        let rows = sqlx::query("SELECT verdict, id FROM silences WHERE receiver = $1 ORDER BY verdict")
            .bind(receiver)
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(|row| Ok(Silence { verdict: row.try_get(0)?, id: row.try_get(1)? })).collect()
    }

    /// Notes that a silence exists.
    pub async fn add_silence(&self, receiver: &str, silence: &Silence) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query(
            "INSERT INTO silences (receiver, verdict, id) VALUES ($1, $2, $3)
             ON CONFLICT (receiver, verdict) DO UPDATE SET id = $3",
        )
        .bind(receiver)
        .bind(silence.verdict)
        .bind(&silence.id)
        .execute(&mut *connection)
        .await?;
        Ok(())
    }

    /// Notes that a silence has been expired.
    pub async fn remove_silence(&self, receiver: &str, verdict: i64) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query("DELETE FROM silences WHERE receiver = $1 AND verdict = $2")
            .bind(receiver)
            .bind(verdict)
            .execute(&mut *connection)
            .await?;
        Ok(())
    }
}
