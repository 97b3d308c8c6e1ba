"""One hostile or odd input: how to make it, the command that reads it, and how to judge what happened."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ADDRESS_SPACE = 4 << 30
SECONDS = 60


@dataclass
class Outcome:
    """What a command did with its input."""

    status: int | None  # None if it was stopped after SECONDS
    seconds: float
    peak_bytes: int
    output: str  # standard output and standard error
    harm: str | None = None  # set by a case's own check: what went wrong although the command ended
    notes: str | None = None  # what else is worth knowing

    @property
    def is_safe(self) -> bool:
        """Whether it ended in time with a result or an error of its own, and did no harm."""
        return self.harm is None and self.status in (0, 1, 2)

    def __str__(self) -> str:
        cost = f"{self.seconds:.1f} s, {self.peak_bytes / 1e6:,.0f} MB"
        if self.notes is not None and self.harm is None:
            cost = f"{self.notes}, {cost}"
        if self.harm is not None:
            return f"**{self.harm}** ({cost})"
        if self.status is None:
            return f"**stopped after {SECONDS} s** ({cost})"
        if self.status in (0, 1, 2):
            return f"{'result' if self.status == 0 else 'error'} ({cost})"
        reason = {101: "panic", -6: "abort", -9: "killed", -11: "segmentation fault"}.get(self.status)
        return f"**{reason or f'status {self.status}'}** ({cost})"


def run(argv: list[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> Outcome:
    """Runs a command with 4 GiB of address space for at most SECONDS and measures it."""
    start = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in argv],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
    )
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(SECONDS, stop)
    timer.start()
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(
        status=None if is_late.is_set() else process.returncode,
        seconds=time.monotonic() - start,
        peak_bytes=usage.ru_maxrss * 1024,
        output=output,
    )


@dataclass
class Case:
    """A row of docs/results/robustness.md."""

    topic: int  # the section of docs/results/robustness.md; `TOPICS` names them
    input: str  # one line: what is hostile about it, and its size
    # Makes the input below a new empty directory with the given programs and returns what happened.
    # `tools["tracewise"]` and `tools["tracewise-agent"]` are the programs under test.
    attempt: Callable[[dict[str, Path], Path], Outcome]
    # Whether it is about memory or time: its peak is listed among the bombs.
    is_bomb: bool = False
