"""CTGAN and TVAE beside SDV's ctgan package: training for as many epochs on the same table, and sampling a million jobs. One run, two
threads each, turn by turn.

Writes docs/results/generators.md. Run through `make bench`. Needs TRACEWISE_DATA.
"""

import os

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "2"

import json
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import ctgan
import pandas
import torch

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
        return run("fit", "--model", model, "--preset", "dirlab", "--input", table, "--out", folder / model, "--seed", 1,
                   *(["--epochs", epochs] if epochs else []))

    # What comes before the first epoch (reading, modes) is left out of both.
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
                     "hit" if peer[0] / own[0] >= 2 else "**missed**", f"{own[1]:.1f} s", f"{peer[1]:.1f} s",
                     f"{peer[1] / own[1]:.1f}", "10", "hit" if peer[1] / own[1] >= 10 else "**missed**"])
        print(rows[-1], flush=True)
    training, sampling = ours("sessions", table, 0, folder)
    rows.append(["sessions", f"{training:.2f} s in all", "–", "–", "–", "", f"{sampling:.1f} s", "–",
                 f"{numbers['ctgan']['peer'][1] / sampling:.1f}", "10",
                 "hit" if numbers["ctgan"]["peer"][1] / sampling >= 10 else "**missed**"])
    header = ["", "an epoch, ours", "ctgan's", "ratio", "target", "", "a million jobs, ours", "ctgan's", "ratio", "target", ""]
    lines = ["# Generators of job traces beside SDV", "", "Made by `make bench` (`bench/jobs.py`).", "",
             f"Machine: {platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}. Date: "
             f"{time.strftime('%Y-%m-%d')}. ctgan {version('ctgan')}, PyTorch {torch.__version__}, two threads each. The table is Theta's "
             f"15,000 jobs; an epoch is the mean of {EPOCHS - 1} after the first; sampling is from the fitted model to a CSV file, for ctgan "
             f"{SAMPLED:,} jobs times {MILLION // SAMPLED}. Sessions stand beside ctgan's CTGAN.", "",
             "| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1),
             *("| " + " | ".join(row) + " |" for row in rows), ""]
    (ROOT / "docs/results/generators.md").write_text("\n".join(lines))
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
