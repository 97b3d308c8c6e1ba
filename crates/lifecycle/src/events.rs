//! Events and their history. Every change of an event is a numbered row, from which alerts are delivered and clients
//! that follow events catch up.

use std::collections::BTreeMap;

use detect::{Event, EventChange};
use learn::stats::squared_distance;
use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{Any, Connection, Row, Transaction};
use workload::{JobId, NodeName, Timestamp};

use crate::regions::{hiding, in_force};
use crate::store::{Store, StoreError};
use crate::tokens::to_json;
use crate::verdicts::Standing;

/// The most events that are compared with one.
const MAX_COMPARED: i64 = 10_000;

/// An event as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedEvent {
    #[serde(flatten)]
    pub event: Event,
    /// The version of the model that found it.
    pub model: String,
    /// The verdict about a similar event that hides it.
    pub hidden_by: Option<i64>,
}

/// A change of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedChange {
    /// Numbers grow by one.
    pub number: i64,
    pub what: String,
    pub time: Timestamp,
    pub event: Event,
}

/// Which events are wanted.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub node: Option<NodeName>,
    pub job: Option<JobId>,
    /// Only events that are open, or only those that are not.
    pub is_open: Option<bool>,
    /// Only events that were opened at or after this time.
    pub from: Option<Timestamp>,
    /// Only events that were opened before this time.
    pub to: Option<Timestamp>,
    /// Only events that a verdict hides, or only those that none hides.
    pub is_hidden: Option<bool>,
    /// Only events with this standing.
    pub standing: Option<Standing>,
}

/// Some events, the newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    pub items: Vec<RecordedEvent>,
    /// Where the next page begins, if there is one.
    pub next: Option<(Timestamp, String)>,
}

/// A past event that resembles another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimilarEvent {
    pub event: RecordedEvent,
    /// The distance of their embeddings.
    pub distance: f64,
}

impl Store {
    /// Records a change and returns its number; `None` if it was recorded before, or if a verdict about a similar event
    /// hides it. The same event may be found twice after a crash.
    pub async fn record(
        &self,
        change: &EventChange,
        model: &str,
        now: Timestamp,
    ) -> Result<Option<i64>, StoreError> {
        let event = change.event();
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let row = sqlx::query("SELECT end_ms, hidden_by FROM events WHERE id = $1")
            .bind(&event.id)
            .fetch_optional(&mut *transaction)
            .await?;
        let known: Option<Option<i64>> = row.as_ref().map(|row| row.try_get(0)).transpose()?;
        let is_repeated = match (change, known) {
            (EventChange::Opened(_), known) => known.is_some(),
            (EventChange::Reopened(_), known) => known == Some(None),
            (EventChange::Closed(_), known) => known.flatten().is_some(),
        };
        if is_repeated {
            return Ok(None);
        }
        let hidden_by = match &row {
            Some(row) => row.try_get(1)?,
            None => hiding(&in_force(&mut transaction, now).await?, model, event),
        };
        sqlx::query(
            "INSERT INTO events
                 (id, model, node, start_ms, opened_ms, end_ms, strength, jobs, document, embedding, hidden_by)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (id) DO UPDATE SET end_ms = $6, strength = $7, jobs = $8, document = $9",
        )
        .bind(&event.id)
        .bind(model)
        .bind(event.node.as_ref().map(|node| node.as_str().to_owned()))
        .bind(event.start.0)
        .bind(event.opened.0)
        .bind(event.end.map(|end| end.0))
        .bind(event.strength)
        .bind(to_json(&event.jobs)?)
        .bind(to_json(event)?)
        .bind(event.embedding.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
        .bind(hidden_by)
        .execute(&mut *transaction)
        .await?;
        let number = match hidden_by {
            Some(_) => None,
            None => Some(add_change(&mut transaction, event, change.name(), now).await?),
        };
        transaction.commit().await?;
        Ok(number)
    }

    /// Notes that an open event has become stronger, or affects more jobs. That is not a change that others are told about.
    pub async fn update_open(&self, event: &Event) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query(
            "UPDATE events SET strength = $2, jobs = $3, document = $4 WHERE id = $1 AND end_ms IS NULL",
        )
        .bind(&event.id)
        .bind(event.strength)
        .bind(to_json(&event.jobs)?)
        .bind(to_json(event)?)
        .execute(&mut *connection)
        .await?;
        Ok(())
    }

    /// One event.
    pub async fn event(&self, id: &str) -> Result<Option<RecordedEvent>, StoreError> {
        let row =
            sqlx::query("SELECT * FROM events WHERE id = $1").bind(id).fetch_optional(self.readers()).await?;
        row.as_ref().map(recorded).transpose()
    }

    /// A page of events, from `after` on.
    pub async fn events(
        &self,
        filter: &EventFilter,
        after: Option<&(Timestamp, String)>,
        limit: usize,
    ) -> Result<EventPage, StoreError> {
        let standings = match filter.standing {
            Some(_) => self.standings().await?,
            None => BTreeMap::new(),
        };
        let is_wanted = |event: &RecordedEvent| {
            let standing = standings.get(&event.event.id).copied().unwrap_or(Standing::Unvetted);
            filter.standing.is_none_or(|wanted| standing == wanted)
        };
        let (mut items, mut after) = (Vec::new(), after.cloned());
        loop {
            let rows = self.event_rows(filter, after.as_ref(), limit + 1).await?;
            let is_last = rows.len() <= limit;
            after = rows.last().map(|last| (last.event.opened, last.event.id.clone()));
            items.extend(rows.into_iter().filter(is_wanted));
            if is_last || items.len() > limit {
                break;
            }
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| has_more);
        let next = last.map(|last| (last.event.opened, last.event.id.clone()));
        Ok(EventPage { items, next })
    }

    /// Events by what the database knows, from `after` on.
    async fn event_rows(
        &self,
        filter: &EventFilter,
        after: Option<&(Timestamp, String)>,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let job = filter.job.as_ref().map(to_json).transpose()?.map(|job| escaped_for_like(&job));
        let (after_ms, after_id) = after.map_or((i64::MAX, String::new()), |(time, id)| (time.0, id.clone()));
        let rows = sqlx::query(
            "SELECT * FROM events
             WHERE ($1 IS NULL OR node = $1)
               AND ($2 IS NULL OR jobs LIKE '%' || $2 || '%' ESCAPE '!')
               AND ($3 < 0 OR (end_ms IS NULL AND $3 = 1) OR (end_ms IS NOT NULL AND $3 = 0))
               AND opened_ms >= $4 AND opened_ms < $5
               AND (opened_ms < $6 OR (opened_ms = $6 AND id < $7))
               AND ($8 < 0 OR (hidden_by IS NOT NULL AND $8 = 1) OR (hidden_by IS NULL AND $8 = 0))
             ORDER BY opened_ms DESC, id DESC LIMIT $9",
        )
        .bind(filter.node.as_ref().map(|node| node.as_str().to_owned()))
        .bind(job)
        .bind(filter.is_open.map_or(-1, i64::from))
        .bind(filter.from.map_or(i64::MIN, |from| from.0))
        .bind(filter.to.map_or(i64::MAX, |to| to.0))
        .bind(after_ms)
        .bind(after_id)
        .bind(filter.is_hidden.map_or(-1, i64::from))
        .bind(limit as i64)
        .fetch_all(self.readers())
        .await?;
        rows.iter().map(recorded).collect()
    }

    /// All open events, also those that a verdict hides.
    pub async fn open_events(&self) -> Result<Vec<RecordedEvent>, StoreError> {
        let rows = sqlx::query("SELECT * FROM events WHERE end_ms IS NULL ORDER BY opened_ms, id")
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(recorded).collect()
    }

    /// The open events that no verdict hides.
    pub async fn reported_events(&self) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut open = self.open_events().await?;
        open.retain(|event| event.hidden_by.is_none());
        Ok(open)
    }

    /// The changes after a number, in order.
    pub async fn changes_after(&self, number: i64, limit: i64) -> Result<Vec<RecordedChange>, StoreError> {
        let rows = sqlx::query("SELECT * FROM changes WHERE number > $1 ORDER BY number LIMIT $2")
            .bind(number)
            .bind(limit)
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(change).collect()
    }

    /// The changes of one event, in order.
    pub async fn changes_of(&self, event: &str) -> Result<Vec<RecordedChange>, StoreError> {
        let rows = sqlx::query("SELECT * FROM changes WHERE event = $1 ORDER BY number")
            .bind(event)
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(change).collect()
    }

    /// The number of the last change; 0 if there is none.
    pub async fn last_change(&self) -> Result<i64, StoreError> {
        let row =
            sqlx::query("SELECT COALESCE(MAX(number), 0) FROM changes").fetch_one(self.readers()).await?;
        Ok(row.try_get(0)?)
    }

    /// The past events most similar to one, by the embedding of the same model. Events of other models cannot be
    /// compared.
    pub async fn similar(&self, id: &str, limit: usize) -> Result<Vec<SimilarEvent>, StoreError> {
        let row = sqlx::query("SELECT * FROM events WHERE id = $1")
            .bind(id)
            .fetch_optional(self.readers())
            .await?
            .ok_or_else(|| StoreError::NotFound { what: format!("event {id}") })?;
        let (model, embedding) = (row.try_get::<String, _>("model")?, embedding(&row)?);
        let rows = sqlx::query(
            "SELECT * FROM events WHERE model = $1 AND id <> $2 ORDER BY opened_ms DESC LIMIT $3",
        )
        .bind(model)
        .bind(id)
        .bind(MAX_COMPARED)
        .fetch_all(self.readers())
        .await?;
        let mut similar = Vec::new();
        for row in &rows {
            let other = self::embedding(row)?;
            if other.len() == embedding.len() && !other.is_empty() {
                similar.push((squared_distance(&other, &embedding).sqrt(), row));
            }
        }
        similar.sort_by(|a, b| a.0.total_cmp(&b.0));
        similar.truncate(limit);
        let event = |(distance, row): (f64, &AnyRow)| Ok(SimilarEvent { event: recorded(row)?, distance });
        similar.into_iter().map(event).collect()
    }
}

/// Adds a numbered change of an event.
pub(crate) async fn add_change(
    transaction: &mut Transaction<'_, Any>,
    event: &Event,
    what: &str,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let last =
        sqlx::query("SELECT COALESCE(MAX(number), 0) FROM changes").fetch_one(&mut **transaction).await?;
    let number = last.try_get::<i64, _>(0)? + 1;
    sqlx::query("INSERT INTO changes (number, event, what, time_ms, document) VALUES ($1, $2, $3, $4, $5)")
        .bind(number)
        .bind(&event.id)
        .bind(what)
        .bind(now.0)
        .bind(to_json(event)?)
        .execute(&mut **transaction)
        .await?;
    Ok(number)
}

/// A text that LIKE takes literally.
fn escaped_for_like(text: &str) -> String {
    let escape = |character: char| {
        let is_special = matches!(character, '%' | '_' | '!');
        is_special.then_some('!').into_iter().chain([character])
    };
    text.chars().flat_map(escape).collect()
}

fn change(row: &AnyRow) -> Result<RecordedChange, StoreError> {
    Ok(RecordedChange {
        number: row.try_get("number")?,
        what: row.try_get("what")?,
        time: Timestamp(row.try_get("time_ms")?),
        event: parsed(&row.try_get::<String, _>("document")?)?,
    })
}

pub(crate) fn recorded(row: &AnyRow) -> Result<RecordedEvent, StoreError> {
    let mut event = parsed(&row.try_get::<String, _>("document")?)?;
    event.embedding = embedding(row)?;
    Ok(RecordedEvent { event, model: row.try_get("model")?, hidden_by: row.try_get("hidden_by")? })
}

pub(crate) fn parsed(document: &str) -> Result<Event, StoreError> {
    serde_json::from_str(document).map_err(|error| StoreError::Damaged(error.to_string()))
}

fn embedding(row: &AnyRow) -> Result<Vec<f32>, StoreError> {
    let bytes: Vec<u8> = row.try_get("embedding")?;
    let values = bytes.chunks_exact(4);
    Ok(values.map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]])).collect())
}
