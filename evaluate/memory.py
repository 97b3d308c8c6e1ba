"""How long each detector takes to learn and to score, and how much memory; and whether scoring a longer archive takes more of it.

Writes docs/results/memory.md. Run through `make evaluate` or `evaluate/run memory`.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACEWISE = Path(os.environ.get("TRACEWISE", ROOT / "target/release/tracewise"))
MODELS = ["ae", "node-gnn", "job-gnn", "vae", "pca", "nearest", "best"]
HOURS = [1, 4]
# The last is 24 times the first. What is read at once is two hours: only from there on can memory stay the same.
SCORED_HOURS = [4, 16, 48, 96]
SCORED_MODELS = ["ae", "pca", "best"]
SETTINGS = "[detector.train]\nn_epochs = 3\n"


def measured(*arguments):
    """Seconds, and the most memory that was resident, in MB."""
    command = [str(part) for part in (TRACEWISE, *arguments)]
    begun = time.time()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            said.seek(0)
            sys.exit(f"{' '.join(command)}: {said.read().decode()}")
    return time.time() - begun, usage.ru_maxrss / 1000


def simulate(into, hours, sets):
    measured("campaign", "simulate", "--nodes", 5, "--threads", 32, "--hours", hours, "--campaigns", sets, "--seed", 1, "--into", into)


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1), *("| " + " | ".join(row) + " |" for row in rows)]


def main():
    rows, by_length = [], []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        (work / "settings.toml").write_text(SETTINGS)
        for hours in HOURS:
            simulate(work / f"{hours}h", hours, "train=1,validation=1,test=1")
        for model in MODELS:
            cells = [model]
            for hours in HOURS:
                data, out = work / f"{hours}h", work / f"{model}-{hours}h"
                train = measured("detect", "train", "--model", model, "--data", data, "--out", out, "--config", work / "settings.toml")
                score = measured("detect", "score", "--model", out, "--data", data, "--set", "test", "--out", work / "scores.parquet")
                cells += [f"{train[0]:.0f} s", f"{train[1]:.0f} MB", f"{score[0]:.1f} s", f"{score[1]:.0f} MB"]
            rows.append(cells)
            print(cells, flush=True)
        for hours in SCORED_HOURS:
            archive = work / f"test-{hours}h"
            simulate(archive, hours, "test=1")
            scored = [measured("detect", "score", "--model", work / f"{model}-{HOURS[0]}h", "--data", archive, "--out", work / "scores.parquet")
                      for model in SCORED_MODELS]
            by_length.append([f"{hours} h", *(cell for seconds, memory in scored for cell in (f"{seconds:.0f} s", f"{memory:.0f} MB"))])
            print(by_length[-1], flush=True)
    header = ["", *(f"{what}, {hours} h" for hours in HOURS for what in ("train", "memory", "score", "memory"))]
    lines = ["# Time and memory of detectors", "", "Made by `make evaluate` (`evaluate/memory.py`).", "",
             f"Machine: {platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}. Date: {time.strftime('%Y-%m-%d')}.",
             "", "Three simulated campaigns of 5 nodes × 32 threads, each of so many hours: one to learn from, one for thresholds, one to score. "
             "Memory is the most that was resident. Networks learn for 3 epochs; windows to learn from are subsampled as documented.", "",
             *table(header, rows), "", "## Scoring of longer archives", "",
             "One campaign of so many hours, all of it scored. An hour of every node and the window that reaches into the next are in memory "
             "at once, however long the archive is.", "",
             *table(["", *(cell for model in SCORED_MODELS for cell in (model, "memory"))], by_length), ""]
    (ROOT / "docs/results/memory.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
