//! `tracewise review`

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use ::archive::{Archive, Settings};
use anyhow::Context;
use lifecycle::{
    Answer, NewVerdict, Preview, Registry, Standing, Store, Verdict, VettedEvent, Vetting, VettingError,
};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use workload::{Control, Millis, Timestamp};

use super::{actor, archive_of, data_of, open_store, runtime};
use crate::args::ReviewArgs;
use crate::commands::detect::events::{headline, print_event};
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::times::show_time;

/// How far back events without a verdict are shown.
const QUEUE: Millis = Millis(30 * Millis::DAY.0);
const KEYS: &str = "[a]nomaly  [n]ormal  [u]nsure  [s]kip  [z] undo the last one  [q]uit";

pub fn run(args: &ReviewArgs, config: &Config) -> anyhow::Result<ExitCode> {
    anyhow::ensure!((0.01..=366.0).contains(&args.days), "--days must be between 0.01 and 366");
    runtime()?.block_on(run_async(args, config))
}

async fn run_async(args: &ReviewArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let store = open_store(&args.store, config).await?;
    if let Some(number) = args.undo {
        store.undo_verdict(number, &actor(), now()).await?;
        print(&format!("verdict {number} is undone, with all of its effects"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        let queue = queue(&store).await?;
        if args.json {
            let items: Vec<_> = queue.iter().map(|vetted| json!(vetted.event)).collect();
            print_json(&items)?;
        } else {
            print_queue(&queue)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let registry = Registry::new(store.clone(), data_of(&args.store, config));
    let archive = Archive::open(&archive_of(&args.store, config), &Settings::default())?;
    let (store, registry, archive) = (&store, &registry, &archive);
    let vetting = Vetting { store, registry, archive, uses_labels: true, control: Control::default() };
    match (&args.event, args.answer) {
        (Some(event), Some(answer)) => {
            let given = give(&vetting, args, event, answer, args.kind.clone()).await?;
            if args.json { print_json(&given)? } else { print_given(&given)? }
        }
        (Some(event), None) => show(&vetting, args, event).await?,
        (None, _) => ask(&vetting, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// The events without a verdict, the strongest first.
async fn queue(store: &Store) -> anyhow::Result<Vec<VettedEvent>> {
    let mut queue = store.vetted_events(now() - QUEUE).await?;
    queue.retain(|vetted| vetted.standing() == Standing::Unvetted && vetted.event.hidden_by.is_none());
    queue.sort_by(|a, b| b.event.event.strength.total_cmp(&a.event.event.strength));
    Ok(queue)
}

fn print_queue(queue: &[VettedEvent]) -> anyhow::Result<()> {
    if queue.is_empty() {
        return print("every event of the last 30 days has a verdict");
    }
    let row = |vetted: &VettedEvent| {
        let event = &vetted.event.event;
        vec![event.id.clone(), show_time(event.opened), headline(event), event.why.clone()]
    };
    print_table(&["EVENT", "SINCE", "WHAT", "WHY"], &queue.iter().map(row).collect::<Vec<_>>())
}

async fn give(
    vetting: &Vetting<'_>,
    args: &ReviewArgs,
    event: &str,
    answer: Answer,
    kind: Option<String>,
) -> Result<Verdict, VettingError> {
    let now = now();
    let verdict = NewVerdict {
        event: event.to_owned(),
        answer,
        kind,
        comment: args.comment.clone(),
        actor: actor(),
        scope: args.scope,
        expires: now + Millis((args.days * Millis::DAY.0 as f64) as i64),
    };
    vetting.give(&verdict, now).await
}

fn print_given(verdict: &Verdict) -> anyhow::Result<()> {
    let Verdict { number, event, answer, .. } = verdict;
    print(&format!("verdict {number}: event {event} is {}; undo it with --undo {number}", describe(*answer)))
}

const fn describe(answer: Answer) -> &'static str {
    match answer {
        Answer::Anomaly => "an anomaly",
        Answer::Normal => "normal, and events like it are hidden",
        Answer::Unsure => "unclear",
    }
}

/// Shows an event, what was said about it, and what calling it normal would hide.
async fn show(vetting: &Vetting<'_>, args: &ReviewArgs, id: &str) -> anyhow::Result<()> {
    let event = vetting.store.event(id).await?.with_context(|| format!("there is no event {id}"))?;
    let verdicts = vetting.store.verdicts_of(id).await?;
    let preview = vetting.preview(id, args.scope, now()).await;
    if args.json {
        let hidden = preview.as_ref().ok().map(|preview| &preview.hidden);
        return print_json(&json!({
            "event": event, "standing": Standing::of(&verdicts), "verdicts": verdicts, "would_hide": hidden,
        }));
    }
    print_event(&event.event)?;
    for verdict in verdicts.iter().filter(|verdict| verdict.undone.is_none()) {
        let Verdict { number, answer, actor, time, comment, .. } = verdict;
        print(&format!("  verdict {number} by {actor}, {}: {} {comment}", show_time(*time), answer.name()))?;
    }
    print_preview(preview)
}

fn print_preview(preview: Result<Preview, VettingError>) -> anyhow::Result<()> {
    let preview = match preview {
        Err(error @ VettingError::NotAccepted { .. }) => return print(&format!("  {error}")),
        preview => preview?,
    };
    let other = match preview.n_not_compared {
        0 => String::new(),
        count => format!("; {count} that other models found cannot be compared"),
    };
    let count = preview.hidden.len();
    print(&format!("  calling it normal would have hidden {count} other events of the last 30 days{other}"))?;
    for event in preview.hidden.iter().take(5) {
        print(&format!("    {}  {}", show_time(event.event.opened), headline(&event.event)))?;
    }
    Ok(())
}

/// Shows the queue event by event and reads answers of one key.
async fn ask(vetting: &Vetting<'_>, args: &ReviewArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        std::io::stdin().is_terminal(),
        "answers are read from a terminal; without one, use --list, and then give the event and --answer"
    );
    let mut given: Vec<i64> = Vec::new();
    let queue = queue(vetting.store).await?;
    if queue.is_empty() {
        return print_queue(&queue);
    }
    let mut at = 0;
    while at < queue.len() {
        let event = &queue[at].event.event;
        // An earlier verdict may have hidden it.
        let is_hidden = vetting.store.event(&event.id).await?.is_none_or(|event| event.hidden_by.is_some());
        if is_hidden {
            at += 1;
            continue;
        }
        print(&format!("\n{} of {}  event {}", at + 1, queue.len(), event.id))?;
        print_event(event)?;
        print(KEYS)?;
        let outcome = match key()? {
            'a' => {
                let guess = event.kinds.iter().find(|kind| kind.is_inside).map(|kind| kind.kind.clone());
                let kind = line(&format!("kind [{}]: ", guess.as_deref().unwrap_or("none")))?;
                let kind = if kind.is_empty() { guess } else { Some(kind) };
                give(vetting, args, &event.id, Answer::Anomaly, kind).await
            }
            'n' => {
                print_preview(vetting.preview(&event.id, args.scope, now()).await)?;
                print("[y] call it normal, any other key to go back")?;
                if key()? != 'y' {
                    continue;
                }
                give(vetting, args, &event.id, Answer::Normal, None).await
            }
            'u' => give(vetting, args, &event.id, Answer::Unsure, None).await,
            's' => {
                at += 1;
                continue;
            }
            'z' => {
                if let Some(number) = given.pop() {
                    vetting.store.undo_verdict(number, &actor(), now()).await?;
                    print(&format!("verdict {number} is undone"))?;
                    at = at.saturating_sub(1);
                }
                continue;
            }
            'q' | '\u{3}' | '\u{4}' => break,
            _ => continue,
        };
        match outcome {
            Ok(verdict) => {
                given.push(verdict.number);
                print_given(&verdict)?;
                at += 1;
            }
            Err(error @ VettingError::NotAccepted { .. }) => print(&error.to_string())?,
            Err(error) => return Err(error.into()),
        }
    }
    print(&format!("{} verdicts were given", given.len()))
}

/// A terminal that passes on single keys, until it is dropped.
struct SingleKeys(Termios);

impl SingleKeys {
    fn new() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys)?;
        Ok(Self(before))
    }
}

impl Drop for SingleKeys {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn key() -> anyhow::Result<char> {
    let _keys = SingleKeys::new()?;
    let mut byte = [0];
    let n_read = std::io::stdin().read(&mut byte)?;
    Ok(if n_read == 0 { 'q' } else { char::from(byte[0]).to_ascii_lowercase() })
}

fn line(prompt: &str) -> anyhow::Result<String> {
    std::io::stdout().write_all(prompt.as_bytes())?;
    std::io::stdout().flush()?;
    let mut text = String::new();
    std::io::stdin().read_line(&mut text)?;
    Ok(text.trim().to_owned())
}
