"""Size, read speed and ingest speed of the archive compared with Prometheus and pyarrow, in one run.

The programs take turns; a figure is the median of the rounds with minimum and maximum.
Writes docs/results/archive.md. Run with `bench/run archive` or `make bench`.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "target/release/bench-archive"
TRACEWISE = ROOT / "target/release/tracewise"
PROMTOOL = ROOT / "target/components/prometheus/usr/bin/promtool"
ROUNDS = 7
MODES = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def measured(*command):
    return json.loads(run(BENCH, *command))


def folder_bytes(folder, below=""):
    return sum(path.stat().st_size for path in Path(folder).glob(f"**/{below}*") if path.is_file())


def median(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def size_of(csv, scratch):
    """Bytes per thread-second of one Exathlon file: archive, Prometheus in total, Prometheus chunks only."""
    archive, text, blocks = scratch / "archive", scratch / "metrics.txt", scratch / "blocks"
    report = json.loads(run(TRACEWISE, "archive", "import", "--preset", "exathlon", csv, "--into", archive, "--json"))
    readings = report[0]["readings"]
    measured("openmetrics", csv, text)
    run(PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", text, blocks)
    chunks = sum(path.stat().st_size for path in blocks.glob("*/chunks/*"))
    return readings, folder_bytes(archive / "cpu") / readings, folder_bytes(blocks) / readings, chunks / readings


PYARROW_READ = f"""
import json, sys, time
begun = time.perf_counter()
import numpy, pyarrow, pyarrow.dataset as dataset
from machine import kernel
pyarrow.set_cpu_count(2)
imported = time.perf_counter()
table = dataset.dataset(sys.argv[1] + "/cpu", partitioning="hive").to_table(columns={["time", "cpu", "owner", "job"] + MODES!r})
arrays = [table.column(name).to_numpy() for name in ["time", "cpu"] + {MODES!r}]
print(json.dumps({{"seconds": time.perf_counter() - imported, "rows": len(arrays[0])}}))
"""

PYARROW_READ_WITHOUT_OWNERS = PYARROW_READ.replace("['time', 'cpu', 'owner', 'job', ", "['time', 'cpu', ")


def reading(archive):
    ours, peer, peer_without_owners = [], [], []
    for _ in range(ROUNDS):
        result = measured("read", archive)
        ours.append(result["seconds"])
        read = json.loads(run(sys.executable, "-c", PYARROW_READ, archive))
        peer.append(read["seconds"])
        bare = run(sys.executable, "-c", PYARROW_READ_WITHOUT_OWNERS, archive)
        peer_without_owners.append(json.loads(bare)["seconds"])
    return result["windows"], read["rows"], ours, peer, peer_without_owners


def main():
    lines = [
        "# Archive: size and speed",
        "",
        "Size on disk compared with Prometheus, read speed compared with pyarrow, and ingest speed.",
        "",
        "- Command: `bench/run archive` (`bench/archive.py`), with `TRACEWISE_DATA` set for Exathlon.",
        "- Data: six files of Exathlon; generated counters for ingest and for the second reading row.",
        "- Seed: fixed in `bench/src/archive.rs`.",
        f"- Method: the programs take turns in one run; seconds, median of {ROUNDS} rounds (min–max).",
        f"- Machine: {machine()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        scratch = Path(scratch)
        data = os.environ.get("TRACEWISE_DATA")
        archives = []
        if data:
            lines += [
                "## Bytes on disk per thread-second",
                "",
                "The five modes of Exathlon. Prometheus 2.42 stores them as counters in seconds",
                "(`promtool tsdb create-blocks-from openmetrics`). Target: at most 0.25 of Prometheus.",
                "",
                "| file | thread-seconds | archive | Prometheus | Prometheus chunks only | archive / Prometheus | archive / chunks |",
                "|---|---|---|---|---|---|---|",
            ]
            for csv in sorted(Path(data, "cpu-traces").glob("*.csv.zst")):
                print(f"size of {csv.name}", file=sys.stderr)
                folder = scratch / csv.name
                folder.mkdir()
                readings, ours, prometheus, chunks = size_of(csv, folder)
                lines.append(
                    f"| {csv.name} | {readings:,} | {ours:.2f} | {prometheus:.2f} | {chunks:.2f} "
                    f"| {ours / prometheus:.3f} | {ours / chunks:.3f} |"
                )
                archives.append(csv)
            lines.append("")
            exathlon = scratch / "exathlon"
            run(TRACEWISE, "archive", "import", "--preset", "exathlon", *archives, "--into", exathlon)
            run(TRACEWISE, "archive", "compact", "--data", exathlon)
        else:
            lines += ["Size on Exathlon: not measured because TRACEWISE_DATA is not set.", ""]
            exathlon = None

        counters = scratch / "counters"
        measured("ingest", counters, 4, 128, 7200)
        run(TRACEWISE, "archive", "compact", "--data", counters)
        lines += [
            "## Reading into f32 windows",
            "",
            "Tracewise opens the files, decodes them, verifies checksums, derives rates and cuts windows of 100 × 4 values. pyarrow",
            "opens the files and decodes the same columns into numpy without deriving anything (2 threads; its import time is not",
            "counted). Target: at least as fast as pyarrow (ratio ≥ 1). Jobs in Exathlon overlap on the same threads, so some",
            "times have several rows.",
            "",
            "| archive | rows | windows | Tracewise | pyarrow | pyarrow without owner and job | pyarrow / Tracewise | without / Tracewise |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, archive in [("Exathlon, six files", exathlon), ("4 × 128 threads, 2 h of counters", counters)]:
            if archive is None:
                continue
            print(f"reading {name}", file=sys.stderr)
            windows, rows, ours, peer, bare = reading(archive)
            ratio = statistics.median(peer) / statistics.median(ours)
            bare_ratio = statistics.median(bare) / statistics.median(ours)
            lines.append(
                f"| {name} | {rows:,} | {windows:,} | {median(ours)} | {median(peer)} | {median(bare)} "
                f"| **{ratio:.2f}** | {bare_ratio:.2f} |"
            )
        lines += [
            "",
            "## Ingest",
            "",
            "1,000 nodes × 128 threads, eight modes and an owner per thread. A batch of all nodes is acknowledged when it is on",
            "stable storage. The second column includes the conversion to Parquet. Targets: 1,000,000 thread-samples per second",
            "on two cores, memory under 300 MB.",
            "",
            "| seconds of data | thread-samples per second | acknowledged per second | peak memory, MB | bytes per thread-second |",
            "|---|---|---|---|---|",
        ]
        for seconds in (60, 300):
            print(f"ingest of {seconds} s", file=sys.stderr)
            folder = scratch / f"ingest-{seconds}"
            result = measured("ingest", folder, 1000, 128, seconds)
            size = folder_bytes(folder / "cpu") / result["samples"]
            lines.append(
                f"| {seconds} | {result['samples_per_second']:,.0f} | {result['acknowledged_per_second']:,.0f} "
                f"| {result['peak_rss_mb']:.0f} | {size:.2f} |"
            )
    text = "\n".join(lines) + "\n"
    (ROOT / "docs/results/archive.md").write_text(text)
    print(text)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), "unknown CPU")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {kernel()}, Python {platform.python_version()}"


main()
