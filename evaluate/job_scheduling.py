"""Scheduler replays of synthetic traces and of real ones. Writes docs/results/jobs-scheduling.md for `jobs.py --scheduling`."""

import csv
import io
import json
import math
import random
import statistics
from concurrent.futures import ThreadPoolExecutor

from jobs import LEARNT_SHARE, ROOT, TRACES, figures, lines_of, make, score, shown, split, table, tracewise
from machine import machine_line

# Longer traces are cut, to keep the time of a run within minutes per trace.
MOST_JOBS = 20_000
# Seeds 1 to 6 were used during development.
SEEDS = range(11, 21)
FEW_SEEDS = (11, 12)
SCALES = "0.8x,1x,1.2x"
FACTOR = 1.5
TIE = 1.1
# The 97.5 % quantile of Student's distribution with nine degrees of freedom.
QUANTILE = 2.262
# Columns with the time of submission, and with other times that move with it.
TIMES = {"lumos": ["submit_time"], "supercloud": ["time_submit", "time_eligible", "time_start", "time_end"]}


def shortened(path, work):
    """Writes the first jobs, in order of submission."""
    head, jobs = lines_of(path)
    names = next(csv.reader([head[-1]])) if ".swf" not in path.name else []
    column = next((name for name in ("submit_time", "time_submit") if name in names), None)
    if column:
        jobs.sort(key=lambda line: float(next(csv.reader([line]))[names.index(column)]))
    out = work / ("first.swf" if ".swf" in path.name else "first.csv")
    out.write_text("\n".join(head + jobs[:MOST_JOBS]) + "\n")
    return out


class Rows:
    """The jobs of a file, and their times of submission."""

    def __init__(self, path, preset):
        text = path.read_text().splitlines()
        self.preset = preset
        if preset == "swf":
            self.head = [line for line in text if line.startswith(";")]
            self.rows = [line.split() for line in text if not line.startswith(";")]
            self.at = [1]
        else:
            self.head = text[:1]
            self.rows = list(csv.reader(text[1:]))
            names = next(csv.reader(self.head))
            self.at = [names.index(name) for name in TIMES.get(preset, ["interval"])]
        submitted = [float(row[self.at[0]]) for row in self.rows]
        if preset == "dirlab":
            submitted = list(running_sums(submitted))
        self.submitted = submitted

    def write(self, chosen, submitted, out):
        """Writes rows with other times of submission."""
        rows, previous = [], submitted[0] if submitted else 0
        for row, when in sorted(zip((self.rows[job] for job in chosen), submitted), key=lambda pair: pair[1]):
            row = list(row)
            if self.preset == "dirlab":
                row[self.at[0]] = f"{when - previous:g}"
                previous = when
            else:
                moved = when - float(row[self.at[0]])
                for at in self.at:
                    if row[at]:
                        row[at] = f"{float(row[at]) + moved:.2f}".rstrip("0").rstrip(".")
            rows.append(row)
        if self.preset == "swf":
            lines = [" ".join(row) for row in rows]
        else:
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows)
            lines = text.getvalue().splitlines()
        out.write_text("\n".join(self.head + lines) + "\n")
        return out


def running_sums(values):
    total = 0
    for value in values:
        total += value
        yield total


def halves(path, preset, seed, work):
    """Two random halves of the jobs, at the times at which they were submitted."""
    rows = Rows(path, preset)
    order = list(range(len(rows.rows)))
    random.Random(seed).shuffle(order)
    parts = (sorted(order[::2]), sorted(order[1::2]))
    return [rows.write(part, [rows.submitted[job] for job in part], work / f"half-{at}-{seed}{path.suffix}")
            for at, part in enumerate(parts)]


def shuffled(path, preset, seed, work):
    """The jobs in a random order, at the same times."""
    rows = Rows(path, preset)
    order = list(range(len(rows.rows)))
    random.Random(seed).shuffle(order)
    return rows.write(order, rows.submitted, work / f"shuffled-{seed}{path.suffix}")


def replayed(path, preset, nodes=None):
    """Outcomes by policy and load, and the size of the machine."""
    machine = ["--nodes", nodes] if nodes else []
    found = json.loads(tracewise("jobs", "replay", "--preset", preset, "--input", path, "--scale", SCALES, "--json", *machine))
    return {(one["policy"], one["scale"]): one["outcome"] for one in found["policies"]}, found["nodes"]


def ratios(many, real, name):
    """Mean ratio to the real figure, and half the width of its 95 % confidence interval."""
    values = [one[name] / max(real[name], 1e-9) for one in many]
    spread = QUANTILE * statistics.stdev(values) / math.sqrt(len(values)) if len(values) == len(SEEDS) else 0
    return statistics.mean(values), spread


def within(ratio):
    return 1 / FACTOR <= ratio <= FACTOR


def has_same_ranking(real, means, scale):
    """Whether policies whose slowdown on the real trace clearly differs rank the same."""
    policies = [policy for policy, at in real if at == scale]
    slowdown = "mean_bounded_slowdown"
    return all(means[a, scale] <= means[b, scale] for a in policies for b in policies
               if real[b, scale][slowdown] >= TIE * real[a, scale][slowdown])


def counted(many, real):
    """How many of the ratios are within the factor, and whether policies rank the same at each load."""
    n_met = sum(within(ratios([one[key] for one in many], real[key], name)[0])
                for key in real for name in ("mean_wait_seconds", "mean_bounded_slowdown"))
    means = {key: statistics.mean(one[key]["mean_bounded_slowdown"] for one in many) for key in real}
    n_ranked = sum(has_same_ranking(real, means, scale) for scale in sorted({scale for _, scale in real}))
    return f"{n_met} of {2 * len(real)}", f"{n_ranked} of 3"


def number(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def ratio_cell(value):
    """A ratio, unless nothing waits on the real trace."""
    return number(value) if value < 1e6 else "–"


def measured(name, preset, path, work):
    """The sections and the summary rows of one trace."""
    learnt, later, n_later = split(shortened(path, work), work)
    n_learnt = len(Rows(learnt, preset).rows)

    def synthetic(n_jobs, seed):
        folder = work / f"seed-{n_jobs}-{seed}"
        folder.mkdir()
        return make(folder, "sessions", preset, learnt, n_jobs, seed)[0]

    real, nodes = replayed(learnt, preset)
    future, future_nodes = replayed(later, preset)
    with ThreadPoolExecutor(2) as pool:
        files = list(pool.map(lambda seed: synthetic(n_learnt, seed), SEEDS))
        made = list(pool.map(lambda file: replayed(file, preset, nodes)[0], files))
        made_later = list(pool.map(lambda seed: replayed(synthetic(n_later, seed), preset, future_nodes)[0], FEW_SEEDS))
        mixed = list(pool.map(lambda seed: replayed(shuffled(learnt, preset, seed, work), preset, nodes)[0], FEW_SEEDS))
    half, other = halves(learnt, preset, 1, work)
    half, half_nodes = replayed(half, preset)
    other = replayed(other, preset, half_nodes)[0]
    past = replayed(learnt, preset, future_nodes)[0]
    rows = []
    for policy, scale in real:
        one = real[policy, scale]
        row = [policy, f"{scale:g}×", number(one["mean_wait_seconds"]), number(one["mean_bounded_slowdown"])]
        for figure in ("mean_wait_seconds", "mean_bounded_slowdown"):
            mean, spread = ratios([found[policy, scale] for found in made], one, figure)
            row += [f"{mean:.2f} ± {spread:.2f}", "met" if within(mean) else "**missed**"]
        row.append(ratio_cell(ratios([other[policy, scale]], half[policy, scale], "mean_wait_seconds")[0]))
        row.append(ratio_cell(ratios([found[policy, scale] for found in mixed], one, "mean_wait_seconds")[0]))
        rows.append(row)
    section = [f"### {name}", "", f"{n_learnt:,} jobs on {nodes:,} nodes.", "",
               *table(["policy", "load", "wait, s", "slowdown", "wait: synthetic / real", "", "slowdown: synthetic / real", "",
                       "wait: two halves", "wait: shuffled rows"], rows)]
    compared = [score(learnt, file, preset) for file in files[:1]]
    rank = [name, *counted(made, real), *counted([other], half), *counted(mixed, real)]
    ahead = [name, *counted(made_later, future), *counted([past], future)]
    held_copies = score(learnt, later, preset)["copies"]["near_fraction"]
    return section, rank, ahead, load_row(name, compared), sequence_row(name, compared, held_copies)


def load_row(name, compared):
    row = [name]
    for span in ("hourly", "daily"):
        for figure in ("std_dev", "largest"):
            found = [one["scheduling"]["offered_load"][span][figure] for one in compared]
            row.append(f"{number(statistics.mean(one['synthetic'] for one in found))} ({number(found[0]['real'])})")
    return row


def sequence_row(name, compared, held_copies):
    least = min((min((value, column) for column, value in figures(one).items() if column in {c["name"] for c in one["columns"]})
                 for one in compared))
    row = [name, f"{least[0]:.3f} ({least[1]})"]
    lags = {}
    for one in compared:
        for lag in one["sequence"]["autocorrelation"]:
            if lag["lag"] == 1:
                lags.setdefault(lag["name"], []).append(lag)
    kinds = list(lags)[:3]
    for at, most in zip(range(3), (0.05, 0.1, 0.1)):
        if at < len(kinds):
            found = lags[kinds[at]]
            mean, real = statistics.mean(lag["synthetic"] for lag in found), found[0]["real"]
            row.append(f"{mean:.2f} ({real:.2f}){'' if abs(mean - real) <= most else ' **missed**'}")
        else:
            row.append("–")
    near = statistics.mean(one["copies"]["near_fraction"] for one in compared)
    row.append(f"{near * 100:.1f} % ({held_copies * 100:.1f} %){'' if near <= held_copies + 0.05 else ' **missed**'}")
    for auc in ("row_auc", "window_auc"):
        row.append(shown(statistics.mean(one["classifier"][auc] or 0.5 for one in compared)))
    return row


def page(work, data, only):
    """Measures the traces in `only`, or all."""
    parts = []
    wanted = [name for name, *_ in TRACES if not only or name in only]
    for name, preset, file in TRACES:
        if name not in wanted:
            continue
        folder = work / preset / name.replace(" ", "-")
        folder.mkdir(parents=True)
        parts.append(measured(name, preset, data / file, folder))
        print(parts[-1][1], parts[-1][2], parts[-1][4], flush=True)
        write(parts)


def write(parts):
    """The page with the traces measured so far, so that an interrupted run leaves a usable one."""
    measured_names = [part[1][0] for part in parts]
    missing = [name for name, *_ in TRACES if name not in measured_names]
    sections, ranks, ahead, loads, sequences = ([part[at] for part in parts] for at in range(5))
    lines = [
        "# Job traces: scheduling", "",
        "Whether schedulers do on synthetic traces of `sessions` what they do on the real ones.", "",
        "- Command: `evaluate/jobs.py --scheduling`, with `TRACEWISE_DATA` set. It uses `tracewise jobs train`, `sample`, `replay` and `compare`.",
        f"- Data: the first {LEARNT_SHARE * 100:.0f} % of each trace, of at most its first {MOST_JOBS:,} jobs. All traces and seeds 1 to 6 were used",
        f"  while `sessions` was developed; its constants are the same for all traces. Seeds here: {SEEDS[0]} to {SEEDS[-1]};",
        f"  {FEW_SEEDS[0]} and {FEW_SEEDS[1]} for shuffled rows and the last 30 %, {SEEDS[0]} for offered load and fidelity.",
        *([f"- Not measured in this run: {', '.join(missing)}."] if missing else []),
        machine_line(), "",
        f"Target: the mean wait and the mean bounded slowdown on the synthetic trace are within a factor of {FACTOR} of those on the real",
        "one, and policies rank the same, at the recorded load and at 0.8 and 1.2 times it. The machine is sized for 90 % utilisation by the",
        "real trace, and for its largest job. A load factor submits the same jobs faster or slower. Policies whose slowdown on the real",
        "trace differs by less than 10 % may rank in any order.", "",
        "Bounds: two random halves of the real trace, of which one takes the place of the synthetic trace, on a machine sized for the other;",
        "and the real trace with its rows in random order at the same times, which is the best that a generator of independent rows can do.", "",
        "## Summary", "",
        "Waits and slowdowns within the factor, of four policies at three loads, and loads at which policies rank the same.", "",
        *table(["trace", "sessions", "ranking", "two halves", "ranking", "shuffled rows", "ranking"], ranks),
        "**The last 30 %.** What comes after training differs from it. Here, synthetic traces and the first 70 % itself take the place of",
        "the last 30 %, on a machine sized for that. No generator can be expected to do better than the second column.", "",
        *table(["trace", "sessions", "ranking", "first 70 %", "ranking"], ahead),
        "## Offered load", "", "Node seconds of the jobs submitted in an hour or a day, in nodes. Figures in parentheses are those of the real trace.", "",
        *table(["trace", "hourly: standard deviation", "hourly: largest", "daily: standard deviation", "daily: largest"], loads),
        "## Fidelity of the same traces", "",
        "Lag-1 is the autocorrelation of logarithms; the target is within 0.05 for intervals and within 0.1 for the others. Near copies are",
        "those of the first 70 %, and in parentheses those among the last 30 %; the target is at most 5 points more.", "",
        *table(["trace", "worst column", "lag-1 interval", "lag-1 run time", "lag-1 cores", "near copies", "AUC jobs", "AUC sequences"], sequences),
        "## By policy and load", "",
        "± is the 95 % confidence interval of the mean over ten samples. For the two bounds, the ratio of waits.", ""]
    for section in sections:
        lines += section
    (ROOT / "docs/results/jobs-scheduling.md").write_text("\n".join(lines).rstrip() + "\n")
