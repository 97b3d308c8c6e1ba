"""CTGAN and TVAE compared with the ctgan package of SDV: training on the same table and sampling a million jobs. One run, two
threads each, the programs take turns.

Writes docs/results/generators.md. Run with `bench/run jobs` or `make bench`. Needs TRACEWISE_DATA.
"""

import os

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "2"

import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import ctgan
import pandas
import torch
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
TRACEWISE = Path(os.environ.get("TRACEWISE", ROOT / "target/release/tracewise"))
EPOCHS, MILLION, SAMPLED = 10, 1_000_000, 100_000
DISCRETE = ["user", "new_status"]


def ours(model, table, epochs, folder):
    def run(*arguments):
        begun = time.time()
        subprocess.run([TRACEWISE, "jobs", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.time() - begun

    def fit(epochs):
        return run("train", "--generator", model, "--preset", "dirlab", "--input", table, "--out", folder / model, "--seed", 1,
                   *(["--epochs", epochs] if epochs else []))

    # The time before the second epoch (reading, fitting modes) is excluded on both sides.
    training = fit(epochs) - fit(1) if epochs else fit(None)
    sampling = run("sample", "--model", folder / model, "--jobs", MILLION, "--seed", 1, "--out", folder / "made.csv")
    return training / max(epochs - 1, 1), sampling


def theirs(kind, frame, epochs, folder):
    def fit(epochs):
        begun = time.time()
        model = kind(epochs=epochs) if kind is ctgan.TVAE else kind(epochs=epochs, verbose=False)
        model.fit(frame, DISCRETE)
        return time.time() - begun, model

    first, _ = fit(1)
    later, model = fit(epochs)
    begun = time.time()
    model.sample(SAMPLED).to_csv(folder / "theirs.csv", index=False)
    return (later - first) / (epochs - 1), (time.time() - begun) * MILLION / SAMPLED


def main():
    data = os.environ.get("TRACEWISE_DATA")
    if not data:
        sys.exit("jobs.py: TRACEWISE_DATA is not set")
    torch.set_num_threads(2)
    folder = Path(tempfile.mkdtemp())
    table = folder / "theta.csv"
    packed = Path(data) / "job-traces/theta/theta_data_training.csv.zst"
    table.write_bytes(subprocess.run(["zstd", "-dc", packed], check=True, stdout=subprocess.PIPE).stdout)
    frame = pandas.read_csv(table).drop(columns=["u_id", "gpu_num"])
    rows, numbers = [], {}
    for name, kind in (("ctgan", ctgan.CTGAN), ("tvae", ctgan.TVAE)):
        peer = theirs(kind, frame, EPOCHS, folder)
        own = ours(name, table, EPOCHS, folder)
        numbers[name] = {"own": own, "peer": peer}
        rows.append([name, f"{own[0]:.2f} s", f"{peer[0]:.2f} s", f"{peer[0] / own[0]:.1f}", "2",
                     "met" if peer[0] / own[0] >= 2 else "**missed**", f"{own[1]:.1f} s", f"{peer[1]:.1f} s",
                     f"{peer[1] / own[1]:.1f}", "10", "met" if peer[1] / own[1] >= 10 else "**missed**"])
        print(rows[-1], flush=True)
    training, sampling = ours("sessions", table, 0, folder)
    rows.append(["sessions", f"{training:.2f} s in total", "–", "–", "–", "", f"{sampling:.1f} s", "–",
                 f"{numbers['ctgan']['peer'][1] / sampling:.1f}", "10",
                 "met" if numbers["ctgan"]["peer"][1] / sampling >= 10 else "**missed**"])
    header = ["", "one epoch, Tracewise", "ctgan", "ratio", "target", "", "a million jobs, Tracewise", "ctgan", "ratio", "target", ""]
    lines = ["# Job-trace generators: speed compared with SDV", "",
             "The time of one training epoch and of sampling a million jobs, compared with the ctgan package of SDV.", "",
             "- Command: `bench/run jobs` (`bench/jobs.py`), with `TRACEWISE_DATA` set.",
             "- Data: the 15,000 jobs of the Theta trace.",
             "- Seed: 1 for Tracewise; ctgan is not seeded.",
             f"- Method: ctgan {version('ctgan')}, PyTorch {torch.__version__}, two threads each. An epoch is the mean of {EPOCHS - 1} epochs after "
             "the first. Sampling goes",
             f"  from the trained model to a CSV file; ctgan samples {SAMPLED:,} jobs and the time is multiplied by {MILLION // SAMPLED}. "
             "`sessions` is compared with ctgan's CTGAN.",
             machine_line(), "",
             "| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1),
             *("| " + " | ".join(row) + " |" for row in rows), ""]
    (ROOT / "docs/results/generators.md").write_text("\n".join(lines))
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
