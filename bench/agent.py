"""CPU and memory of the agent beside node_exporter, on one made-up node, in one run.

The node is a folder in memory that changes every second: 256 hardware threads, 200 jobs. Writes
docs/results/agent.md. Run through `make bench`.
"""

import contextlib
import http.client
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

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
    """A node whose every second takes `tick` seconds."""
    with running(BENCH, "node", folder, THREADS, jobs, tick) as process:
        assert process.stdout.readline().strip() == "ready"
        yield
    shutil.rmtree(folder)


def cpu_seconds(pid):
    """To the nanosecond, of all threads."""
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
    raise TimeoutError("it does not answer")


def scraped_every_second(pid, port):
    """CPU milliseconds a second while scraped every second, seconds a scrape, bytes a page."""
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


def beside_exporter(scratch):
    """Ours and theirs take turns: the same CPU, memory and pressure series, scraped every second."""
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
                # Jobs settle in their first seconds.
                time.sleep(12)
                with_jobs.append((*scraped_every_second(process.pid, port), status(process.pid, "VmRSS")))
    return ours, theirs, with_jobs


def full_ring(scratch):
    """Resident memory with an hour of readings: 3,600 seconds, each of which takes 10 ms."""
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
        ours, theirs, with_jobs = beside_exporter(scratch)
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
        "# The agent: speed and size",
        "",
        f"Made by `make bench` (`bench/agent.py`). A made-up node of {THREADS} hardware threads and {JOBS} Slurm jobs, as",
        "files in memory that change every second; seed fixed in `crates/testbed/src/fake_node.rs`. Peers take turns",
        f"in one run, {ROUNDS} rounds of {SCRAPES} scrapes; median (least–most).",
        "",
        f"Machine: {platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
        "## Work, in CPU milliseconds",
        "",
        "| work | mean | median | 95 % | target | |",
        "|---|---|---|---|---|---|",
    ]
    for name, one, target in [
        ("threads and their owners, once", sample, 1),
        (f"the files of all {JOBS} jobs, once", job_files, 15),
        (f"a page of {cost['series']:,} series ({cost['page_bytes'] / 1e3:.0f} kB)", text, 5),
        ("a whole second, with a tenth of the jobs' files", cost["whole"], None),
    ]:
        goal = f"under {target} | {verdict(one['mean_ms'] < target)}" if target else "– | –"
        lines.append(f"| {name} | {one['mean_ms']:.2f} | {one['median_ms']:.2f} | {one['p95_ms']:.2f} | {goal} |")
    lines += [
        "",
        "The whole tree of control groups is walked every ten seconds; the 95 % column has such seconds in it. Files in",
        "memory cost less than the kernel's own: what it takes to add up `memory.stat` is not in these figures.",
        "",
        "## Beside node_exporter (Debian's), scraped every second",
        "",
        "The same series of CPU (without guest time), memory and pressure, in gzip, as Prometheus asks for them.",
        "",
        "| | CPU ms a second | a scrape, ms | page in gzip, kB | resident, MB |",
        "|---|---|---|---|---|",
    ]
    for name, runs in [("node_exporter", theirs), ("agent, the same series", ours), (f"agent, with {JOBS} jobs", with_jobs)]:
        cells = [spread([run[0] for run in runs]), spread([run[1] for run in runs]), f"{runs[-1][2] / 1e3:.0f}", f"{statistics.median(run[3] for run in runs) / 1e6:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"CPU of ours / theirs: **{ratio:.2f}** (target at most 0.20: {verdict(ratio <= 0.2)}). A scrape with {JOBS} jobs:",
        f"{scrape_ms:.1f} ms (target under 5: {verdict(scrape_ms < 5)}).",
        "",
        "## Memory with an hour of readings",
        "",
        f"{ticks:,.0f} readings of {THREADS} threads and {JOBS} jobs: {ring / 1e6:.1f} MB of readings, **{resident / 1e6:.1f} MB** resident, of which",
        f"{anonymous / 1e6:.1f} MB are the agent's own and the rest pages of its program and libraries (target under 10 MB:",
        f"{verdict(resident < 10e6)}).",
        "",
        f"## A simulated day of {day['started']:,} jobs",
        "",
        "64 threads, second by second, jobs of a minute to an hour. Resident memory is that of the simulation as well.",
        "",
        "| hour | resident, MB | ring, MB | series | jobs shown | jobs running |",
        "|---|---|---|---|---|---|",
    ]
    for hour in [one for one in hours if one["hour"] in (1, 2, 6, 12, 18, 24)]:
        cells = [f"{hour['resident_bytes'] / 1e6:.2f}", f"{hour['ring_bytes'] / 1e6:.2f}", f"{hour['series']:,}", hour["jobs"], hour["running"]]
        lines.append(f"| {hour['hour']} | {' | '.join(str(cell) for cell in cells)} |")
    lines += ["", f"From the second hour to the last: {growth / 1e6:+.2f} MB (target no growth: {verdict(growth < 0.5e6)}).", ""]
    path = ROOT / "docs/results/agent.md"
    path.write_text("\n".join(lines))
    print(path.read_text())


if __name__ == "__main__":
    main()
