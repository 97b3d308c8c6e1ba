//! Verdicts of administrators about events. Everything that a verdict causes is derived from the verdicts in force, so
//! undoing one undoes all of its effects.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{Any, Connection, Row, Transaction};
use workload::Timestamp;

use crate::acceptance::{AcceptedRegion, AcceptedScope};
use crate::audit;
use crate::events::{self, RecordedEvent, add_change};
use crate::regions::{apply, insert_region};
use crate::store::{Store, StoreError};

/// The change of an event that somebody said something about. Receivers of alerts are not told.
pub const VETTED: &str = "vetted";

/// What an administrator says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Anomaly,
    Normal,
    Unsure,
}

impl Answer {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anomaly => "anomaly",
            Self::Normal => "normal",
            Self::Unsure => "unsure",
        }
    }
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "anomaly" => Ok(Self::Anomaly),
            "normal" => Ok(Self::Normal),
            "unsure" => Ok(Self::Unsure),
            _ => Err(format!("{text:?} is not `anomaly`, `normal` or `unsure`")),
        }
    }
}

/// A verdict to be given.
#[derive(Debug, Clone, PartialEq)]
pub struct NewVerdict {
    pub event: String,
    pub answer: Answer,
    /// What kind of anomaly it is.
    pub kind: Option<String>,
    pub comment: String,
    pub actor: String,
    /// Where similar events are normal as well, and until when.
    pub scope: AcceptedScope,
    pub expires: Timestamp,
}

/// A verdict that was given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub number: i64,
    pub event: String,
    pub answer: Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub comment: String,
    pub actor: String,
    pub time: Timestamp,
    pub scope: AcceptedScope,
    pub expires: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone: Option<Timestamp>,
}

/// What the verdicts about an event add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    Unvetted,
    Anomaly,
    Normal,
    Unsure,
    /// Two people disagree.
    Disputed,
}

impl Standing {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unvetted => "unvetted",
            Self::Anomaly => "anomaly",
            Self::Normal => "normal",
            Self::Unsure => "unsure",
            Self::Disputed => "disputed",
        }
    }

    /// The standing of an event with these verdicts, in order. The last one of each person counts.
    pub fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let in_force = verdicts.into_iter().filter(|verdict| verdict.undone.is_none());
        let last: BTreeMap<&str, Answer> =
            in_force.map(|verdict| (verdict.actor.as_str(), verdict.answer)).collect();
        let mut answers: Vec<Answer> = last.into_values().collect();
        answers.sort_unstable();
        answers.dedup();
        // Who is unsure does not contradict.
        if answers.len() > 1 {
            answers.retain(|answer| *answer != Answer::Unsure);
        }
        match answers[..] {
            [] => Self::Unvetted,
            [Answer::Anomaly] => Self::Anomaly,
            [Answer::Normal] => Self::Normal,
            [Answer::Unsure] => Self::Unsure,
            _ => Self::Disputed,
        }
    }
}

/// An event with what was said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct VettedEvent {
    pub event: RecordedEvent,
    pub verdicts: Vec<Verdict>,
}

impl VettedEvent {
    pub fn standing(&self) -> Standing {
        Standing::of(&self.verdicts)
    }

    /// The kind of anomaly, as the last verdict that names one says.
    pub fn kind(&self) -> Option<&str> {
        let named = self.verdicts.iter().rev().filter(|verdict| verdict.undone.is_none());
        named.filter_map(|verdict| verdict.kind.as_deref()).next()
    }
}

/// How good events were, over some days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct VettingFigures {
    pub n_events: usize,
    pub n_anomalies: usize,
    pub n_normal: usize,
    pub n_unvetted: usize,
    pub n_hidden: usize,
    /// The median time from the opening of an event to its first verdict, in seconds.
    pub seconds_to_verdict: Option<f64>,
}

impl VettingFigures {
    /// Confirmed anomalies as a fraction of the events with a clear verdict.
    pub fn precision(&self) -> Option<f64> {
        let n_clear = self.n_anomalies + self.n_normal;
        (n_clear > 0).then(|| self.n_anomalies as f64 / n_clear as f64)
    }

    /// The fraction of events that nobody looked at.
    pub fn unvetted(&self) -> Option<f64> {
        (self.n_events > 0).then(|| self.n_unvetted as f64 / self.n_events as f64)
    }
}

impl Store {
    /// Records a verdict with the regions that it accepts, one for each model, and applies it.
    pub async fn give_verdict(
        &self,
        new: &NewVerdict,
        regions: &[(String, AcceptedRegion)],
        now: Timestamp,
    ) -> Result<Verdict, StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let known = sqlx::query("SELECT id FROM events WHERE id = $1")
            .bind(&new.event)
            .fetch_optional(&mut *transaction)
            .await?;
        known.ok_or_else(|| StoreError::NotFound { what: format!("event {}", new.event) })?;
        let row = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM verdicts").fetch_one(&mut *transaction);
        let number = row.await?.try_get::<i64, _>(0)? + 1;
        sqlx::query(
            "INSERT INTO verdicts (number, event, answer, kind, comment, actor, time_ms, scope, expires_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(number)
        .bind(&new.event)
        .bind(new.answer.name())
        .bind(new.kind.clone())
        .bind(&new.comment)
        .bind(&new.actor)
        .bind(now.0)
        .bind(new.scope.name())
        .bind(new.expires.0)
        .execute(&mut *transaction)
        .await?;
        for (model, region) in regions {
            insert_region(&mut transaction, number, model, region).await?;
        }
        let kind = new.kind.as_deref().map(|kind| format!(" ({kind})")).unwrap_or_default();
        let detail = format!("verdict {number} on event {}: {}{kind}", new.event, new.answer.name());
        audit::append(&mut transaction, now, &new.actor, "verdict", &detail).await?;
        note_vetted(&mut transaction, &new.event, now).await?;
        apply(&mut transaction, now).await?;
        transaction.commit().await?;
        Ok(Verdict {
            number,
            event: new.event.clone(),
            answer: new.answer,
            kind: new.kind.clone(),
            comment: new.comment.clone(),
            actor: new.actor.clone(),
            time: now,
            scope: new.scope,
            expires: new.expires,
            undone: None,
        })
    }

    /// Undoes a verdict with all of its effects.
    pub async fn undo_verdict(&self, number: i64, actor: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let undone = sqlx::query(
            "UPDATE verdicts SET undone_ms = $2, undone_by = $3 WHERE number = $1 AND undone_ms IS NULL",
        )
        .bind(number)
        .bind(now.0)
        .bind(actor)
        .execute(&mut *transaction)
        .await?;
        if undone.rows_affected() == 0 {
            return Err(StoreError::NotFound { what: format!("verdict {number} that is in force") });
        }
        audit::append(&mut transaction, now, actor, "undo verdict", &format!("verdict {number}")).await?;
        let row = sqlx::query("SELECT event FROM verdicts WHERE number = $1").bind(number);
        let event: String = row.fetch_one(&mut *transaction).await?.try_get(0)?;
        note_vetted(&mut transaction, &event, now).await?;
        apply(&mut transaction, now).await?;
        Ok(transaction.commit().await?)
    }

    /// All verdicts about an event, in order.
    pub async fn verdicts_of(&self, event: &str) -> Result<Vec<Verdict>, StoreError> {
        let rows = sqlx::query("SELECT * FROM verdicts WHERE event = $1 ORDER BY number")
            .bind(event)
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(verdict).collect()
    }

    /// One verdict.
    pub async fn verdict(&self, number: i64) -> Result<Verdict, StoreError> {
        let row = sqlx::query("SELECT * FROM verdicts WHERE number = $1")
            .bind(number)
            .fetch_optional(self.readers())
            .await?;
        verdict(&row.ok_or_else(|| StoreError::NotFound { what: format!("verdict {number}") })?)
    }

    /// What the verdicts about each event add up to; events without a verdict are missing.
    pub async fn standings(&self) -> Result<BTreeMap<String, Standing>, StoreError> {
        let by_event = self.verdicts_by_event().await?;
        Ok(by_event.into_iter().map(|(event, verdicts)| (event, Standing::of(&verdicts))).collect())
    }

    /// All verdicts about each event, in order.
    pub(crate) async fn verdicts_by_event(&self) -> Result<BTreeMap<String, Vec<Verdict>>, StoreError> {
        let rows = sqlx::query("SELECT * FROM verdicts ORDER BY number").fetch_all(self.readers()).await?;
        let mut by_event: BTreeMap<String, Vec<Verdict>> = BTreeMap::new();
        for row in &rows {
            let verdict = verdict(row)?;
            by_event.entry(verdict.event.clone()).or_default().push(verdict);
        }
        Ok(by_event)
    }

    /// A number that changes with every verdict, every diagnosis, and every undoing of one.
    pub async fn verdict_state(&self) -> Result<i64, StoreError> {
        let mut state = 0;
        for query in [
            "SELECT COUNT(*), COUNT(undone_ms) FROM verdicts",
            "SELECT COUNT(*), COUNT(removed_ms) FROM diagnoses",
        ] {
            let row = sqlx::query(query).fetch_one(self.readers()).await?;
            state += row.try_get::<i64, _>(0)? + row.try_get::<i64, _>(1)?;
        }
        Ok(state)
    }

    /// The events that were opened since a time, with their verdicts, in order of their opening.
    pub async fn vetted_events(&self, since: Timestamp) -> Result<Vec<VettedEvent>, StoreError> {
        let rows = sqlx::query("SELECT * FROM events WHERE opened_ms >= $1 ORDER BY opened_ms, id")
            .bind(since.0)
            .fetch_all(self.readers())
            .await?;
        let mut by_event = self.verdicts_by_event().await?;
        let vetted = |row: &AnyRow| {
            let event = events::recorded(row)?;
            let verdicts = by_event.remove(&event.event.id).unwrap_or_default();
            Ok(VettedEvent { event, verdicts })
        };
        rows.iter().map(vetted).collect()
    }

    /// Figures about the events that were opened since a time.
    pub async fn vetting_figures(&self, since: Timestamp) -> Result<VettingFigures, StoreError> {
        let mut figures = VettingFigures::default();
        let mut waits: Vec<f64> = Vec::new();
        for vetted in self.vetted_events(since).await? {
            if vetted.event.hidden_by.is_some() && vetted.verdicts.is_empty() {
                figures.n_hidden += 1;
                continue;
            }
            figures.n_events += 1;
            match vetted.standing() {
                Standing::Anomaly => figures.n_anomalies += 1,
                Standing::Normal => figures.n_normal += 1,
                Standing::Unvetted => figures.n_unvetted += 1,
                Standing::Unsure | Standing::Disputed => {}
            }
            let first = vetted.verdicts.iter().find(|verdict| verdict.undone.is_none());
            waits.extend(first.map(|first| (first.time - vetted.event.event.opened).as_seconds()));
        }
        waits.sort_by(f64::total_cmp);
        figures.seconds_to_verdict = waits.get(waits.len() / 2).copied();
        Ok(figures)
    }
}

/// Notes as a change that somebody said something about an event, for those who look at it.
async fn note_vetted(
    transaction: &mut Transaction<'_, Any>,
    event: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT * FROM events WHERE id = $1").bind(event).fetch_one(&mut **transaction);
    let recorded = events::recorded(&row.await?)?;
    add_change(transaction, &recorded.event, VETTED, now).await.map(drop)
}

pub(crate) fn verdict(row: &AnyRow) -> Result<Verdict, StoreError> {
    Ok(Verdict {
        number: row.try_get("number")?,
        event: row.try_get("event")?,
        answer: row.try_get::<String, _>("answer")?.parse().map_err(StoreError::Damaged)?,
        kind: row.try_get("kind")?,
        comment: row.try_get("comment")?,
        actor: row.try_get("actor")?,
        time: Timestamp(row.try_get("time_ms")?),
        scope: row.try_get::<String, _>("scope")?.parse().map_err(StoreError::Damaged)?,
        expires: Timestamp(row.try_get("expires_ms")?),
        undone: row.try_get::<Option<i64>, _>("undone_ms")?.map(Timestamp),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(actor: &str, answer: Answer, is_undone: bool) -> Verdict {
        Verdict {
            number: 1,
            event: "e".into(),
            answer,
            kind: None,
            comment: String::new(),
            actor: actor.into(),
            time: Timestamp(0),
            scope: AcceptedScope::Cluster,
            expires: Timestamp(1),
            undone: is_undone.then_some(Timestamp(0)),
        }
    }

    #[test]
    fn the_last_verdict_of_each_person_counts_and_two_who_disagree_dispute() {
        use Answer::{Anomaly, Normal, Unsure};
        let standing = |given: &[(&str, Answer, bool)]| {
            let verdicts: Vec<Verdict> =
                given.iter().map(|(actor, answer, is_undone)| verdict(actor, *answer, *is_undone)).collect();
            Standing::of(&verdicts)
        };
        let (ann, bob) = ("ann", "bob");
        assert_eq!(standing(&[]), Standing::Unvetted);
        assert_eq!(standing(&[(ann, Normal, true)]), Standing::Unvetted);
        assert_eq!(standing(&[(ann, Normal, false), (ann, Anomaly, false)]), Standing::Anomaly);
        assert_eq!(standing(&[(ann, Normal, false), (bob, Normal, false)]), Standing::Normal);
        assert_eq!(standing(&[(ann, Normal, false), (bob, Anomaly, false)]), Standing::Disputed);
        assert_eq!(standing(&[(ann, Normal, false), (bob, Anomaly, true)]), Standing::Normal);
        assert_eq!(standing(&[(ann, Unsure, false), (bob, Anomaly, false)]), Standing::Anomaly);
        assert_eq!(standing(&[(ann, Unsure, false)]), Standing::Unsure);
    }
}
