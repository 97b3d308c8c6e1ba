"""The service under load: 128,000 threads at 1 Hz by remote write and by pulls, 5,000 threads at the default stride, and
the cost of decoding compared with prost.

The cluster repeats five simulated nodes of 128 threads. Sender and service share the machine. Writes
docs/results/serve.md. Run with `bench/run serve` or `make bench`.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "target/release/bench-serve"
TRACEWISE = ROOT / "target/release/tracewise"
NODES, THREADS = 1_000, 128
SMALL_NODES, SMALL_SECONDS = 40, 180
# Windows are 100 s long; by then the first ones are scored.
WARM_UP = 120
SEED = 400
KEPT = ROOT / "target/bench/serve"
ENDPOINTS = ["cluster", "nodes", "nodes/node-0007", "jobs", "events", "models", "timings"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cpu_seconds(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def prepare(scratch):
    """Readings of half an hour, and a model of the same cluster."""
    archive, model = scratch / "cluster", scratch / "model"
    simulated = ["--nodes", 5, "--threads", THREADS, "--hours", 0.5, "--seed", SEED, "--campaigns", "train=2,validation=1"]
    run(TRACEWISE, "campaign", "simulate", *simulated, "--into", archive)
    run(TRACEWISE, "detect", "train", "--data", archive, "--detector", "hierarchy", "--out", model)
    return archive, model


class Service:
    """`tracewise serve` with a model and an empty archive."""

    def __init__(self, folder, model, settings=""):
        self.port = free_port()
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "models").mkdir(parents=True)
        shutil.copytree(model, folder / "models/bench")
        config = folder / "tracewise.toml"
        config.write_text(f'[serve]\nlisten = "127.0.0.1:{self.port}"\ndata = "{folder}"\n{settings}')
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen([TRACEWISE, "serve", "--config", config], stdout=self.log, stderr=self.log)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            return response.read()

    def metrics(self):
        """Values of metrics, summed over their labels."""
        values = {}
        for line in self.get("/metrics").decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                values[name] = values.get(name, 0) + float(value)
        return values

    def wait(self):
        for _ in range(200):
            with contextlib.suppress(OSError):
                self.get("/healthz")
                return
            time.sleep(0.05)
        raise TimeoutError("the service does not answer")

    def __enter__(self):
        self.wait()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def observe(service, load, seconds, each=None):
    """Metrics every five seconds while a program loads the service. `each` is called every second."""
    begun, rows = time.monotonic(), []
    cpu = cpu_seconds(service.process.pid)
    for second in range(seconds):
        time.sleep(max(0, begun + second - time.monotonic()))
        assert load.poll() is None, "the load has ended"
        if each and second >= WARM_UP:
            each()
        if second % 5 == 0:
            row = service.metrics()
            row["second"], row["cpu"] = time.monotonic() - begun, cpu_seconds(service.process.pid) - cpu
            rows.append(row)
            print(
                f"{row['second']:4.0f} s  cpu {row['cpu']:6.1f} s  memory {row['process_resident_memory_bytes'] / 1e9:.2f} GB  "
                f"stride {row['tracewise_serve_stride_seconds']:.0f} s  lag {row['tracewise_serve_lag_seconds']:.1f} s  "
                f"scored {row['tracewise_serve_scored_windows_total']:,.0f}",
                flush=True,
            )
    return rows


def summary(rows, seconds):
    """What is published of a run, after its windows are complete."""
    steady = [row for row in rows if row["second"] >= WARM_UP]
    first, last = steady[0], steady[-1]
    memory = [row["process_resident_memory_bytes"] / 1e9 for row in steady]
    third = len(memory) // 3
    elapsed = last["second"] - first["second"]
    return {
        "cores": (last["cpu"] - first["cpu"]) / elapsed,
        "stride": max(row["tracewise_serve_stride_seconds"] for row in steady),
        "scored_per_second": (last["tracewise_serve_scored_windows_total"] - first["tracewise_serve_scored_windows_total"]) / elapsed,
        "lag": max(row["tracewise_serve_lag_seconds"] for row in steady),
        "memory": max(memory),
        "growth": statistics.mean(memory[-third:]) - statistics.mean(memory[third : 2 * third]),
        "seconds": seconds,
    }


def by_remote_write(scratch, archive, model, nodes, seconds, each=None):
    with Service(scratch / "data", model) as service:
        url = f"http://127.0.0.1:{service.port}/api/v1/write"
        sender = subprocess.Popen([str(part) for part in (BENCH, "write", archive, url, nodes, seconds)], stdout=subprocess.PIPE, text=True)
        try:
            rows = observe(service, sender, seconds, each and (lambda: each(service)))
            sent = json.loads(sender.communicate(timeout=600)[0])
        finally:
            sender.kill()
        # A reading that is not followed by another is stored after half a minute.
        for _ in range(60):
            received = service.metrics()["tracewise_serve_readings_total"]
            if received >= nodes * seconds:
                break
            time.sleep(1)
        assert received == nodes * seconds, (received, nodes * seconds)
        return {**summary(rows, seconds), **{f"sent_{name}": value for name, value in sent.items()}}


def by_pulls(scratch, archive, model, nodes, seconds):
    port = free_port()
    targets = ", ".join(f'"127.1.{node >> 8}.{node & 255}:{port}"' for node in range(nodes))
    agents = subprocess.Popen([str(part) for part in (BENCH, "agents", archive, port, nodes)], stdout=subprocess.PIPE, text=True)
    try:
        assert agents.stdout.readline().strip() == "ready"
        with Service(scratch / "data", model, f"\n[serve.agents]\ntargets = [{targets}]\n") as service:
            rows = observe(service, agents, seconds)
            last = service.metrics()
            result = summary(rows, seconds)
            # Readings of the last interval are still with the agents.
            result["behind"] = seconds - last["tracewise_serve_readings_total"] / nodes
            result["lost"] = last["tracewise_serve_lost_readings_total"]
            result["failed"] = last["tracewise_serve_failed_pulls_total"]
            return result
    finally:
        agents.kill()
        agents.wait()


def kept(name, settings, make):
    """The result of a part, made only once for the same programs and settings, so that an interrupted run goes on."""
    programs = b"".join(path.read_bytes() for path in (BENCH, TRACEWISE))
    key = hashlib.sha256(programs + str(settings).encode()).hexdigest()
    path = KEPT / f"{name}.json"
    if path.exists() and (known := json.loads(path.read_text()))["key"] == key:
        return known["result"]
    result = make()
    KEPT.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"key": key, "result": result}))
    return result


def decode_cost(archive):
    output = subprocess.run([str(part) for part in (BENCH, "decode", archive, 9)], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def verdict(is_met):
    return "met" if is_met else "**missed**"


def report(large, pulled, small, latencies, decoded, seconds):
    worst = max(max(times) for times in latencies.values()) * 1e3
    ours = [one["tracewise"] for one in decoded["rounds"]]
    theirs = [one["prost"] for one in decoded["rounds"]]
    samples = large["sent_samples"] / large["sent_seconds"]
    lines = [
        "# The service under load",
        "",
        "- Command: `bench/run serve` (`bench/serve.py`).",
        f"- Data: five simulated nodes of {THREADS} threads (seed {SEED}), repeated under other names and shifted in time; model",
        "  `hierarchy`, trained with the same simulated cluster. Every reading is stored in the archive.",
        "- The senders run on the same machine, and take a part of its time.",
        machine_line(),
        "",
        f"## {NODES:,} nodes × {THREADS} threads at 1 Hz, for {seconds // 60} minutes",
        "",
        f"Figures after the first {WARM_UP} s, in which the first windows are recorded. The stride is 5 s by default and grows",
        "when scoring is too slow.",
        "",
        "| | remote write | pulls | target | |",
        "|---|---:|---:|---:|---|",
    ]
    for name, key, pattern, target in [
        ("every thread is scored every, s", "stride", "{:.0f}", 30),
        ("windows scored per second", "scored_per_second", "{:,.0f}", None),
        ("longest time from sample to score, s", "lag", "{:.1f}", None),
        ("largest resident memory, GB", "memory", "{:.2f}", None),
        ("growth of memory from the middle third to the last, GB", "growth", "{:+.2f}", 0.1),
        ("cores used by the service", "cores", "{:.2f}", None),
    ]:
        values = [large[key], pulled[key]]
        goal = f"at most {target} | {verdict(max(values) <= target)}" if target else "– | –"
        lines.append(f"| {name} | {pattern.format(values[0])} | {pattern.format(values[1])} | {goal} |")
    lines += [
        "",
        f"Remote write: {samples:,.0f} samples per second in {large['sent_requests'] / large['sent_seconds']:,.0f} requests per second",
        f"({large['sent_bytes'] / large['sent_seconds'] / 1e6:.1f} MB/s, snappy). The mean time from a scrape to its acknowledgement was {large['sent_mean_ms']:.0f} ms, the longest",
        f"{large['sent_longest_ms'] / 1e3:.1f} s; {large['sent_retries']:,} requests were answered with 503 and sent again. All readings were stored.",
        f"Pulls: at the end the service was {pulled['behind']:.1f} s behind the agents; {pulled['lost']:.0f} readings were lost, {pulled['failed']:.0f} requests failed.",
        "",
        f"## {SMALL_NODES * THREADS:,} threads at a stride of 5 s, by remote write",
        "",
        "| | | target | |",
        "|---|---:|---:|---|",
        f"| longest time from sample to score, s | {small['lag']:.2f} | under 2 | {verdict(small['lag'] < 2)} |",
        f"| stride, s | {small['stride']:.0f} | 5 | {verdict(small['stride'] <= 5)} |",
        f"| largest resident memory, GB | {small['memory']:.2f} | under 1 | {verdict(small['memory'] < 1)} |",
        f"| slowest answer of the API, ms | {worst:.0f} | under 100 | {verdict(worst < 100)} |",
        f"| cores used by the service | {small['cores']:.2f} | – | – |",
        "",
        "| `/api/v1/` | median, ms | slowest, ms |",
        "|---|---:|---:|",
    ]
    for name, times in latencies.items():
        lines.append(f"| `{name}` | {statistics.median(times) * 1e3:.1f} | {max(times) * 1e3:.1f} |")
    lines += [
        "",
        "## Decoding remote write 1.0, compared with prost",
        "",
        f"One scrape of a node: {decoded['samples']:,} samples, {decoded['bytes'] / 1e3:.0f} kB. Both decoders take turns, 9 rounds of 100; median (min–max).",
        "",
        "| | ns per sample |",
        "|---|---:|",
        f"| Tracewise | {spread(ours)} |",
        f"| prost | {spread(theirs)} |",
        f"| ratio | {spread([b / a for a, b in zip(ours, theirs)])} |",
        "",
    ]
    path = ROOT / "docs/results/serve.md"
    path.write_text("\n".join(lines))
    print(path.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="length of the runs with 128,000 threads")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    latencies = {name: [] for name in ENDPOINTS}

    def ask(service):
        for name, times in latencies.items():
            begun = time.perf_counter()
            service.get(f"/api/v1/{name}")
            times.append(time.perf_counter() - begun)

    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        archive, model = prepare(scratch)
        decoded = kept("decode", 0, lambda: decode_cost(archive))
        small = kept("small", SMALL_SECONDS, lambda: {**by_remote_write(scratch, archive, model, SMALL_NODES, SMALL_SECONDS, ask), "latencies": latencies})
        large = kept("large", seconds, lambda: by_remote_write(scratch, archive, model, NODES, seconds))
        pulled = kept("pulled", seconds, lambda: by_pulls(scratch, archive, model, NODES, seconds))
        report(large, pulled, small, small["latencies"], decoded, seconds)


if __name__ == "__main__":
    main()
