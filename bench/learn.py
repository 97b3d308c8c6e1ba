"""Silhouette scores compared with scikit-learn and Welch spectra compared with SciPy, on the same data, in one run.

Writes docs/results/learn.md. Run with `bench/run learn` or `make bench`.
"""

import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy
from scipy.signal import welch
from sklearn.metrics import silhouette_score
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "target/release/bench-learn"
POINTS, COLUMNS, GROUPS = 10_000, 300, 6
SERIES, LENGTH, SEGMENT = 160, 86_400, 256
ROUNDS = 5


def ours(*command):
    output = subprocess.run([str(part) for part in (BENCH, *command)], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def timed(work):
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def main():
    random = numpy.random.default_rng(7)
    groups = random.integers(0, GROUPS, POINTS)
    points = (random.random((GROUPS, COLUMNS))[groups] * 0.3 + 0.2 * random.random((POINTS, COLUMNS))).astype(numpy.float32)
    series = random.random((SERIES, LENGTH), dtype=numpy.float32)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "points"
        file.write_bytes(points.tobytes() + groups.astype(numpy.uint8).tobytes())
        mine, theirs = [], []
        for _ in range(ROUNDS):
            seconds, expected = timed(lambda: silhouette_score(points, groups))
            theirs.append(seconds)
            found = ours("silhouette", file, POINTS, COLUMNS)
            mine.append(found["seconds"])
            assert abs(found["silhouette"] - expected) < 1e-5, (found, expected)
        rows.append((f"silhouette of {POINTS:,} windows with {COLUMNS} values", mine, theirs, "scikit-learn"))
        file.write_bytes(series.tobytes())
        mine, theirs = [], []
        for _ in range(ROUNDS):
            seconds, expected = timed(lambda: welch(series, nperseg=SEGMENT)[1].sum())
            theirs.append(seconds)
            found = ours("welch", file, SERIES, LENGTH, SEGMENT)
            mine.append(found["seconds"])
            assert abs(found["total"] - expected) < 1e-4 * expected, (found, expected)
        rows.append((f"Welch spectra of {SERIES} threads for one day, segments of {SEGMENT}", mine, theirs, "SciPy"))
    lines = [
        "# Silhouette scores and spectra: speed",
        "",
        "The time of two numerical methods compared with scikit-learn and SciPy. Target: at least three times as fast.",
        "",
        "- Command: `bench/run learn` (`bench/learn.py`). It also checks that the results agree to 1e-5 (silhouette, absolute)",
        "  and 1e-4 (total spectral power, relative).",
        "- Data: random numbers, seed 7.",
        f"- Method: the programs take turns; seconds, median of {ROUNDS} rounds (min–max).",
        machine_line(),
        "",
        "| task | Tracewise | peer | peer / Tracewise | |",
        "|---|---|---|---|---|",
    ]
    for name, mine, theirs, peer in rows:
        ratio = statistics.median(theirs) / statistics.median(mine)
        verdict = "met" if ratio >= 3 else "**missed**"
        lines.append(f"| {name} | {spread(mine)} | {peer} {spread(theirs)} | **{ratio:.1f}** | {verdict} |")
    path = ROOT / "docs/results/learn.md"
    path.write_text("\n".join(lines) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
