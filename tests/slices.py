"""Runs named parts within a time limit and keeps what they leave in one archive, which is complete at any instant: a
job that is killed loses nothing but the part that was running. tests/gpu says what the parts are."""

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

# What of a folder is packed, and what alone is unpacked from an archive.
KEPT = ("results.json", "logs/*.log", "cache/**/*", "bench/*.json", "runs/*/metrics.jsonl", "runs/*/summary.json")
TOPS = {pattern.split("/")[0] for pattern in KEPT}
MAX_LOG_BYTES = 1 << 20  # of each log in the archive: the first and the last half of it
MAX_UNPACKED_BYTES = 256 << 20
REPACK_SECONDS = 10  # while a part runs, if it has written something
TABLE_LINES = 60
COLUMNS = 120


# What the program reads of a slice in results.json, and of its parts.
SLICE_FIELDS = {
    "slice": int,
    "rehearsal": bool,
    **dict.fromkeys(("device", "commit", "date", "build"), str),
    "seconds": (int, float),
    "parts": list,
}
PART_FIELDS = {"name": str, "result": str, "seconds": (int, float), "detail": str}


class BadArchive(Exception):
    """An archive that cannot be started from."""


class Failed(Exception):
    """A part failed, for this reason."""


class TookTooLong(Failed):
    """A command took longer than it may."""


class Skipped(Exception):
    """A part cannot run here, for this reason."""


class OutOfTime(Exception):
    """The slice is over before the part is."""


class Stopped(Exception):
    """A signal ends the slice."""


class Part(NamedTuple):
    """`action` is called with the slice; it returns a detail for the table or throws Failed, Skipped or OutOfTime."""

    name: str
    action: Callable
    seconds: float = 120  # it has failed if it takes longer
    needs: float = 15  # with less time left it is not started


def kept(folder):
    files = {file for pattern in KEPT for file in folder.glob(pattern) if file.is_file()}
    return sorted(file for file in files if file.suffix != ".part")


def changed_since(folder, moment):
    for file in kept(folder):
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
    """Replaces the archive as a whole."""
    part = archive.with_name(archive.name + ".part")
    with open(part, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
            for path in kept(folder):
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
    """Replaces the file as a whole, so that a reader never finds half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(file)


def is_kept(name):
    """Whether pack() can have given a member this name."""
    words = name.split("/")
    return not {"", ".", ".."} & set(words) and any(
        fnmatch.fnmatchcase(name, pattern.replace("**/*", "*"))
        and ("**" in pattern or len(words) == pattern.count("/") + 1)
        for pattern in KEPT
    )


def unpack(archive, folder):
    """Throws BadArchive if it is not one that pack() wrote; the folder may hold some of it then."""
    name = None
    try:
        with gzip.open(archive) as file:
            data = file.read(MAX_UNPACKED_BYTES + 1)
        if len(data) > MAX_UNPACKED_BYTES:
            raise BadArchive(f"{archive}: more than {MAX_UNPACKED_BYTES >> 20} MiB unpacked")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = member.name
                if not member.isreg() or member.issparse() or member.size < 0 or not is_kept(name):
                    raise BadArchive(f"{archive}: {name!r} is not part of an archive of tests/gpu")
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
        name = "results.json"
        read_records(folder)
    except BadArchive:
        raise
    except Exception as error:  # of a damaged archive also those of zlib and of tarfile's own parsing
        where = f"{archive}: {name!r}" if name else archive
        what = str(error) or repr(error)
        raise BadArchive(f"{where}: {what}; --from takes an archive that tests/gpu wrote") from None


def checked(value, fields, where):
    """The object, if it has these fields of these types; else throws ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is no object")
    for name, kind in fields.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"{where}: {name!r} is {'of another type' if name in value else 'missing'}")
    return value


def read_json(file):
    """Throws ValueError."""
    try:
        return json.loads(file.read_text())
    except RecursionError:
        raise ValueError("too deeply nested") from None


def read_records(folder):
    """The slices of results.json, oldest first; a part that was running when its slice was killed is KILLED. Throws
    ValueError if that is not what the file holds."""
    file = folder / "results.json"
    if not file.exists():
        return []
    records = checked(read_json(file), {"slices": list}, "the whole")["slices"]
    for number, record in enumerate(records, 1):
        for part in checked(record, SLICE_FIELDS, f"slice {number}")["parts"]:
            checked(part, PART_FIELDS, f"a part of slice {number}")
            if part["result"] == "RUNNING":
                part.update(result="KILLED", detail="the slice was killed while it ran")
    return records


class Slice:
    """Parts that run one after another. `facts` identifies what is tested; `build` among them is that of the program:
    parts that passed with the same one, according to the folder's results, are not run again. Its time began
    at `began`, of the monotonic clock."""

    def __init__(self, folder, archive, seconds, facts, began=None):
        self.folder, self.archive = folder, archive
        self.began = began or time.monotonic()
        self.deadline = self.began + seconds
        self.part_deadline = self.deadline
        self.log = None
        self.earlier = read_records(folder)
        self.record = {**facts, "seconds": 0, "parts": []}
        self.packed = 0  # when, by the files' clock
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        self.save()

    def run(self, parts):
        """Runs what the time allows and prints the table last. What ran before and did not pass comes after the rest,
        so that parts that hang do not keep a slice that is repeated from its end. Returns 0 when all passed or were
        skipped, 1 when one failed, 75 when none failed but some were not run to the end, 128 + n when signal n ended
        the slice."""
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
        """Of slices with the same program."""
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
            except Exception as error:  # also one of the harness itself: the parts after it are to run
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
        """Runs it, with its output in the part's log. Throws Failed if it fails or takes longer than `seconds` or the
        part may, OutOfTime if the slice ends first; it is ended then."""
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
                raise OutOfTime("the slice's time was over")
            raise TookTooLong(f"it was ended after {deadline - began:.0f} s")
        if status:
            raise Failed(f"ended with {status}" if status > 0 else f"ended by signal {-status}")

    def wait(self, program, deadline):
        """Its exit status; None if it still runs at the deadline."""
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
        """What the part's log holds from that position."""
        self.log.seek(begin)
        text = self.log.read().decode(errors="replace")
        self.log.seek(0, io.SEEK_END)
        return text

    def last_lines(self, count=3):
        lines = [line.rstrip() for line in self.log_text().splitlines() if line.strip()]
        return lines[-count:]


def end(program):
    """Ends the process group that the program leads: SIGTERM, by which mpirun ends its ranks, and after five seconds
    SIGKILL."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(timeout=seconds)


def table(record, archive):
    """Lines, at most TABLE_LINES, what went wrong first."""
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
