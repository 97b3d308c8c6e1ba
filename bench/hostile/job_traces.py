"""Job traces that expand, never end, are too wide, or promise what is not there."""

from __future__ import annotations

import gzip
import struct
import subprocess
from pathlib import Path

from .case import Case, Outcome, run

TOPIC = 4
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PIECE = 64 << 20
EXPANDED = 6 << 30
Tools = dict[str, Path]


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-3", "-c", "-q"], input=data, capture_output=True, check=True).stdout


def expanding(path: Path, start: bytes, byte: bytes) -> Path:
    """Writes `start` and 6 GiB of one byte, as many compressed frames."""
    compress = gzip.compress if path.suffix == ".gz" else zstd
    frame = compress(byte * PIECE)
    with path.open("wb") as file:
        file.write(compress(start))
        for _ in range(EXPANDED // PIECE):
            file.write(frame)
    return path


def inspect(tools: Tools, path: Path, preset: str) -> Outcome:
    return run([tools["tracewise"], "jobs", "inspect", "--preset", preset, "--input", path], cwd=path.parent)


def endless_cell(tools: Tools, directory: Path) -> Outcome:
    path = expanding(directory / "jobs.csv.zst", b'submit,run\n"', b"x")
    return inspect(tools, path, "csv")


def endless_header(tools: Tools, directory: Path) -> Outcome:
    return inspect(tools, expanding(directory / "jobs.csv.zst", b"submit", b"x"), "csv")


def endless_line(tools: Tools, directory: Path) -> Outcome:
    return inspect(tools, expanding(directory / "log.swf.gz", b"1 2 3 ", b"1"), "swf")


def many_cells(tools: Tools, directory: Path) -> Outcome:
    row = b"1,1\n"
    frame = zstd(row * (PIECE // len(row)))
    path = directory / "jobs.csv.zst"
    path.write_bytes(zstd(b"submit,run_time\n") + frame * (EXPANDED // PIECE))
    argv = ["jobs", "inspect", "--preset", "csv", "--columns", "submit=submit", "--input", path]
    return run([tools["tracewise"], *argv], cwd=directory)


def wide_table(tools: Tools, directory: Path) -> Outcome:
    columns = 3_000
    times = [f"2026-01-01 00:{minute:02}:00" for minute in range(60)]
    rows = [",".join([times[(row * 7 + at) % 60] for at in range(columns)] + [str(row)] * 500) for row in range(60)]
    header = ",".join([f"t{at}" for at in range(columns)] + [f"n{at}" for at in range(500)])
    path = directory / "jobs.csv"
    path.write_text("\n".join([header, *rows, ""]))
    argv = ["jobs", "inspect", "--preset", "csv", "--columns", "submit=t0", "--input", path]
    return run([tools["tracewise"], *argv], cwd=directory)


def changed_footer(tools: Tools, directory: Path) -> Outcome:
    """Changes every byte of a Parquet footer in turn, and gives the worst outcome."""
    path = directory / "jobs.parquet"
    sample = ["jobs", "sample", "--model", FIXTURES / "artifact/jobs-v2", "--jobs", "60", "--out", path]
    subprocess.run([str(part) for part in [tools["tracewise"], *sample]], check=True, capture_output=True)
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[-8:-4])
    start = len(content) - 8 - length
    worst = None
    for at in range(start, len(content) - 8):
        for change in (0x01, 0xFF):
            damaged = bytearray(content)
            damaged[at] ^= change
            path.write_bytes(damaged)
            outcome = inspect(tools, path, "dirlab")
            if worst is None or (worst.is_safe and not outcome.is_safe):
                worst = outcome
    assert worst is not None
    return worst


CASES = [
    Case(TOPIC, "CSV of jobs, a cell without an end, 6 GiB in 0.6 MB of zstd", endless_cell, is_bomb=True),
    Case(TOPIC, "CSV of jobs, a header without an end, 6 GiB in 0.6 MB of zstd", endless_header, is_bomb=True),
    Case(TOPIC, "SWF, a line without an end, 6 GiB in 6 MB of gzip", endless_line, is_bomb=True),
    Case(TOPIC, "CSV of jobs, 1.6 billion rows `1,1` in 0.6 MB of zstd", many_cells, is_bomb=True),
    Case(TOPIC, "CSV of jobs with 3,500 columns and 60 rows, 4 MB", wide_table, is_bomb=True),
    Case(13, "Parquet of 60 jobs with one byte of its footer changed, 2,000 files of 3 kB", changed_footer),
]
