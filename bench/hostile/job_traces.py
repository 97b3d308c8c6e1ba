"""Job traces that expand, never end, are too wide, or promise what is not there."""

from __future__ import annotations

import gzip
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

from .case import Case, Outcome, run

FINDING = 4
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


def varint(number: int) -> bytes:
    """A positive number as Thrift's compact protocol writes it."""
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def promised_rows(n_promised: int) -> Callable[[Tools, Path], Outcome]:
    """A Parquet file of a generator, whose footer says that there are more rows."""

    def attempt(tools: Tools, directory: Path) -> Outcome:
        model = FIXTURES / "artifact" / "jobs-v2"
        path = directory / "jobs.parquet"
        n_jobs = 43_210  # fewer than a row group holds
        sample = ["jobs", "sample", "--model", model, "--jobs", str(n_jobs), "--out", path]
        subprocess.run([tools["tracewise"], *map(str, sample)], check=True, capture_output=True, cwd=directory)
        content = path.read_bytes()
        (length,) = struct.unpack("<I", content[-8:-4])
        footer = content[-8 - length : -8]
        assert footer.count(varint(n_jobs)) >= 2
        footer = footer.replace(varint(n_jobs), varint(n_promised))
        path.write_bytes(content[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1")
        return inspect(tools, path, "dirlab")

    return attempt


CASES = [
    Case(FINDING, "CSV of jobs, a cell without an end, 6 GiB in 0.6 MB of zstd", endless_cell, is_bomb=True),
    Case(FINDING, "CSV of jobs, a header without an end, 6 GiB in 0.6 MB of zstd", endless_header, is_bomb=True),
    Case(FINDING, "SWF, a line without an end, 6 GiB in 6 MB of gzip", endless_line, is_bomb=True),
    Case(FINDING, "CSV of jobs, 1.6 billion rows `1,1` in 0.6 MB of zstd", many_cells, is_bomb=True),
    Case(FINDING, "CSV of jobs with 3,500 columns and 60 rows, 4 MB", wide_table, is_bomb=True),
    Case(13, "Parquet of 43,210 jobs whose footer promises a trillion", promised_rows(10**12)),
    Case(13, "Parquet of 43,210 jobs whose footer promises 60,000", promised_rows(60_000)),
]
