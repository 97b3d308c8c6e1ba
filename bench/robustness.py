"""What hostile input, kills and fuzzing do to Tracewise.

Writes docs/results/robustness.md. Run with `bench/run robustness`. FUZZ_RESULTS is the JSON that `scripts/fuzz --json`
wrote. Names of areas as arguments run only those and print their rows; `--render` writes the page again from the last
measurement.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hostile.case import SECONDS, Case, Outcome  # noqa: E402
from machine import kernel  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
AREAS = ["archive", "agent", "models", "workflows", "job_traces", "secrets"]
SEED = 19
TOPICS = {
    1: "Archives that name places outside of them",
    2: "Responses of agents and Prometheus",
    3: "Wrong clocks and slow nodes",
    4: "Input without an end, or much larger than it seems",
    5: "Links and names in input",
    6: "Connections and wrong passwords",
    7: "Stored models and weights",
    8: "Forged jobs",
    9: "Damaged journals",
    10: "Labels that contradict each other",
    11: "Long workflow logs",
    12: "Hostile workflow logs",
    13: "Hostile Parquet files",
    14: "Secrets, file modes, pipes, terminal escapes",
}



def programs(directory: Path) -> dict[str, Path]:
    return {name: directory / name for name in ("tracewise", "tracewise-agent")}


def attempt(case: Case, tools: dict[str, Path]) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="tracewise-hostile-"))
    here = Path.cwd()
    try:
        return case.attempt(tools, folder)
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)


def cases(areas: list[str]) -> list[Case]:
    found = [case for area in areas for case in importlib.import_module(f"hostile.{area}").CASES]
    return sorted(found, key=lambda case: case.topic)


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
    return f"{os.cpu_count()} × {model}, {kernel()}"


def row(case: Case, outcome: Outcome) -> dict[str, object]:
    """What the page says about a case."""
    return {
        "topic": case.topic,
        "input": case.input,
        "outcome": str(outcome),
        "is_safe": outcome.is_safe,
        "is_bomb": case.is_bomb,
        "seconds": outcome.seconds,
        "peak_bytes": outcome.peak_bytes,
    }


def measure(areas: list[str]) -> list[dict[str, object]]:
    tools = programs(ROOT / "target/release")
    rows = []
    for case in cases(areas):
        outcome = attempt(case, tools)
        rows.append(row(case, outcome))
        print(f"{case.topic:>2} {case.input}\n   {outcome}", flush=True)
        if not outcome.is_safe:
            print("   " + "\n   ".join(outcome.output.splitlines()[-5:]), flush=True)
    return rows


def page(results: dict) -> str:
    rows = results["rows"]
    unsafe = [row["input"] for row in rows if not row["is_safe"]]
    lines = [
        "# Robustness",
        "",
        f"What hostile, odd and damaged input does to Tracewise. Each command has 4 GiB of address space and {SECONDS} seconds. *Result* and",
        "*error* mean that it ended by itself with status 0, or with one line that says why not; everything in bold is a failure.",
        "Cases were chosen because they might fail. [security.md](../security.md) describes the limits.",
        "",
        f"Made by `bench/run robustness` (seed {SEED}) on {machine()}.",
        "",
        f"{len(rows)} inputs, of which {len(unsafe)} fail." + ("" if not unsafe else " Not safe: " + "; ".join(unsafe) + "."),
        "",
    ]
    for topic, title in TOPICS.items():
        found = [row for row in rows if row["topic"] == topic]
        if found:
            lines += [f"## {title}", "", "| input | outcome |", "|---|---|"]
            lines += [f"| {row['input']} | {row['outcome']} |" for row in found]
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
        results = {
            "rows": rows,
            "kills": kills(programs(ROOT / "target/release"), 60),
        }
        saved.write_text(json.dumps(results))
    (ROOT / "docs/results/robustness.md").write_text(page(json.loads(saved.read_text())))


if __name__ == "__main__":
    main()
