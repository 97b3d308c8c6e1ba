"""Clients, servers and users that want more from the node agent than their share."""

from __future__ import annotations

import base64
import http.server
import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .case import ADDRESS_SPACE, Case, Outcome, run

HOLDER, SCRAPER = "127.0.0.2", "127.0.0.3"
# The password "secret", at the usual cost and at a higher one.
HASH_10 = "$2b$10$Ro0CUfOqk6cXEKf3dyaM7OhNG8pOYIsoLJ0VnwYXSY8G3O1daKXgy"
HASH_12 = "$2b$12$Ro0CUfOqk6cXEKf3dyaM7O9VjxGWVlqBwXAxBKiUpZ3l2m1ODMGUm"


class Agent:
    """A running agent, and what it cost once it has ended."""

    def __init__(self, program: Path, folder: Path, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = folder / "agent.log"
        self.started = time.monotonic()
        self.peak_bytes = 0
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [program, f"--web.listen-address=127.0.0.1:{self.port}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
            )
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self, source: str, timeout: float = 5) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout, source_address=(source, 0))

    def get(self, path: str, source: str = SCRAPER, headers: str = "", timeout: float = 5) -> tuple[int, bytes]:
        """Status and body; status 0 if there is no answer in time."""
        try:
            with self.connect(source, timeout) as stream:
                stream.sendall(f"GET {path} HTTP/1.0\r\n{headers}\r\n".encode())
                answer = b"".join(iter(lambda: stream.recv(65536), b""))
        except OSError:
            return 0, b""
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body

    def has_ended(self, within: float) -> bool:
        """Whether it ends by itself in this time."""
        until = time.monotonic() + within
        while self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.peak_bytes = usage.ru_maxrss * 1024
            elif time.monotonic() > until:
                return False
            else:
                time.sleep(0.05)
        return True

    def stop(self, harm: str | None) -> Outcome:
        """Ends it and returns what happened."""
        if not self.has_ended(0):
            self.process.send_signal(signal.SIGTERM)
            if not self.has_ended(10):
                self.process.kill()
                self.has_ended(10)
        seconds = time.monotonic() - self.started
        output = self.log.read_text(errors="replace")
        return Outcome(self.process.returncode, seconds, self.peak_bytes, output, harm)


def idle_connections(tools: dict[str, Path], folder: Path) -> Outcome:
    agent = Agent(tools["tracewise-agent"], folder)
    held: list[socket.socket] = []
    n_failed = 0
    try:
        for _ in range(100):
            held.append(agent.connect(HOLDER))
        for _ in range(6):
            for stream in held:
                try:
                    stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
                except OSError:
                    pass
            time.sleep(1)
            n_failed += agent.get("/metrics", timeout=3)[0] != 200
    finally:
        for stream in held:
            stream.close()
    return agent.stop(f"{n_failed} of 6 scrapes failed" if n_failed else None)


def web_config(folder: Path, hashed: str) -> str:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users:\n  prometheus: {hashed}\n")
    return f"--web.config.file={file}"


def login(user: str, password: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}\r\n"


def wrong_passwords(tools: dict[str, Path], folder: Path) -> Outcome:
    agent = Agent(tools["tracewise-agent"], folder, web_config(folder, HASH_10))
    is_over = threading.Event()

    def guess() -> None:
        while not is_over.is_set():
            agent.get("/metrics", HOLDER, login("prometheus", "wrong"), timeout=10)
            is_over.wait(0.2)

    guessers = [threading.Thread(target=guess) for _ in range(60)]
    before, begun = agent.cpu_seconds(), time.monotonic()
    for guesser in guessers:
        guesser.start()
    time.sleep(2)
    status, _ = agent.get("/metrics", headers=login("prometheus", "secret"), timeout=10)
    time.sleep(max(0.0, 10 - (time.monotonic() - begun)))
    seconds = time.monotonic() - begun
    cpu = agent.cpu_seconds() - before
    is_over.set()
    for guesser in guessers:
        guesser.join()
    # Ten guesses at once and one more in five seconds take about a second in all.
    harm = [f"{cpu:.1f} CPU seconds in {seconds:.0f} s"] if cpu > 3 else []
    harm += [] if status == 200 else [f"the right password gets {status or 'no answer'}"]
    return agent.stop(", ".join(harm) or None)


def users_by_time(tools: dict[str, Path], folder: Path) -> Outcome:
    agent = Agent(tools["tracewise-agent"], folder, web_config(folder, HASH_12))

    def seconds(user: str) -> float:
        taken = []
        for _ in range(3):
            begun = time.monotonic()
            agent.get("/metrics", headers=login(user, "wrong"), timeout=10)
            taken.append(time.monotonic() - begun)
        return min(taken)

    known, unknown = seconds("prometheus"), seconds("nobody")
    differs = max(known, unknown) > 1.5 * min(known, unknown)
    told = f"a known user is refused in {known * 1e3:.0f} ms, an unknown one in {unknown * 1e3:.0f} ms"
    return agent.stop(told if differs else None)


@contextmanager
def receiver(headers: dict[str, str], body: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """A server of remote write that answers 500 with this body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in body():
                    self.wfile.write(part)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/write"
    finally:
        server.shutdown()
        server.server_close()


def pushed_to(tools: dict[str, Path], folder: Path, headers: dict[str, str], body: Callable[[], Iterator[bytes]]) -> Outcome:
    with receiver(headers, body) as url:
        agent = Agent(
            tools["tracewise-agent"], folder, f"--remote-write.url={url}", "--remote-write.interval=1s"
        )
        agent.has_ended(20)
        return agent.stop(None)


def inflating_answer(tools: dict[str, Path], folder: Path) -> Outcome:
    # Each part begins anew after a full flush, so that the same bytes can follow each other.
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    part = deflate.compress(bytes(64 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    header = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return pushed_to(tools, folder, {"Content-Encoding": "gzip"}, lambda: iter([header, *[part] * 64]))


def endless_answer(tools: dict[str, Path], folder: Path) -> Outcome:
    part = b"no " * (1 << 18)
    return pushed_to(tools, folder, {"Content-Type": "text/plain"}, lambda: (part for _ in range(8_000)))


def node(folder: Path) -> list[str]:
    """A node without jobs, as files; returns the arguments for it."""
    (folder / "proc").mkdir()
    (folder / "cgroup").mkdir()
    (folder / "proc/stat").write_text("cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\n")
    (folder / "cgroup/cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (folder / "cgroup/cpuset.cpus.effective").write_text("0-1\n")
    return [f"--path.procfs={folder / 'proc'}", f"--path.cgroupfs={folder / 'cgroup'}"]


def forge(folder: Path, n_jobs: int, service: str) -> None:
    """Groups below a service that a user may write to, with the names of root's jobs."""
    for job in range(4711, 4711 + n_jobs):
        group = folder / "cgroup" / service / f"slurm/uid_0/job_{job}"
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text("1\n")
        (group / "memory.current").write_text(f"{1 << 40}\n")


def doctor(tools: dict[str, Path], arguments: list[str]) -> Outcome:
    outcome = run([tools["tracewise-agent"], "doctor", "--json", *arguments])
    report = json.loads(outcome.output)
    harm = [f"job {job['job']} of uid {job['uid']} is believed" for job in report["jobs"]]
    n_unknown = sum(thread["owner"] == "unknown" for thread in report["threads"])
    harm += [f"{n_unknown} threads are unknown"] if n_unknown else []
    outcome.harm = ", ".join(harm) or None
    return outcome


USER_SERVICE = "user.slice/user-1000.slice/user@1000.service"


def forged_by_user(tools: dict[str, Path], folder: Path) -> Outcome:
    arguments = node(folder)
    forge(folder, 1, USER_SERVICE)
    return doctor(tools, arguments)


def forged_in_service(tools: dict[str, Path], folder: Path) -> Outcome:
    arguments = node(folder)
    forge(folder, 1, "system.slice/delegated.service")
    for path in [folder / "cgroup/system.slice/delegated.service", *(folder / "cgroup").rglob("slurm*")]:
        os.chown(path, 1000, 1000)
    return doctor(tools, arguments)


def many_forged(tools: dict[str, Path], folder: Path) -> Outcome:
    arguments = node(folder)
    forge(folder, 20_000, USER_SERVICE)
    agent = Agent(tools["tracewise-agent"], folder, *arguments)
    time.sleep(10)
    _, page = agent.get("/metrics", timeout=20)
    return agent.stop(f"a page of {len(page) / 1e6:.1f} MB" if len(page) > 1e6 else None)


CASES = [
    Case(6, "100 connections of one client that ask for /healthz and stay open, then a scrape", idle_connections),
    Case(6, "60 clients with wrong passwords for 10 s, and one with the right password", wrong_passwords),
    Case(6, "wrong passwords of a user with a hash of cost 12 and of nobody", users_by_time),
    Case(4, "a remote-write server answers 500 with 4 MB of gzip that inflate to 4 GB", inflating_answer, is_bomb=True),
    Case(4, "a remote-write server answers 500 with 6 GB of text", endless_answer, is_bomb=True),
    Case(8, "a user's control group below user.slice is called job 4711 of root, with 1 TB of memory", forged_by_user),
    Case(8, "20,000 such groups, as a page of metrics", many_forged),
]
# Only root can give a directory to another user.
if os.geteuid() == 0:
    CASES.append(Case(8, "the same in a service that root has delegated to a user", forged_in_service))
