//! The contract of the metadata store, on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use detect::{Event, EventChange, EventWindow, Finding, Span};
use lifecycle::{
    AcceptedRegion, AcceptedScope, Answer, DiagnosedWindow, EventFilter, NewDiagnosis, NewToken, NewVerdict,
    Role, Secret, Silence, Standing, Store, StoreError,
};
use serde_json::json;
use workload::{Cpu, JobId, Millis, NodeName, Owner, Timestamp};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn event(number: i64) -> Event {
    let mut event: Event = serde_json::from_value(json!({
        "id": format!("event-{number:03}"),
        "subject": "job",
        "node": format!("n{}", number % 3),
        "nodes": [format!("n{}", number % 3)],
        "jobs": [format!("job-{number}"), "it's \"quoted\" %_"],
        "threads": [0, 1],
        "start": 1_800_000_000 + number,
        "end": null,
        "opened": 1_800_000_100 + number,
        "strength": 1.5,
        "level": "job",
        "channels": ["iowait"],
        "kinds": [],
        "certainty": 0.9,
        "why": "mean iowait 41 % (expected 2.5 %)",
    }))
    .unwrap();
    event.embedding = vec![number as f32, 0.5];
    event
}

fn closed(event: Event) -> EventChange {
    EventChange::Closed(Event { end: Some(event.opened), ..event })
}

async fn contract(store: &Store) {
    events_are_recorded_once_and_paged(store).await;
    changes_are_numbered_and_delivered_in_order(store).await;
    a_verdict_hides_similar_events_until_it_is_undone_disputed_or_expired(store).await;
    exclusions_are_in_force_until_they_are_removed(store).await;
    diagnoses_are_in_force_until_they_are_removed(store).await;
    silences_are_known_by_receiver(store).await;
    challengers_are_compared_with_what_the_champion_reported(store).await;
    tokens_and_sessions_end(store).await;
    the_audit_log_is_a_chain(store).await;
}

async fn events_are_recorded_once_and_paged(store: &Store) {
    for number in 0..25 {
        let change = EventChange::Opened(event(number));
        assert_eq!(store.record(&change, "m1", NOW).await.unwrap(), Some(number + 1));
        assert_eq!(store.record(&change, "m1", NOW).await.unwrap(), None, "after a crash");
    }
    store.update_open(&Event { strength: 9.0, ..event(3) }).await.unwrap();
    assert_eq!(store.event("event-003").await.unwrap().unwrap().event.strength, 9.0);
    assert_eq!(store.record(&closed(event(3)), "m1", NOW).await.unwrap(), Some(26));
    store.update_open(&Event { strength: 10.0, ..event(3) }).await.unwrap();
    assert_eq!(store.event("event-003").await.unwrap().unwrap().event.strength, 1.5, "it is over");
    assert_eq!(store.record(&closed(event(3)), "m1", NOW).await.unwrap(), None);
    assert_eq!(store.record(&EventChange::Reopened(event(3)), "m1", NOW).await.unwrap(), Some(27));
    assert_eq!(store.record(&closed(event(3)), "m1", NOW).await.unwrap(), Some(28));
    let found = store.event("event-003").await.unwrap().unwrap();
    assert_eq!((found.event.end, found.model.as_str()), (Some(event(3).opened), "m1"));
    assert_eq!(store.event("' OR 1 = 1 --").await.unwrap(), None);
    assert_eq!(store.open_events().await.unwrap().len(), 24);

    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = store.events(&EventFilter::default(), after.as_ref(), 10).await.unwrap();
        seen.extend(page.items.into_iter().map(|one| one.event.id));
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    let newest_first: Vec<String> = (0..25).rev().map(|number| event(number).id).collect();
    assert_eq!(seen, newest_first);

    let count = async |filter: EventFilter| store.events(&filter, None, 100).await.unwrap().items.len();
    let node =
        |name: &str| EventFilter { node: Some(NodeName::new(name).unwrap()), ..EventFilter::default() };
    let job = |name: &str| EventFilter { job: Some(JobId::new(name).unwrap()), ..EventFilter::default() };
    assert_eq!((count(node("n1")).await, count(node("n9")).await), (8, 0));
    assert_eq!((count(job("job-1")).await, count(job("job")).await, count(job("%")).await), (1, 0, 0));
    assert_eq!(count(job("it's \"quoted\" %_")).await, 25);
    assert_eq!(count(EventFilter { is_open: Some(false), ..EventFilter::default() }).await, 1);
    let (from, to) = (Some(event(5).opened), Some(event(7).opened));
    assert_eq!(count(EventFilter { from, to, ..EventFilter::default() }).await, 2);

    store.record(&EventChange::Opened(Event { id: "other".into(), ..event(4) }), "m2", NOW).await.unwrap();
    let similar = store.similar("event-004", 3).await.unwrap();
    let ids: Vec<&str> = similar.iter().map(|one| one.event.event.id.as_str()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.contains(&"event-003") && ids.contains(&"event-005"), "{ids:?}");
    assert_eq!(similar[0].distance, 1.0);
    assert!(matches!(store.similar("nothing", 3).await, Err(StoreError::NotFound { .. })));
}

async fn changes_are_numbered_and_delivered_in_order(store: &Store) {
    let last = store.last_change().await.unwrap();
    let all = store.changes_after(0, 1_000).await.unwrap();
    assert_eq!(all.iter().map(|one| one.number).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    assert_eq!(all[27].what, "closed");
    assert_eq!(store.delivered("alertmanager").await.unwrap(), last, "a new receiver is not told the past");
    let next = EventChange::Opened(event(100));
    let number = store.record(&next, "m1", NOW).await.unwrap().unwrap();
    assert_eq!(store.delivered("alertmanager").await.unwrap(), last);
    let waiting = store.changes_after(last, 10).await.unwrap();
    assert_eq!((waiting.len(), waiting[0].number), (1, number));
    store.set_delivered("alertmanager", number).await.unwrap();
    store.set_delivered("alertmanager", 3).await.unwrap();
    assert_eq!(store.delivered("alertmanager").await.unwrap(), number, "it never goes back");
}

/// An event of model `m9`, far from all others.
fn similar(number: i64, distance: f32) -> Event {
    Event { embedding: vec![1_000.0 + distance, 0.0], ..event(number) }
}

/// The region around an event, with a radius of 1.5.
fn region(event: &Event) -> AcceptedRegion {
    let window = |at: i64| EventWindow {
        start: Timestamp(at * 100_000),
        owner: Owner::Nobody,
        finding: Finding::from_reconstruction(&[0.0; 4], vec![0.0; 4], vec![1_000.0 + at as f32, 0.0], 4),
        usage: None,
    };
    let windows: Vec<EventWindow> = (0..3).map(window).collect();
    AcceptedRegion::around(event, &windows, AcceptedScope::Cluster, Millis(100_000), []).unwrap()
}

fn verdict(event: &Event, actor: &str, answer: Answer) -> NewVerdict {
    NewVerdict {
        event: event.id.clone(),
        answer,
        kind: None,
        comment: "it's harmless".into(),
        actor: actor.into(),
        scope: AcceptedScope::Cluster,
        expires: NOW + Millis::DAY,
    }
}

async fn a_verdict_hides_similar_events_until_it_is_undone_disputed_or_expired(store: &Store) {
    let (first, open, far) = (similar(200, 0.0), similar(201, 3.0), similar(202, 9.0));
    for event in [&first, &open, &far] {
        store.record(&EventChange::Opened(event.clone()), "m9", NOW).await.unwrap();
    }
    let state = async || {
        let changes = store.changes_after(0, 10_000).await.unwrap();
        let last: Vec<String> = changes.iter().map(|one| format!("{} {}", one.event.id, one.what)).collect();
        let mut hidden = Vec::new();
        for event in store.vetted_events(Timestamp::MIN).await.unwrap() {
            if event.event.hidden_by.is_some() {
                hidden.push(event.event.event.id);
            }
        }
        (hidden, last)
    };
    let figures = store.vetting_figures(first.opened).await.unwrap();
    assert_eq!((figures.n_events, figures.n_unvetted, figures.precision()), (3, 3, None));

    let missing = verdict(&Event { id: "nothing".into(), ..first.clone() }, "ann", Answer::Unsure);
    assert!(matches!(store.give_verdict(&missing, &[], NOW).await, Err(StoreError::NotFound { .. })));
    let normal = verdict(&first, "ann", Answer::Normal);
    let regions = [("m9".to_owned(), region(&first))];
    let given = store.give_verdict(&normal, &regions, NOW).await.unwrap();
    let (hidden, changes) = state().await;
    assert_eq!(hidden, ["event-200", "event-201"], "the open ones are hidden at once");
    assert!(changes.ends_with(&["event-200 hidden".into(), "event-201 hidden".into()]), "{changes:?}");

    // A similar event that comes later is recorded, and nobody is told.
    let later = similar(203, 1.0);
    assert_eq!(store.record(&EventChange::Opened(later.clone()), "m9", NOW).await.unwrap(), None);
    let after = NOW + Millis(2 * Millis::DAY.0);
    assert!(
        store.regions("m9", NOW).await.unwrap().len() == 1
            && store.regions("m9", after).await.unwrap().is_empty()
    );
    assert_eq!(store.record(&closed(later.clone()), "m9", NOW).await.unwrap(), None);
    assert_eq!(store.event("event-203").await.unwrap().unwrap().hidden_by, Some(given.number));
    let elsewhere = Event { id: "elsewhere".into(), ..later };
    assert!(
        store.record(&EventChange::Opened(elsewhere), "m8", NOW).await.unwrap().is_some(),
        "another model"
    );

    // Somebody disagrees: nothing is hidden any more.
    let against = store.give_verdict(&verdict(&first, "bob", Answer::Anomaly), &[], NOW).await.unwrap();
    assert_eq!(Standing::of(&store.verdicts_of(&first.id).await.unwrap()), Standing::Disputed);
    let (hidden, changes) = state().await;
    assert!(hidden.is_empty() && changes.ends_with(&["event-200 shown".into(), "event-201 shown".into()]));
    store.undo_verdict(against.number, "bob", NOW).await.unwrap();
    assert_eq!(state().await.0, ["event-200", "event-201"]);
    let again = store.undo_verdict(against.number, "bob", NOW).await;
    assert!(matches!(again, Err(StoreError::NotFound { .. })));

    // One of the hidden events turns out to be an anomaly: the region no longer reaches it.
    let confirmed = store.give_verdict(&verdict(&open, "bob", Answer::Anomaly), &[], NOW).await.unwrap();
    let (hidden, changes) = state().await;
    assert_eq!(hidden, ["event-200"]);
    assert!(changes.ends_with(&["event-201 shown".into()]), "{changes:?}");
    store.undo_verdict(confirmed.number, "bob", NOW).await.unwrap();
    assert_eq!(state().await.0, ["event-200", "event-201"]);

    // It becomes much stronger than the one that was accepted.
    let stronger = Event { strength: open.strength * 2.1, ..open.clone() };
    store.update_open(&stronger).await.unwrap();
    store.apply_verdicts(NOW).await.unwrap();
    assert_eq!(state().await.0, ["event-200"]);
    store.update_open(&open).await.unwrap();
    store.apply_verdicts(NOW).await.unwrap();

    store.apply_verdicts(after).await.unwrap();
    assert!(state().await.0.is_empty(), "the verdict has expired");
    store.apply_verdicts(NOW).await.unwrap();
    let before = store.verdict_state().await.unwrap();
    store.undo_verdict(given.number, "ann", NOW).await.unwrap();
    assert!(state().await.0.is_empty() && store.verdict_state().await.unwrap() != before);
    assert_eq!(store.verdicts_without_region("m9", NOW).await.unwrap(), []);

    let kept = store.give_verdict(&verdict(&far, "ann", Answer::Normal), &[], NOW).await.unwrap();
    let missing = store.verdicts_without_region("m9", NOW).await.unwrap();
    assert_eq!(missing.iter().map(|(verdict, _)| verdict.number).collect::<Vec<_>>(), [kept.number]);
    store.add_region(kept.number, "m9", &region(&far)).await.unwrap();
    assert_eq!(store.verdicts_without_region("m9", NOW).await.unwrap(), []);
    let anomaly = NewVerdict { kind: Some("bad-io".into()), ..verdict(&first, "ann", Answer::Anomaly) };
    store.give_verdict(&anomaly, &[], NOW).await.unwrap();
    let figures = store.vetting_figures(first.opened).await.unwrap();
    assert_eq!((figures.n_anomalies, figures.n_normal, figures.precision()), (1, 1, Some(0.5)));
    for event in [&first, &open, &far] {
        store.record(&closed(event.clone()), "m9", NOW).await.unwrap();
    }
}

async fn exclusions_are_in_force_until_they_are_removed(store: &Store) {
    let node = NodeName::new("n1").unwrap();
    let span = Span { node: Some(node.clone()), ..Span::of_time(NOW, NOW + Millis::HOUR) };
    let added = store.add_exclusion(&span, "new disk", "ann", NOW).await.unwrap();
    assert_eq!(store.exclusions().await.unwrap(), std::slice::from_ref(&added));
    assert_eq!((added.span(), added.node), (span, Some(node)));
    store.remove_exclusion(added.number, "ann", NOW).await.unwrap();
    assert!(store.exclusions().await.unwrap().is_empty());
    assert!(matches!(store.remove_exclusion(1, "ann", NOW).await, Err(StoreError::NotFound { .. })));
}

async fn diagnoses_are_in_force_until_they_are_removed(store: &Store) {
    let window = |cpu: u16| DiagnosedWindow {
        node: NodeName::new("n1").unwrap(),
        cpu: Cpu(cpu),
        job: JobId::new("it's <a> job").unwrap(),
        start: NOW,
    };
    let new = NewDiagnosis {
        kind: "slow-storage".into(),
        is_anomalous: true,
        comment: "after the firmware update".into(),
        actor: "ann".into(),
        window_length: Millis::from_seconds(60),
        windows: (0..12).map(window).collect(),
    };
    let before = store.verdict_state().await.unwrap();
    let added = store.add_diagnosis(&new, NOW).await.unwrap();
    assert_eq!(store.diagnoses().await.unwrap(), std::slice::from_ref(&added));
    assert_eq!((added.windows.len(), added.jobs().len(), added.time), (12, 1, NOW));
    let between = store.verdict_state().await.unwrap();
    store.remove_diagnosis(added.number, "bob", NOW).await.unwrap();
    assert!(store.diagnoses().await.unwrap().is_empty());
    let again = store.remove_diagnosis(added.number, "bob", NOW).await;
    assert!(matches!(again, Err(StoreError::NotFound { .. })));
    let after = store.verdict_state().await.unwrap();
    assert!(before != between && between != after, "the service follows both");
}

async fn silences_are_known_by_receiver(store: &Store) {
    let hiding = store.hiding_verdicts(NOW).await.unwrap();
    let [verdict] = &hiding[..] else { panic!("{hiding:?}") };
    assert_eq!((verdict.answer, verdict.event.as_str()), (Answer::Normal, "event-202"));
    assert!(store.hiding_verdicts(NOW + Millis(2 * Millis::DAY.0)).await.unwrap().is_empty());
    for id in ["a", "b"] {
        let silence = Silence { verdict: verdict.number, id: id.into() };
        store.add_silence("alertmanager", &silence).await.unwrap();
        assert_eq!(store.silences("alertmanager").await.unwrap(), [silence]);
    }
    assert!(store.silences("another").await.unwrap().is_empty());
    store.remove_silence("alertmanager", verdict.number).await.unwrap();
    assert!(store.silences("alertmanager").await.unwrap().is_empty());
}

async fn challengers_are_compared_with_what_the_champion_reported(store: &Store) {
    assert_eq!(store.shadow_figures("m7").await.unwrap(), None);
    let first = event(300);
    let to = first.opened + Millis::HOUR;
    store.add_shadow_time("m7", Millis::HOUR, to).await.unwrap();
    store.add_shadow_time("m7", Millis::HOUR, to + Millis::HOUR).await.unwrap();
    store.record(&EventChange::Opened(first.clone()), "m1", NOW).await.unwrap();
    for id in ["shadow-1", "shadow-2"] {
        let own = Event { id: id.into(), ..first.clone() };
        store.record_shadow(&EventChange::Opened(own.clone()), "m7", NOW).await.unwrap();
        store.record_shadow(&closed(own), "m7", NOW).await.unwrap();
    }
    let confirmed = verdict(&first, "ann", Answer::Anomaly);
    let given = store.give_verdict(&confirmed, &[], NOW).await.unwrap();
    let figures = store.shadow_figures("m7").await.unwrap().unwrap();
    assert_eq!((figures.hours, figures.n_events), (2.0, 2));
    assert_eq!((figures.n_confirmed, figures.n_confirmed_found), (1, 1));
    assert!(figures.n_common >= 1 && figures.n_champion_events >= figures.n_common, "{figures:?}");
    let count = async |filter: EventFilter| store.events(&filter, None, 1_000).await.unwrap().items.len();
    let with = |standing| EventFilter { standing: Some(standing), ..EventFilter::default() };
    let confirmed_before = count(with(Standing::Anomaly)).await;
    assert_eq!(count(with(Standing::Normal)).await, 1);
    let hidden = count(EventFilter { is_hidden: Some(true), ..EventFilter::default() }).await;
    let shown = count(EventFilter { is_hidden: Some(false), ..EventFilter::default() }).await;
    assert_eq!(hidden + shown, count(EventFilter::default()).await);
    // A page is full although most events have another standing.
    let page = store.events(&with(Standing::Anomaly), None, 1).await.unwrap();
    let after = page.next.unwrap();
    assert_eq!(
        page.items.len() + store.events(&with(Standing::Anomaly), Some(&after), 9).await.unwrap().items.len(),
        2
    );
    let changes = async || -> Vec<String> {
        store.changes_of(&first.id).await.unwrap().into_iter().map(|change| change.what).collect()
    };
    assert_eq!(changes().await, ["opened", "vetted"]);
    store.undo_verdict(given.number, "ann", NOW).await.unwrap();
    assert_eq!(changes().await, ["opened", "vetted", "vetted"], "others see that it was undone");
    assert_eq!(count(with(Standing::Anomaly)).await, confirmed_before - 1);
    store.record(&closed(first), "m1", NOW).await.unwrap();
}

async fn tokens_and_sessions_end(store: &Store) {
    assert!(!store.has_tokens().await.unwrap());
    let nodes = vec![NodeName::new("n1").unwrap()];
    let new = NewToken { name: "agents of rack 1".into(), role: Role::Ingest, nodes: nodes.clone() };
    let (token, secret) = store.add_token(&new, "root", NOW).await.unwrap();
    assert!(secret.reveal().starts_with("tw_") && !format!("{secret:?}").contains(secret.reveal()));
    let sent = Secret::parse(secret.reveal()).unwrap();
    assert_eq!(store.token_of(&sent).await.unwrap().unwrap().nodes, nodes);
    assert_eq!(store.token_of(&Secret::random().unwrap()).await.unwrap(), None);
    for wrong in ["", "tw_", "tw_é", &secret.reveal()[..20], &format!("{}0", secret.reveal())] {
        assert!(Secret::parse(wrong).is_none(), "{wrong}");
    }
    let session = store.open_session("ann", Role::Vetter, Some(&token.id), NOW, Millis::HOUR).await.unwrap();
    let at = |hours: i64| NOW + Millis(hours * Millis::HOUR.0);
    assert_eq!(store.session_of(&session, at(0)).await.unwrap().unwrap().role, Role::Vetter);
    assert_eq!(store.session_of(&session, at(1)).await.unwrap(), None, "it has expired");
    assert_eq!(store.session_of(&secret, at(0)).await.unwrap(), None, "a token is not a session");
    store.revoke_token(&token.id, "root", NOW).await.unwrap();
    assert!(matches!(store.revoke_token(&token.id, "root", NOW).await, Err(StoreError::NotFound { .. })));
    assert_eq!(store.token_of(&secret).await.unwrap(), None);
    assert_eq!(store.session_of(&session, at(0)).await.unwrap(), None, "its sessions have ended");
    assert!(store.tokens().await.unwrap()[0].revoked.is_some());
}

async fn the_audit_log_is_a_chain(store: &Store) {
    let last = store.audit(NOW, "ann", "say", "hello").await.unwrap();
    assert_eq!(store.verify_audit().await.unwrap(), Ok(last));
    let log = store.audit_log(100).await.unwrap();
    let actions: Vec<&str> = log.iter().rev().map(|entry| entry.action.as_str()).collect();
    assert!(actions.ends_with(&["add token", "log in", "revoke token", "say"]), "{actions:?}");
    for action in ["undo verdict", "exclude", "diagnose", "remove diagnosis"] {
        assert!(actions.contains(&action), "{action}: {actions:?}");
    }
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a #strange?name%.db");
    let store = Store::open_file(&path).await.unwrap();
    contract(&store).await;
    store.close().await;
    assert!(path.exists());
    let again = Store::open_file(&path).await.unwrap();
    assert_eq!(again.open_events().await.unwrap().len(), 27);
    change_the_audit_log(&format!("sqlite://{}", folder.path().join("copy.db").display()), &again, &path)
        .await;
}

#[tokio::test]
async fn postgres_keeps_the_contract() {
    let Some(server) = testbed::postgres() else { return };
    let store = Store::open(&testbed::postgres_url(&server)).await.unwrap();
    assert!(store.is_postgres());
    contract(&store).await;
}

/// A row that was changed behind the back of the service is noticed.
async fn change_the_audit_log(url: &str, store: &Store, path: &std::path::Path) {
    store.close().await;
    let copy = url.strip_prefix("sqlite://").unwrap();
    std::fs::copy(path, copy).unwrap();
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(url).await.unwrap();
    sqlx::query("UPDATE audit SET actor = 'eve' WHERE number = 2").execute(&pool).await.unwrap();
    pool.close().await;
    let changed = Store::open(url).await.unwrap();
    assert_eq!(changed.verify_audit().await.unwrap().unwrap_err().number, 2);
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metadata.db");
    Store::open_file(&path).await.unwrap().close().await;
    let url = format!("sqlite://{}", path.display());
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("INSERT INTO schema_version (version) VALUES (99)").execute(&pool).await.unwrap();
    pool.close().await;
    let error = Store::open(&url).await.unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");
}

/// The tables of each version that was released, as SQLite describes them.
const SCHEMAS: [&str; 5] = [
    include_str!("schema-v1.sql"),
    include_str!("schema-v2.sql"),
    include_str!("schema-v3.sql"),
    include_str!("schema-v4.sql"),
    include_str!("schema-v5.sql"),
];

/// The tables of a store in a file.
async fn schema_of(url: &str) -> String {
    let pool = sqlx::AnyPool::connect(url).await.unwrap();
    let query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
    let rows = sqlx::query(query).fetch_all(&pool).await.unwrap();
    pool.close().await;
    rows.iter().map(|row| format!("{};\n", sqlx::Row::get::<String, _>(row, 0))).collect()
}

#[tokio::test]
async fn stores_of_all_versions_are_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let newest = SCHEMAS[SCHEMAS.len() - 1];
    for (schema, version) in SCHEMAS.iter().zip(1..) {
        let path = folder.path().join(format!("{version}.db"));
        let url = format!("sqlite://{}", path.display());
        sqlx::any::install_default_drivers();
        let pool = sqlx::AnyPool::connect(&format!("{url}?mode=rwc")).await.unwrap();
        for statement in schema.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.unwrap();
        }
        for known in 1..=version {
            sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
                .bind(known)
                .execute(&pool)
                .await
                .unwrap();
        }
        pool.close().await;
        let store = Store::open(&url).await.unwrap();
        store.record(&EventChange::Opened(event(1)), "m1", NOW).await.unwrap();
        store.close().await;
        assert_eq!(schema_of(&url).await, newest, "version {version}");
    }
    // A changed schema needs a new version, and a copy of it here.
    let path = folder.path().join("new.db");
    Store::open_file(&path).await.unwrap().close().await;
    assert_eq!(schema_of(&format!("sqlite://{}", path.display())).await, newest);
}
