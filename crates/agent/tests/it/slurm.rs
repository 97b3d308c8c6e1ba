//! A real Slurm confines jobs to threads, and the agent flags the right ones.

use testbed::http;
use testbed::slurm::Slurm;

use crate::program;

fn owner(page: &str, cpu: &str) -> (String, String) {
    let start = format!("tracewise_cpu_owner_info{{cpu=\"{cpu}\",owner=\"");
    let rest = page.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
    let mut words = rest.split('"');
    (words.next().unwrap().to_owned(), words.nth(1).unwrap().to_owned())
}

#[test]
fn jobs_of_a_real_slurm_own_the_threads_that_slurm_says_they_have() {
    let n_cpus = std::thread::available_parallelism().unwrap().get().min(4);
    let Some(slurm) = Slurm::start(n_cpus) else { return };
    let agent = testbed::Server::start(&program(), |port, _| {
        vec![format!("--web.listen-address=127.0.0.1:{port}"), "--sample.interval=200ms".into()]
    });
    let page = || http::get(agent.port, "/metrics", &[]).text();
    let jobs: Vec<String> = (0..n_cpus).map(|_| slurm.submit()).collect();
    for job in &jobs {
        let cpu = slurm.cpu_of(job);
        testbed::eventually("the owner of a thread", || {
            (owner(&page(), &cpu) == ("job".into(), job.clone())).then_some(())
        });
    }
    assert!(page().contains(&format!("tracewise_job_info{{jobid=\"{}\",manager=\"slurm\"", jobs[0])));
    slurm.run("scancel", &jobs.iter().map(String::as_str).collect::<Vec<_>>());
    testbed::eventually("threads without owner", || {
        let page = page();
        (0..n_cpus).all(|cpu| owner(&page, &cpu.to_string()).0 == "nobody").then_some(())
    });
}
