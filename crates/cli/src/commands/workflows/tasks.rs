//! `tracewise workflows tasks`

use std::process::ExitCode;

use files::Limits;
use workflows::anomalous_tasks::rank;
use workflows::classify::TrainedClassifier;
use workflows::classify::baseline::Baseline;
use workflows::features::RunSummary;

use super::warn;
use crate::args::RankTasksArgs;
use crate::output::{eprint_note, print, print_json, print_table};

pub fn run(args: &RankTasksArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let model = args.model.as_deref().map(TrainedClassifier::read).transpose()?;
    let (mut recordings, mut is_complete) = (Vec::new(), true);
    for path in &args.runs {
        match workflows::read::read(path, limits) {
            Ok(found) => {
                found.iter().for_each(|recording| warn(path, &recording.warnings));
                recordings.extend(found);
            }
            Err(error) => {
                eprint_note(&error.to_string());
                is_complete = false;
            }
        }
    }
    let summaries: Vec<RunSummary<'_>> = recordings.iter().map(|one| RunSummary::new(&one.run)).collect();
    let baseline = model.map_or_else(|| Baseline::of(&summaries), |model| model.baseline);
    let mut ranked = rank(&summaries.iter().collect::<Vec<_>>(), &baseline);
    let n_tasks = ranked.len();
    ranked.truncate(args.top);
    if args.json {
        print_json(&ranked)?;
    } else {
        let cells = |task: &workflows::anomalous_tasks::AnomalousTask| {
            vec![format!("{:.1}", task.score), task.run.clone(), task.task.clone(), task.reason.clone()]
        };
        print_table(&[">SCORE", "RUN", "TASK", "REASON"], &ranked.iter().map(cells).collect::<Vec<_>>())?;
        print(&format!("\n{} of {n_tasks} tasks of {} runs", ranked.len(), recordings.len()))?;
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
