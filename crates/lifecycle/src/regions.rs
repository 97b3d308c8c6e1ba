//! Accepted regions: which are in force, and which events they hide. A region is in force as long as its verdict is.

use detect::Event;
use sqlx::{Any, Connection, Row, Transaction};
use workload::Timestamp;

use crate::acceptance::AcceptedRegion;
use crate::events::{self, RecordedEvent, add_change};
use crate::store::{Store, StoreError};
use crate::tokens::to_json;
use crate::verdicts::{Answer, Standing, Verdict, verdict};

/// An accepted region, with the verdict that it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionInForce {
    pub verdict: i64,
    /// The event that was accepted.
    pub event: String,
    pub region: AcceptedRegion,
}

impl Store {
    /// Adds the region of a verdict for another model.
    pub async fn add_region(
        &self,
        verdict: i64,
        model: &str,
        region: &AcceptedRegion,
    ) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        insert_region(&mut transaction, verdict, model, region).await?;
        Ok(transaction.commit().await?)
    }

    /// Shows events again whose verdict has expired.
    pub async fn apply_verdicts(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        apply(&mut transaction, now).await?;
        Ok(transaction.commit().await?)
    }

    /// The regions in force for a model.
    pub async fn regions(&self, model: &str, now: Timestamp) -> Result<Vec<RegionInForce>, StoreError> {
        let mut connection = self.readers().acquire().await?;
        let mut transaction = connection.begin().await?;
        let regions = in_force(&mut transaction, now).await?;
        let of_model = regions.into_iter().filter(|(of, _)| of == model);
        Ok(of_model.map(|(_, region)| region).collect())
    }

    /// The verdicts that accept events and have no region for a model yet.
    pub async fn verdicts_without_region(
        &self,
        model: &str,
        now: Timestamp,
    ) -> Result<Vec<(Verdict, RecordedEvent)>, StoreError> {
        let rows = sqlx::query(
            "SELECT verdict FROM regions WHERE model = $1 AND verdict IN (SELECT number FROM verdicts)",
        )
        .bind(model)
        .fetch_all(self.readers())
        .await?;
        let known = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let mut missing = Vec::new();
        for vetted in self.vetted_events(Timestamp::MIN).await? {
            if vetted.standing() != Standing::Normal {
                continue;
            }
            let is_missing = |verdict: &&Verdict| {
                let accepts = verdict.answer == Answer::Normal && verdict.undone.is_none();
                accepts && verdict.expires > now && !known.contains(&verdict.number)
            };
            let last = vetted.verdicts.iter().rev().find(is_missing).cloned();
            missing.extend(last.map(|verdict| (verdict, vetted.event)));
        }
        Ok(missing)
    }
}

pub(crate) async fn insert_region(
    transaction: &mut Transaction<'_, Any>,
    verdict: i64,
    model: &str,
    region: &AcceptedRegion,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO regions (verdict, model, document) VALUES ($1, $2, $3)
         ON CONFLICT (verdict, model) DO UPDATE SET document = $3",
    )
    .bind(verdict)
    .bind(model)
    .bind(to_json(region)?)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// The regions in force, with their models.
pub(crate) async fn in_force(
    transaction: &mut Transaction<'_, Any>,
    now: Timestamp,
) -> Result<Vec<(String, RegionInForce)>, StoreError> {
    let rows = sqlx::query("SELECT * FROM regions ORDER BY verdict").fetch_all(&mut **transaction).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let verdicts =
        sqlx::query("SELECT * FROM verdicts ORDER BY number").fetch_all(&mut **transaction).await?;
    let verdicts = verdicts.iter().map(verdict).collect::<Result<Vec<_>, _>>()?;
    let standing = |event: &str| Standing::of(verdicts.iter().filter(|verdict| verdict.event == event));
    let mut regions = Vec::new();
    for row in &rows {
        let number: i64 = row.try_get("verdict")?;
        let verdict = verdicts.iter().find(|verdict| {
            let is_valid = verdict.undone.is_none() && verdict.expires > now;
            verdict.number == number && is_valid && standing(&verdict.event) == Standing::Normal
        });
        if let Some(verdict) = verdict {
            let document: String = row.try_get("document")?;
            let region =
                serde_json::from_str(&document).map_err(|error| StoreError::Damaged(error.to_string()))?;
            regions.push((
                row.try_get("model")?,
                RegionInForce { verdict: number, event: verdict.event.clone(), region },
            ));
        }
    }
    // Anomalies that were confirmed after a region was made.
    let rows =
        sqlx::query("SELECT * FROM events WHERE id IN (SELECT event FROM verdicts WHERE answer = 'anomaly')")
            .fetch_all(&mut **transaction)
            .await?;
    for row in &rows {
        let anomaly = events::recorded(row)?;
        if standing(&anomaly.event.id) == Standing::Anomaly {
            let of_model = regions.iter_mut().filter(|(model, _)| *model == anomaly.model);
            of_model.for_each(|(_, region)| region.region.keep_away_from(&anomaly.event));
        }
    }
    Ok(regions)
}

/// The verdict that hides an event of a model, among the regions in force.
pub(crate) fn hiding(regions: &[(String, RegionInForce)], model: &str, event: &Event) -> Option<i64> {
    let mut of_model = regions.iter().filter(|(of, _)| of == model);
    of_model.find(|(_, region)| region.region.hides(event)).map(|(_, region)| region.verdict)
}

/// Hides and shows events as the regions in force say, and notes it as a change of those that are open.
pub(crate) async fn apply(transaction: &mut Transaction<'_, Any>, now: Timestamp) -> Result<(), StoreError> {
    let regions = in_force(transaction, now).await?;
    let rows = sqlx::query(
        "SELECT * FROM events
         WHERE end_ms IS NULL OR hidden_by IS NOT NULL OR id IN (SELECT event FROM verdicts)",
    )
    .fetch_all(&mut **transaction)
    .await?;
    for row in &rows {
        let recorded = events::recorded(row)?;
        let event = &recorded.event;
        let own = regions.iter().find(|(_, region)| region.event == event.id);
        let wanted = if let Some((_, own)) = own {
            Some(own.verdict)
        } else if event.is_open() {
            hiding(&regions, &recorded.model, event)
        } else {
            // What is over stays hidden as long as the verdict that hid it is in force.
            recorded.hidden_by.filter(|number| regions.iter().any(|(_, region)| region.verdict == *number))
        };
        if wanted == recorded.hidden_by {
            continue;
        }
        sqlx::query("UPDATE events SET hidden_by = $2 WHERE id = $1")
            .bind(&event.id)
            .bind(wanted)
            .execute(&mut **transaction)
            .await?;
        if event.is_open() && wanted.is_some() != recorded.hidden_by.is_some() {
            let what = if wanted.is_some() { "hidden" } else { "shown" };
            add_change(transaction, event, what, now).await?;
        }
    }
    Ok(())
}
