//! The contract of events: when they open and close, what they say, and what belongs together.

use super::*;

/// The changes of events in batches at the stride of events, of which `is_faulty` have a fault.
fn changes(trained: &TrainedDetector, n_batches: i64, is_faulty: impl Fn(i64) -> bool) -> Vec<EventChange> {
    let known = KnownJobs::default();
    let mut monitor = Monitor::new(trained, &known, Library::default()).unwrap();
    let mut changes = Vec::new();
    for at in 0..n_batches {
        let normal = batch(200_000 + at * N_STEPS as i64 / 10, 4, 4);
        changes.extend(monitor.observe(&if is_faulty(at) { faulty(normal) } else { normal }));
    }
    changes
}

#[test]
fn an_anomaly_is_one_event_that_is_opened_explained_and_closed() {
    let data = data(4);
    for kind in DetectorKind::ALL {
        let trained = fit(kind, &data, &config());
        let name = kind.name();
        assert_eq!(changes(&trained, 40, |_| false), [], "{name}");
        // A window or two are not enough.
        assert_eq!(changes(&trained, 40, |at| at == 20 || at == 21), [], "{name}");
        let found = changes(&trained, 80, |at| (20..40).contains(&at));
        let [EventChange::Opened(opened), EventChange::Closed(closed)] = &found[..] else {
            panic!("{name}: {found:?}");
        };
        assert_eq!((opened.subject, opened.node.as_ref().unwrap().as_str()), (EventSubject::Job, "n1"));
        assert_eq!((opened.jobs[0].as_str(), &opened.threads[..]), ("a-n1", &[Cpu(10)][..]), "{name}");
        assert!(opened.strength > 1.0 && opened.certainty > 0.5, "{name}: {opened:?}");
        assert!(
            opened.why.contains("iowait") && opened.channels.contains(&"iowait".to_owned()),
            "{name}: {opened:?}"
        );
        assert_eq!(opened.start, Timestamp::from_seconds(200_080), "{name}");
        assert_eq!(
            (opened.opened - opened.start).0,
            (N_STEPS as i64 + 8) * 1_000,
            "confirmed by two more windows"
        );
        assert_eq!(closed.id, opened.id);
        assert_eq!(closed.end, Some(Timestamp::from_seconds(200_156 + N_STEPS as i64)), "{name}");
    }
}

#[test]
fn an_event_does_not_flap() {
    let trained = fit(DetectorKind::Ae, &data(4), &config());
    // It is calm for half a window, then for more than a window.
    let found = changes(&trained, 120, |at| {
        (20..30).contains(&at) || (34..40).contains(&at) || (60..70).contains(&at)
    });
    let names: Vec<&str> = found
        .iter()
        .map(|change| match change {
            EventChange::Opened(_) => "opened",
            EventChange::Reopened(_) => "opened again",
            EventChange::Closed(_) => "closed",
        })
        .collect();
    assert_eq!(names, ["opened", "closed", "opened again", "closed"]);
    let ids: std::collections::BTreeSet<&str> =
        found.iter().map(|change| change.event().id.as_str()).collect();
    assert_eq!(ids.len(), 1, "{found:?}");
}

#[test]
fn a_job_that_ends_or_a_node_that_disappears_ends_its_event() {
    let trained = fit(DetectorKind::Ae, &data(4), &config());
    let known = KnownJobs::default();
    for (what, is_left) in [("a-n1", "job"), ("n1", "node")] {
        let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
        let mut found: Vec<Event> = Vec::new();
        for at in 0..200 {
            let one = faulty(batch(200_000 + at * 4, 4, 4));
            let is_gone = |thread: &ThreadWindow| match is_left {
                "job" => thread.job().unwrap().as_str() == what,
                _ => thread.node.as_str() == what,
            };
            let one = if at < 30 { one } else { one.filtered(|thread| !is_gone(thread)) };
            found.extend(monitor.observe(&one).iter().map(|change| change.event().clone()));
        }
        assert_eq!(found.len(), 2, "{is_left}: {found:?}");
        assert_eq!(found[1].end, Some(Timestamp::from_seconds(200_116 + 40)), "{is_left}");
    }
}

#[test]
fn a_neighbour_that_is_merely_affected_is_part_of_the_event() {
    let trained = fit(DetectorKind::Ae, &data(4), &config());
    let known = KnownJobs::default();
    let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
    let mut found = Vec::new();
    for at in 0..40 {
        let one = batch(200_000 + at * 4, 4, 4);
        let one = if at < 10 { one } else { with_rates(faulty(one), 3, [0.02, 0.05, 0.06, 0.87]) };
        found.extend(monitor.observe(&one));
    }
    let opened: Vec<&Event> = found.iter().map(EventChange::event).collect();
    assert_eq!(opened.len(), 1, "{opened:?}");
    let open: Vec<&Event> = monitor.open_events().collect();
    assert_eq!(open[0].jobs[0].as_str(), "a-n1");
    assert_eq!(open[0].level, Evidence::Error);
}

/// The batch with two unowned threads on the first node, and what control groups say about its jobs. `foreign` and
/// `growth` are those of the first job, `busy` is the load of the first unowned thread.
fn with_context(batch: &WindowBatch, growth: f64, foreign: f64, busy: f32) -> WindowBatch {
    let mut threads = batch.threads().to_vec();
    for (cpu, busy) in [(30, busy), (31, 0.0)] {
        threads.push(ThreadWindow {
            node: NodeName::new("n1").unwrap(),
            cpu: Cpu(cpu),
            owner: Owner::Nobody,
            values: [busy, 0.0, 0.0, 1.0 - busy].repeat(N_STEPS),
        });
    }
    let usage = |node: &str, job: &str, growth_per_hour: f64, foreign: f64| JobUsage {
        node: NodeName::new(node).unwrap(),
        job: JobId::new(job).unwrap(),
        memory: Some(MemoryUse { fraction: 0.2, growth_per_hour }),
        foreign_cpu: Some(foreign),
        n_threads: 3,
    };
    let usage = vec![usage("n1", "a-n1", growth, foreign), usage("n2", "a-n2", 0.01, 0.02)];
    WindowBatch::new(batch.start(), batch.n_channels(), threads).with_usage(usage)
}

/// An autoencoder that was calibrated with unowned threads and control groups.
fn fit_with_context() -> TrainedDetector {
    let data = data(4);
    let config = config();
    let held_out: Vec<WindowBatch> =
        held_out(&data).iter().map(|batch| with_context(batch, 0.01, 0.02, 0.001)).collect();
    training(DetectorKind::Ae, &config).fit(&data, &HeldOut::Batches(&held_out), |_| {}).unwrap()
}

#[test]
fn what_no_rate_shows_is_found_by_memory_cpu_time_and_unowned_threads() {
    let trained = fit_with_context();
    let known = KnownJobs::default();
    let cases = [
        ((3.0, 0.02, 0.001), Evidence::Memory, "full in", EventSubject::Job),
        ((0.01, 0.9, 0.001), Evidence::ForeignCpu, "not part of the job", EventSubject::Job),
        ((0.01, 0.02, 0.95), Evidence::Unowned, "belongs to no job", EventSubject::Node),
    ];
    for ((growth, foreign, busy), level, words, subject) in cases {
        let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
        let mut found = Vec::new();
        for at in 0..40 {
            let normal = batch(200_000 + at * 4, 4, 4);
            let one = if at < 10 {
                with_context(&normal, 0.01, 0.02, 0.001)
            } else {
                with_context(&normal, growth, foreign, busy)
            };
            found.extend(monitor.observe(&one));
        }
        let [EventChange::Opened(event)] = &found[..] else { panic!("{level}: {found:?}") };
        assert_eq!((event.level, event.subject), (level, subject), "{event:?}");
        assert!(event.why.contains(words), "{event:?}");
        match subject {
            EventSubject::Job => assert_eq!(event.jobs[0].as_str(), "a-n1"),
            _ => assert_eq!((event.jobs.len(), &event.threads[..]), (0, &[Cpu(30)][..])),
        }
    }
}

#[test]
fn a_job_beside_a_process_without_a_job_has_an_event_of_its_own() {
    let trained = fit_with_context();
    let known = KnownJobs::default();
    let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
    for at in 0..40 {
        let normal = batch(200_000 + at * 4, 4, 4);
        let one = if at < 10 { normal } else { faulty(normal) };
        monitor.observe(&with_context(&one, 0.01, 0.02, if at < 10 { 0.001 } else { 0.95 }));
    }
    let mut open: Vec<(EventSubject, usize)> =
        monitor.open_events().map(|event| (event.subject, event.jobs.len())).collect();
    open.sort_by_key(|(_, n_jobs)| *n_jobs);
    assert_eq!(open, [(EventSubject::Node, 0), (EventSubject::Job, 1)]);
}

/// Two nodes with four busy jobs of one thread each, of which some wait for a disk.
fn eight_jobs(start: i64, is_faulty: impl Fn(&str, usize) -> bool) -> WindowBatch {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(start as u64);
    let mut threads = Vec::new();
    for node in ["n1", "n2"] {
        for cpu in 0..4 {
            let values = if is_faulty(node, cpu) {
                [0.1, 0.05, 0.8, 0.05].repeat(N_STEPS)
            } else {
                values(&mut rng, true, 4)
            };
            let owner = Owner::Job(JobId::new(format!("{node}-{cpu}")).unwrap());
            let (node, cpu) = (NodeName::new(node).unwrap(), Cpu(cpu as u16));
            threads.push(ThreadWindow { node, cpu, owner, values });
        }
    }
    WindowBatch::new(Timestamp::from_seconds(start), 4, threads)
}

#[test]
fn what_many_jobs_have_in_common_is_one_event_of_their_node_or_cluster() {
    let trained = fit(DetectorKind::Ae, &data(4), &config());
    let known = KnownJobs::default();
    // Nodes, their jobs that deviate, and the event that is expected.
    let cases = [
        (&["n1"][..], 4, EventSubject::Node),
        (&["n1"], 2, EventSubject::Node),
        (&["n1"], 1, EventSubject::Job),
        (&["n1", "n2"], 4, EventSubject::Cluster),
    ];
    for (nodes, n_jobs, subject) in cases {
        let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
        let mut found = Vec::new();
        for at in 0..120 {
            let is_bad = (20..60).contains(&at);
            let is_faulty = |node: &str, cpu: usize| is_bad && nodes.contains(&node) && cpu < n_jobs;
            found.extend(monitor.observe(&eight_jobs(200_000 + at * 4, is_faulty)));
        }
        let [EventChange::Opened(opened), EventChange::Closed(closed)] = &found[..] else {
            panic!("{found:?}")
        };
        let n_expected = n_jobs * nodes.len();
        assert_eq!(
            (opened.subject, opened.jobs.len(), opened.nodes.len()),
            (subject, n_expected, nodes.len())
        );
        assert_eq!(closed.id, opened.id);
    }
}

#[test]
fn what_begins_on_two_nodes_at_once_has_to_last() {
    let trained = fit(DetectorKind::Ae, &data(4), &config());
    let known = KnownJobs::default();
    // The last faulty batch of the first job of either node, and how long after the first the event opens.
    let cases = [
        ([40, 40], None),
        // Alone, it is an event at once.
        ([40, 0], Some(2)),
        // They last for four windows.
        ([70, 70], Some(30)),
        // The other one is over before.
        ([70, 30], Some(10)),
    ];
    for (ends, expected) in cases {
        let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
        let mut opened = None;
        for at in 0..120 {
            let is_faulty =
                |node: &str, cpu: usize| cpu == 0 && (20..ends[usize::from(node == "n2")]).contains(&at);
            let found = monitor.observe(&eight_jobs(200_000 + at * 4, is_faulty));
            if !found.is_empty() {
                opened.get_or_insert(at - 20);
            }
        }
        assert_eq!(opened, expected, "{ends:?}");
    }
}

#[test]
fn a_node_with_another_clock_does_not_disturb_the_events_of_others() {
    let trained = fit(DetectorKind::Ae, &data(4), &config());
    let known = KnownJobs::default();
    for offset in [86_400, -86_400] {
        let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
        let mut found = Vec::new();
        for at in 0..60 {
            let time = 2_000_000 + at * 4;
            let one = if (20..60).contains(&at) { faulty(batch(time, 4, 4)) } else { batch(time, 4, 4) };
            found.extend(monitor.observe(&one.filtered(|thread| thread.node.as_str() == "n1")));
            let other = batch(time + offset, 4, 4).filtered(|thread| thread.node.as_str() == "n2");
            found.extend(monitor.observe(&other));
        }
        assert!(matches!(&found[..], [EventChange::Opened(_)]), "{offset}: {found:?}");
        assert_eq!(monitor.open_events().count(), 1);
    }
}

#[test]
fn a_thousand_jobs_per_minute_leave_nothing_behind() {
    let trained = fit(DetectorKind::Pca, &data(4), &config());
    let known = KnownJobs::default();
    let mut monitor = Monitor::new(&trained, &known, Library::default()).unwrap();
    let template = batch(1, 4, 4);
    let mut most = 0;
    for at in 0..600i64 {
        // Every four seconds, 66 new jobs of one thread.
        let threads = (0..66u16).map(|cpu| ThreadWindow {
            cpu: Cpu(cpu),
            owner: Owner::Job(JobId::new(format!("{at}-{cpu}")).unwrap()),
            ..template.threads()[usize::from(cpu) % 10].clone()
        });
        let start = Timestamp::from_seconds(200_000 + at * 4);
        monitor.observe(&WindowBatch::new(start, 4, threads.collect()));
        most = most.max(monitor.n_tracked());
    }
    assert!(most < 20_000 && monitor.n_tracked() < 20_000, "{most}");
}
