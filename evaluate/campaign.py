"""The recorded campaign, the sampling analysis of recorded, simulated and Exathlon data, and the distance of the simulator
from the recording.

Writes docs/results/campaign.md and its charts. Run with `evaluate/run campaign` or `make evaluate`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))
from machine import machine_line  # noqa: E402
TRACEWISE = ROOT / "target/release/tracewise"
RECORDED = ROOT / "fixtures/campaign/recorded"
CHARTS = ROOT / "docs/results/campaign"
# Files whose time spans do not overlap on the same nodes.
# The intervals of the sampling study.
INTERVALS = "0.1,0.2,0.5,1,2,5,10,20,30,60"
EXATHLON = ["5_0_100000_37", "1_0_100000_16", "1_0_100000_15"]
SIMULATED = "--nodes 12 --threads 2 --hours 2 --campaigns test=3 --seed 1 --load 0.8"
SEEDS = range(5)


def tracewise(*arguments):
    command = [str(part) for part in (TRACEWISE, *arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def table(header, rows):
    def line(cells):
        return "| " + " | ".join(str(cell) for cell in cells) + " |"

    return [line(header), line("---" for _ in header), *map(line, rows)]


def sentence(text):
    return f"{text[:1].upper()}{text[1:]}."


def labels_section():
    labels = json.loads(tracewise("campaign", "label", "list", "--data", RECORDED, "--json"))
    minutes = (max(label["end"] for label in labels) - min(label["start"] for label in labels)) / 60
    rows = []
    for label in labels:
        rows.append([
            label["campaign"], label["set"], label["kind"], len(label["threads"]), f"{label['end'] - label['start']:.0f}",
            f"{label['disturbance'] * 100:.1f} %", label.get("made_by", ""),
        ])
    return [
        "## The recording",
        "",
        f"{len(labels)} labelled jobs in {minutes:.0f} minutes on an otherwise idle machine with two threads: `fixtures/campaign/recorded`.",
        "Command: `evaluate/run recording`, which runs `crates/campaign/plans/recording.toml` with ten samples per second.",
        "`tracewise campaign fit` of this archive gives the simulator's default model; a test checks that.",
        "",
        "\"Disturbed\" is the fraction of time that other processes took from a job's threads. For writers it includes the kernel's",
        "write-back of their own data.",
        "",
        *table(["campaign", "set", "kind", "threads", "seconds", "disturbed", "MPI"], rows),
        "",
    ]


def effect(data, intervals):
    """Whether a shorter interval separates kinds better, in a sentence."""
    shown = [f"{at['silhouette']:.3f} ± {at['spread']:.3f} at {at['seconds']:g} s" for at in intervals]
    first, last = intervals[0], intervals[-1]
    difference = first["silhouette"] - last["silhouette"]
    if abs(difference) <= max(first["spread"], last["spread"]):
        verdict = "no difference beyond the spread"
    else:
        verdict = "shorter is better" if difference > 0 else "longer is better"
    return f"- {data}: {verdict} ({', '.join(shown)})."


def analysis_section(title, name, archive, found, *options):
    out = Path(tempfile.mkdtemp())
    spectrum = json.loads(tracewise("analyze", "spectrum", "--data", archive, "--out", out, "--json"))
    sampling = json.loads(tracewise("analyze", "sampling", "--data", archive, "--out", out, "--json", *options))
    shortest = sampling["intervals"][0]["seconds"]
    charts = ["spectrum-user", "spectrum-system", "silhouette", f"pca-{shortest:g}s"]
    for chart in charts:
        shutil.copy(out / f"{chart}.svg", CHARTS / f"{name}-{chart}.svg")
    shutil.rmtree(out)
    rows = []
    for kind in spectrum["kinds"]:
        row = [kind["kind"], kind["jobs"], f"{kind['seconds']:,.0f}"]
        for channel in kind["channels"]:
            peaks = ", ".join(f"{peak['hz']:.4f}" for peak in channel["dominant"][:3])
            row.append("constant" if channel["is_constant"] else peaks or "none")
        rows.append(row)
    intervals = [
        [f"{at['seconds']:g} s", f"{at['silhouette']:.3f} ± {at['spread']:.3f}", f"{at['explained'] * 100:.0f} %",
         f"{at['samples_per_day']:,}", f"{at['bytes_per_day'] / 1e3:,.0f} kB"]
        for at in sampling["intervals"]
    ]
    wanted = {sampling["intervals"][0]["seconds"], 1, sampling["intervals"][-1]["seconds"]}
    found.append(effect(name, [at for at in sampling["intervals"] if at["seconds"] in wanted]))
    return [
        f"## {title}",
        "",
        f"**Window: {spectrum['advice']['window_seconds']:g} s.** {sentence(spectrum['advice']['reason'])}",
        "",
        f"Dominant frequencies (Hz), segments of {spectrum['segment_seconds']:.0f} s:",
        "",
        *table(["kind", "jobs", "thread-seconds", "user", "system", "iowait"], rows),
        "",
        f"**Interval: {sampling['advice']['interval_seconds']:g} s.** {sentence(sampling['advice']['reason'])}",
        "",
        *table(["interval", "silhouette", "explained variance", "samples per thread and day", "bytes"], intervals),
        "",
        *(f"![{chart}](campaign/{name}-{chart}.svg)" for chart in charts),
        "",
    ]


def simulator_section(scratch):
    outcomes = []
    for seed in SEEDS:
        simulated, out = scratch / f"simulated-{seed}", scratch / f"report-{seed}"
        options = SIMULATED.replace("--seed 1", f"--seed {seed}").split()
        tracewise("campaign", "simulate", *options, "--into", simulated)
        outcomes.append(json.loads(tracewise("campaign", "compare", "--recorded", RECORDED, "--simulated", simulated, "--out", out, "--seed", seed, "--json")))

    def over_seeds(values):
        values = [value for value in values if value is not None]
        if not values:
            return "too few windows"
        mean = sum(values) / len(values)
        return f"{mean:.3f} ± {(sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5:.3f}"

    rows = []
    for kind in outcomes[0]["kinds"]:
        name = (kind["kind"], kind["threads"])
        same = [one for outcome in outcomes for one in outcome["kinds"] if (one["kind"], one["threads"]) == name]
        means = [" / ".join(f"{value:.3f}" for value in kind["means"][channel]) for channel in ("user", "system", "iowait")]
        rows.append([
            *name, kind["recorded_jobs"], kind["recorded_windows"], over_seeds([one["auc"] for one in same]),
            over_seeds([one["auc_of_shuffled"] for one in same]), *means,
        ])
    whole = ["**mean**", "", "", "", over_seeds([one["auc"] for one in outcomes]),
             over_seeds([one["auc_of_shuffled"] for one in outcomes]), "", "", ""]
    return [
        "## Simulated and recorded jobs",
        "",
        f"Commands: `tracewise campaign simulate {SIMULATED}` and `tracewise campaign compare`; mean and standard deviation over the",
        f"seeds 0 to {len(SEEDS) - 1}. Gradient-boosted trees try to distinguish recorded from simulated windows (60 s of one thread); each recorded job is",
        "scored by trees that were not trained on it. An AUC of 0.5 means indistinguishable, 1 means always distinguished. The baseline",
        "is the simplest simulator: the recorded seconds in random order. The simulator was fitted to this recording, which favours it.",
        "The last three columns are mean rates, recorded / simulated, for seed 0.",
        "",
        *table(["kind", "threads", "jobs", "windows", "AUC simulated", "AUC baseline", "user", "system", "iowait"], [*rows, whole]),
        "",
    ]


def main():
    CHARTS.mkdir(parents=True, exist_ok=True)
    found = []
    head = [
        "# Campaigns: recording, sampling analysis, simulator",
        "",
        "The recorded campaign, the advice of `tracewise analyze` on three data sets, and how far the simulator is from the recording.",
        "",
        "- Command: `evaluate/run campaign` (`evaluate/campaign.py`), with `TRACEWISE_DATA` set for Exathlon.",
        "- Data: `fixtures/campaign/recorded`, a simulated cluster, three files of Exathlon.",
        f"- Seeds: 1 for the simulated cluster, 0 to {len(SEEDS) - 1} for the comparison, 0 for the random subsets of the analysis.",
        machine_line(),
        "",
        "*Decode the Workload* (Mohammed et al., CHEP 2024) found that job kinds separate better at shorter sampling intervals. Silhouette",
        "scores of raw windows, mean and standard deviation over 30 random subsets:",
        "",
    ]
    lines = [
        "",
        "Raw windows are compared step by step, and they begin anywhere in a job's cycle. What happens within a cycle therefore adds as much",
        "to distances within a kind as to those between kinds. The kinds differ in their mean rates, which every interval shows. Detectors",
        "do not compare raw windows; a fault that is shorter than the interval is invisible to them.",
        "",
        *labels_section(),
        *analysis_section("Sampling analysis: recording", "recorded", RECORDED, found, "--intervals", INTERVALS, "--window", "60s"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        lines += simulator_section(scratch)
        simulated = scratch / "cluster"
        command = "--nodes 5 --threads 32 --hours 4 --campaigns train=2,validation=1,test=1 --seed 1"
        tracewise("campaign", "simulate", *command.split(), "--into", simulated)
        lines += analysis_section(f"Sampling analysis: simulated cluster (`{command}`)", "simulated", simulated, found)
        data = os.environ.get("TRACEWISE_DATA")
        if data:
            exathlon = scratch / "exathlon"
            files = [next(Path(data).glob(f"cpu-traces/**/{name}.csv*")) for name in EXATHLON]
            tracewise("archive", "import", "--preset", "exathlon", *files, "--into", exathlon)
            title = "Sampling analysis: Exathlon (Spark on 4 × 32 threads; each application is a kind)"
            lines += analysis_section(title, "exathlon", exathlon, found)
        else:
            lines += ["## Exathlon", "", "Not measured: `TRACEWISE_DATA` is not set.", ""]
    path = ROOT / "docs/results/campaign.md"
    path.write_text("\n".join([*head, *found, *lines]).rstrip() + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
