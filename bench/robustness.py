"""What hostile input, kills and fuzzing do to Tracewise, before and after it was hardened.

Writes docs/results/robustness.md. Run with `bench/run robustness`. With BEFORE_PROGRAMS, a directory with the
programs `tracewise` and `tracewise-agent` of an earlier commit, every case is tried with both. FUZZ_RESULTS is
the JSON that `scripts/fuzz --json` wrote. Names of areas as arguments run only those and print their rows; `--render`
writes the page again from the last measurement.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hostile.case import SECONDS, Case, Outcome  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
AREAS = ["archive", "agent", "models", "workflows", "job_traces", "secrets"]
BEFORE = os.environ.get("BEFORE_PROGRAMS")
SEED = 19
FINDINGS = {
    1: "Opening an archive executes what its directory says",
    2: "Answers of agents and Prometheus are stored unchecked",
    3: "One wrong clock or slow node affects the whole cluster",
    4: "Readers and HTTP clients have no size limit",
    5: "Links and names in input decide where files are written",
    6: "The agent can be starved by connections and wrong passwords",
    7: "Stored models and weights cause panics, endless loops and allocations",
    8: "Users can forge jobs",
    9: "Damage to the journal costs an hour, is deleted, or stops every command",
    10: "Labels can contradict each other",
    11: "Workflow readers take quadratic time",
    12: "Hostile workflow logs exhaust memory or never end",
    13: "A hostile Parquet file stops every command",
    15: "Secrets, file modes, pipes, terminal escapes",
}


def programs(directory: Path) -> dict[str, Path]:
    return {name: directory / name for name in ("tracewise", "tracewise-agent")}


def attempt(case: Case, tools: dict[str, Path]) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="tracewise-hostile-"))
    here = Path.cwd()
    try:
        return case.attempt(tools, folder)
    except Exception as error:  # a case whose input the old program cannot even take
        return Outcome(status=1, seconds=0, peak_bytes=0, output=str(error), harm=f"not comparable: {type(error).__name__}")
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)


def cases(areas: list[str]) -> list[Case]:
    found = [case for area in areas for case in importlib.import_module(f"hostile.{area}").CASES]
    return sorted(found, key=lambda case: case.finding)


def kills(tools: dict[str, Path], n_kills: int) -> tuple[int, int, int]:
    """Kills `record` at random times: kills, acknowledged readings, and those of them that are kept."""
    folder = Path(tempfile.mkdtemp(prefix="tracewise-kills-"))
    archive = folder / "archive"
    numbers = random.Random(SEED)
    acknowledged: set[float] = set()
    for round_number in range(n_kills):
        recorder = subprocess.Popen(
            [tools["tracewise"], "record", "--interval", "10ms", "--node", "n1", "--json", "--into", archive],
            env={**os.environ, "TRACEWISE_RECORD_SEGMENT": ["50ms", "5ms", "1h"][round_number % 3]},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        compactor = None
        if round_number % 3 == 2:
            compactor = subprocess.Popen([tools["tracewise"], "archive", "compact", "--data", archive], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.1 + 0.4 * numbers.random())
        recorder.kill()
        if compactor is not None:
            compactor.kill()
            compactor.wait()
        assert recorder.stdout is not None
        for line in recorder.stdout.read().splitlines():
            try:
                acknowledged.add(round(json.loads(line)["time"], 3))
            except json.JSONDecodeError:
                pass  # cut short by the kill
        recorder.wait()
    replayed = subprocess.run([tools["tracewise"], "archive", "replay", "--data", archive], capture_output=True, text=True, check=True)
    kept = {round(json.loads(line)["time"], 3) for line in replayed.stdout.splitlines()}
    shutil.rmtree(folder)
    return n_kills, len(acknowledged), len(acknowledged & kept)


def instructions(*command: str | Path) -> int:
    """How many instructions a command executes, which does not depend on what else the machine does."""
    result = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *map(str, command)],
        env={**os.environ, "RAYON_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(re.search(r"Collected : (\d+)", result.stderr).group(1))


def costs(directories: list[Path]) -> list[str]:
    """What ingest, reading and scoring cost with the programs of each directory, as a table."""
    rows: dict[str, list[int]] = {}
    folder = Path(tempfile.mkdtemp(prefix="tracewise-costs-"))
    table, columns = folder / "rows.csv", folder / "columns.toml"
    columns.write_text("layout = 'long'\ntime = 't'\nnode = 'n'\ncpu = 'c'\nunit = 'ticks'\n[modes]\nuser = 'user'\nidle = 'idle'\n")
    lines = (f"{1_767_326_370 + step},n1,{cpu},{step * cpu},{step}\n" for step in range(2_000) for cpu in range(32))
    table.write_text("t,n,c,user,idle\n" + "".join(lines))
    model, traces = folder / "model", folder / "traces"
    first = directories[0] / "tracewise"
    subprocess.run([first, "campaign", "simulate", "--nodes", "2", "--threads", "16", "--hours", "1", "--seed", str(SEED), "--into", traces], check=True, capture_output=True)
    subprocess.run([first, "detect", "train", "--detector", "pca", "--data", traces, "--out", model], check=True, capture_output=True)
    for number, directory in enumerate(directories):
        archive, imported = folder / f"counters-{number}", folder / f"imported-{number}"
        measured = {
            "ingest: 4 nodes × 64 threads, 200 s, acknowledged each second": (directory / "bench-archive", "ingest", archive, "4", "64", "200"),
            "read: the same archive, derived into traces": (directory / "bench-archive", "read", archive),
            "import: 64,000 rows of CSV": (directory / "tracewise", "archive", "import", "--columns", columns, table, "--into", imported),
            "score: 2 nodes × 16 threads, 4 h, PCA": (directory / "tracewise", "detect", "score", "--model", model, "--data", traces, "--out", folder / f"scores-{number}.csv"),
        }
        for name, command in measured.items():
            rows.setdefault(name, []).append(instructions(*command))
    shutil.rmtree(folder)
    lines = ["| task | before | after | change |", "|---|---:|---:|---:|"]
    for name, counts in rows.items():
        before, after = counts[0], counts[-1]
        lines.append(f"| {name} | {before / 1e6:,.0f} M | {after / 1e6:,.0f} M | {after / before - 1:+.1%} |")
    return lines


def fuzzing() -> list[str]:
    results = os.environ.get("FUZZ_RESULTS")
    if not results or not Path(results).exists():
        return ["Not run."]
    rows = json.loads(Path(results).read_text())
    lines = ["| target | executions | per second | findings |", "|---|---:|---:|---:|"]
    for row in rows:
        lines.append(f"| `{row['target']}` | {row['executions']:,} | {row['executions_per_second']:,.0f} | {len(row['findings'])} |")
    short = [row["target"] for row in rows if row["executions"] < 10_000_000]
    if short:
        lines += ["", f"Missed the target of 10,000,000 executions: {', '.join(f'`{name}`' for name in short)}."]
    return lines


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.processor())
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}"


def row(case: Case, before: Outcome | None, after: Outcome) -> dict[str, object]:
    """What the page says about a case."""
    return {
        "finding": case.finding,
        "input": case.input,
        "before": str(before) if before else "–",
        "after": str(after),
        "is_safe": after.is_safe,
        "is_bomb": case.is_bomb,
        "seconds": after.seconds,
        "peak_bytes": after.peak_bytes,
    }


def measure(areas: list[str]) -> list[dict[str, object]]:
    now = programs(ROOT / "target/release")
    earlier = programs(Path(BEFORE)) if BEFORE else None
    rows = []
    for case in cases(areas):
        before = attempt(case, earlier) if earlier else None
        after = attempt(case, now)
        rows.append(row(case, before, after))
        print(f"{case.finding:>2} {case.input}\n   before: {before}\n   after:  {after}", flush=True)
        if not after.is_safe:
            print("   " + "\n   ".join(after.output.splitlines()[-5:]), flush=True)
    return rows


def page(results: dict) -> str:
    rows = results["rows"]
    unsafe = [row["input"] for row in rows if not row["is_safe"]]
    n_failed_before = sum(row["before"].startswith("**") for row in rows)
    lines = [
        "# Robustness",
        "",
        f"What hostile, odd and damaged input does to Tracewise. Each command has 4 GiB of address space and {SECONDS} seconds. *Result* and",
        "*error* mean that it ended by itself with status 0, or with one line that says why not; everything in bold is a failure.",
        "The cases were chosen because they had failed, or might. [security.md](../security.md) describes the limits.",
        "",
        f"Made by `bench/run robustness` (seed {SEED}) on {machine()}. *Before* is commit {results['before']}.",
        "",
        f"{len(rows)} inputs: {n_failed_before} failed before, {len(unsafe)} fail now." + ("" if not unsafe else " Not safe yet: " + "; ".join(unsafe) + "."),
        "",
    ]
    for finding, title in FINDINGS.items():
        found = [row for row in rows if row["finding"] == finding]
        if found:
            lines += [f"## {finding}. {title}", "", "| input | before | after |", "|---|---|---|"]
            lines += [f"| {row['input']} | {row['before']} | {row['after']} |" for row in found]
            lines += [""]
    slowest = max(rows, key=lambda row: row["seconds"])
    lines += ["## Cost of the worst input", "", f"Slowest: {slowest['input']}, {slowest['seconds']:.1f} s.", "", "Peak memory of input that is made to exhaust memory or time:", "", "| input | seconds | peak memory |", "|---|---:|---:|"]
    bombs = sorted((row for row in rows if row["is_bomb"]), key=lambda row: -row["peak_bytes"])
    lines += [f"| {row['input']} | {row['seconds']:.1f} | {row['peak_bytes'] / 1e6:,.0f} MB |" for row in bombs]
    n_kills, n_acknowledged, n_kept = results["kills"]
    lines += [
        "",
        "## Kills and power losses",
        "",
        "`record` at 10 ms with segments of 50 ms, 5 ms and 1 h, every third time beside a compaction, killed at random times:",
        "",
        "| kills | acknowledged | kept | lost |",
        "|---:|---:|---:|---:|",
        f"| {n_kills} | {n_acknowledged:,} | {n_kept:,} | {n_acknowledged - n_kept} |",
        "",
        "`cli/tests/it/power_loss.rs` records every system call of `record` and of an import, and restores the disk as it would be",
        "after a kill or a power loss at each step. Nothing acknowledged is missing, and an import is visible completely or not at",
        "all. The same test without the recorded fsyncs finds losses.",
        "",
        "## Cost of the checks",
        "",
        "Instructions on one thread, counted by callgrind. The target is at most 5 % more than before.",
        "",
        *results["costs"],
        "",
        "## Fuzzing",
        "",
        "`scripts/fuzz --json`, from real bytes, with at most 512 MB per allocation and 5 s per input. The target is 10,000,000",
        "executions each (`scripts/fuzz --runs 10000000`). Findings are fixed, and kept in `fuzz/corpus`.",
        "",
        *fuzzing(),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    saved = ROOT / "target/robustness.json"
    if sys.argv[1:] != ["--render"]:
        areas = sys.argv[1:] or AREAS
        rows = measure(areas)
        n_unsafe = sum(not row["is_safe"] for row in rows)
        if sys.argv[1:]:
            sys.exit(f"{n_unsafe} cases are not safe" if n_unsafe else 0)
        directories = [Path(BEFORE), ROOT / "target/release"] if BEFORE else []
        results = {
            "rows": rows,
            "before": os.environ.get("BEFORE_COMMIT", "not run"),
            "kills": kills(programs(ROOT / "target/release"), 60),
            "costs": costs(directories) if directories and shutil.which("valgrind") else ["Not run."],
        }
        saved.write_text(json.dumps(results))
    (ROOT / "docs/results/robustness.md").write_text(page(json.loads(saved.read_text())))


if __name__ == "__main__":
    main()
