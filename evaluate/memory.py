"""Time and peak memory of training and scoring for each detector, and memory of scoring as the archive gets longer.

Writes docs/results/memory.md. Run with `evaluate/run memory` or `make evaluate`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))
from machine import machine_line  # noqa: E402
TRACEWISE = Path(os.environ.get("TRACEWISE", ROOT / "target/release/tracewise"))
MODELS = ["ae", "node-gnn", "job-gnn", "vae", "pca", "nearest", "best"]
HOURS = [1, 4]
# Scoring holds up to two hours in memory at a time, so memory can only be constant from there on.
SCORED_HOURS = [4, 16, 48, 96]
SCORED_MODELS = ["ae", "pca", "best"]
SETTINGS = "[detector.train]\nn_epochs = 3\n"


def measured(*arguments):
    """Runs a command; returns seconds and peak resident memory in MB."""
    command = [str(part) for part in (TRACEWISE, *arguments)]
    begun = time.time()
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            stderr.seek(0)
            sys.exit(f"{' '.join(command)}: {stderr.read().decode()}")
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
                train = measured("detect", "train", "--detector", model, "--data", data, "--out", out, "--config", work / "settings.toml")
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
    lines = ["# Detectors: time and memory", "",
             "Time and peak resident memory of `detect train` and `detect score` for each detector.", "",
             "- Command: `evaluate/run memory` (`evaluate/memory.py`).",
             "- Data: three simulated campaigns of 5 nodes × 32 threads, for training, validation and test. Each lasts 1 or 4 hours, as the",
             "  column says.",
             "- Seed: 1 for the simulation, 0 for training. Networks train for 3 epochs on at most 10,000 windows.",
             machine_line(),
             "", *table(header, rows), "", "## Scoring longer archives", "",
             "One campaign of the given length, scored completely with the models trained on 1 hour. Scoring holds one hour of every node and "
             "the window that reaches into the next hour in memory, whatever the length of the archive.", "",
             *table(["", *(cell for model in SCORED_MODELS for cell in (model, "memory"))], by_length), ""]
    (ROOT / "docs/results/memory.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
