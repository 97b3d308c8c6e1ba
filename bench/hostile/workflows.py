"""Workflow logs, databases, tables and archives of runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .case import Case, Outcome, run

TABLES, LINKS, QUADRATIC, LOGS, NAMES = 4, 5, 11, 12, 14
HEADER = ",type,ready,submit,execute_start,runtime\n"
EPOCH = 1_700_000_000
# Reading and drawing a hundred thousand tasks takes a few seconds if it is not quadratic.
LONG_SECONDS = 20
MEGABYTE = b"x" * 1_000_000

Tools = dict[str, Path]


def workflows(tools: Tools, *arguments: str | Path) -> Outcome:
    return run([tools["tracewise"], "workflows", *arguments])


def judged_by_time(outcome: Outcome) -> Outcome:
    if outcome.status == 0 and outcome.seconds > LONG_SECONDS:
        outcome.harm = "takes long"
    return outcome


def jobstate(tasks: Iterable[tuple[str, int]]) -> str:
    """The log of tasks with the times of their submission."""
    events = [("SUBMIT", 0), ("EXECUTE", 1), ("JOB_TERMINATED", 9)]
    return "".join(
        f"{time + later} {task} {event} {at}.0 local - {at}\n"
        for at, (task, time) in enumerate(tasks)
        for event, later in events
    )


def letters(number: int) -> str:
    """A name without digits, so that it is a kind of its own."""
    word = "t"
    for _ in range(5):
        number, rest = divmod(number, 26)
        word += chr(97 + rest)
    return word


# Tables and archives that expand.


def pack(path: Path, pieces: Iterable[bytes]) -> Path:
    """Compresses bytes that are too many for memory."""
    with path.open("wb") as file:
        with subprocess.Popen(["zstd", "-q", "-3"], stdin=subprocess.PIPE, stdout=file) as zstd:
            assert zstd.stdin is not None
            for piece in pieces:
                zstd.stdin.write(piece)
            zstd.stdin.close()
    return path


def tar_header(name: str, size: int, kind: bytes) -> bytes:
    # Sizes beyond eleven octal digits are written in base 256.
    digits = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    fields = name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + digits + b"%011o\0" % 0
    rest = kind + b"\0" * 100 + b"ustar  \0" + b"\0" * 247
    header = fields + b" " * 8 + rest
    header = fields + b"%06o\0 " % sum(header) + rest
    assert len(header) == 512
    return header


def archive(name: str, size: int, kind: bytes, start: bytes, repeated: bytes) -> Callable[[Tools, Path], Outcome]:
    """An archive with one member: `start`, and then `repeated` over and over."""

    def pieces() -> Iterator[bytes]:
        yield tar_header(name, size, kind)
        yield start
        left = size - len(start)
        while left > 0:
            yield repeated[:left]
            left -= len(repeated)
        yield b"\0" * (-size % 512 + 1024)

    def attempt(tools: Tools, directory: Path) -> Outcome:
        runs = pack(directory / "runs.tar.zst", pieces())
        return workflows(tools, "train", "--runs", runs, "--out", directory / "model")

    return attempt


def huge_cell_in_a_table(tools: Tools, directory: Path) -> Outcome:
    table = directory / "run.csv"
    with table.open("wb") as file:
        file.write((HEADER + '"').encode())
        # A hole reads as zeros and costs no disk space.
        file.truncate(6 << 30)
    return workflows(tools, "read", table)


# Names as paths.


def injected_outside(name: Callable[[Path], str]) -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        victim = directory / "victim"
        victim.mkdir()
        (victim / "by_name.csv").write_text("precious")
        task = {"name": "a_1", "runtime": 5, "executedAt": EPOCH}
        instance = {"name": name(victim), "workflow": {"tasks": [task]}}
        (directory / "run.json").write_text(json.dumps(instance))
        outcome = workflows(
            tools, "inject", directory / "run.json", "--fault", "loss_1", "--out", directory / "out"
        )
        if (victim / "by_name.csv").read_text() != "precious":
            outcome.harm = "overwrites a file outside of --out"
        return outcome

    return attempt


# Quadratic time.


def submit_directory(directory: Path, log: str, graph: str) -> Path:
    run_directory = directory / "run"
    run_directory.mkdir()
    (run_directory / "jobstate.log").write_text(log)
    (run_directory / "run.dag").write_text(graph)
    return run_directory


def chain(tools: Tools, directory: Path) -> Outcome:
    n_tasks = 100_000
    log = jobstate((f"t_{at}", EPOCH + 10 * at) for at in range(n_tasks))
    graph = "".join(f"PARENT t_{at} CHILD t_{at + 1}\n" for at in range(n_tasks))
    submitted = submit_directory(directory, log, graph)
    return judged_by_time(workflows(tools, "draw", submitted, "--out", directory / "run.svg"))


def kinds(tools: Tools, directory: Path) -> Outcome:
    log = directory / "jobstate.log"
    log.write_text(jobstate((letters(at), EPOCH + at) for at in range(100_000)))
    return judged_by_time(workflows(tools, "read", log))


def attempts(tools: Tools, directory: Path) -> Outcome:
    table = directory / "run.csv"
    table.write_text(HEADER + "".join(f"same,compute,{at},{at},{at},5\n" for at in range(120_000)))
    return judged_by_time(workflows(tools, "read", table))


def renamed(tools: Tools, directory: Path) -> Outcome:
    log = directory / "events.log"
    with log.open("w") as file:
        for at in range(150_000):
            file.write(f"001 ({at}.000.000) 2024-05-01 10:00:41 Job executing on host: <10.0.0.8:9618>\n...\n")
            file.write(f"000 ({at}.000.000) 2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618>\n")
            file.write(f"    DAG Node: node_{at}\n...\n")
    return judged_by_time(workflows(tools, "read", log))


def sub_workflows(tools: Tools, directory: Path) -> Outcome:
    n_tasks = 60_000
    log = jobstate((f"t_{at}", EPOCH + at) for at in range(n_tasks))
    graph = "".join(f"SUBDAG EXTERNAL t_{at} sub_{at}/x.dag\n" for at in range(n_tasks))
    return judged_by_time(workflows(tools, "read", submit_directory(directory, log, graph)))


def one_machine(tools: Tools, directory: Path) -> Outcome:
    table = directory / "run.csv"
    table.write_text(HEADER + "".join(f"t_{at},compute,{at},{at},{at},500\n" for at in range(100_000)))
    return judged_by_time(
        workflows(tools, "inject", table, "--fault", "cpu_2", "--out", directory / "out")
    )


def transfers(tools: Tools, directory: Path) -> Outcome:
    log = directory / "jobstate.log"
    log.write_text(jobstate((f"stage_in_{at}", EPOCH + at) for at in range(100_000)))
    return judged_by_time(workflows(tools, "compare", log, log))


# Hostile logs.


def cross_product(tools: Tools, directory: Path) -> Outcome:
    parents, children = (" ".join(f"{side}{at}" for at in range(9_000)) for side in "ab")
    log = jobstate([("a1", EPOCH)])
    return workflows(tools, "read", submit_directory(directory, log, f"PARENT {parents} CHILD {children}\n"))


SCHEMA = """
    CREATE TABLE workflowstate (wf_id, state, timestamp); CREATE TABLE job (job_id, wf_id, exec_job_id);
    CREATE TABLE job_edge (wf_id, parent_exec_job_id, child_exec_job_id); CREATE TABLE host (host_id, hostname);
    CREATE TABLE job_instance (job_instance_id, job_id, host_id, job_submit_seq, exitcode);
    CREATE TABLE jobstate (job_instance_id, state, timestamp, jobstate_submit_seq);
    CREATE TABLE invocation (job_instance_id, task_submit_seq, remote_cpu_time);
"""


def database(sql: str) -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        path = directory / "x.stampede.db"
        connection = sqlite3.connect(path)
        connection.executescript(SCHEMA + sql)
        connection.close()
        return workflows(tools, "read", path)

    return attempt


ENDLESS_VIEW = """
    CREATE VIEW workflow AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)
    SELECT n AS wf_id, 'x' AS dax_label, 'x' AS wf_uuid FROM r;
"""
MULTIPLYING_TABLES = """
    CREATE TABLE workflow (wf_id, dax_label, wf_uuid); INSERT INTO workflow VALUES (1, 'x', 'x');
    WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3000) INSERT INTO job SELECT 1, 1, 'a' FROM r;
    INSERT INTO job_instance SELECT 1, 1, 1, 1, 0 FROM job; INSERT INTO jobstate SELECT 1, 'SUBMIT', 5, 1 FROM job;
"""
INFINITE_JOBSTATE = f"{EPOCH} a SUBMIT 1.0 local - 1\ninf b SUBMIT 2.0 local - 2\n"
INFINITE_NEXTFLOW = f"name\tsubmit\tcomplete\nA\t{EPOCH}000\tinf\nB\tinf\tinf\n"


def drawn(log: str) -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, directory: Path) -> Outcome:
        path = directory / "log.txt"
        path.write_text(log)
        outcome = workflows(tools, "draw", path, "--out", directory / "run.svg")
        shown = workflows(tools, "read", path)
        if outcome.is_safe and any(word in shown.output for word in ("NaN s", "inf s", " NaN ", " inf ")):
            outcome.harm = "prints NaN or inf as a duration"
        return outcome

    return attempt


def control_character(tools: Tools, directory: Path) -> Outcome:
    instance = {"name": "x", "workflow": {"tasks": [{"name": "a\x01b", "runtime": 5}]}}
    (directory / "run.json").write_text(json.dumps(instance))
    outcome = workflows(tools, "draw", directory / "run.json", "--out", directory / "run.png")
    if outcome.status != 0:
        outcome.harm = "cannot be drawn"
    return outcome


def large_output(tools: Tools, directory: Path) -> Outcome:
    submitted = submit_directory(directory, jobstate([("a", EPOCH)]), "")
    with (submitted / "a.out.000").open("wb") as file:
        file.write(b"- invocation: True\n  hostname: node7\n")
        file.truncate(3 << 30)
    return workflows(tools, "read", submitted)


def record_elsewhere(tools: Tools, directory: Path) -> Outcome:
    secret = directory / "secret.out.000"
    secret.write_text("- invocation: True\n  hostname: secret-host\n")
    submitted = submit_directory(directory, jobstate([(str(directory / "secret"), EPOCH)]), "")
    outcome = workflows(tools, "read", submitted, "--json")
    if "secret-host" in outcome.output:
        outcome.harm = "reads a file outside of the directory"
    return outcome


# Names on terminals and in pages.


def escape_codes(tools: Tools, directory: Path) -> Outcome:
    instance = {"name": "x\x1b]0;owned\x07", "workflow": {"tasks": [{"name": "a\x1b[2Jb\x9b31m", "runtime": 5}]}}
    (directory / "run.json").write_text(json.dumps(instance))
    outcome = workflows(tools, "read", directory / "run.json")
    if any(code in outcome.output for code in "\x1b\x9b\x07"):
        outcome.harm = "prints escape codes"
    return outcome


def script_in_a_page(tools: Tools, directory: Path) -> Outcome:
    instance = {"name": "x", "workflow": {"tasks": [{"name": "<!--<script>", "runtime": 5}]}}
    (directory / "run.json").write_text(json.dumps(instance))
    outcome = workflows(tools, "draw", directory / "run.json", "--out", directory / "run.html")
    page = directory / "run.html"
    if page.exists() and "<!--<script>" in page.read_text():
        outcome.harm = "the page's own script is swallowed"
    return outcome


CASES = [
    Case(
        TABLES,
        "archive of runs (`.tar.zst`, 0.6 MB): a table whose second line is one cell of 6 GB",
        archive("normal/w-run0001.csv", 6 * 10**9, b"0", (HEADER + '"').encode(), MEGABYTE),
        is_bomb=True,
    ),
    Case(
        TABLES,
        "archive of runs (`.tar.zst`, 0.3 MB): a table of 3 GB with rows that are all the same",
        archive("normal/w-run0001.csv", 3 * 10**9, b"0", HEADER.encode(), b"a,compute,0,1,2,3\n" * 50_000),
        is_bomb=True,
    ),
    Case(
        TABLES,
        "archive of runs (`.tar.zst`, 0.6 MB): a GNU long name of 6 GB",
        archive("././@LongLink", 6 * 10**9, b"L", b"", MEGABYTE),
        is_bomb=True,
    ),
    Case(
        TABLES,
        "archive of runs (`.tar.zst`, 0.6 MB): a PAX header of 6 GB",
        archive("pax", 6 * 10**9, b"x", b"6000000000 path=", MEGABYTE),
        is_bomb=True,
    ),
    Case(TABLES, "table of tasks with an unterminated quote and 6 GB after it", huge_cell_in_a_table, is_bomb=True),
    Case(
        LINKS,
        "WfFormat whose `name` is the absolute path of another file, given to `inject`",
        injected_outside(lambda victim: str(victim / "by_name")),
    ),
    Case(
        LINKS,
        "WfFormat whose `name` is a relative path out of the output directory, given to `inject`",
        injected_outside(lambda victim: f"../../{victim.name}/by_name"),
    ),
    Case(LINKS, "`jobstate.log` with a task whose name is the path of a file elsewhere", record_elsewhere),
    Case(QUADRATIC, "submit directory of a chain of 100,000 tasks, drawn", chain, is_bomb=True),
    Case(QUADRATIC, "`jobstate.log` of 100,000 tasks of 100,000 kinds", kinds, is_bomb=True),
    Case(QUADRATIC, "table with 120,000 attempts at one task", attempts, is_bomb=True),
    Case(QUADRATIC, "HTCondor log of 150,000 jobs whose names come after their first event", renamed, is_bomb=True),
    Case(QUADRATIC, "submit directory with 60,000 sub-workflows that were never planned", sub_workflows, is_bomb=True),
    Case(QUADRATIC, "table of 100,000 tasks on one machine, given to `inject --fault cpu_2`", one_machine, is_bomb=True),
    Case(QUADRATIC, "`jobstate.log` of 100,000 transfers, compared with itself", transfers, is_bomb=True),
    Case(LOGS, "`.dag` of 106 kB: `PARENT` with 9,000 tasks `CHILD` with 9,000 tasks", cross_product, is_bomb=True),
    Case(LOGS, "stampede database whose table of workflows is an endless view", database(ENDLESS_VIEW), is_bomb=True),
    Case(
        LOGS,
        "stampede database (0.2 MB) whose tables of 3,000 rows join to 27 billion",
        database(MULTIPLYING_TABLES),
        is_bomb=True,
    ),
    Case(LOGS, "`jobstate.log` with an event at the time `inf`, drawn and read", drawn(INFINITE_JOBSTATE), is_bomb=True),
    Case(LOGS, "Nextflow's `trace.txt` with the time `inf`, drawn and read", drawn(INFINITE_NEXTFLOW), is_bomb=True),
    Case(LOGS, "task with a control character in its name, drawn as PNG", control_character),
    Case(LOGS, "submit directory in which a task has printed 3 GB", large_output, is_bomb=True),
    Case(NAMES, "workflow and task with terminal escape codes in their names", escape_codes),
    Case(NAMES, "task named `<!--<script>`, drawn as HTML", script_in_a_page),
]
