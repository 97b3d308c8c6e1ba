"""Networks for job traces beyond single columns: the order of jobs, a model that can be shared, more traces, and SDV's own CTGAN.

Writes docs/results/job-networks.md and the charts in docs/results/job-networks/. Run with `evaluate/run job_networks`. Needs
TRACEWISE_DATA. PEER_PYTHON is a Python with the packages of bench/python-packages.txt; without it, the row on SDV is left out. With names
of traces as arguments, only these are measured.
"""

import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs import EPOCHS, NO_COLUMNS, ROOT, TRACES, figures, lines_of, make, score, shown, split, table, tracewise
from machine import machine_line

SEED = 1
# The order model was developed on these.
DEVELOPED_ON = ["Theta", "Blue Waters"]
# The other traces have more categories, whose names cannot be compared.
SHARED_ON = ["Theta", "Blue Waters", "ThetaGPU"]
ORDER = ["copulagan", "sequence-copulagan", "sessions"]
ROWS = {"ThetaGPU": ["ctgan", "tvae", "copulagan", "gaussian-copula"], "SuperCloud": ["ctgan", "tvae", "copulagan", "gaussian-copula"]}
CHARTS = [("Theta", "sequence-copulagan"), ("Theta", "sessions")]
CHART_COLUMNS = ["run-time", "cpu-num", "interval"]
PAGE = ROOT / "docs/results/job-networks.md"


def columns_of(found):
    return {name: value for name, value in found.items() if name not in [*NO_COLUMNS, "lag-10", "lag-10 real"] and value is not None}


def measured(real, synthetic, preset):
    found = score(real, synthetic, preset)
    lag = next(one for one in found["sequence"]["autocorrelation"] if one["lag"] == 10)
    return figures(found) | {"lag-10": lag["synthetic"], "lag-10 real": lag["real"]}


def order(work, preset, path, name):
    """Rows on the order of jobs: trained on the whole trace; near copies with a model of the first 70 %."""
    rows, base = [], None
    learnt, later, n_later = split(path, work)
    real_near = score(learnt, later, preset)["copies"]["near_fraction"]
    n_jobs = n_jobs_of(path, preset)
    for model in ORDER:
        made, _, _ = make(work, model, preset, path, n_jobs, SEED, EPOCHS.get("copulagan") if "copulagan" in model else None)
        found = measured(path, made, preset)
        made, _, _ = make(work, model, preset, learnt, n_later, SEED, EPOCHS.get("copulagan") if "copulagan" in model else None)
        near = score(learnt, made, preset)["copies"]["near_fraction"]
        columns = columns_of(found)
        base = base or columns
        loss = max(columns, key=lambda column: base[column] - columns[column])
        off = abs(found["lag-1"] - found["lag-1 real"])
        rows.append([f"{name}: {model}", f"{sum(columns.values()) / len(columns):.3f}",
                     "–" if model == ORDER[0] else f"{base[loss] - columns[loss]:.3f} ({loss})",
                     f"{shown(found['lag-1'])} ({shown(found['lag-1 real'])})", "met" if off <= 0.1 else "**missed**",
                     f"{shown(found['lag-10'])} ({shown(found['lag-10 real'])})",
                     f"{shown(found['dispersion'], 1)} ({shown(found['dispersion real'], 1)})",
                     shown(found["rows"]), shown(found["stretches"]), f"{near * 100:.1f} % ({real_near * 100:.1f} %)",
                     "met" if near <= real_near else "**missed**"])
        print(rows[-1], flush=True)
    return rows


def n_jobs_of(path, preset):
    return json.loads(tracewise("jobs", "inspect", "--preset", preset, "--input", path, "--json"))["jobs"]


def grouped(path, preset, work, name):
    """The trace with the names of users as the generator `private` writes them: one of 64 groups, by the first byte of SHA-256."""
    head, jobs = lines_of(path) if path.suffix in (".gz", ".zst") else (path.read_text().splitlines()[:1], path.read_text().splitlines()[1:])
    columns = next(csv.reader([head[-1]]))
    at = [index for index, column in enumerate(columns) if column in ("user", "id_user", "project")]
    rows = []
    for row in csv.reader(jobs):
        for index in at:
            row[index] = f"group-{hashlib.sha256(row[index].encode()).digest()[0] % 64:02d}"
        rows.append(row)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    made = work / f"{name}.csv"
    made.write_text(text.getvalue())
    return made


def shared(work, preset, path, name):
    """Rows on distances to the closest training job: of later real jobs, and of jobs of models of the first 70 %."""
    learnt, later, n_later = split(grouped(path, preset, work, "all"), work)
    rows = []

    def row(model, jobs, columns):
        copies = score(learnt, jobs, preset)["copies"]
        rows.append([f"{name}: {model}", columns, f"{copies['exact_fraction'] * 100:.1f} %", f"{copies['near_fraction'] * 100:.1f} %",
                     f"{copies['median_distance']:.3f}"])
        print(rows[-1], flush=True)

    row("later real jobs", later, "–")
    for model in ("private", "tvae", "sessions"):
        made, _, _ = make(work, model, preset, learnt, n_later, SEED, EPOCHS.get(model))
        columns = columns_of(figures(score(learnt, made, preset)))
        least = min(columns, key=columns.get)
        row(model, made, f"{sum(columns.values()) / len(columns):.3f}, {columns[least]:.3f} ({least})")
    return rows


def more_traces(work, preset, path, name, models):
    rows = []
    n_jobs = n_jobs_of(path, preset)
    for model in models:
        made, fit, _ = make(work, model, preset, path, n_jobs, SEED, EPOCHS.get(model))
        found = figures(score(path, made, preset))
        columns = columns_of(found)
        least = min(columns, key=columns.get)
        rows.append([f"{name}: {model}", f"{sum(columns.values()) / len(columns):.3f}", f"{columns[least]:.3f} ({least})",
                     shown(found["pairs"]), shown(found["lag-1"]), shown(found["rows"]), f"{fit:.0f} s"])
        print(rows[-1], flush=True)
    return rows


def peer(work, path, preset):
    """The ctgan package with the epochs of ours."""
    plain = work / "plain.csv"
    head, jobs = lines_of(path)
    plain.write_text("\n".join(head + jobs) + "\n")
    made = work / "peer.csv"
    subprocess.run([os.environ["PEER_PYTHON"], ROOT / "evaluate/job_networks_peer.py", plain, made, str(SEED), str(EPOCHS["ctgan"])], check=True)
    rows = []
    ours, _, _ = make(work, "ctgan", preset, path, len(jobs), SEED, EPOCHS["ctgan"])
    for model, synthetic in (("ctgan", ours), ("ctgan package of SDV", made)):
        found = figures(score(path, synthetic, preset))
        names = ["interval", "run_time", "cpu_num", "node_num", "wall_time", "new_status"]
        rows.append([model, *(shown(found[column]) for column in names), shown(found["pairs"]), shown(found["rows"])])
        print(rows[-1], flush=True)
    return table(["", *names, "pairs", "AUC jobs"], rows)


def charts(work, preset, path, name, model):
    """Charts of real and synthetic jobs; returns Markdown."""
    folder = ROOT / "docs/results/job-networks"
    folder.mkdir(exist_ok=True)
    n_jobs = n_jobs_of(path, preset)
    made, _, _ = make(work, model, preset, path, n_jobs, SEED, EPOCHS["copulagan"] if "copulagan" in model else None)
    report = work / "report"
    tracewise("jobs", "compare", "--real", path, "--synthetic", made, "--preset", preset, "--out", report)
    lines = [f"### {name}: `{model}`", ""]
    for chart in [*(f"cdf-{column}" for column in CHART_COLUMNS), "autocorrelation-interval"]:
        target = f"{name.lower().replace(' ', '-')}-{model}-{chart}.svg"
        shutil.copy(report / f"{chart}.svg", folder / target)
        lines.append(f"![{name}, {model}: {chart}](job-networks/{target})")
    return [*lines, ""]


def main():
    data = os.environ.get("TRACEWISE_DATA")
    if not data:
        sys.exit("job_networks.py: TRACEWISE_DATA is not set")
    data = Path(data)
    work = Path(tempfile.mkdtemp())
    chosen = [(name, preset, data / file) for name, preset, file in TRACES if len(sys.argv) == 1 or name in sys.argv[1:]]
    sections = {"order": [], "shared": [], "rows": [], "charts": [], "peer": []}

    def write():
        lines = ["# Job traces: order, sharing and more traces", "",
                 "The order of jobs of a learnt generator, a model that can be shared, and networks on more traces. Columns, AUCs and near copies are",
                 "explained in [jobs.md](jobs.md).", "",
                 "- Command: `evaluate/run job_networks` (`evaluate/job_networks.py`), with `TRACEWISE_DATA` and `PEER_PYTHON` set.",
                 f"- Seed: {SEED}; one run of each model. The noise of `private` has no seed.",
                 f"- Traces: {', '.join(name for name, _, _ in chosen)}. The order model was developed on {' and '.join(DEVELOPED_ON)}; the others",
                 "  were used for no choice.",
                 f"- Epochs: ctgan and both CopulaGANs {EPOCHS['ctgan']}, tvae {EPOCHS['tvae']}.",
                 machine_line(), ""]
        if sections["order"]:
            lines += ["## Order", "", "Targets for `sequence-copulagan`: lag-1 within 0.1 of the real trace, no column more than 0.01 worse than `copulagan`,",
                      "near copies of the first 70 % not above those of the last 30 %. Figures in parentheses are those of the real trace.", "",
                      *table(["", "mean of columns", "largest loss against copulagan", "lag-1", "", "lag-10", "hourly dispersion", "AUC jobs",
                              "AUC sequences", "near copies", ""], sections["order"])]
        if sections["shared"]:
            lines += ["## A model that can be shared", "",
                      "Trained on the first 70 %; users are replaced by groups in all rows. The distance is that to the closest training job, as a median.", "",
                      *table(["", "columns: mean, worst", "exact copies", "near copies", "distance"], sections["shared"])]
        if sections["rows"]:
            lines += ["## Networks on more traces", "", *table(["", "mean of columns", "worst column", "pairs", "lag-1", "AUC jobs", "training"],
                                                               sections["rows"])]
        if sections["peer"]:
            lines += ["## SDV's CTGAN", "", "The ctgan package with its own preprocessing, on Theta; the differences are listed in",
                      "[Generators](../jobs.md#generators).", "", *sections["peer"]]
        if sections["charts"]:
            lines += ["## Charts", "", *sections["charts"]]
        PAGE.write_text("\n".join(lines).rstrip() + "\n")

    for name, preset, path in chosen:
        if name in SHARED_ON:
            sections["shared"] += shared(work, preset, path, name)
        sections["order"] += order(work, preset, path, name)
        for trace, model in CHARTS:
            if trace == name:
                sections["charts"] += charts(work, preset, path, name, model)
        sections["rows"] += more_traces(work, preset, path, name, ROWS.get(name, []))
        if name == "Theta" and os.environ.get("PEER_PYTHON"):
            sections["peer"] = peer(work, path, preset)
        # The page is complete after every trace, so that an interrupted run leaves a usable one.
        write()


if __name__ == "__main__":
    main()
