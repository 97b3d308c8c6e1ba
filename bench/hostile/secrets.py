"""Secrets, files of others in shared directories, signals, modes of files, formulas."""

from __future__ import annotations

import http.server
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from .case import Case, Outcome, run

TOPIC = 14
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# How long a command may take to end after SIGTERM.
PATIENCE = 8
Tools = dict[str, Path]


@contextmanager
def listener():
    """A server on this machine that remembers the headers of requests and refuses all of them."""
    requests: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(403)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()


def endpoint_of_the_directory(tools: Tools, directory: Path) -> Outcome:
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "tok123"}
    with listener() as (url, requests):
        (directory / "tracewise.toml").write_text(f'[archive.s3]\nendpoint = "{url}"\n')
        outcome = run([tools["tracewise"], "archive", "list", "--data", "s3://bucket/x"], cwd=directory, env=keys)
    if any("x-amz-security-token" in request for request in requests):
        outcome.harm = "the session token was sent in clear text"
    return outcome


def password(tools: Tools, directory: Path) -> Outcome:
    secret = directory / "password"
    secret.write_text("open-sesame\n")
    secret.chmod(0o600)
    with listener() as (url, requests):
        argv = [tools["tracewise"], "archive", "import", "--agent", url, "--into", directory / "a"]
        outcome = run([*argv, "--user", "me", "--password-file", secret], cwd=directory)
    if not any("authorization" in request for request in requests):
        outcome.harm = "a password can be given only where `ps` shows it"
    return outcome


def until_terminated(argv: list[str | Path], directory: Path) -> Outcome:
    """Starts a command, ends it with SIGTERM, and measures whether it ends."""
    process = subprocess.Popen(
        [str(part) for part in argv], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(3)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    harm = None
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        harm = f"SIGTERM did not end it within {PATIENCE} s"
        process.kill()
        process.wait()
    return Outcome(status=0, seconds=time.monotonic() - start, peak_bytes=0, output="", harm=harm)


def pipe_in_scratch(tools: Tools, directory: Path) -> Outcome:
    left = directory / "scratch" / "tracewise-campaign-1"
    left.mkdir(parents=True)
    os.mkfifo(left / "lock")
    plan = directory / "plan.toml"
    plan.write_text(
        '[[normal]]\nkind = "idle"\nlength = ["60s", "60s"]\n[[campaign]]\nname = "a"\nset = "train"\n'
    )
    argv: list[str | Path] = [tools["tracewise"], "campaign", "run", plan, "--even-if-busy", "--scratch", left.parent]
    return until_terminated([*argv, "--into", directory / "a"], directory)


def pipe_as_input(tools: Tools, directory: Path) -> Outcome:
    os.mkfifo(directory / "log.swf")
    argv: list[str | Path] = [tools["tracewise"], "jobs", "train", "--preset", "swf", "--input", "log.swf"]
    return until_terminated([*argv, "--out", directory / "model"], directory)


def imported(tools: Tools, directory: Path, job: str) -> Path:
    """An archive with readings of one job."""
    rows = [f"{1_700_000_000 + second},n1,0,{second * 50},{second * 50},{job}" for second in range(20)]
    (directory / "rows.csv").write_text("\n".join(["t,node,cpu,user,idle,job", *rows, ""]))
    (directory / "map.toml").write_text(
        'layout = "long"\ntime = "t"\nnode = "node"\ncpu = "cpu"\njob = "job"\nunit = "ticks"\n'
        '[modes]\nuser = "user"\nidle = "idle"\n'
    )
    argv = ["archive", "import", "--columns", "map.toml", "rows.csv", "--into", "a"]
    subprocess.run([str(tools["tracewise"]), *argv], cwd=directory, check=True, capture_output=True)
    return directory / "a"


def export(tools: Tools, directory: Path, job: str) -> tuple[Outcome, Path]:
    out = directory / "rates.csv"
    archive = imported(tools, directory, job)
    return run([tools["tracewise"], "archive", "export", "--data", archive, "--out", out], cwd=directory), out


def readable_by_everyone(tools: Tools, directory: Path) -> Outcome:
    outcome, out = export(tools, directory, "4711")
    readable = [path for path in [out, *(directory / "a").rglob("*")] if path.stat().st_mode & stat.S_IROTH]
    if readable:
        outcome.harm = f"everyone can read {len(readable)} files and directories that name jobs"
    return outcome


def formula(tools: Tools, directory: Path) -> Outcome:
    outcome, out = export(tools, directory, "=HYPERLINK(A1)")
    if ",=HYPERLINK" in out.read_text():
        outcome.harm = "a cell of the export is a formula"
    return outcome


def case(text: str, attempt: Callable[[Tools, Path], Outcome]) -> Case:
    return Case(TOPIC, text, attempt)


CASES = [
    case("`tracewise.toml` in the current directory with an S3 endpoint, and a session token", endpoint_of_the_directory),
    case("a password for an agent that must not appear in the process list", password),
    case("a pipe as the lock of a left-over scratch directory, then SIGTERM", pipe_in_scratch),
    case("a pipe as a job trace, to which nobody writes, then SIGTERM", pipe_as_input),
    case("an archive and an export, with a umask of 022", readable_by_everyone),
    case("a job named `=HYPERLINK(A1)`, exported as CSV", formula),
]
