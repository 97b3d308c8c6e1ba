"""How faithful synthetic job traces are: every generator on real traces, beside what others have published, and whether they copy.

Writes docs/results/jobs.md. Run through `make evaluate` or `evaluate/run jobs`. Needs TRACEWISE_DATA.
"""

import gzip
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
TRACEWISE = Path(os.environ.get("TRACEWISE", ROOT / "target/release/tracewise"))
# Name, preset, file.
TRACES = [
    ("Theta", "dirlab", "job-traces/theta/theta_data_training.csv.zst"),
    ("Blue Waters", "dirlab", "job-traces/bluewaters/blue_waters_data_training.csv.zst"),
    ("ThetaGPU", "lumos", "job-traces/thetagpu/data_thetagpu.csv.gz"),
    ("SuperCloud", "supercloud", "job-traces/supercloud/slurm-log-queueing-clean.csv.gz"),
    ("CTC SP2", "swf", "job-traces/swf/CTC-SP2-1996-3.1-cln.swf.gz"),
    ("NASA iPSC", "swf", "job-traces/swf/NASA-iPSC-1993-3.1-cln.swf.gz"),
]
SEEDS = range(1, 6)
LEARNT_SHARE = 0.7


def tracewise(*arguments):
    command = [str(part) for part in (TRACEWISE, *arguments)]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if found.returncode:
        sys.exit(f"{' '.join(command)}: {found.stderr}")
    return found.stdout


def lines_of(path):
    """Comments and header, then jobs, one a line."""
    if path.suffix == ".gz":
        text = gzip.open(path, "rt").read()
    else:
        text = subprocess.run(["zstd", "-dc", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = text.splitlines()
    n_head = next(at for at, line in enumerate(lines) if not line.startswith(";")) + (".swf" not in path.name)
    return lines[:n_head], lines[n_head:]


def split(path, work):
    """The first jobs and the last, in the order of submission as files have it."""
    head, jobs = lines_of(path)
    if "submit_time" in (head[-1] if head else ""):
        at = head[-1].split(",").index("submit_time")
        jobs.sort(key=lambda line: float(line.split(",")[at]))
    n_learnt = int(len(jobs) * LEARNT_SHARE)
    suffix = ".swf" if ".swf" in path.name else ".csv"
    names = []
    for name, part in (("learnt", jobs[:n_learnt]), ("later", jobs[n_learnt:])):
        names.append(work / f"{name}{suffix}")
        names[-1].write_text("\n".join(head + part) + "\n")
    return names[0], names[1], len(jobs) - n_learnt


def score(real, synthetic, preset):
    return json.loads(tracewise("jobs", "score", "--real", real, "--synthetic", synthetic, "--preset", preset, "--json"))


def make(work, model, preset, real, n_jobs, seed, epochs=None):
    """Fits, samples, and says how long that took."""
    begun = time.time()
    options = ["--epochs", epochs] if epochs else []
    tracewise("jobs", "fit", "--model", model, "--preset", preset, "--input", real, "--out", work / "model", "--seed", seed,
              *options)
    fitted = time.time()
    synthetic = work / ("made.swf" if preset == "swf" else "made.csv")
    tracewise("jobs", "sample", "--model", work / "model", "--jobs", n_jobs, "--seed", seed, "--out", synthetic)
    return synthetic, fitted - begun, time.time() - fitted


def figures(found):
    """The figures that are aimed at, by name."""
    out = {}
    for column in found["columns"]:
        out[column["name"]] = column.get("ks_complement", column.get("tv_complement"))
    lag = next(one for one in found["order"]["autocorrelation"] if one["lag"] == 1)
    out["lag-1"], out["lag-1 real"] = lag["synthetic"], lag["real"]
    hourly = found["order"]["hourly_dispersion"]
    out["dispersion"], out["dispersion real"] = hourly["synthetic"], hourly["real"]
    out["pairs"] = found["pair_score"]
    out["hours"], out["days"] = found["order"]["daily_profile"], found["order"]["weekly_profile"]
    out["rows"], out["stretches"] = found["classifier"]["row_auc"], found["classifier"]["stretch_auc"]
    out["near"] = found["privacy"]["near_copies"]
    out["policies"] = float(found["utility"]["ranks_the_same"]) if found["utility"] else None
    return out


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def medians(many):
    return {name: median([one[name] for one in many]) for name in many[0]}


def faithful(work, preset, path, model, seeds=SEEDS, epochs=None):
    many = []
    n_jobs = json.loads(tracewise("jobs", "inspect", "--preset", preset, "--input", path, "--json"))["jobs"]
    for seed in seeds:
        synthetic, fit, _ = make(work, model, preset, path, n_jobs, seed, epochs)
        many.append(figures(score(path, synthetic, preset)) | {"fit": fit})
    return medians(many), many


def held_out(work, preset, path, model, seeds=SEEDS, epochs=None):
    """Learnt from the first part: how it stands to the last one, beside how the first part itself does."""
    learnt, later, n_later = split(path, work)
    real_copies = score(learnt, later, preset)["privacy"]
    real = figures(score(later, learnt, preset))
    many = []
    for seed in seeds:
        synthetic, _, _ = make(work, model, preset, learnt, n_later, seed, epochs)
        copies = score(learnt, synthetic, preset)["privacy"]
        many.append(figures(score(later, synthetic, preset)) | {
            "near": copies["near_copies"], "triples": copies["stretch_copies"]})
    real |= {"near": real_copies["near_copies"], "triples": real_copies["stretch_copies"]}
    return medians(many), real
