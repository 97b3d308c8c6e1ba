"""CPU time and memory of the agent compared with node_exporter, on one generated node, in one run.

The node is a directory in memory that changes every second: 256 hardware threads, 200 jobs. Writes
docs/results/agent.md. Run with `bench/run agent` or `make bench`.
"""

import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "target/release/bench-agent"
AGENT = ROOT / "target/agent/tracewise-agent"
EXPORTER = ROOT / "target/components/prometheus-node-exporter/usr/bin/prometheus-node-exporter"
THREADS, JOBS = 256, 200
SCRAPES, ROUNDS = 20, 3
LIKE_PROMETHEUS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "Accept-Encoding": "gzip"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(*command):
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def node(folder, jobs, tick):
    """A generated node; one simulated second takes `tick` seconds."""
    with running(BENCH, "node", folder, THREADS, jobs, tick) as process:
        assert process.stdout.readline().strip() == "ready"
        yield
    shutil.rmtree(folder)


def cpu_seconds(pid):
    """CPU time of all threads, with nanosecond resolution."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def status(pid, key):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(key)).split()[1]) * 1024


def scrape(connection):
    begun = time.perf_counter()
    connection.request("GET", "/metrics", headers=LIKE_PROMETHEUS)
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, response.status
    return time.perf_counter() - begun, len(body)


def connected(port):
    for _ in range(100):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.connect()
            return connection
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("no answer on the port")


def scraped_every_second(pid, port):
    """Scrapes once per second; returns CPU milliseconds per second, milliseconds per scrape, bytes per page."""
    connection = connected(port)
    time.sleep(2)
    scrape(connection)
    begun, cpu = time.perf_counter(), cpu_seconds(pid)
    scrapes = []
    for second in range(1, SCRAPES + 1):
        time.sleep(max(0, begun + second - time.perf_counter()))
        scrapes.append(scrape(connection))
    elapsed = time.perf_counter() - begun
    spent = (cpu_seconds(pid) - cpu) / elapsed * 1e3
    return spent, statistics.median(seconds for seconds, _ in scrapes) * 1e3, scrapes[-1][1]


def agent(folder, port, *more):
    return running(AGENT, f"--web.listen-address=127.0.0.1:{port}", f"--path.procfs={folder}/proc", f"--path.cgroupfs={folder}/cgroup", *more)


def exporter(folder, port):
    empty = Path(folder) / "sys"
    empty.mkdir(exist_ok=True)
    collectors = ["--collector.disable-defaults", "--collector.cpu", "--no-collector.cpu.guest", "--collector.meminfo", "--collector.pressure"]
    return running(EXPORTER, *collectors, f"--path.procfs={folder}/proc", f"--path.sysfs={empty}", f"--web.listen-address=127.0.0.1:{port}")


def compare_with_exporter(scratch):
    """Agent and node_exporter take turns with the same CPU, memory and pressure series, scraped every second."""
    ours, theirs, with_jobs = [], [], []
    series = ["--collector.disable-defaults", "--collector.cpu", "--collector.memory", "--collector.pressure"]
    for _ in range(ROUNDS):
        with node(scratch / "node", 0, 1):
            port = free_port()
            with exporter(scratch / "node", port) as process:
                theirs.append((*scraped_every_second(process.pid, port), status(process.pid, "VmRSS")))
            port = free_port()
            with agent(scratch / "node", port, *series) as process:
                ours.append((*scraped_every_second(process.pid, port), status(process.pid, "VmRSS")))
        with node(scratch / "node", JOBS, 1):
            port = free_port()
            with agent(scratch / "node", port) as process:
                # Skip the first seconds, in which the agent finds the jobs.
                time.sleep(12)
                with_jobs.append((*scraped_every_second(process.pid, port), status(process.pid, "VmRSS")))
    return ours, theirs, with_jobs


def full_ring(scratch):
    """Resident memory with an hour of readings: 3,600 simulated seconds of 10 ms each."""
    with node(scratch / "node", JOBS, 0.01):
        port = free_port()
        with agent(scratch / "node", port, "--sample.interval=10ms", "--collector.cgroup.interval=100ms") as process:
            connection = connected(port)
            ticks = 0
            while ticks < 3600:
                time.sleep(1)
                connection.request("GET", "/metrics")
                page = connection.getresponse().read().decode()
                value = lambda name: float(next(line for line in page.splitlines() if line.startswith(name + " ")).split()[1])
                ticks = value("tracewise_ticks_total")
            return ticks, value("tracewise_ring_bytes"), status(process.pid, "VmRSS"), status(process.pid, "RssAnon")


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def verdict(is_met):
    return "met" if is_met else "**missed**"


def main():
    scratch = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    measured = lambda *command: json.loads(subprocess.run([str(part) for part in (BENCH, *command)], check=True, capture_output=True, text=True).stdout)
    try:
        cost = measured("cost", scratch / "cost", THREADS, JOBS)
        ours, theirs, with_jobs = compare_with_exporter(scratch)
        ticks, ring, resident, anonymous = full_ring(scratch)
        day = measured("day", scratch / "day", 1000)
    finally:
        shutil.rmtree(scratch)
    sample, job_files, text = cost["sample"], cost["job_files"], cost["text"]
    ratio = statistics.median(o[0] / t[0] for o, t in zip(ours, theirs))
    scrape_ms = statistics.median(one[1] for one in with_jobs)
    hours = day["hours"]
    after, end = hours[1], hours[-1]
    growth = end["resident_bytes"] - after["resident_bytes"]
    lines = [
        "# Agent: CPU time and memory",
        "",
        "The cost of `tracewise-agent` per sample and per scrape compared with node_exporter, and its memory over time.",
        "",
        "- Command: `bench/run agent` (`bench/agent.py`).",
        f"- Data: a generated node with {THREADS} hardware threads and {JOBS} Slurm jobs, as files in memory that change every second.",
        "- Seed: fixed in `crates/testbed/src/fake_node.rs`.",
        f"- Method: the programs take turns in one run, {ROUNDS} rounds of {SCRAPES} scrapes; median (min–max).",
        machine_line(),
        "",
        "## CPU time per operation, in milliseconds",
        "",
        "| operation | mean | median | 95th percentile | target | |",
        "|---|---|---|---|---|---|",
    ]
    for name, one, target in [
        ("sample all threads and their owners", sample, 1),
        (f"read the files of all {JOBS} jobs", job_files, 15),
        (f"render a page of {cost['series']:,} series ({cost['page_bytes'] / 1e3:.0f} kB)", text, 5),
        ("one second of operation, with a tenth of the job files", cost["whole"], None),
    ]:
        goal = f"under {target} | {verdict(one['mean_ms'] < target)}" if target else "– | –"
        lines.append(f"| {name} | {one['mean_ms']:.2f} | {one['median_ms']:.2f} | {one['p95_ms']:.2f} | {goal} |")
    lines += [
        "",
        "The agent walks the whole control-group tree every ten seconds; the 95th percentile includes such seconds. Files in",
        "memory are cheaper than kernel files: the kernel's cost of computing `memory.stat` is not included.",
        "",
        "## Compared with node_exporter (Debian package), scraped every second",
        "",
        "The same CPU (without guest time), memory and pressure series, compressed with gzip as Prometheus requests them.",
        "",
        "| | CPU ms per second | ms per scrape | page, gzip, kB | resident memory, MB |",
        "|---|---|---|---|---|",
    ]
    for name, runs in [("node_exporter", theirs), ("agent, same series", ours), (f"agent, with {JOBS} jobs", with_jobs)]:
        cells = [spread([run[0] for run in runs]), spread([run[1] for run in runs]), f"{runs[-1][2] / 1e3:.0f}", f"{statistics.median(run[3] for run in runs) / 1e6:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"CPU time agent / node_exporter: **{ratio:.2f}** (target at most 0.20: {verdict(ratio <= 0.2)}). A scrape with {JOBS} jobs:",
        f"{scrape_ms:.1f} ms (target under 5: {verdict(scrape_ms < 5)}).",
        "",
        "## Memory with an hour of readings",
        "",
        f"{ticks:,.0f} readings of {THREADS} threads and {JOBS} jobs take {ring / 1e6:.1f} MB. Resident memory is **{resident / 1e6:.1f} MB**:",
        f"{anonymous / 1e6:.1f} MB anonymous, the rest pages of the program and its libraries (target under 10 MB: {verdict(resident < 10e6)}).",
        "",
        f"## A simulated day of {day['started']:,} jobs",
        "",
        "64 threads, one second at a time, jobs of one minute to one hour. Resident memory includes the simulation itself.",
        "",
        "| hour | resident memory, MB | ring, MB | series | jobs exported | jobs running |",
        "|---|---|---|---|---|---|",
    ]
    for hour in [one for one in hours if one["hour"] in (1, 2, 6, 12, 18, 24)]:
        cells = [f"{hour['resident_bytes'] / 1e6:.2f}", f"{hour['ring_bytes'] / 1e6:.2f}", f"{hour['series']:,}", hour["jobs"], hour["running"]]
        lines.append(f"| {hour['hour']} | {' | '.join(str(cell) for cell in cells)} |")
    lines += ["", f"Growth from the second hour to the last: {growth / 1e6:+.2f} MB (target: less than 0.5 MB; {verdict(growth < 0.5e6)}).", ""]
    path = ROOT / "docs/results/agent.md"
    path.write_text("\n".join(lines))
    print(path.read_text())


if __name__ == "__main__":
    main()
