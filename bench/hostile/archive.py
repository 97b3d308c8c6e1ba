"""Archives that somebody else prepared, agents and servers that answer wrongly, clocks, files that expand."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import struct
import subprocess
import threading
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import thrift
from .case import Case, Outcome, run
from .thrift import write_varint as varint

Tools = dict[str, Path]
COMMIT, BOUNDARY, CLOCKS, SIZES, LINKS, JOURNAL, LABELS, PARQUET = 1, 2, 3, 4, 5, 9, 10, 13
START = 1_767_326_370
COLUMNS = "layout = 'long'\ntime = 't'\nnode = 'n'\ncpu = 'c'\nunit = 'ticks'\n[modes]\nuser = 'user'\nidle = 'idle'\n"
GIGABYTES = 6


def tracewise(tools: Tools, *arguments: str | Path, **options: object) -> Outcome:
    return run([tools["tracewise"], *arguments], **options)


def sound(tools: Tools, *arguments: str | Path) -> str:
    """The output of a command that has to succeed."""
    outcome = tracewise(tools, *arguments)
    assert outcome.status == 0, outcome.output
    return outcome.output


def import_rows(tools: Tools, folder: Path, archive: Path, rows: list[tuple[int, str, int]]) -> Outcome:
    """Imports readings: seconds, node and ticks in user mode."""
    columns, table = folder / "columns.toml", folder / "rows.csv"
    columns.write_text(COLUMNS)
    table.write_text("t,n,c,user,idle\n" + "".join(f"{t},{node},0,{ticks},0\n" for t, node, ticks in rows))
    return tracewise(tools, "archive", "import", "--columns", columns, table, "--into", archive)


def small_archive(tools: Tools, folder: Path) -> Path:
    archive = folder / "archive"
    outcome = import_rows(tools, folder, archive, [(START + second, "n1", second) for second in range(200)])
    assert outcome.status == 0, outcome.output
    return archive


def n_readings(tools: Tools, archive: Path) -> int | None:
    """How many readings can still be read, or none if the archive cannot be read."""
    outcome = tracewise(tools, "archive", "list", "--json", "--data", archive)
    if outcome.status != 0:
        return None
    # Warnings come first.
    found, _ = json.JSONDecoder().raw_decode(outcome.output[outcome.output.index("{") :])
    return found["readings"]


def read_everything(tools: Tools, archive: Path, folder: Path) -> Outcome:
    """Lists, shows and exports an archive; the worst outcome."""
    outcomes = [
        tracewise(tools, "archive", "list", "--data", archive),
        tracewise(tools, "archive", "show", "--data", archive),
        tracewise(tools, "archive", "export", "--data", archive, "--format", "csv", "--out", folder / "all.csv"),
    ]
    return max(outcomes, key=lambda outcome: (not outcome.is_safe, outcome.status or 0, outcome.seconds))


# 1 and 5: what a directory makes its reader do.


def commit(files: Callable[[Path, Path], list[dict[str, str]]]) -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, folder: Path) -> Outcome:
        archive, home = small_archive(tools, folder), folder / "home"
        home.mkdir()
        (home / ".bashrc").write_text("mine")
        (home / "id_rsa").write_text("secret")
        staged = archive / ".spool/staged/01ARZ3NDEKTSV4RRFFQ69G5FAV"
        staged.mkdir(parents=True)
        (staged / "01ARZ3NDEKTSV4RRFFQ69G5FAW.parquet").write_text("attacker")
        (staged / "commit.json").write_text(json.dumps({"version": 1, "files": files(archive, home)}))
        outcome = tracewise(tools, "archive", "list", "--data", archive)
        if (home / ".bashrc").read_text() != "mine":
            outcome.harm = "a file of the caller was overwritten"
        elif not (home / "id_rsa").exists():
            outcome.harm = "a file of the caller was moved away"
        return outcome

    return attempt


def lock_link(tools: Tools, folder: Path) -> Outcome:
    archive, victim = small_archive(tools, folder), folder / "passwd"
    victim.write_text("root:x:0:0")
    (archive / ".spool/journal").mkdir(parents=True, exist_ok=True)
    lock = archive / ".spool/journal/lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim)
    outcome = tracewise(tools, "record", "--interval", "10ms", "--duration", "50ms", "--into", archive)
    if victim.read_text() != "root:x:0:0":
        outcome.harm = "a file of the caller was emptied"
    return outcome


# 2: what agents and Prometheus answer.


def zigzag(value: int) -> bytes:
    return varint(thrift.zigzag(value))


def text(value: str) -> bytes:
    return varint(len(value.encode())) + value.encode()


def samples(times: list[int], node: str = "n2", **source: object) -> bytes:
    """Readings as an agent sends them, with a source of which parts are replaced."""
    modes = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
    source = {"origin": "x", "measure": "counter", "ticks_per_second": 100, "modes": modes, "period": 1000, **source}
    records = b""
    for number, time in enumerate(times):
        names = (varint(0) + text(node) + varint(0) + text(json.dumps(source))) if number == 0 else varint(0) + varint(0)
        threads = bytes([2]) + varint(1) + varint(0) + bytes([0]) if number == 0 else bytes([3])
        record = names + zigzag(time) + threads + bytes([1]) + zigzag(7) + varint(0)
        records += varint(len(record)) + record
    return b"TWSMPL\0\x01" + varint(len(records)) + records


def zeros(n_gigabytes: int) -> Path:
    """A file of compressed zeros."""
    path = Path("zeros.gz").absolute()
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    with path.open("wb") as file:
        for _ in range(n_gigabytes * 1000):
            file.write(compressor.compress(bytes(1_000_000)))
        file.write(compressor.flush())
    return path


@contextmanager
def server(answer: Callable[[str], tuple[bytes, bool]]) -> Iterator[str]:
    """Serves what `answer` gives for a path: a body and whether it is compressed."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, is_compressed = answer(self.path)
            self.send_response(200)
            if is_compressed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def agent(body: bytes) -> Callable[[Tools, Path], Outcome]:
    """Imports from an agent into an archive that others rely on, then reads that archive."""

    def attempt(tools: Tools, folder: Path) -> Outcome:
        archive = small_archive(tools, folder)
        with server(lambda _: (body, False)) as url:
            imported = tracewise(tools, "archive", "import", "--agent", url, "--into", archive)
        outcome = read_everything(tools, archive, folder)
        if outcome.is_safe and outcome.status != 0:
            outcome.harm = "the archive cannot be read any more"
        return outcome if imported.is_safe else imported

    return attempt


def two_names(tools: Tools, folder: Path) -> Outcome:
    archive = small_archive(tools, folder)
    times = [START * 1000 + step * 1000 for step in range(50)]
    both = samples(times, node="n2")[8:] + samples(times, node="victim")[8:]
    with server(lambda _: (b"TWSMPL\0\x01" + both, False)) as url:
        outcome = tracewise(tools, "archive", "import", "--agent", url, "--into", archive)
    if "victim" in sound(tools, "archive", "list", "--data", archive):
        outcome.harm = "one agent wrote readings of two nodes"
    return outcome


def bomb_of(option: str) -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, folder: Path) -> Outcome:
        os.chdir(folder)
        body = zeros(GIGABYTES).read_bytes()
        times = [] if option == "--agent" else ["--from", str(START), "--to", str(START + 60)]
        with server(lambda _: (body, True)) as url:
            return tracewise(tools, "archive", "import", option, url, *times, "--into", folder / "archive")

    return attempt


def prometheus_gap(tools: Tools, folder: Path) -> Outcome:
    """A server whose two samples are 300,000 years apart: the interval between readings overflows."""

    def answer(path: str) -> tuple[bytes, bool]:
        if "/label/" in path:
            data: object = ["user", "idle"] if "mode" in path.split("?")[0] else ["n1:9100"]
            return json.dumps({"status": "success", "data": data}).encode(), False
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)["query"][0]
        at = [[START + step, str(step)] for step in range(50)]
        values = [[0, "1"], [9.3e15, "2"]] if 'mode="user"' in query else at
        series = [{"metric": {"cpu": "0", "mode": mode}, "values": values} for mode in ("user", "idle")]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode(), False

    with server(answer) as url:
        times = ["--from", str(START), "--to", str(START + 60), "--metric", "node_cpu_seconds_total"]
        outcome = tracewise(tools, "archive", "import", "--prometheus", url, *times, "--into", folder / "archive")
    if outcome.status == 0:
        exported = tracewise(tools, "archive", "export", "--data", folder / "archive", "--format", "csv", "--out", folder / "a.csv")
        if not exported.is_safe:
            return exported
        if (folder / "a.csv").read_text().count("\n") < 10:
            outcome.harm = "what was imported cannot be exported"
    return outcome


# 3: clocks.


def cluster(tools: Tools, folder: Path) -> tuple[Path, Path]:
    """A simulated cluster and a model of it."""
    archive, model = folder / "cluster", folder / "model"
    sound(tools, "campaign", "simulate", "--nodes", "2", "--threads", "8", "--hours", "1", "--seed", "1", "--into", archive)
    sound(tools, "detect", "train", "--detector", "pca", "--data", archive, "--out", model)
    return archive, model


def far_clock(tools: Tools, folder: Path) -> Outcome:
    archive, model = cluster(tools, folder)
    import_rows(tools, folder, archive, [(second, "n9", second) for second in range(3)])
    return tracewise(tools, "detect", "score", "--model", model, "--data", archive, "--out", folder / "scores.csv")


def slow_node(tools: Tools, folder: Path) -> Outcome:
    archive, model = cluster(tools, folder)
    import_rows(tools, folder, archive, [(START + 15 * step, "n9", step) for step in range(50)])
    outcome = tracewise(tools, "detect", "score", "--model", model, "--data", archive, "--out", folder / "scores.csv")
    if outcome.status != 0:
        outcome.harm = "no node is scored"
    return outcome


def future(tools: Tools, folder: Path) -> Outcome:
    archive = small_archive(tools, folder)
    outcome = import_rows(tools, folder, archive, [(4_102_444_800 + second, "n1", second) for second in range(3)])
    if outcome.status == 0:
        outcome.harm = "readings of the year 2100 were accepted"
    return outcome


# 4: files that expand.


def expanded(head: bytes, tail: bytes = b"x") -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, folder: Path) -> Outcome:
        path = folder / "bomb.csv.zst"
        with path.open("wb") as file, subprocess.Popen(["zstd", "-q", "-3"], stdin=subprocess.PIPE, stdout=file) as zstd:
            assert zstd.stdin is not None
            zstd.stdin.write(head)
            for _ in range(GIGABYTES * 1000):
                zstd.stdin.write(tail * (1_000_000 // len(tail)))
            zstd.stdin.close()
        return tracewise(tools, "archive", "import", "--preset", "exathlon", path, "--into", folder / "archive")

    return attempt


def many_jobs(tools: Tools, folder: Path) -> Outcome:
    columns, table = folder / "columns.toml", folder / "rows.csv"
    columns.write_text(COLUMNS.replace("unit =", "job = 'j'\nunit ="))
    rows = (f"{START + row},n,0,{row},0,job{row}\n" for row in range(200_000))
    table.write_text("t,n,c,user,idle,j\n" + "".join(rows))
    return tracewise(tools, "archive", "import", "--columns", columns, table, "--into", folder / "archive")


# 9: the journal.


def journal(tools: Tools, folder: Path) -> tuple[Path, Path, int]:
    """An archive whose readings are in the journal, its segment, and how many readings there are."""
    archive = folder / "archive"
    recorder = subprocess.Popen(
        [tools["tracewise"], "record", "--interval", "500ms", "--node", "n1", "--json", "--into", archive],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert recorder.stdout is not None
    for _ in range(145):
        recorder.stdout.readline()
    recorder.kill()
    recorder.wait()
    (segment,) = (archive / ".spool/journal").glob("*.log")
    return archive, segment, n_readings(tools, archive) or 0


def flipped_bit(tools: Tools, folder: Path) -> Outcome:
    archive, segment, before = journal(tools, folder)
    content = bytearray(segment.read_bytes())
    content[500] ^= 1
    segment.write_bytes(content)
    outcome = tracewise(tools, "archive", "list", "--data", archive)
    after = n_readings(tools, archive) or 0
    outcome.notes = f"{after} of {before} readings are left"
    # A minute is 120 of 145 readings; the rest has to be there.
    if after < before * 0.15:
        outcome.harm = outcome.notes
    return outcome


def flipped_last_bit(tools: Tools, folder: Path) -> Outcome:
    archive, segment, _ = journal(tools, folder)
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    sound(tools, "record", "--interval", "1h", "--duration", "10ms", "--into", archive)
    outcome = tracewise(tools, "archive", "verify", "--data", archive)
    if outcome.status == 0:
        outcome.harm = "an acknowledged reading is gone, and verify finds nothing"
    return outcome


def garbage_tail(tools: Tools, folder: Path) -> Outcome:
    archive, segment, _ = journal(tools, folder)
    with segment.open("ab") as file:
        file.write(os.urandom(64 << 20))
    return tracewise(tools, "archive", "list", "--data", archive)


def stray_file(tools: Tools, folder: Path) -> Outcome:
    archive = small_archive(tools, folder)
    (archive / ".spool/journal").mkdir(parents=True, exist_ok=True)
    (archive / ".spool/journal/notes.log").write_text("hi")
    outcome = tracewise(tools, "archive", "list", "--data", archive)
    if outcome.status != 0:
        outcome.harm = "the archive cannot be read"
    return outcome


# 10: labels.


def contradictory_labels(tools: Tools, folder: Path) -> Outcome:
    archives = [folder / "one", folder / "two"]
    for archive, campaigns, seed in zip(archives, ["train=1", "test=1"], "12", strict=True):
        sound(tools, "campaign", "simulate", "--nodes", "1", "--threads", "2", "--hours", "1", "--campaigns", campaigns, "--seed", seed, "--into", archive)
    for labels in (archives[1] / "labels").iterdir():
        shutil.copy(labels, archives[0] / "labels")
    outcome = tracewise(tools, "archive", "verify", "--data", archives[0])
    if outcome.status == 0:
        outcome.harm = "jobs are in two sets, and verify finds nothing"
    return outcome


# 13: Parquet files with a right checksum and a wrong footer.


def footer(change: Callable[[thrift.Struct], None]) -> Callable[[Tools, Path], Outcome]:
    def attempt(tools: Tools, folder: Path) -> Outcome:
        archive = small_archive(tools, folder)
        import_rows(tools, folder, archive, [(START + second, "n2", second) for second in range(200)])
        (path,) = archive.glob("cpu/*/node=n1/*.parquet")
        content = path.read_bytes()
        (length,) = struct.unpack("<I", content[-8:-4])
        metadata, _ = thrift.read_struct(content[-8 - length : -8], 0)
        change(metadata)
        encoded = thrift.write_struct(metadata)
        new = encoded + struct.pack("<I", len(encoded)) + b"PAR1"
        stem = path.name.rsplit("-", 1)[0]
        path.with_name(f"{stem}-{zlib.crc32(new):08x}.parquet").write_bytes(content[: -8 - length] + new)
        path.unlink()
        outcomes = [read_everything(tools, archive, folder), tracewise(tools, "archive", "verify", "--data", archive)]
        if outcomes[0].status != 0 and outcomes[0].is_safe:
            outcomes[0].harm = "one file makes the archive unreadable"
        return max(outcomes, key=lambda outcome: (not outcome.is_safe, outcome.seconds))

    return attempt


def set_rows(n_rows: int) -> Callable[[thrift.Struct], None]:
    def change(metadata: thrift.Struct) -> None:
        metadata.set(3, n_rows)
        group = metadata.get(4)[0]
        group.set(3, n_rows)
        edit_json(metadata, lambda info: info["row_groups"][0].update(rows=n_rows, moments=n_rows))

    return change


def edit_json(metadata: thrift.Struct, edit: Callable[[dict], object]) -> None:
    """Changes what Tracewise keeps in the footer."""
    for pair in metadata.get(5):
        if pair.get(1) == b"tracewise":
            info = json.loads(pair.get(2))
            edit(info)
            pair.set(2, json.dumps(info).encode())


def set_source(**source: object) -> Callable[[thrift.Struct], None]:
    return lambda metadata: edit_json(metadata, lambda info: info["source"].update(source))


def set_times(first: int, last: int) -> Callable[[thrift.Struct], None]:
    return lambda metadata: edit_json(metadata, lambda info: info["row_groups"][0].update(first=first, last=last))


def negative_offset(metadata: thrift.Struct) -> None:
    metadata.get(4)[0].get(1)[0].get(3).set(9, -5)


PREPARED = "01ARZ3NDEKTSV4RRFFQ69G5FAW.parquet"
LABELS_PLACE = "labels/01ARZ3NDEKTSV4RRFFQ69G5FAV-00000000.json"
NOW = [START * 1000 + step * 1000 for step in range(50)]
CASES = [
    Case(COMMIT, "`commit.json` names `../home/.bashrc` as a place in the archive; `archive list`", commit(lambda _, home: [{"prepared": PREPARED, "path": "../home/.bashrc"}])),
    Case(COMMIT, "`commit.json` names the caller's private key as a prepared file; `archive list`", commit(lambda _, home: [{"prepared": str(home / "id_rsa"), "path": "stolen"}])),
    Case(LINKS, "the journal's lock is a link to a file of the caller; `record`", lock_link),
    Case(BOUNDARY, "an agent answers with a sampling interval of 0", agent(samples(NOW, period=0))),
    Case(BOUNDARY, "an agent answers with a sampling interval of -1 s", agent(samples(NOW, period=-1000))),
    Case(BOUNDARY, "an agent answers with 0 ticks per second", agent(samples(NOW, ticks_per_second=0))),
    Case(BOUNDARY, "an agent answers with readings at the smallest 64-bit time", agent(samples([-(2**63)]))),
    Case(BOUNDARY, "an agent answers with readings of the year 100,000", agent(samples([3_093_527_980_800_000]))),
    Case(BOUNDARY, "an agent answers with readings of two nodes", two_names),
    Case(BOUNDARY, "a Prometheus answers with samples 300,000 years apart", prometheus_gap),
    Case(SIZES, f"an agent answers with 6 MB of gzip, {GIGABYTES} GB of zeros", bomb_of("--agent"), is_bomb=True),
    Case(SIZES, f"a Prometheus answers with 6 MB of gzip, {GIGABYTES} GB of zeros", bomb_of("--prometheus"), is_bomb=True),
    Case(SIZES, f"CSV with a quote that does not end, zstd, {GIGABYTES} GB", expanded(b't,node1_CPU001_User%\n1,"'), is_bomb=True),
    Case(SIZES, f"CSV with a header that does not end, zstd, {GIGABYTES} GB", expanded(b"t,"), is_bomb=True),
    Case(SIZES, "CSV with 200,000 distinct jobs", many_jobs, is_bomb=True),
    Case(CLOCKS, "three readings of 1970 in an archive of 2026; `detect score`", far_clock),
    Case(CLOCKS, "one node that is read every 15 s among nodes of 1 s; `detect score`", slow_node),
    Case(CLOCKS, "CSV with readings of the year 2100", future),
    Case(JOURNAL, "one flipped bit in a journal of 145 readings, two a second", flipped_bit),
    Case(JOURNAL, "one flipped bit in the last record of a journal", flipped_last_bit),
    Case(JOURNAL, "64 MB of garbage after a journal", garbage_tail, is_bomb=True),
    Case(JOURNAL, "a text file `notes.log` among the journal's segments", stray_file),
    Case(LABELS, "labels of two sets that overlap in time; `archive verify`", contradictory_labels),
    Case(PARQUET, "a Parquet file that claims 10^9 rows", footer(set_rows(10**9)), is_bomb=True),
    Case(PARQUET, "a Parquet file that claims 10^12 rows", footer(set_rows(10**12)), is_bomb=True),
    Case(PARQUET, "a Parquet file that claims 2^62 rows", footer(set_rows(2**62)), is_bomb=True),
    Case(PARQUET, "a Parquet file with a sampling interval of 0", footer(set_source(period=0))),
    Case(PARQUET, "a Parquet file with a sampling interval of -1 ms", footer(set_source(period=-1))),
    Case(PARQUET, "a Parquet file of one day that claims readings from 1970 to 2286", footer(set_times(0, 9_999_999_999_999)), is_bomb=True),
    Case(PARQUET, "a Parquet file with a negative column offset", footer(negative_offset)),
]
