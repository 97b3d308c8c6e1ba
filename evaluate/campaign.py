"""What the recorded campaign is like, what the analysis says of it and of Exathlon, and how far the simulator is from it.

Writes docs/results/campaign.md and its charts. Run through `make evaluate`.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACEWISE = ROOT / "target/release/tracewise"
RECORDED = ROOT / "fixtures/campaign/recorded"
CHARTS = ROOT / "docs/results/campaign"
# One file a stretch of time: others overlap with these on the same nodes.
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


def labels_section():
    labels = json.loads(tracewise("campaign", "labels", "--data", RECORDED, "--json"))
    minutes = sum(label["end"] - label["start"] for label in labels) / 60
    rows = []
    for label in labels:
        rows.append([
            label["campaign"], label["set"], label["kind"], len(label["threads"]), f"{label['end'] - label['start']:.0f}",
            f"{label['disturbance'] * 100:.1f} %", label.get("made_by", ""),
        ])
    return [
        "## The recording",
        "",
        f"`tracewise campaign run` of `crates/campaign/plans/two-threads.toml` and, for the kinds that were made steadier since, of",
        f"`steady-two-threads.toml`: {minutes:.0f} minutes of {len(labels)} jobs on a machine of two threads with nothing else to do.",
        "It is in the repository (`fixtures/campaign/recorded`; the first recording as it was: `recorded-uneven`), and",
        "`tracewise campaign fit` of it gives the model that comes with Tracewise (a test holds this). The share of time",
        "that others took from a job's threads is in the last column but one; writers' own write-back by the kernel is in it.",
        "",
        *table(["campaign", "set", "kind", "threads", "seconds", "disturbed", "made by"], rows),
        "",
    ]


def analysis_section(title, name, archive, *options):
    out = Path(tempfile.mkdtemp())
    spectrum = json.loads(tracewise("analyze", "spectrum", "--data", archive, "--out", out, "--json", *options))
    sampling = json.loads(tracewise("analyze", "sampling", "--data", archive, "--out", out, "--json", *options))
    charts = ["spectrum-user", "spectrum-system", "silhouette", "pca-1s"]
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
        [f"{at['seconds']} s", f"{at['silhouette']:.3f} ± {at['spread']:.3f}", f"{at['explained'] * 100:.0f} %",
         f"{at['samples_a_day']:,}", f"{at['bytes_a_day'] / 1e3:,.0f} kB"]
        for at in sampling["intervals"]
    ]
    return [
        f"## {title}",
        "",
        f"**Window: {spectrum['advice']['window_seconds']} s.** {spectrum['advice']['reason']}.",
        "",
        f"Dominant frequencies (Hz), segments of {spectrum['segment_seconds']:.0f} s:",
        "",
        *table(["kind", "jobs", "thread-seconds", "user", "system", "iowait"], rows),
        "",
        f"**Interval: {sampling['advice']['interval_seconds']} s.** {sampling['advice']['reason']}.",
        "",
        *table(["interval", "silhouette", "explained", "samples a thread's day", "bytes"], intervals),
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
            return "one job: cannot be judged"
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
        "## The simulator beside the recording",
        "",
        f"`tracewise campaign simulate {SIMULATED}` and `tracewise campaign compare`, mean and deviation over {len(SEEDS)} seeds:",
        "gradient-boosted trees tell windows of 60 s of one thread apart, a recorded job being scored by trees that have not",
        "seen it. 0.5 is not at all, 1 is always. Beside it the simplest simulator there is: the recorded seconds in random",
        "order. The model was fitted to this very recording, which is an advantage. Means are recorded / simulated, of the",
        "first seed.",
        "",
        *table(["kind", "threads", "jobs", "windows", "AUC simulated", "AUC shuffled", "user", "system", "iowait"], [*rows, whole]),
        "",
    ]


def main():
    CHARTS.mkdir(parents=True, exist_ok=True)
    lines = [
        "# The recorded campaign",
        "",
        "Made by `make evaluate` (`evaluate/campaign.py`).",
        "",
        f"Machine: {platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
        *labels_section(),
        *analysis_section("What the analysis says of it", "recorded", RECORDED),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        lines += simulator_section(scratch)
        simulated = scratch / "cluster"
        command = "--nodes 5 --threads 32 --hours 4 --campaigns train=2,validation=1,test=1 --seed 1"
        tracewise("campaign", "simulate", *command.split(), "--into", simulated)
        lines += analysis_section(f"What it says of a simulated cluster (`{command}`)", "simulated", simulated)
        data = os.environ.get("TRACEWISE_DATA")
        if data:
            exathlon = scratch / "exathlon"
            files = [next(Path(data).glob(f"cpu-traces/**/{name}.csv*")) for name in EXATHLON]
            tracewise("archive", "import", "--preset", "exathlon", *files, "--into", exathlon)
            title = "What it says of Exathlon (Spark on 4 × 32 threads; each application is a kind)"
            lines += analysis_section(title, "exathlon", exathlon)
        else:
            lines += ["## Exathlon", "", "Left out: `TRACEWISE_DATA` is not set.", ""]
    path = ROOT / "docs/results/campaign.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
