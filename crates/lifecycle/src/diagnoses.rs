//! Diagnoses: windows that somebody selected and named. They join the library, so later events that resemble them report
//! the name, and windows like those of an anomalous diagnosis open events. Removing a diagnosis undoes all of that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use archive::Archive;
use detect::{LabelledPoint, Reading, Scope, Span, ThreadWindow, TrainedDetector, WindowBatch};
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{Connection, Row};
use workload::{Control, Cpu, JobId, Label, Millis, NodeName, Set, Timestamp};

use crate::audit;
use crate::store::{Store, StoreError};
use crate::tokens::to_json;

/// The fewest windows that somebody may select.
pub const MIN_DIAGNOSED: usize = 3;
/// Windows are read with this many strides per length, so that a few selected windows have enough points.
const STRIDES: usize = 4;
/// The campaign of the labels that follow from diagnoses.
const CAMPAIGN: &str = "diagnoses";

/// A window of a job that was selected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiagnosedWindow {
    pub node: NodeName,
    pub cpu: Cpu,
    pub job: JobId,
    pub start: Timestamp,
}

/// Windows to be named.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDiagnosis {
    pub kind: String,
    /// Whether similar windows are a problem.
    pub is_anomalous: bool,
    pub comment: String,
    pub actor: String,
    pub window_length: Millis,
    pub windows: Vec<DiagnosedWindow>,
}

/// Windows that were named.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    pub number: i64,
    pub kind: String,
    pub is_anomalous: bool,
    pub comment: String,
    pub actor: String,
    pub time: Timestamp,
    pub window_length: Millis,
    pub windows: Vec<DiagnosedWindow>,
}

impl Diagnosis {
    /// The jobs of its windows.
    pub fn jobs(&self) -> BTreeSet<&JobId> {
        self.windows.iter().map(|window| &window.job).collect()
    }

    /// The labels of its jobs.
    pub(crate) fn labels(&self) -> Vec<Label> {
        let mut by_job: BTreeMap<(&JobId, &NodeName), Vec<&DiagnosedWindow>> = BTreeMap::new();
        for window in &self.windows {
            by_job.entry((&window.job, &window.node)).or_default().push(window);
        }
        let label = |((job, node), windows): (&(&JobId, &NodeName), &Vec<&DiagnosedWindow>)| {
            let threads: BTreeSet<Cpu> = windows.iter().map(|window| window.cpu).collect();
            let starts = || windows.iter().map(|window| window.start);
            Some(Label {
                campaign: CAMPAIGN.into(),
                set: Set::Test,
                kind: self.kind.clone(),
                anomalous: Some(self.is_anomalous),
                job: (*job).clone(),
                node: (*node).clone(),
                threads: threads.into_iter().collect(),
                start: starts().min()?,
                end: starts().max()? + self.window_length,
                made_by: None,
                disturbance: None,
            })
        };
        by_job.iter().filter_map(label).collect()
    }

    /// Its windows as a detector sees them. Those that the archive no longer has are missing.
    pub(crate) fn points(
        &self,
        detector: &TrainedDetector,
        archive: &Archive,
        control: Control<'_>,
    ) -> archive::Result<Vec<LabelledPoint>> {
        points(&self.kind, &self.windows, self.window_length, detector, archive, control)
    }
}

/// The points of selected windows, and of the same threads' windows that overlap with them by at least half.
pub(crate) fn points(
    kind: &str,
    windows: &[DiagnosedWindow],
    window_length: Millis,
    detector: &TrainedDetector,
    archive: &Archive,
    control: Control<'_>,
) -> archive::Result<Vec<LabelledPoint>> {
    let spec = detector.window_spec((detector.config.window / STRIDES).max(1));
    let length = spec.length();
    let margin = Millis(length.0.max(window_length.0) / 2);
    let mut by_thread: BTreeMap<(&NodeName, Cpu), Vec<&DiagnosedWindow>> = BTreeMap::new();
    let mut moments: BTreeSet<(&NodeName, Timestamp)> = BTreeSet::new();
    for window in windows {
        by_thread.entry((&window.node, window.cpu)).or_default().push(window);
        moments.insert((&window.node, window.start));
    }
    // Detectors with a graph need the other threads of the node.
    let included = moments.into_iter().map(|(node, start)| Span {
        node: Some(node.clone()),
        ..Span::of_time(start - margin, start + window_length + margin)
    });
    let filter = Scope { included: included.collect(), excluded: Vec::new() }.filter();
    let is_wanted = |thread: &ThreadWindow, start: Timestamp| {
        let of_thread = by_thread.get(&(&thread.node, thread.cpu)).into_iter().flatten();
        of_thread
            .into_iter()
            .any(|window| thread.job() == Some(&window.job) && (start - window.start).0.abs() <= margin.0)
    };
    let mut points = Vec::new();
    let reading = Reading { archive, filter: &filter, spec: &spec, control };
    reading.for_each_batch::<archive::Error>(|batch: WindowBatch| {
        if batch.threads().iter().any(|thread| is_wanted(thread, batch.start())) {
            let findings = detector.examine(&batch);
            for (thread, finding) in batch.threads().iter().zip(&findings) {
                if let Some(job) = thread.job().filter(|_| is_wanted(thread, batch.start())) {
                    points.push(LabelledPoint::new(kind, job, finding, batch.usage_of(thread)));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(points)
}

impl Store {
    /// Names windows.
    pub async fn add_diagnosis(&self, new: &NewDiagnosis, now: Timestamp) -> Result<Diagnosis, StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let row = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM diagnoses").fetch_one(&mut *transaction);
        let number = row.await?.try_get::<i64, _>(0)? + 1;
        sqlx::query(
            "INSERT INTO diagnoses (number, kind, is_anomalous, comment, actor, time_ms, window_ms, windows)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(number)
        .bind(&new.kind)
        .bind(i64::from(new.is_anomalous))
        .bind(&new.comment)
        .bind(&new.actor)
        .bind(now.0)
        .bind(new.window_length.0)
        .bind(to_json(&new.windows)?)
        .execute(&mut *transaction)
        .await?;
        let detail = format!("diagnosis {number}: {} windows are {}", new.windows.len(), new.kind);
        audit::append(&mut transaction, now, &new.actor, "diagnose", &detail).await?;
        transaction.commit().await?;
        let NewDiagnosis { kind, is_anomalous, comment, actor, window_length, windows } = new.clone();
        Ok(Diagnosis { number, kind, is_anomalous, comment, actor, time: now, window_length, windows })
    }

    /// The diagnoses in force, in order.
    pub async fn diagnoses(&self) -> Result<Vec<Diagnosis>, StoreError> {
        let rows = sqlx::query("SELECT * FROM diagnoses WHERE removed_ms IS NULL ORDER BY number")
            .fetch_all(self.readers())
            .await?;
        rows.iter().map(diagnosis).collect()
    }

    /// Removes a diagnosis with all of its effects.
    pub async fn remove_diagnosis(&self, number: i64, actor: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let removed = sqlx::query(
            "UPDATE diagnoses SET removed_ms = $2, removed_by = $3 WHERE number = $1 AND removed_ms IS NULL",
        )
        .bind(number)
        .bind(now.0)
        .bind(actor)
        .execute(&mut *transaction)
        .await?;
        if removed.rows_affected() == 0 {
            return Err(StoreError::NotFound { what: format!("diagnosis {number}") });
        }
        let detail = format!("diagnosis {number}");
        audit::append(&mut transaction, now, actor, "remove diagnosis", &detail).await?;
        Ok(transaction.commit().await?)
    }
}

fn diagnosis(row: &AnyRow) -> Result<Diagnosis, StoreError> {
    let windows: String = row.try_get("windows")?;
    Ok(Diagnosis {
        number: row.try_get("number")?,
        kind: row.try_get("kind")?,
        is_anomalous: row.try_get::<i64, _>("is_anomalous")? != 0,
        comment: row.try_get("comment")?,
        actor: row.try_get("actor")?,
        time: Timestamp(row.try_get("time_ms")?),
        window_length: Millis(row.try_get("window_ms")?),
        windows: serde_json::from_str(&windows).map_err(|error| StoreError::Damaged(error.to_string()))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis() -> Diagnosis {
        let window = |job: &str, cpu: u16, second: i64| DiagnosedWindow {
            node: NodeName::new("n1").unwrap(),
            cpu: Cpu(cpu),
            job: JobId::new(job).unwrap(),
            start: Timestamp::from_seconds(second),
        };
        Diagnosis {
            number: 1,
            kind: "slow-storage".into(),
            is_anomalous: true,
            comment: String::new(),
            actor: "ann".into(),
            time: Timestamp(0),
            window_length: Millis::from_seconds(60),
            windows: vec![window("a", 0, 60), window("a", 1, 240), window("b", 2, 600)],
        }
    }

    #[test]
    fn a_diagnosis_labels_its_jobs() {
        let diagnosis = diagnosis();
        let labels = diagnosis.labels();
        assert_eq!(labels.len(), 2);
        assert_eq!((labels[0].job.as_str(), labels[0].threads.len()), ("a", 2));
        assert_eq!(labels[0].end, Timestamp::from_seconds(300));
        assert!(labels.iter().all(Label::is_anomalous));
    }
}
