"""Runs named parts within a time limit and packs their results into an archive, which is valid at any time: a job that
is killed loses only the part that was running. tests/gpu defines the parts."""

import contextlib
import fnmatch
import gzip
import io
import json
import os
import pathlib
import signal
import subprocess
import tarfile
import textwrap
import time
from typing import Callable, NamedTuple

# The files of a folder that are packed. No others are unpacked from an archive.
PACKED = ("results.json", "logs/*.log", "cache/**/*", "bench/*.json", "runs/*/metrics.jsonl", "runs/*/summary.json")
TOPS = {pattern.split("/")[0] for pattern in PACKED}
MAX_LOG_BYTES = 1 << 20  # per log in the archive, which has the first and the last half of it
MAX_UNPACKED_BYTES = 256 << 20
REPACK_SECONDS = 10  # interval of packing while a part runs, if it has written files
TABLE_LINES = 60
COLUMNS = 120


# The fields of a slice and of its parts that are read from results.json.
SLICE_FIELDS = {
    "slice": int,
    "rehearsal": bool,
    **dict.fromkeys(("device", "commit", "date", "build"), str),
    "seconds": (int, float),
    "parts": list,
}
PART_FIELDS = {"name": str, "result": str, "seconds": (int, float), "detail": str}


class BadArchive(Exception):
    """The archive is invalid."""


class Failed(Exception):
    """A part failed. The message is the reason."""


class TookTooLong(Failed):
    """A command exceeded its time limit."""


class Skipped(Exception):
    """A part cannot run here. The message is the reason."""


class OutOfTime(Exception):
    """The slice's time ended before the part did."""


class Stopped(Exception):
    """A signal ended the slice."""


class Part(NamedTuple):
    """`action` is called with the slice. It returns a detail for the table or raises Failed, Skipped or OutOfTime."""

    name: str
    action: Callable
    seconds: float = 120  # time limit
    needs: float = 15  # is not started if less time is left


def packed_files(folder):
    files = {file for pattern in PACKED for file in folder.glob(pattern) if file.is_file()}
    return sorted(file for file in files if file.suffix != ".part")


def changed_since(folder, moment):
    for file in packed_files(folder):
        with contextlib.suppress(FileNotFoundError):  # a temporary file of the program
            if file.stat().st_mtime > moment:
                return True
    return False


def shortened(data):
    half = MAX_LOG_BYTES // 2
    if len(data) <= MAX_LOG_BYTES:
        return data
    return data[:half] + b"\n... %d bytes ...\n" % (len(data) - MAX_LOG_BYTES) + data[-half:]


def pack(folder, archive):
    """Replaces the archive atomically."""
    part = archive.with_name(archive.name + ".part")
    with open(part, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
            for path in packed_files(folder):
                member = tarfile.TarInfo(str(path.relative_to(folder)))
                try:
                    data, member.mtime = path.read_bytes(), int(path.stat().st_mtime)
                except FileNotFoundError:  # a temporary file of the program
                    continue
                data = shortened(data) if path.suffix == ".log" else data
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, archive)


def write_json(file, value):
    """Replaces the file atomically, so that no reader sees a part of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(file)


def is_packed_name(name):
    """Returns whether pack() uses this name for a member."""
    words = name.split("/")
    return not {"", ".", ".."} & set(words) and any(
        fnmatch.fnmatchcase(name, pattern.replace("**/*", "*"))
        and ("**" in pattern or len(words) == pattern.count("/") + 1)
        for pattern in PACKED
    )


def unpack(archive, folder):
    """Raises BadArchive if pack() did not write the archive. Some of its files may have been unpacked then."""
    name = None
    try:
        with gzip.open(archive) as file:
            data = file.read(MAX_UNPACKED_BYTES + 1)
        if len(data) > MAX_UNPACKED_BYTES:
            raise BadArchive(f"{archive}: more than {MAX_UNPACKED_BYTES >> 20} MiB unpacked")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = member.name
                if not member.isreg() or member.issparse() or member.size < 0 or not is_packed_name(name):
                    raise BadArchive(f"{archive}: {name!r} is not part of an archive of tests/gpu")
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
        name = "results.json"
        read_records(folder)
    except BadArchive:
        raise
    except Exception as error:  # including those of zlib and tarfile for a damaged archive
        where = f"{archive}: {name!r}" if name else archive
        what = str(error) or repr(error)
        raise BadArchive(f"{where}: {what}; not an archive that tests/gpu wrote") from None


def checked(value, fields, where):
    """Returns `value` if it is an object with these fields of these types. Otherwise raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    for name, kind in fields.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"{where}: {name!r} is {'of another type' if name in value else 'missing'}")
    return value


def read_json(file):
    """Raises ValueError if the file is not JSON."""
    try:
        return json.loads(file.read_text())
    except RecursionError:
        raise ValueError("too deeply nested") from None


def read_records(folder):
    """Returns the slices in results.json, oldest first. A part that was running when its slice was killed is KILLED.
    Raises ValueError if the file has other contents."""
    file = folder / "results.json"
    if not file.exists():
        return []
    records = checked(read_json(file), {"slices": list}, "top level")["slices"]
    for number, record in enumerate(records, 1):
        for part in checked(record, SLICE_FIELDS, f"slice {number}")["parts"]:
            checked(part, PART_FIELDS, f"a part of slice {number}")
            if part["result"] == "RUNNING":
                part.update(result="KILLED", detail="the slice was killed while this part ran")
    return records


class Slice:
    """Runs parts one after another. `facts` identifies the program under test. Parts that passed with the same
    facts["build"], according to the results in the folder, are not run again. `began` is the start time on the
    monotonic clock."""

    def __init__(self, folder, archive, seconds, facts, began=None):
        self.folder, self.archive = folder, archive
        self.began = began or time.monotonic()
        self.deadline = self.began + seconds
        self.part_deadline = self.deadline
        self.log = None
        self.earlier = read_records(folder)
        self.record = {**facts, "seconds": 0, "parts": []}
        self.packed = 0  # time of the last save(), by the clock of the files
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        self.save()

    def run(self, parts):
        """Runs the parts that fit into the time and then prints the table. Parts that ran before without passing come
        last, so that parts that hang do not block a repeated slice. Returns 0 if all parts passed or were skipped, 1 if
        a part failed, 75 if none failed but some did not run to completion, and 128 + n if signal n ended the slice."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        passed = self.passed_earlier()
        self.record["parts"] = [
            {"name": part.name, **passed.get(part.name, {"result": "NOT RUN", "seconds": 0, "detail": ""})}
            for part in parts
        ]
        tried = {part["name"] for part in self.earlier_parts() if part["result"] in ("FAIL", "KILLED", "CUT")}
        stopped = 0
        try:
            self.save()
            for part, result in sorted(zip(parts, self.record["parts"]), key=lambda pair: pair[0].name in tried):
                if result["result"] == "NOT RUN" and self.left() >= part.needs:
                    self.run_part(part, result)
        except Stopped as error:
            stopped = error.args[0]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self.save()
        print("\n".join(table(self.record, self.archive)), flush=True)
        results = {part["result"] for part in self.record["parts"]}
        return 128 + stopped if stopped else 1 if "FAIL" in results else 75 if results - {"PASS", "SKIP"} else 0

    def earlier_parts(self):
        """Returns the parts of earlier slices with the same program."""
        same = [record for record in self.earlier if record["build"] == self.record["build"]]
        return [part for record in same for part in record["parts"]]

    def passed_earlier(self):
        return {part["name"]: {**part, "earlier": True} for part in self.earlier_parts() if part["result"] == "PASS"}

    @staticmethod
    def stop(number, _):
        raise Stopped(number)

    def left(self):
        return self.deadline - time.monotonic()

    def part_left(self):
        return self.part_deadline - time.monotonic()

    def run_part(self, part, result):
        began = time.monotonic()
        self.part_deadline = min(self.deadline, began + part.seconds)
        result.update(result="RUNNING")
        self.save()
        path = self.folder / "logs" / f"{part.name}.log"
        with open(path, "w+b", buffering=0) as self.log:
            try:
                result.update(result="PASS", detail=part.action(self) or "")
            except Skipped as error:
                result.update(result="SKIP", detail=str(error))
            except OutOfTime as error:
                result.update(result="CUT", detail=str(error))
            except Stopped as error:
                result.update(result="CUT", detail=f"signal {error}")
                raise
            except Exception as error:  # including errors of the harness: the next parts still run
                text = str(error) if isinstance(error, Failed) else repr(error)
                result.update(result="FAIL", detail=text, log=self.last_lines())
            finally:
                result["seconds"] = round(time.monotonic() - began, 1)
                print(
                    f"{result['result']:<8} {part.name:<44} {result['seconds']:7.1f} s  {result['detail']}"[:COLUMNS],
                    flush=True,
                )
                self.save()

    def save(self):
        """Writes results.json and the archive."""
        self.packed = time.time()
        self.record["seconds"] = round(time.monotonic() - self.began, 1)
        write_json(self.folder / "results.json", {"slices": [*self.earlier, self.record]})
        pack(self.folder, self.archive)

    def command(self, command, seconds=None, env=None, cwd=None):
        """Runs a command with its output in the part's log. Raises Failed if it fails or exceeds `seconds` or the limit
        of the part, and OutOfTime if the time of the slice ends first. Terminates the command in both cases."""
        began = time.monotonic()
        deadline = min(self.part_deadline, began + seconds) if seconds else self.part_deadline
        command = [str(word) for word in command]
        self.note("$ " + " ".join(command))
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        try:
            status = self.wait(program, deadline)
        except BaseException:
            end(program)
            raise
        if status is None:
            end(program)
            if deadline == self.deadline:
                raise OutOfTime("the time of the slice is over")
            raise TookTooLong(f"terminated after {deadline - began:.0f} s")
        if status:
            raise Failed(f"exit code {status}" if status > 0 else f"killed by signal {-status}")

    def wait(self, program, deadline):
        """Returns the exit status, or None if the program still runs at the deadline."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return program.wait(timeout=max(0, min(REPACK_SECONDS, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                return None
            if changed_since(self.folder, self.packed):
                self.save()

    def note(self, text):
        self.log.write((text + "\n").encode())

    def log_text(self, begin=0):
        """Returns the part's log from a position on."""
        self.log.seek(begin)
        text = self.log.read().decode(errors="replace")
        self.log.seek(0, io.SEEK_END)
        return text

    def last_lines(self, count=3):
        lines = [line.rstrip() for line in self.log_text().splitlines() if line.strip()]
        return lines[-count:]


def end(program):
    """Terminates the process group that the program leads: sends SIGTERM, on which mpirun ends its ranks, and SIGKILL
    after five seconds."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(timeout=seconds)


def table(record, archive):
    """Returns at most TABLE_LINES lines, failures first."""
    parts = record["parts"]
    by_result = {}
    for part in parts:
        by_result.setdefault(part["result"], []).append(part)
    counts = ", ".join(f"{len(found)} {result}" for result, found in sorted(by_result.items()))
    head = wrapped(
        f"slice {record['slice']}{', a rehearsal' if record['rehearsal'] else ''}: {counts}; {record['seconds']:.0f} s;"
        f" {record['device']}; commit {record['commit']}, {record['date'][:10]}"
    )
    wrong = [part for part in parts if part["result"] in ("FAIL", "KILLED", "CUT")]
    right = [part for part in parts if part["result"] in ("PASS", "SKIP")]
    missing = [part["name"] for part in parts if part["result"] == "NOT RUN"]
    tail = wrapped("NOT RUN: " + ", ".join(missing)) if missing else []
    tail += [f"archive: {archive}"]
    width = max([len(part["name"]) for part in wrong + right], default=0)

    def line(part):
        earlier = " (earlier)" if part.get("earlier") else ""
        return f"{part['result']:<7} {part['name']:<{width}} {part['seconds']:6.1f} s{earlier}  {part['detail']}"

    for reasons, each in ((3, True), (3, False), (1, False), (0, False)):
        body = []
        for part in wrong:
            body += wrapped(line(part))[: max(1, reasons)] + ["    " + text for text in part.get("log", [])[:reasons]]
        if each:
            body += [text for part in right for text in wrapped(line(part))]
        else:
            body += wrapped("PASS or SKIP: " + ", ".join(part["name"] for part in right)) if right else []
        room = TABLE_LINES - len(head) - len(tail)
        if len(body) <= room:
            break
    else:
        body = [*body[: room - 1], f"... and {len(body) - room + 1} more lines: results.json in the archive has all"]
    return [text.replace("\n", " ")[:COLUMNS] for text in head + body + tail]


def wrapped(text):
    return textwrap.wrap(text, COLUMNS - 4, subsequent_indent="    ", break_on_hyphens=False)
