"""How faithful synthetic job traces are: every generator on real traces, beside what others have published, and whether they copy.

Writes docs/results/jobs.md. Run through `make evaluate` or `evaluate/run jobs`. Needs TRACEWISE_DATA. With --sessions, what the page says
of networks, which take most of the time, stays.
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
# For traces and for networks that no targets are for.
FEW_SEEDS = range(1, 3)
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


# What others have published for the same traces: figures of anchors, column by column.
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


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def targets(name, found, real_held, held):
    """What was aimed at for sessions, and what came out."""
    rows = []

    def row(what, value, wanted, is_hit):
        rows.append([what, value, wanted, "hit" if is_hit else "**missed**"])

    for column in COLUMNS:
        if column in found:
            least = 0.95 if (name, column) == ("Blue Waters", "run_time") else 0.97
            row(f"{column}, KS or TV complement", shown(found[column]), f"at least {least}", found[column] >= least)
    off = abs(found["lag-1"] - found["lag-1 real"])
    row("lag-1 of the log interval, off by", shown(off), "at most 0.05", off <= 0.05)
    off = abs(found["dispersion"] / found["dispersion real"] - 1)
    row("hourly dispersion, off by", f"{off * 100:.0f} %", "at most 40 %", off <= 0.4)
    row("rows told apart, AUC", shown(found["rows"]), "at most 0.65", found["rows"] <= 0.65)
    row("stretches told apart, AUC", shown(found["stretches"]), "at most 0.75", found["stretches"] <= 0.75)
    row("policies rank as on the real trace", "yes" if found["policies"] else "no", "yes", bool(found["policies"]))
    more = (held["near"] - real_held["near"]) * 100
    row("near copies of the first 70 %, beside the last 30 %", f"{held['near'] * 100:.1f} % and {real_held['near'] * 100:.1f} %",
        "at most 5 points more", more <= 5)
    row("three jobs in a row from the first 70 %, beside the last 30 %",
        f"{held['triples'] * 100:.2f} % and {real_held['triples'] * 100:.2f} %", "no more", held["triples"] <= real_held["triples"])
    for column in COLUMNS:
        if column in held:
            row(f"{column} beside the last 30 %, and the first 70 % beside it", f"{shown(held[column])} and {shown(real_held[column])}",
                "no worse", held[column] >= real_held[column])
    if held["stretches"] is not None:
        row("stretches beside the last 30 %, and the first 70 % beside it, AUC",
            f"{shown(held['stretches'])} and {shown(real_held['stretches'])}", "no worse",
            abs(held["stretches"] - 0.5) <= abs(real_held["stretches"] - 0.5))
    return rows


def main():
    data = os.environ.get("TRACEWISE_DATA")
    if not data:
        sys.exit("jobs.py: TRACEWISE_DATA is not set")
    data = Path(data)
    work = Path(tempfile.mkdtemp())
    lines = ["# Job traces", "", "Made by `make evaluate` (`evaluate/jobs.py`).", "",
             f"Machine: {platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}. "
             f"Date: {time.strftime('%Y-%m-%d')}. Seeds of sessions: 1 to 5 on Theta and Blue Waters, "
             "1 and 2 on the others; of networks: 1 to 5 where something was published, 1 and 2 for the others. Figures are medians, spreads "
             "standard deviations.", "",
             "KS complement (1 less the KS statistic) of numbers and TV complement of categories: one is perfect. AUCs are those of "
             "boosted trees that tell real from synthetic: one half is perfect. *Theta* and *Blue Waters* were looked at while "
             "`sessions` was made; its constants are the same for all traces.", ""]
    lines += ["## Sessions", "", "What was aimed at, on the two traces that targets are for, and on four others.", ""]
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
            lines += [f"### {name}", "", *table(["", "found", "target", ""], targets(name, found, real_held, held))]
        print("\n".join(overview[-1:][0]), flush=True)
    lines += ["### All traces", "", "In brackets: the real trace. Near copies are those of the first 70 % when fitted to it.", "",
              *table(["trace", "worst column", "lag-1", "hourly dispersion", "rows AUC", "stretches AUC", "near copies",
                      "policies alike", "fit"], overview)]
    page = ROOT / "docs/results/jobs.md"
    networks = "## Networks, beside what was published"
    if "--sessions" in sys.argv:
        page.write_text("\n".join(lines) + "\n" + networks + page.read_text().split(networks)[1])
        return
    lines += [networks, "",
              "The published output is that of Gen-Parallel-Workloads (JSSPP 2024), judged by the same command. "
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
                rows[-1][0] += ": behind on every column" if is_ahead else ": **ahead somewhere**"
        lines += [f"### {name}", "", *table(["", *COLUMNS, "pairs", "lag-1", "rows AUC"], rows)]
        page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
