//! A challenger in shadow mode scores the same windows as the champion. Its events are recorded in tables of their own and
//! compared with those of the champion; nobody is told about them.

use detect::{Event, EventChange};
use serde::Serialize;
use sqlx::{Connection, Row};
use workload::{Millis, Timestamp};

use crate::competition::{LONGEST_EVENT, NightSettings};
use crate::events::parsed;
use crate::regions::{hiding, in_force};
use crate::registry::{Alias, Promotion, Registry, RegistryError};
use crate::store::{Store, StoreError};
use crate::tokens::to_json;
use crate::verdicts::{Standing, VettedEvent};

/// Events that begin within this time are about the same thing.
const SAME_WITHIN: Millis = Millis(600_000);

/// What a challenger would have reported, next to what the champion did in the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShadowFigures {
    /// The first and the last time that it scored.
    pub from: Timestamp,
    pub to: Timestamp,
    /// For how long it scored.
    pub hours: f64,
    /// Its own events.
    pub n_events: usize,
    /// The champion's events that no verdict hid.
    pub n_champion_events: usize,
    /// The champion's events that it would have reported, too.
    pub n_common: usize,
    /// The champion's events that were confirmed as anomalies, and how many of them it would have reported.
    pub n_confirmed: usize,
    pub n_confirmed_found: usize,
}

/// What happens to a challenger after its time in shadow mode.
#[derive(Debug, Clone, PartialEq)]
pub enum ShadowOutcome {
    Promoted(Promotion),
    /// It stays challenger: a person may still promote it.
    Refused {
        version: String,
        objection: String,
    },
}

/// Decides about the challenger once it has scored for as long as the settings say. `None` if it is too early, if a person
/// decides, or if there is no challenger.
pub async fn judge_shadow(
    store: &Store,
    registry: &Registry,
    settings: &NightSettings,
    actor: &str,
    now: Timestamp,
) -> Result<Option<ShadowOutcome>, RegistryError> {
    if settings.shadow.0 == 0 || settings.needs_approval {
        return Ok(None);
    }
    let Some(challenger) = registry.challenger().await? else { return Ok(None) };
    let Some(figures) = store.shadow_figures(&challenger.version).await? else { return Ok(None) };
    if figures.hours < settings.shadow.as_seconds() / 3_600.0 {
        return Ok(None);
    }
    let version = challenger.version;
    if let Some(objection) = settings.policy.shadow_objection(&figures) {
        return Ok(Some(ShadowOutcome::Refused { version, objection }));
    }
    let reason = format!(
        "{:.1} hours in shadow mode: {} events where the champion reported {}",
        figures.hours, figures.n_events, figures.n_champion_events
    );
    let promotion = registry.promote(Alias::Champion, &version, actor, &reason, now).await?;
    Ok(Some(ShadowOutcome::Promoted(promotion)))
}

impl Store {
    /// Records what a challenger would have reported, unless a verdict hides it.
    pub async fn record_shadow(
        &self,
        change: &EventChange,
        model: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let event = change.event();
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        if hiding(&in_force(&mut transaction, now).await?, model, event).is_some() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO shadow_events (model, id, opened_ms, document) VALUES ($1, $2, $3, $4)
             ON CONFLICT (model, id) DO UPDATE SET document = $4",
        )
        .bind(model)
        .bind(&event.id)
        .bind(event.opened.0)
        .bind(to_json(event)?)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }

    /// Records that a challenger has scored for some time, up to `to`.
    pub async fn add_shadow_time(
        &self,
        model: &str,
        length: Millis,
        to: Timestamp,
    ) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query(
            "INSERT INTO shadows (model, from_ms, to_ms, scored_ms) VALUES ($1, $2, $3, $4)
             ON CONFLICT (model) DO UPDATE SET to_ms = $3, scored_ms = shadows.scored_ms + $4",
        )
        .bind(model)
        .bind((to - length).0)
        .bind(to.0)
        .bind(length.0)
        .execute(&mut *connection)
        .await?;
        Ok(())
    }

    /// How a challenger has done; `None` if it never scored.
    pub async fn shadow_figures(&self, model: &str) -> Result<Option<ShadowFigures>, StoreError> {
        let mut connection = self.readers().acquire().await?;
        // Both tables at the same time.
        let mut transaction = connection.begin().await?;
        let row = sqlx::query("SELECT from_ms, to_ms, scored_ms FROM shadows WHERE model = $1")
            .bind(model)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let rows = sqlx::query("SELECT document FROM shadow_events WHERE model = $1 ORDER BY opened_ms, id")
            .bind(model)
            .fetch_all(&mut *transaction)
            .await?;
        drop(transaction);
        let own =
            rows.iter().map(|row| parsed(&row.try_get::<String, _>(0)?)).collect::<Result<Vec<_>, _>>()?;
        let (from, to) = (Timestamp(row.try_get(0)?), Timestamp(row.try_get(1)?));
        // The challenger also finds events that were already open when it began.
        let mut of_champion = self.vetted_events(from - LONGEST_EVENT).await?;
        of_champion.retain(|vetted| {
            let event = &vetted.event.event;
            event.opened <= to && event.end.is_none_or(|end| end > from) && vetted.event.hidden_by.is_none()
        });
        let hours = row.try_get::<i64, _>(2)? as f64 / Millis::HOUR.0 as f64;
        Ok(Some(ShadowFigures::new((from, to), hours, &own, &of_champion)))
    }
}

impl ShadowFigures {
    /// Counts what the events of a challenger and of the champion have in common.
    fn new(
        (from, to): (Timestamp, Timestamp),
        hours: f64,
        own: &[Event],
        of_champion: &[VettedEvent],
    ) -> Self {
        let count = |is_counted: &dyn Fn(&VettedEvent) -> bool| {
            of_champion.iter().filter(|vetted| is_counted(vetted)).count()
        };
        let is_found =
            |vetted: &VettedEvent| own.iter().any(|event| is_same_event(event, &vetted.event.event));
        let is_confirmed = |vetted: &VettedEvent| vetted.standing() == Standing::Anomaly;
        Self {
            from,
            to,
            hours,
            n_events: own.len(),
            n_champion_events: of_champion.len(),
            n_common: count(&is_found),
            n_confirmed: count(&is_confirmed),
            n_confirmed_found: count(&|vetted| is_confirmed(vetted) && is_found(vetted)),
        }
    }
}

/// Whether two events are about the same thing: they share a job, or are about the same node or cluster, and overlap or
/// begin soon after each other.
pub fn is_same_event(a: &Event, b: &Event) -> bool {
    let share_job = a.jobs.iter().any(|job| b.jobs.contains(job));
    let is_same_place = a.subject == b.subject && a.node == b.node && a.jobs.is_empty() && b.jobs.is_empty();
    let begins_within = |first: &Event, second: &Event| {
        let end = first.end.unwrap_or(Timestamp::MAX);
        second.start >= first.start && second.start <= end.max(first.start + SAME_WITHIN)
    };
    (share_job || is_same_place) && (begins_within(a, b) || begins_within(b, a))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::RecordedEvent;
    use crate::policy::Policy;
    use crate::verdicts::{Answer, Verdict};

    fn event(id: i64, job: &str, start: i64) -> Event {
        let document = json!({
            "id": format!("event-{id}"), "subject": "job", "node": "n1", "nodes": ["n1"], "jobs": [job], "threads": [0],
            "start": start, "end": start + 60, "opened": start + 30, "strength": 1.5, "level": "job", "channels": [],
            "kinds": [], "certainty": 0.9, "why": "",
        });
        serde_json::from_value(document).unwrap()
    }

    fn reported(event: Event, is_confirmed: bool) -> VettedEvent {
        let verdict = Verdict {
            number: 1,
            event: event.id.clone(),
            answer: Answer::Anomaly,
            kind: None,
            comment: String::new(),
            actor: "ann".into(),
            time: Timestamp(0),
            scope: Default::default(),
            expires: Timestamp(1),
            undone: None,
        };
        let event = RecordedEvent { event, model: "m1".into(), hidden_by: None };
        VettedEvent { event, verdicts: is_confirmed.then_some(verdict).into_iter().collect() }
    }

    #[test]
    fn a_challenger_has_to_report_what_was_confirmed_and_not_more_events() {
        let of_champion = [
            reported(event(1, "a", 1_000), true),
            reported(event(2, "b", 2_000), false),
            reported(event(3, "a", 90_000), true),
        ];
        // The same job later on is another event.
        let own = [event(9, "a", 1_020), event(8, "c", 2_000)];
        let figures = ShadowFigures::new((Timestamp(0), Timestamp(0)), 24.0, &own, &of_champion);
        assert_eq!((figures.n_events, figures.n_champion_events, figures.n_common), (2, 3, 1));
        assert_eq!((figures.n_confirmed, figures.n_confirmed_found), (2, 1));
        let policy = Policy::default();
        let objection = policy.shadow_objection(&figures).unwrap();
        assert!(objection.contains("1 of 2 confirmed"), "{objection}");
        let all_found = ShadowFigures { n_confirmed_found: 2, ..figures };
        assert_eq!(policy.shadow_objection(&all_found), None);
        let noisy = policy.shadow_objection(&ShadowFigures { n_events: 5, ..all_found }).unwrap();
        assert!(noisy.contains("5 events where the champion reports 3"), "{noisy}");
    }
}
