"""Workflow runs compared with Python: drawing Gantt charts (matplotlib), training the small CNN from CSV files (PyTorch),
classifying one run.

Writes docs/results/charts.md. Run with `bench/run workflows` or `make bench`. Needs TRACEWISE_DATA. One run, two threads each,
the programs take turns.
"""

import os

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "2"

import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas
import torch
from torch import nn
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
TRACEWISE = Path(os.environ.get("TRACEWISE", ROOT / "target/release/tracewise"))
BENCH = Path(os.environ.get("BENCH_WORKFLOWS", ROOT / "target/release/bench-workflows"))
EPOCHS, SIDE, DRAWN = 3, 128, 60
COLOURS = ["#ea4335", "#fbbc03", "#33a853", "#740264", "#000000", "#4cd195", "#4285f4", "#ea8023", "#5f6368"]
CLASSES = ["normal", "cpu", "hdd", "loss"]


def parts(table):
    """Delays of every job in seconds, in the order in which the chart stacks them."""
    number = lambda name: table[name].fillna(0).clip(lower=0).to_numpy() if name in table else np.zeros(len(table))
    staged = number("stage_in_delay"), number("stage_out_delay")
    ready = table["ready"].to_numpy() - table["ready"].min()
    columns = [ready, number("wms_delay"), number("pre_script_delay"), number("queue_delay"), staged[0],
               np.maximum(number("runtime") - staged[0] - staged[1], 0), staged[1], number("post_script_delay")]
    total = np.sum(columns, axis=0)
    return np.stack([*columns, total.max() - total])


def draw(table, side):
    """The Gantt chart of Krawczuk et al. (PEARC 2021), drawn by matplotlib, as pixels."""
    figure = plt.figure(figsize=(side / 100, side / 100), dpi=100)
    axes = figure.add_axes([0, 0, 1, 1])
    axes.axis("off")
    left, rows = np.zeros(len(table)), np.arange(len(table))
    for part, colour in zip(parts(table), COLOURS):
        axes.barh(rows, part, left=left, height=1.0, color=colour)
        left += part
    axes.set_xlim(0, left.max())
    axes.set_ylim(len(table) - 0.5, -0.5)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
    plt.close(figure)
    return pixels


def network():
    layers = []
    for inputs, outputs in [(3, 16), (16, 32), (32, 64), (64, 64)]:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * 8 * 64, 64), nn.ReLU(), nn.Linear(64, 4))


def train_theirs(files):
    """From CSV files to weights. Drawing takes minutes, so it is timed on a few runs and extrapolated to all."""
    begun = time.time()
    tables = [pandas.read_csv(io.BytesIO(content)) for _, content in files]
    reading = time.time() - begun
    begun = time.time()
    pictures = [draw(table, SIDE) for table in tables[:DRAWN]]
    drawing = (time.time() - begun) / DRAWN * len(tables)
    x = torch.from_numpy(np.stack([pictures[at % DRAWN] for at in range(len(tables))])).permute(0, 3, 1, 2).float() / 255
    x = x.to(memory_format=torch.channels_last)
    y = torch.tensor([CLASSES.index(label.split("_")[0]) for label, _ in files])
    model = network().to(memory_format=torch.channels_last)
    optimiser, loss = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss()
    begun = time.time()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(32):
            optimiser.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimiser.step()
    return reading, drawing, time.time() - begun


def main():
    data = os.environ.get("TRACEWISE_DATA")
    if not data:
        sys.exit("workflows.py: TRACEWISE_DATA is not set")
    torch.set_num_threads(2)
    archive = Path(data) / "workflows/1000genome-2020/runs.tar.zst"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run(["tar", "--zstd", "-xf", archive, "-C", folder], check=True)
        files = [(path.parent.name, path.read_bytes()) for path in sorted(folder.glob("**/*.csv"))]
        run = lambda *arguments: subprocess.run([TRACEWISE, "workflows", *map(str, arguments)], check=True,
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ours, theirs = [], []
        for _ in range(2):
            begun = time.time()
            run("train", "--classifier", "cnn", "--epochs", EPOCHS, "--runs", archive, "--out", folder / "cnn", "--seed", 1)
            ours.append(time.time() - begun)
            theirs.append(train_theirs(files))
        run("train", "--classifier", "best", "--runs", archive, "--out", folder / "best", "--seed", 1)
        found = json.loads(subprocess.run([BENCH, archive, folder / "best"], check=True, stdout=subprocess.PIPE).stdout)
        one = next(folder.glob("**/*.csv"))
        begun = time.time()
        for _ in range(5):
            run("classify", "--model", folder / "best", one)
        process = (time.time() - begun) / 5
        table = pandas.read_csv(one)
        begun = time.time()
        for _ in range(DRAWN):
            draw(table, 224)
        peer = DRAWN / (time.time() - begun)
    seconds, (reading, drawing, training) = min(ours), min(theirs, key=sum)
    total = reading + drawing + training
    lines = [
        "# Workflow charts and networks: speed compared with Python",
        "",
        "The speed of drawing Gantt charts, of training the small CNN from CSV files, and of classifying one run.",
        "",
        "- Command: `bench/run workflows` (`bench/workflows.py`), with `TRACEWISE_DATA` set.",
        f"- Data: {found['runs']:,} runs of the 1000 Genomes workflow (FlowGAD, 2020).",
        "- Seed: 1 for Tracewise; PyTorch is not seeded.",
        f"- Method: two threads each unless stated, the programs take turns; the better of two rounds. matplotlib draws {DRAWN} charts; the time is",
        "  extrapolated to all runs. Tracewise also evaluates a tenth of the runs after every epoch; PyTorch does not.",
        machine_line(),
        "",
        "| | Tracewise | peer | ratio | target |",
        "|---|---:|---:|---:|---:|",
        f"| charts of 224 × 224 pixels per second, one thread; matplotlib | {found['drawn_a_second']:,.0f} | {peer:.1f} | "
        f"{found['drawn_a_second'] / peer:,.0f} | 50 |",
        f"| the same, two threads | {found['drawn_a_second_all_threads']:,.0f} | | | |",
        f"| CNN, {EPOCHS} epochs from CSV files including drawing; matplotlib and PyTorch {torch.__version__} | "
        f"{seconds:.1f} s | {total:.1f} s | {total / seconds:.1f} | 1 |",
        f"| the same, compared with PyTorch training without drawing | {seconds:.1f} s | {training:.1f} s | {training / seconds:.2f} | |",
        f"| classifying one finished run, with reasons | {found['classify_seconds'] * 1e3:.1f} ms | | | under 50 ms |",
        f"| the same as a command, including reading the model | {process * 1e3:.0f} ms | | | |",
        "",
        f"The {total:.1f} s of the peer are {reading:.1f} s reading, {drawing:.1f} s drawing and {training:.1f} s training.",
    ]
    (ROOT / "docs/results/charts.md").write_text("\n".join(lines) + "\n")


main()
