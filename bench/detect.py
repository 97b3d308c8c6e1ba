"""Training and scoring of the autoencoder compared with the same network in PyTorch, and UMAP compared with umap-learn. One run,
two threads, the programs take turns.

Writes docs/results/detect.md. Run with `bench/run detect` or `make bench`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Idle PyTorch threads must not occupy a core while Tracewise runs.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "2"

import numpy
import torch
from torch.nn import functional as F
from machine import machine_line

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "target/release/bench-detect"
SECONDS, ROUNDS = 3.0, 3
STEPS, CHANNELS, WIDTHS, KERNEL, HIDDEN, LATENT, GRAPH_HIDDEN = 100, 4, [32, 64, 64], 5, 128, 16, 32
BATCH, GRAPHS, THREADS = 256, 64, 32


class Block(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv = torch.nn.Conv1d(n_in, n_out, KERNEL, padding=KERNEL // 2)
        self.past = torch.nn.Conv1d(n_in, n_out, 1)

    def forward(self, x):
        return torch.relu(self.conv(x)) + self.past(x)


class Net(torch.nn.Module):
    """The network of crates/detect/src/autoencoder, written in PyTorch."""

    def __init__(self, has_graph):
        super().__init__()
        channels = [CHANNELS - 1, *WIDTHS]
        self.lengths = [STEPS]
        for _ in WIDTHS:
            self.lengths.append(self.lengths[-1] // 2)
        size = self.lengths[-1] * WIDTHS[-1]
        self.down = torch.nn.ModuleList(Block(channels[i], channels[i + 1]) for i in range(len(WIDTHS)))
        self.hidden, self.latent = torch.nn.Linear(size, HIDDEN), torch.nn.Linear(HIDDEN, LATENT)
        self.graph = has_graph
        if has_graph:
            self.ends, self.starts = torch.nn.Linear(LATENT, GRAPH_HIDDEN), torch.nn.Linear(LATENT, GRAPH_HIDDEN)
            self.strength = torch.nn.Linear(GRAPH_HIDDEN, 1)
            self.first, self.second = torch.nn.Linear(LATENT, GRAPH_HIDDEN), torch.nn.Linear(GRAPH_HIDDEN, LATENT)
        self.from_latent, self.from_hidden = torch.nn.Linear(LATENT, HIDDEN), torch.nn.Linear(HIDDEN, size)
        self.up = torch.nn.ModuleList(Block(channels[i + 1], channels[i]) for i in reversed(range(1, len(WIDTHS))))
        self.rates = torch.nn.Conv1d(channels[1], CHANNELS, KERNEL, padding=KERNEL // 2)

    def forward(self, windows):
        x = windows[:, : CHANNELS - 1]
        for block in self.down:
            x = F.max_pool1d(block(x), 2)
        z = self.latent(torch.relu(self.hidden(x.flatten(1))))
        if self.graph:
            g = z.view(-1, THREADS, LATENT)
            pairs = torch.relu(self.ends(g)[:, :, None] + self.starts(g)[:, None])
            strength = self.strength(pairs).squeeze(-1) * (1 - torch.eye(THREADS))
            g = g + self.second(torch.relu(self.first(g + strength @ g)))
            z = g.reshape(-1, LATENT)
        x = torch.relu(self.from_hidden(torch.relu(self.from_latent(z)))).view(-1, WIDTHS[-1], self.lengths[-1])
        x = F.interpolate(x, self.lengths[-2])
        for index, block in zip(reversed(range(1, len(WIDTHS))), self.up):
            x = F.interpolate(block(x), self.lengths[index - 1])
        return torch.softmax(self.rates(x), dim=1)


def flops():
    """Floating-point operations of the matrix products in the forward pass of one window."""
    channels, length, total = [CHANNELS - 1, *WIDTHS], STEPS, 0
    for index, width in enumerate(WIDTHS):
        total += 2 * length * channels[index] * width * (KERNEL + 1)
        length //= 2
    size = length * WIDTHS[-1]
    total += 2 * 2 * (size * HIDDEN + HIDDEN * LATENT)
    lengths = [STEPS // 2**index for index in range(len(WIDTHS) + 1)]
    for index in reversed(range(1, len(WIDTHS))):
        total += 2 * lengths[index] * channels[index + 1] * channels[index] * (KERNEL + 1)
    return total + 2 * STEPS * channels[1] * CHANNELS * KERNEL


def rate(work):
    warm = time.perf_counter()
    while time.perf_counter() - warm < 0.5:
        work()
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        done += work()
    return done / (time.perf_counter() - begun)


def training(has_graph):
    n_windows = GRAPHS * THREADS if has_graph else BATCH
    net, windows = Net(has_graph), torch.softmax(torch.randn(n_windows, CHANNELS, STEPS), dim=1)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step():
        adam.zero_grad()
        rates = net(windows)
        loss = F.mse_loss(rates, windows) - 0.1 * (windows * rates.clamp_min(1e-7).log()).mean()
        loss.backward()
        adam.step()
        return n_windows

    return step


def scoring(batch):
    net, windows = Net(False).eval(), torch.softmax(torch.randn(batch, CHANNELS, STEPS), dim=1)

    def score():
        with torch.inference_mode():
            ((net(windows) - windows) ** 2).mean(dim=2)
        return batch

    return score


def products():
    one = torch.full((1024, 1024), 0.5)

    def multiply():
        torch.mm(one, one)
        return 2 * 1024**3

    return multiply


def ours(what):
    output = subprocess.run([str(BENCH), what, str(SECONDS)], check=True, capture_output=True, text=True).stdout
    return json.loads(output)["rate"]


def shown(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def umap_section():
    import umap
    from sklearn.manifold import trustworthiness

    random = numpy.random.default_rng(3)
    centres = random.normal(size=(6, 16)) * 4
    groups = random.integers(0, 6, 1_500)
    points = (centres[groups] + random.normal(size=(1_500, 16))).astype(numpy.float32)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "points"
        file.write_bytes(points.tobytes())
        begun = time.perf_counter()
        output = subprocess.run([str(BENCH), "umap", str(file), "16"], check=True, capture_output=True, text=True).stdout
        our_seconds = time.perf_counter() - begun
        mine = numpy.array(json.loads(output)["layout"]).reshape(-1, 2)
    umap.UMAP(random_state=0, n_epochs=10).fit(points[:200])  # triggers just-in-time compilation
    begun = time.perf_counter()
    theirs = umap.UMAP(random_state=0).fit_transform(points)
    their_seconds = time.perf_counter() - begun
    rows = [
        ["Tracewise", f"{trustworthiness(points, mine, n_neighbors=15):.4f}", f"{our_seconds:.1f} s"],
        [f"umap-learn {umap.__version__}", f"{trustworthiness(points, theirs, n_neighbors=15):.4f}", f"{their_seconds:.1f} s"],
    ]
    return ["## UMAP", "", "1,500 points in six groups and 16 dimensions, 15 neighbours, seed 3; trustworthiness computed by scikit-learn.",
            "", "| | trustworthiness | time |", "| --- | ---: | ---: |", *("| " + " | ".join(row) + " |" for row in rows), ""]


def main():
    torch.set_num_threads(2)
    torch.manual_seed(0)
    works = {"sgemm": products(), "train-ae": training(False), "train-gnn": training(True)}
    works |= {f"score-{batch}": scoring(batch) for batch in (1, 32, 1024)}
    targets = {"train-ae": 1.3, "train-gnn": 1.3, "score-1": 4.0, "score-32": 2.5, "score-1024": 2.5}
    mine, theirs = {what: [] for what in works}, {what: [] for what in works}
    for turn in range(ROUNDS):
        for what, work in works.items():
            print(f"round {turn + 1}: {what}", file=sys.stderr, flush=True)
            mine[what].append(ours(what))
            theirs[what].append(rate(work))
    peak = statistics.median(mine["sgemm"])
    peer_peak = statistics.median(theirs["sgemm"])
    rows = []
    for what, target in targets.items():
        ratios = [a / b for a, b in zip(mine[what], theirs[what])]
        work = flops() * (3 if what.startswith("train") else 1)
        share = statistics.median(mine[what]) * work / max(peak, peer_peak)
        ratio = statistics.median(ratios)
        rows.append([what, shown(mine[what]), shown(theirs[what]), f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
                     f"{target}", "met" if ratio >= target else "**missed**", f"{share * 100:.0f} %"])
    lines = [
        "# Autoencoder: speed compared with PyTorch",
        "",
        "Windows per second in training and scoring, for the same network and batch size.",
        "",
        "- Command: `bench/run detect` (`bench/detect.py`).",
        "- Data: random windows, seed 0.",
        "- Network: 3 → 32 → 64 → 64 channels, kernel 5, 100 steps, embedding of 16. Batches of 256 windows in `train-ae` and of 64",
        "  graphs with 32 threads in `train-gnn`; `score-N` computes the errors per channel of batches of N windows.",
        f"- Method: PyTorch {torch.__version__} (OMP_WAIT_POLICY=PASSIVE) and Tracewise on two threads each; they take turns, {ROUNDS} rounds of",
        f"  {SECONDS:.0f} s; median (min–max). The ratio is computed per round.",
        machine_line(),
        "",
        "The last column is the rate of Tracewise's matrix products, as a percentage of the higher of the two measured sgemm rates",
        f"({peak / 1e9:.0f} GFLOP/s for Tracewise, {peer_peak / 1e9:.0f} GFLOP/s for PyTorch).",
        "",
        "| | Tracewise | PyTorch | ratio | target | | of peak |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: |",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *umap_section(),
    ]
    (ROOT / "docs/results/detect.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
