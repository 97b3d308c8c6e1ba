"""Speed of the simulator: a day of 5 × 32 threads as fast as possible, and 1,000 × 128 threads live at 1 Hz.

Writes docs/results/simulation.md. Run with `bench/run campaign` or `make bench`.
"""

import json
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
TRACEWISE = ROOT / "target/release/tracewise"
ROUNDS = 3
STREAM_SECONDS = 90
DAY_WITHIN = 60


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*arguments):
    command = [str(part) for part in (TRACEWISE, *arguments)]
    begun, before = time.perf_counter(), cpu_seconds()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - begun, cpu_seconds() - before, output


def main():
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "a"
        day = []
        for seed in range(ROUNDS):
            shutil.rmtree(archive, ignore_errors=True)
            seconds, _, output = run(
                "campaign", "simulate", "--nodes", 5, "--threads", 32, "--hours", 24,
                "--campaigns", "train=1", "--seed", seed, "--into", archive, "--json",
            )
            day.append(seconds)
        readings = json.loads(output)["load"]["readings"]
        size = json.loads(output)["load"]["bytes"]
        rows.append(
            f"| one day of 5 × 32 threads, as fast as possible | {statistics.median(day):.1f} s "
            f"({min(day):.1f}–{max(day):.1f}); {86_400 / statistics.median(day):,.0f} × real time; "
            f"{readings:,} readings, {size / 1e6:.1f} MB | {DAY_WITHIN} s | {'met' if max(day) <= DAY_WITHIN else '**missed**'} |"
        )
        shutil.rmtree(archive, ignore_errors=True)
        wall, cpu, output = run(
            "campaign", "simulate", "--nodes", 1000, "--threads", 128, "--hours", 1, "--live",
            "--duration", f"{STREAM_SECONDS}s", "--into", archive, "--json",
        )
        lines = [json.loads(line) for line in output.splitlines()]
        took = sorted(line["took_seconds"] for line in lines)
        late = max(line["late_seconds"] for line in lines[5:])
        share = cpu / wall
        verdict = "met" if share <= 1 and late < 1 and len(lines) >= STREAM_SECONDS * 0.9 else "**missed**"
        rows.append(
            f"| 1,000 × 128 threads live at 1 Hz, {STREAM_SECONDS} s | {share:.2f} CPU cores; one second of data is "
            f"written and acknowledged in {statistics.median(took) * 1e3:.0f} ms (max {took[-1] * 1e3:.0f}); "
            f"largest delay {late * 1e3:.0f} ms; {len(lines)} seconds written | one core | {verdict} |"
        )
    lines = [
        "# Simulator: speed",
        "",
        "The time to simulate a cluster into an archive, compared with real time.",
        "",
        "- Command: `bench/run campaign` (`bench/campaign.py`).",
        "- Data: `tracewise campaign simulate`, written to an archive on local disk.",
        f"- Seeds: 0 to {ROUNDS - 1} for the first row, 0 for the second; median (min–max).",
        "- CPU time includes scheduling, the journal and the conversion to Parquet.",
        machine_line(),
        "",
        "| task | measured | target | |",
        "|---|---|---|---|",
        *rows,
    ]
    path = ROOT / "docs/results/simulation.md"
    path.write_text("\n".join(lines) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
