"""Fidelity of synthetic job traces: every generator on real traces, compared with published synthetic traces, and near copies.

Writes docs/results/jobs.md. Run with `evaluate/run jobs` or `make evaluate`. Needs TRACEWISE_DATA. With --sessions, only the part on
`sessions` is measured; the part on networks, which takes most of the time, stays as it is. With --without-users, users are removed
from the traces, and docs/results/jobs-without-users.md is written. With --scheduling, scheduler replays are measured, and
docs/results/jobs-scheduling.md is written (see job_scheduling.py); names of traces after it limit it to these.
"""

import csv
import gzip
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))
from machine import machine_line  # noqa: E402
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
# For traces and networks without targets.
FEW_SEEDS = range(1, 3)
LEARNT_SHARE = 0.7


def tracewise(*arguments):
    command = [str(part) for part in (TRACEWISE, *arguments)]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if found.returncode:
        sys.exit(f"{' '.join(command)}: {found.stderr}")
    return found.stdout


def lines_of(path):
    """Splits a file into its comments and header, and its jobs, one per line."""
    if path.suffix == ".gz":
        text = gzip.open(path, "rt").read()
    elif path.suffix != ".zst":
        text = path.read_text()
    else:
        text = subprocess.run(["zstd", "-dc", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = text.splitlines()
    n_head = next(at for at, line in enumerate(lines) if not line.startswith(";")) + (".swf" not in path.name)
    return lines[:n_head], lines[n_head:]


def split(path, work):
    """Writes the first 70 % of the jobs and the rest, in order of submission, to two files."""
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


def without_users(path, preset, work):
    """Writes the trace as if one user had submitted all jobs."""
    head, jobs = lines_of(path)
    made = work / ("nobody.swf" if preset == "swf" else "nobody.csv")
    if preset == "swf":
        rows = (line.split() for line in jobs)
        jobs = [" ".join([*row[:11], "-1", *row[12:]]) for row in rows]
    else:
        columns = next(csv.reader([head[-1]]))
        users = [at for at, column in enumerate(columns) if column in ("user", "id_user")]
        rows = [["0" if at in users else value for at, value in enumerate(row)] for row in csv.reader(jobs)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        jobs = text.getvalue().splitlines()
    made.write_text("\n".join(head + jobs) + "\n")
    return made


def page_without_users(work, data):
    rows = []
    for name, preset, file in TRACES:
        found, _ = faithful(work, preset, without_users(data / file, preset, work), "sessions", FEW_SEEDS)
        columns = {column: value for column, value in found.items() if column not in NO_COLUMNS and value is not None}
        least = min(columns, key=columns.get)
        off = abs(found["lag-1"] - found["lag-1 real"])
        rows.append([name, f"{shown(columns[least])} ({least})", "met" if columns[least] >= 0.95 else "**missed**",
                     f"{shown(found['lag-1'])} ({shown(found['lag-1 real'])})", "met" if off <= 0.05 else "**missed**",
                     f"{shown(found['dispersion'], 1)} ({shown(found['dispersion real'], 1)})", shown(found["rows"]), shown(found["stretches"])])
        print(rows[-1], flush=True)
    lines = ["# Job traces without users: fidelity", "",
             "Many published traces do not say who submitted a job. Here, users are removed from six traces that have them.", "",
             "- Command: `evaluate/jobs.py --without-users`, with `TRACEWISE_DATA` set. Seeds: 1 and 2; figures are means of the two.",
             "- Targets: every column at least 0.95, lag-1 within 0.05 of the real trace. Figures in parentheses are those of the real trace.",
             "- Two constants for this case were chosen on SuperCloud and CTC SP2.",
             machine_line(), "",
             "Columns and AUCs are explained in [jobs.md](jobs.md).", "",
             *table(["trace", "worst column", "", "lag-1", "", "hourly dispersion", "AUC jobs", "AUC sequences"], rows)]
    (ROOT / "docs/results/jobs-without-users.md").write_text("\n".join(lines))


def score(real, synthetic, preset):
    return json.loads(tracewise("jobs", "compare", "--real", real, "--synthetic", synthetic, "--preset", preset, "--json"))


def make(work, model, preset, real, n_jobs, seed, epochs=None):
    """Trains and samples; returns the file and the seconds of both steps."""
    begun = time.time()
    options = ["--epochs", epochs] if epochs else []
    tracewise("jobs", "train", "--generator", model, "--preset", preset, "--input", real, "--out", work / "model", "--seed", seed,
              *options)
    fitted = time.time()
    synthetic = work / ("made.swf" if preset == "swf" else "made.csv")
    tracewise("jobs", "sample", "--model", work / "model", "--jobs", n_jobs, "--seed", seed, "--out", synthetic)
    return synthetic, fitted - begun, time.time() - fitted


def figures(found):
    """The figures with targets, by name."""
    out = {}
    for column in found["columns"]:
        out[column["name"]] = column.get("ks_complement", column.get("tv_complement"))
    lag = next(one for one in found["sequence"]["autocorrelation"] if one["lag"] == 1)
    out["lag-1"], out["lag-1 real"] = lag["synthetic"], lag["real"]
    hourly = found["sequence"]["hourly_dispersion"]
    out["dispersion"], out["dispersion real"] = hourly["synthetic"], hourly["real"]
    out["pairs"] = found["pair_score"]
    out["hours"], out["days"] = found["sequence"]["daily_profile"], found["sequence"]["weekly_profile"]
    out["rows"], out["stretches"] = found["classifier"]["row_auc"], found["classifier"]["window_auc"]
    out["near"] = found["copies"]["near_fraction"]
    out["policies"] = float(found["scheduling"]["has_same_ranking"]) if found["scheduling"] else None
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
    """Trains on the first 70 %; compares synthetic jobs and the first 70 % itself with the last 30 %."""
    learnt, later, n_later = split(path, work)
    real_copies = score(learnt, later, preset)["copies"]
    real = figures(score(later, learnt, preset))
    many = []
    for seed in seeds:
        synthetic, _, _ = make(work, model, preset, learnt, n_later, seed, epochs)
        copies = score(learnt, synthetic, preset)["copies"]
        many.append(figures(score(later, synthetic, preset)) | {
            "near": copies["near_fraction"], "triples": copies["triple_fraction"]})
    real |= {"near": real_copies["near_fraction"], "triples": real_copies["triple_fraction"]}
    return medians(many), real


# Published synthetic versions of the same traces, by generator and trace.
PUBLISHED = {
    "ctgan": {"Theta": "ctgan_theta", "Blue Waters": "ctgan_bw"},
    "tvae": {"Theta": "tvae_theta", "Blue Waters": "tvae_bw"},
    "copulagan": {"Theta": "cg_theta", "Blue Waters": "cg_bw"},
    "gaussian-copula": {"Theta": "gc_theta", "Blue Waters": "gc_bw"},
}
COLUMNS = ["interval", "run_time", "cpu_num", "node_num", "wall_time", "new_status"]
EPOCHS = {"ctgan": 80, "copulagan": 80, "sequence-copulagan": 40, "tvae": 60, "gan": 40}
NETWORKS = ["ctgan", "tvae", "copulagan", "sequence-copulagan", "gan", "gaussian-copula"]


def shown(value, digits=3):
    return "–" if value is None else f"{value:.{digits}f}"


def spread(many, name):
    values = [one[name] for one in many if one[name] is not None]
    if not values:
        return "–"
    return shown(statistics.median(values)) + (f" ± {statistics.pstdev(values):.3f}" if len(values) > 1 else "")


# Figures that are not of columns.
NO_COLUMNS = ["lag-1", "lag-1 real", "dispersion", "dispersion real", "pairs", "hours", "days", "rows", "stretches", "near", "policies", "fit"]


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def targets(name, found, real_held, held):
    """The targets for sessions, and whether they were met."""
    rows = []

    def row(what, value, wanted, is_met):
        rows.append([what, value, wanted, "met" if is_met else "**missed**"])

    for column in COLUMNS:
        if column in found:
            least = 0.95 if (name, column) == ("Blue Waters", "run_time") else 0.97
            row(f"{column}, KS or TV complement", shown(found[column]), f"at least {least}", found[column] >= least)
    off = abs(found["lag-1"] - found["lag-1 real"])
    row("lag-1 autocorrelation of log(1 + interval), absolute error", shown(off), "at most 0.05", off <= 0.05)
    off = abs(found["dispersion"] / found["dispersion real"] - 1)
    row("hourly index of dispersion, relative error", f"{off * 100:.0f} %", "at most 40 %", off <= 0.4)
    row("classifier on single jobs, AUC", shown(found["rows"]), "at most 0.65", found["rows"] <= 0.65)
    row("classifier on sequences of 20 jobs, AUC", shown(found["stretches"]), "at most 0.75", found["stretches"] <= 0.75)
    row("scheduling policies rank as on the real trace", "yes" if found["policies"] else "no", "yes", bool(found["policies"]))
    more = (held["near"] - real_held["near"]) * 100
    row("near copies of the first 70 %: synthetic jobs, last 30 %", f"{held['near'] * 100:.1f} %, {real_held['near'] * 100:.1f} %",
        "at most 5 percentage points more", more <= 5)
    row("copied sequences of three jobs: synthetic jobs, last 30 %",
        f"{held['triples'] * 100:.2f} %, {real_held['triples'] * 100:.2f} %", "no more", held["triples"] <= real_held["triples"])
    for column in COLUMNS:
        if column in held:
            row(f"{column}, compared with the last 30 %: synthetic jobs, first 70 %", f"{shown(held[column])}, {shown(real_held[column])}",
                "no worse", held[column] >= real_held[column])
    if held["stretches"] is not None:
        row("classifier on sequences against the last 30 %, AUC: synthetic jobs, first 70 %",
            f"{shown(held['stretches'])}, {shown(real_held['stretches'])}", "no worse",
            abs(held["stretches"] - 0.5) <= abs(real_held["stretches"] - 0.5))
    return rows


def main():
    data = os.environ.get("TRACEWISE_DATA")
    if not data:
        sys.exit("jobs.py: TRACEWISE_DATA is not set")
    data = Path(data)
    work = Path(tempfile.mkdtemp())
    if "--scheduling" in sys.argv:
        import job_scheduling
        job_scheduling.page(work, data, sys.argv[sys.argv.index("--scheduling") + 1:])
        return
    if "--without-users" in sys.argv:
        page_without_users(work, data)
        return
    lines = ["# Job traces: fidelity", "",
             "How close synthetic job traces are to the real ones, and how many jobs are near copies.", "",
             "- Command: `evaluate/run jobs` (`evaluate/jobs.py`), with `TRACEWISE_DATA` set. It uses `tracewise jobs train`, `sample` and `compare`.",
             "- Data: six public traces, named in the tables.",
             "- Seeds: `sessions` 1 to 5 on Theta and Blue Waters, 1 and 2 on the others; networks 1 to 5 where a published trace exists, 1 and 2",
             "  otherwise. Figures are medians; ± is the standard deviation over seeds.",
             machine_line(), "",
             "Similarity of a column is the KS complement (1 − KS statistic) for numbers and the TV complement (1 − total variation) for",
             "categories; 1 is perfect. AUCs are those of boosted trees that distinguish real from synthetic jobs; 0.5 is perfect. A near copy",
             "has the user and the size of a real job, and its interval and run time within 2 %. Theta and Blue Waters were used while `sessions`",
             "was developed; its constants are the same for all traces.", ""]
    lines += ["## Sessions", "", "Theta and Blue Waters have targets. For rows with two figures, the model is trained on the first 70 % of the trace; the second",
              "figure is measured on real jobs and serves as the reference.", ""]
    overview = []
    for name, preset, file in TRACES:
        seeds = SEEDS if name in ("Theta", "Blue Waters") else FEW_SEEDS
        found, many = faithful(work, preset, data / file, "sessions", seeds)
        held, real_held = held_out(work, preset, data / file, "sessions", seeds)
        numbers = [column for column in found if column in COLUMNS + ["processors", "wait", "cpus_req", "nodes_alloc", "time_end",
                                                                      "requested_time", "timelimit", "status", "state"]]
        least = min(numbers, key=lambda column: found[column])
        overview.append([name, f"{shown(found[least])} ({least})", f"{shown(found['lag-1'])} ({shown(found['lag-1 real'])})",
                         f"{shown(found['dispersion'], 1)} ({shown(found['dispersion real'], 1)})", spread(many, "rows"),
                         spread(many, "stretches"), f"{held['near'] * 100:.1f} % ({real_held['near'] * 100:.1f} %)",
                         "yes" if found["policies"] else "no", f"{found['fit']:.1f} s"])
        if name in ("Theta", "Blue Waters"):
            lines += [f"### {name}", "", *table(["", "measured", "target", ""], targets(name, found, real_held, held))]
        print("\n".join(overview[-1:][0]), flush=True)
    lines += ["### All traces", "", "Figures in parentheses are those of the real trace. Near copies are measured with a model trained on the first 70 %.", "",
              *table(["trace", "worst column", "lag-1", "hourly dispersion", "AUC jobs", "AUC sequences", "near copies",
                      "same policy ranking", "training"], overview)]
    page = ROOT / "docs/results/jobs.md"
    networks = "## Neural generators and copulas"
    if "--sessions" in sys.argv:
        page.write_text("\n".join(lines) + "\n" + networks + page.read_text().split(networks)[1])
        return
    lines += [networks, "",
              "\"Published\" rows are the synthetic traces of Gen-Parallel-Workloads (JSSPP 2024), measured with the same command. The generators",
              "here differ from the published ones: they take logarithms of skewed columns, treat repeated values as modes of their own and",
              "columns with few values as categories, learn cores per node, and average the last generator weights. The rows therefore compare",
              "implementations, not algorithms.", "",
              f"Epochs: {', '.join(f'{model} {count}' for model, count in EPOCHS.items())}.", ""]
    for name, preset, file in TRACES[:2]:
        rows = []
        for model in NETWORKS:
            _, many = faithful(work, preset, data / file, model, SEEDS if model in PUBLISHED else FEW_SEEDS, EPOCHS.get(model))
            rows.append([model, *(spread(many, column) for column in COLUMNS), spread(many, "pairs"), spread(many, "lag-1"),
                         spread(many, "rows")])
            print(name, rows[-1], flush=True)
            if model in PUBLISHED:
                folder = (data / file).parent / "published"
                published = figures(score(data / file, folder / f"synthetic_data_{PUBLISHED[model][name]}.csv.zst", preset))
                rows.append([f"{model}, published", *(shown(published[column]) for column in COLUMNS),
                             shown(published["pairs"]), shown(published["lag-1"]), shown(published["rows"])])
                ours = [median([one[column] for one in many]) for column in COLUMNS]
                is_ahead = all(mine >= theirs for mine, theirs in zip(ours, (published[column] for column in COLUMNS)))
                rows[-1][0] += ": worse in every column" if is_ahead else ": **better in some column**"
            # The page is complete after every model, so that an interrupted run leaves a usable one.
            missing = NETWORKS[NETWORKS.index(model) + 1:]
            note = [f"Not measured: {', '.join(missing)}.", ""] if missing else []
            section = [f"### {name}", "", *table(["", *COLUMNS, "pairs", "lag-1", "AUC jobs"], rows), *note]
            page.write_text("\n".join(lines + section) + "\n")
        lines += section


if __name__ == "__main__":
    main()
