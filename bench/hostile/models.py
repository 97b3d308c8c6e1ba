"""Stored models, pre-trained weights and settings that ask for too much or contradict themselves."""

from __future__ import annotations

import atexit
import copy
import hashlib
import io
import json
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from .case import Case, Outcome, run

TOPIC = 7
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
WORKFLOW_RUNS = FIXTURES / "artifact/workflows-v1-runs"
HUGE = 10**12
LARGEST = 2**63 - 1

Tools = dict[str, Path]
Tensors = dict[str, tuple[str, list[int], bytes]]


class Model:
    """A stored model that can be changed; its hash is corrected when it is written."""

    def __init__(self, directory: Path) -> None:
        self.manifest: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
        weights = (directory / "weights.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", weights[:8])
        data = weights[8 + length :]
        self.tensors: Tensors = {}
        for name, entry in json.loads(weights[8 : 8 + length]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                self.tensors[name] = (entry["dtype"], entry["shape"], data[first:last])

    @property
    def body(self) -> dict[str, Any]:
        return self.manifest["body"]

    def write(self, directory: Path) -> None:
        directory.mkdir()
        header: dict[str, Any] = {}
        data = b""
        for name, (dtype, shape, values) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
            data += values
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        weights = struct.pack("<Q", len(text)) + text + data
        self.manifest["weights_sha256"] = hashlib.sha256(weights).hexdigest()
        (directory / "weights.safetensors").write_bytes(weights)
        (directory / "manifest.json").write_text(json.dumps(self.manifest))


@cache
def scratch() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tracewise-models-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def quietly(*argv: str | Path) -> None:
    subprocess.run([str(part) for part in argv], check=True, capture_output=True, timeout=100)


@cache
def archive(tracewise: Path) -> Path:
    """A small simulated archive."""
    path = Path(tempfile.mkdtemp(dir=scratch())) / "archive"
    campaigns = "train=1,validation=1,test=1"
    quietly(tracewise, "campaign", "simulate", "--nodes", "1", "--threads", "4", "--hours", "0.5",
            "--campaigns", campaigns, "--into", path)  # fmt: skip
    return path


@cache
def detector(tracewise: Path, kind: str) -> Model:
    directory = Path(tempfile.mkdtemp(dir=scratch()))
    (directory / "settings.toml").write_text("[detector]\nwindow = 20\n[detector.train]\nn_epochs = 1\n")
    quietly(tracewise, "detect", "train", "--config", directory / "settings.toml", "--detector", kind,
            "--data", archive(tracewise), "--out", directory / "model")  # fmt: skip
    return Model(directory / "model")


@cache
def generator(tracewise: Path, kind: str) -> Model:
    directory = Path(tempfile.mkdtemp(dir=scratch()))
    rows = [f"{1_600_000_000 + 97 * job},u{job % 7},{60 + job * 37 % 900}.5,{1 + job % 4}" for job in range(300)]
    (directory / "jobs.csv").write_text("\n".join(["submit,user,run,nodes", *rows]) + "\n")
    quietly(tracewise, "jobs", "train", "--generator", kind, "--input", directory / "jobs.csv", "--epochs", "1",
            "--columns", "submit=submit,user=user,run-time=run,nodes=nodes", "--out", directory / "model")  # fmt: skip
    return Model(directory / "model")


Change = Callable[[Model], None]


def of_detector(text: str, kind: str, change: Change, *, is_bomb: bool = False) -> Case:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        model = copy.deepcopy(detector(tools["tracewise"], kind))
        change(model)
        model.write(directory / "model")
        return run([tools["tracewise"], "detect", "score", "--model", directory / "model",
                    "--data", archive(tools["tracewise"]), "--out", directory / "scores.csv"])  # fmt: skip

    return Case(TOPIC, text, attempt, is_bomb)


def of_generator(text: str, kind: str, change: Change, extent: list[str], *, is_bomb: bool = False) -> Case:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        model = copy.deepcopy(generator(tools["tracewise"], kind))
        change(model)
        model.write(directory / "model")
        return run([tools["tracewise"], "jobs", "sample", "--model", directory / "model", *extent,
                    "--out", directory / "sampled.csv"])  # fmt: skip

    return Case(TOPIC, text, attempt, is_bomb)


def of_classifier(text: str, golden: str, change: Change, *, is_bomb: bool = False) -> Case:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        model = Model(FIXTURES / "artifact" / golden)
        change(model)
        model.write(directory / "model")
        return run([tools["tracewise"], "workflows", "classify", "--model", directory / "model",
                    WORKFLOW_RUNS / "normal.csv"])  # fmt: skip

    return Case(TOPIC, text, attempt, is_bomb)


def of_settings(text: str, settings: str, *, is_bomb: bool = False) -> Case:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        (directory / "settings.toml").write_text(settings)
        return run([tools["tracewise"], "detect", "train", "--config", directory / "settings.toml",
                    "--detector", "ae", "--data", archive(tools["tracewise"]), "--out", directory / "model"])  # fmt: skip

    return Case(TOPIC, text, attempt, is_bomb)


def of_weights(text: str, make: Callable[[Path], None], *, is_bomb: bool = True) -> Case:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        make(directory / "weights.pth")
        runs = directory / "runs"
        for label in ("normal", "cpu_3"):
            (runs / label).mkdir(parents=True)
            for number in range(3):
                shutil.copy(WORKFLOW_RUNS / f"{label}.csv", runs / label / f"w-b-run{number:04}.csv")
        return run([tools["tracewise"], "workflows", "train", "--classifier", "efficientnet-lite0", "--runs", runs,
                    "--weights", directory / "weights.pth", "--out", directory / "model"])  # fmt: skip

    return Case(TOPIC, text, attempt, is_bomb)


def setting(value: object, *path: str | int) -> Change:
    """Sets one value below the body of the manifest."""

    def change(model: Model) -> None:
        parent: Any = model.body
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = value

    return change


def one_column_less(model: Model) -> None:
    dtype, (n_rows, n_columns), values = model.tensors["pca"]
    rows = [values[4 * n_columns * row :][: 4 * (n_columns - 1)] for row in range(n_rows)]
    model.tensors["pca"] = (dtype, [n_rows, n_columns - 1], b"".join(rows))


def network_of_classes(n_classes: int) -> Change:
    """A network that is not stored at all."""

    def change(model: Model) -> None:
        model.manifest["kind"] = "workflows/cnn"
        model.body["settings"] = {"network": "small", "n_classes": n_classes}
        model.body["early"] = []
        model.tensors = {}

    return change


def early_classifiers(count: int) -> Change:
    def change(model: Model) -> None:
        model.body["early"] = [[0.5, None]] * count

    return change


def no_quantiles(model: Model) -> None:
    for transform in model.body["settings"]["transforms"]:
        if isinstance(transform, dict) and "NormalScores" in transform:
            transform["NormalScores"]["quantiles"] = []


def codes_without_names(model: Model) -> None:
    for spec in model.body["specs"]:
        if "category" in spec["kind"]:
            spec["kind"]["category"]["names"] = ["only"]


def many_decimals(model: Model) -> None:
    for part in (*model.body["specs"], *model.body["schema"]["columns"]):
        for kind in (part.get("kind"), part):
            if isinstance(kind, dict) and isinstance(kind.get("number", kind).get("format"), dict):
                kind.get("number", kind)["format"] = {"plain": {"decimals": 200}}
    model.body["ranges"] = [[0.0, 1e-190] for _ in model.body["ranges"]]


def short_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def storage(key: str) -> bytes:
    return (b"(" + short_text("storage") + b"ctorch\nFloatStorage\n" + short_text(key) + short_text("cpu")
            + b"K\x01tQ")  # fmt: skip


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def integer(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def tensor(key: str, size: int, stride: int) -> bytes:
    sizes = integer(size) + b"\x85" + integer(stride) + b"\x85"
    return REBUILD + b"(" + storage(key) + b"K\x00" + sizes + b"\x89)tR"


def zipped(pickle: bytes, storages: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a/data.pkl", pickle)
        for key, content in storages.items():
            file.writestr(f"a/data/{key}", content)
    return buffer.getvalue()


def stride_zero(path: Path) -> None:
    pickle = b"\x80\x02}" + short_text("a") + tensor("0", 2**31 - 1, 0) + b"s."
    path.write_bytes(zipped(pickle, {"0": bytes(4)}))


def nested(path: Path) -> None:
    path.write_bytes(zipped(b"\x80\x02N" + b"\x85" * 200_000 + b".", {}))


def repeated_shape(path: Path) -> None:
    """One shape of 50,000 dimensions, memoised, and 50,000 tensors with it."""
    shape = b"(" + b"K\x01" * 50_000 + b"tq\x000"
    arguments = b"(" + storage("0") + b"K\x00h\x00h\x00\x89)tq\x010"
    calls = REBUILD + b"q\x020" + b"h\x02h\x01R" * 50_000
    path.write_bytes(zipped(b"\x80\x02" + shape + arguments + calls + b"}.", {"0": bytes(4)}))


def long_program(path: Path) -> None:
    path.write_bytes(zipped(b"\x80\x02N" + b"\x85" * 60_000_000 + b".", {}))


def overlapping(path: Path) -> None:
    """A zip of 40 MB whose 200 files share their bytes."""
    n_files, size = 200, 40_000_000
    keys = [str(number) for number in range(n_files)]
    pickle = b"\x80\x02}" + b"".join(short_text(key) + tensor(key, 1, 1) + b"s" for key in keys) + b"."
    whole = zipped(pickle, {"0": bytes(size)})
    directory = whole.rindex(b"PK\x01\x02")
    entry, end = whole[directory : whole.rindex(b"PK\x05\x06")], whole[whole.rindex(b"PK\x05\x06") :]
    # The local header is not compared with the central directory, which alone names the files.
    entries = []
    for key in keys[1:]:
        name = f"a/data/{key}".encode()
        entries.append(entry[:28] + struct.pack("<H", len(name)) + entry[30:46] + name)
    body, extra = whole[: whole.rindex(b"PK\x05\x06")], b"".join(entries)
    n_entries = n_files + 1
    start = struct.unpack("<I", end[16:20])[0]
    length = len(body) - start + len(extra)
    path.write_bytes(body + extra + end[:8] + struct.pack("<HHII", n_entries, n_entries, length, start) + end[20:])


JOBS = ["--jobs", "50"]
DAY = ["--from", "2026-01-05", "--to", "2026-01-06"]
WIDTHS = ", ".join(["8"] * 64)

CASES = [
    of_detector("detector, net.n_hidden = 10^12", "ae", setting(HUGE, "config", "net", "n_hidden"), is_bomb=True),
    of_detector("detector, net.n_latent = 2^63-1", "ae", setting(LARGEST, "config", "net", "n_latent"), is_bomb=True),
    of_detector("detector, 64 net.widths", "ae", setting([8] * 64, "config", "net", "widths")),
    of_detector("detector, window = 2^63-1", "pca", setting(LARGEST, "config", "window"), is_bomb=True),
    of_detector("detector, principal components with one column less", "pca", one_column_less),
    of_generator("generator of rows (ctgan), codes of categories without names", "ctgan", codes_without_names, JOBS),
    of_generator("generator, quantiles missing", "gaussian-copula", no_quantiles, JOBS),
    of_generator("generator (copula), codes of categories without names", "gaussian-copula", codes_without_names, JOBS),
    of_generator("generator, 200 decimals", "sessions", many_decimals, JOBS),
    of_generator("generator, trained on 2^63-1 jobs", "gaussian-copula", setting(LARGEST, "origin", "n_jobs"), [],
                 is_bomb=True),  # fmt: skip
    of_generator("generator, trained on 10^12 jobs", "sessions", setting(HUGE, "origin", "n_jobs"), [], is_bomb=True),
    of_generator("generator, trace of no length, sampled for a day", "gaussian-copula",
                 setting(0.0, "origin", "span_seconds"), DAY, is_bomb=True),  # fmt: skip
    of_classifier("classifier, network of 10^12 classes that is not stored", "workflows-v1",
                  network_of_classes(HUGE), is_bomb=True),  # fmt: skip
    of_classifier("classifier, network of 2^63 classes that is not stored", "workflows-v1",
                  network_of_classes(2**63), is_bomb=True),  # fmt: skip
    of_classifier("classifier, 3,000,000 parts for unfinished runs (36 MB)", "workflows-usual-v1",
                  early_classifiers(3_000_000), is_bomb=True),  # fmt: skip
    of_weights("weights, tensor of 2^31-1 values with stride 0 (1 kB)", stride_zero),
    of_weights("weights, 200,000 nested tuples (200 kB)", nested),
    of_weights("weights, 50,000 tensors that share a shape of 50,000 dimensions (350 kB)", repeated_shape),
    of_weights("weights, pickle of 60,000,000 operations (60 MB)", long_program),
    of_weights("weights, zip whose 200 files share 40 MB", overlapping),
    of_settings("settings, 64 detector.net.widths", f"[detector.net]\nwidths = [{WIDTHS}]\n"),
    of_settings("settings, detector.net.n_hidden = 10^12", f"[detector.net]\nn_hidden = {HUGE}\n", is_bomb=True),
    of_settings("settings, detector.stride = 2^63-1", f"[detector]\nstride = {LARGEST}\n", is_bomb=True),
]
