"""Records the campaigns that the simulator is fitted to and that detectors are evaluated on, and fits the simulator.

Writes fixtures/campaign/recorded and crates/campaign/src/simulate/recorded.json. Run with `evaluate/run recording` on a
machine with two threads on which nothing else runs; takes about 80 minutes.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACEWISE = ROOT / "target/release/tracewise"
PLAN = ROOT / "crates/campaign/plans/recording.toml"
RECORDED = ROOT / "fixtures/campaign/recorded"
MODEL = ROOT / "crates/campaign/src/simulate/recorded.json"
MPICH = ROOT / "target/components/mpich/bin"


def tracewise(*arguments):
    environment = {**os.environ, "PATH": f"{MPICH}:{os.environ['PATH']}"}
    subprocess.run([str(TRACEWISE), *map(str, arguments)], check=True, env=environment)


def main():
    subprocess.run([ROOT / "scripts/components"], check=False)
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as work:
        archive = Path(work) / "recorded"
        tracewise("campaign", "run", PLAN, "--into", archive, "--interval", "100ms", "--scratch", work)
        tracewise("campaign", "fit", "--data", archive, "--out", Path(work) / "model.json")
        shutil.rmtree(RECORDED, ignore_errors=True)
        shutil.copytree(archive, RECORDED)
        shutil.copy(Path(work) / "model.json", MODEL)


if __name__ == "__main__":
    main()
