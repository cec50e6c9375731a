"""Tests tests/gpu and tests/bench/gpu in a bundle of fake programs: slices, deadlines, archives, failures, tables."""

import io
import json
import lzma
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests"))
import slices  # noqa: E402
from slices import BadArchive, Part, Slice  # noqa: E402

FACTS = {
    "slice": 1,
    "rehearsal": False,
    "device": "a GPU",
    "commit": "0a1b2c3",
    "date": "2026-01-02T03:04:05",
    "build": "x",
}

# A fake `trireme`. Files next to it, such as `accuracy`, set its results.
TRIREME = """#!/usr/bin/env -S python3 -I -S
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).resolve().parent
words = sys.argv[1:]
with open(here / "calls", "a") as file:
    print(*words, file=file)
def option(name):
    return words[words.index(name) + 1] if name in words else ""
def read(name, otherwise):
    return (here / name).read_text() if (here / name).exists() else otherwise
if words[0] == "doctor":
    print("CUDA       runtime 13.0")
    gpu = read("gpu", "Stand-in 1000")
    if gpu != "no":
        print(f"  rank 0     GPU 0 ({gpu}, 8 GiB), core 0")
elif words[0] == "inspect":
    print("  total   1000 x\\n  total   2147483648 x")
elif words[0] == "bench":
    reads = here / "nvml_reads"
    before = reads.stat().st_size if reads.exists() else 0
    result = here.parent / "bench.json"
    cases = json.loads(result.read_text()).get("cases", []) if result.exists() else []
    (here / "nvml_reads.busy").touch()
    time.sleep(0.1)
    (here / "nvml_reads.busy").unlink()
    after = reads.stat().st_size if reads.exists() else 0
    eager = "train.eager=true" in words
    if eager and read("eager", "") == "fails":
        sys.exit("out of memory")
    print(json.dumps({"samples_per_second": 100 if eager else 200, "nvml_reads": after - before,
                      "results_before": sum(map(len, cases[0]["turns"] if cases else [])),
                      "batch_per_rank": 2, "peak_memory_bytes": 2**20,
                      "floor_ms": 1, "step_ms": 2, "seconds_to_first_step": 1}))
elif words[0] == "train":
    folder = pathlib.Path(option("--run-dir"))
    folder.mkdir(parents=True)
    first = float(read("loss", "1")) if option("--device") == "cuda" else 1.0
    steps = 20 if "captured" not in words[1] or "resnet" in words[1] else 100
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(steps):
            print(json.dumps({"event": "step", "train_loss": first + step}), file=file)
    (folder / "summary.json").write_text(json.dumps({"eval_accuracy": float(read("accuracy", "0.995"))}))
"""

MPIRUN = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -np | --bind-to) shift 2 ;; *) shift ;; esac; done
ON_TERMINAL=1 exec "$@"
"""

# A fake gtest program with cases that pass, fail, make later cases fail ("spoils"), crash or hang.
GTEST = """#!/usr/bin/env -S python3 -I -S
import os, pathlib, signal, sys, time
cases = CASES
pattern = next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--gtest_filter="))
chosen = [pattern] if pattern in cases else list(cases)
if "--gtest_list_tests" in sys.argv:
    print("Suite.")
    for case in chosen:
        print("  " + case[len("Suite."):] + "  # GetParam() = 1")
    sys.exit()
with open(__file__ + ".calls", "a") as file:
    print(os.getpid(), pattern, file=file)
color = "ON_TERMINAL" in os.environ and "--gtest_color=no" not in sys.argv
red, plain = ("\\033[0;31m", "\\033[m") if color else ("", "")
failed = spoiled = False
for case in chosen:
    print(red + "[ RUN      ] " + plain + case, flush=True)
    if cases[case] == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    while cases[case] == "hangs" and not pathlib.Path(__file__ + ".go").exists():
        time.sleep(0.05)
    fails = spoiled or cases[case] not in ("passes", "hangs")
    spoiled = spoiled or cases[case] == "spoils"
    failed = failed or fails
    print(red + ("[  FAILED  ] " if fails else "[       OK ] ") + plain + case + " (0 ms)", flush=True)
sys.exit(failed)
"""

PEER = """#!/usr/bin/env -S python3 -I -S
import json, pathlib, sys, time
here = pathlib.Path(__file__).resolve().parent
how = (here / "how").read_text() if (here / "how").exists() else ""
if how == "hangs":
    time.sleep(1000)
if "--compile" in sys.argv and how == "cannot compile":
    sys.exit("no compiler")
if how == "fails":
    sys.exit("no PyTorch after all")
print(json.dumps({"samples_per_second": 50, "batch_per_rank": 2, "peak_rss_mib": 2, "seconds_to_first_step": 1,
                  "compile": sys.argv[sys.argv.index("--compile") + 1] if "--compile" in sys.argv else ""}))
"""

# A fake NVML. It logs queries of the used memory, and reports more memory while `trireme bench` runs.
NVML = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct Memory { unsigned long long total, free, used; };
static int gpu;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = &gpu; return index != 0; }
int nvmlDeviceGetHandleByUUID(const char* id, void** device) { *device = &gpu; return strcmp(id, "GPU-1") != 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return snprintf(text, size, "580.1") < 0; }
int nvmlDeviceGetMemoryInfo(void* device, struct Memory* memory) {
  FILE* file = fopen(getenv("NVML_READS"), "a");
  if (!file || device != &gpu) return 1;
  fputc('.', file);
  fclose(file);
  char busy[4096];
  snprintf(busy, sizeof(busy), "%s.busy", getenv("NVML_READS"));
  memory->used = access(busy, F_OK) ? 1000 : 5000;
  return 0;
}
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def read_results(archive):
    with tarfile.open(archive) as tar:
        return json.load(tar.extractfile("results.json"))["slices"]


def results(record):
    return {part["name"]: part["result"] for part in record["parts"]}


def wait_until(condition):
    while not condition():
        time.sleep(0.02)


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "trireme-1"
        tests = [f"tests/{name}" for name in ("gpu", "gpu_parts.py", "slices.py", "bench/gpu", "bench/peers")]
        for name in (*tests, "docs/gpu.md", "docs/performance.md"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "env.sh").write_text(f"export PATH={self.root}/bin:$PATH\n")
        (self.root / "VERSION").write_text("trireme 1.0, 0a1b2c3, packed today\n")
        script(self.root / "bin/trireme", TRIREME)
        script(self.root / "bin/mpirun", MPIRUN)
        self.archive = self.root / "out.tar.gz"

    def set(self, name, value):
        """Writes a file that a fake program in bin/ reads."""
        (self.root / "bin" / name).write_text(value)

    def add_program(self, name, text, ranks=""):
        with open(self.root / "tests/gpu_programs", "a") as file:
            file.write(f"{name} {ranks}\n")
        return script(self.root / "tests" / name, text)

    def gtest(self, name, cases, ranks=""):
        named = {f"Suite.{case}/cuda": how for case, how in cases.items()}
        return self.add_program(name, GTEST.replace("CASES", repr(named)), ranks)

    def calls(self, program):
        file = pathlib.Path(f"{program}.calls")
        return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []

    def start(self, *words, program="gpu", environment=None):
        return subprocess.Popen(
            [sys.executable, self.root / "tests" / program, *map(str, words)],
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )

    def run_gpu(self, *words, code=0, **more):
        with self.start(*words, **more) as process:
            try:
                output = process.communicate(timeout=120)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        self.assertEqual(process.returncode, code, output)
        return output


class Slices(Bundle):
    def test_failing_part_is_recorded_and_the_others_run(self):
        self.gtest("core_a_test", {"one": "passes"})
        self.gtest("ops_b_test", {"one": "passes", "two": "spoils", "three": "passes", "four": "passes"})
        self.gtest("ops_c_test", {"one": "crashes", "two": "passes"})
        self.gtest("ops_conv2d_test", {"one": "passes"})
        self.add_program("ops_d_test", "#!/bin/sh\necho libcudnn.so.9 is missing >&2; exit 127\n")
        output = self.run_gpu("--slice", 1, "-o", "out", "^(doctor|core|ops|captured)", code=1)
        (record,) = read_results(self.archive)
        found = results(record)
        self.assertEqual(
            [name for name, result in found.items() if result == "FAIL"], ["ops_b_test", "ops_c_test", "ops_d_test"]
        )
        self.assertEqual(found["core_a_test"], "PASS")
        self.assertEqual(found["captured-is-eager.FP16"], "PASS")
        self.assertNotIn("ops_conv2d_test", found)
        self.assertEqual((record["commit"], record["device"]), ("0a1b2c3", "Stand-in 1000, 8 GiB"))
        details = {part["name"]: part["detail"] for part in record["parts"]}
        self.assertIn("alone Suite.two/cuda FAILED", details["ops_b_test"])
        self.assertIn("alone Suite.one/cuda FAILED", details["ops_c_test"])
        self.assertEqual(details["ops_d_test"], "exit code 127: 0 cases did not pass")
        self.assertIn("libcudnn.so.9 is missing", output)
        table = output[output.index("\nslice 1: ") :].splitlines()[1:]
        self.assertLess(
            table.index(next(line for line in table if "ops_c_test" in line)),
            table.index(next(line for line in table if "core_a_test" in line)),
        )
        self.assertEqual(table[-1], f"archive: {self.archive}")

    def test_cases_are_counted_per_number_of_ranks(self):
        self.gtest("comm_communicator_test", {"one": "passes", "two": "passes"}, "1 2 3")
        self.gtest("trainer_step_test", {"one": "passes", "two": "fails"}, "1 2")
        self.run_gpu("--slice", 2, "-o", "out", "^(comm|trainer)", code=1)
        details = {part["name"]: part["detail"] for part in read_results(self.archive)[0]["parts"]}
        for ranks in (1, 2):
            self.assertEqual(details[f"comm_communicator_test.np{ranks}"], "2 cases")
            self.assertIn(
                "1 cases did not pass; alone Suite.two/cuda FAILED", details[f"trainer_step_test.np{ranks}"]
            )
        self.assertEqual(len(details), 4)

    def test_next_slice_continues_from_the_results_of_a_killed_slice(self):
        passing = self.gtest("core_a_test", {"one": "passes"})
        hanging = self.gtest("core_b_test", {"one": "hangs"})
        self.gtest("core_c_test", {"one": "passes"})
        process = self.start("--slice", 1, "-o", "out", "core")
        wait_until(lambda: self.calls(hanging))
        child = int(pathlib.Path(f"{hanging}.calls").read_text().split()[0])
        os.kill(process.pid, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        process.communicate()
        self.assertEqual(
            results(read_results(self.archive)[0]),
            {"core_a_test": "PASS", "core_b_test": "RUNNING", "core_c_test": "NOT RUN"},
        )

        shutil.rmtree(self.root / "out")
        self.archive.rename(self.root / "first.tar.gz")
        pathlib.Path(f"{hanging}.calls").unlink()
        pathlib.Path(f"{hanging}.go").touch()
        output = self.run_gpu("--slice", 1, "-o", "out", "--from", "first.tar.gz", "core")
        first, second = read_results(self.archive)
        self.assertEqual(results(first)["core_b_test"], "KILLED")
        self.assertEqual(set(results(second).values()), {"PASS"})
        self.assertEqual(len(self.calls(passing)), 1, "it had already passed")
        self.assertIn("(earlier)", output)
        with tarfile.open(self.archive) as tar:
            self.assertIn("logs/core_a_test.log", tar.getnames())

    def test_parts_that_were_not_run_come_before_failed_parts(self):
        failing = self.gtest("core_a_test", {"one": "fails"})
        others = self.gtest("core_b_test", {"one": "passes"})
        self.run_gpu("--slice", 1, "-o", "out", "core_a", code=1)
        before = len(self.calls(failing))
        hanging = self.gtest("core_a_test", {"one": "hangs"})
        with self.start("--slice", 1, "-o", "out", "--from", self.archive, "core") as process:
            wait_until(lambda: len(self.calls(hanging)) > before)
            calls = self.calls(others)
            pathlib.Path(f"{hanging}.go").touch()
            process.communicate()
        self.assertEqual(len(calls), 1, "it ran before the failed part")

    def test_another_build_repeats_passed_parts(self):
        passing = self.gtest("core_a_test", {"one": "passes"})
        self.run_gpu("--slice", 1, "-o", "out", "core")
        script(self.root / "bin/trireme", TRIREME + "# another build\n")
        self.run_gpu("--slice", 1, "-o", "out", "--from", self.archive, "core")
        self.assertEqual(len(self.calls(passing)), 2)

    def test_sigterm_ends_the_running_part_and_prints_the_table(self):
        hanging = self.gtest("core_a_test", {"one": "hangs"})
        self.gtest("core_b_test", {"one": "passes"})
        with self.start("--slice", 1, "-o", "out", "core") as process:
            wait_until(lambda: self.calls(hanging))
            process.send_signal(signal.SIGTERM)
            output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertRegex(output, r"CUT +core_a_test .*signal 15")
        self.assertIn("NOT RUN: core_b_test", output)
        child = pathlib.Path(f"{hanging}.calls").read_text().split()[0]
        self.assertFalse(pathlib.Path(f"/proc/{child}").exists())

    def test_nothing_is_started_without_time_left(self):
        program = self.gtest("core_a_test", {"one": "passes"})
        output = self.run_gpu("--slice", 1, "-o", "out", "--minutes", 0.01, "core", code=75)
        self.assertIn("NOT RUN: core_a_test", output)
        self.assertEqual(self.calls(program), [])
        self.assertEqual(results(read_results(self.archive)[0]), {"core_a_test": "NOT RUN"})

    def test_different_losses_fail(self):
        self.gtest("core_a_test", {"one": "passes"})
        self.run_gpu("-o", "out", "gpu-is-cpu")
        self.set("loss", "1.001")
        output = self.run_gpu("-o", "out", "gpu-is-cpu", code=1)
        self.assertIn("steps differ by more than 0.0001, the first is 1", output)
        self.set("loss", "nan")
        self.run_gpu("-o", "out", "gpu-is-cpu", code=1)

    def test_unsupported_sanitizer_is_not_a_failure(self):
        program = self.gtest("ops_loss_test", {"one": "passes"})
        self.gtest("ops_pool_test", {"one": "passes"})
        sanitizer = script(
            self.root / "bin/compute-sanitizer",
            "#!/bin/bash\nfor word; do p=$word; [[ $p == /* ]] && break; done\n"
            'while [[ $1 != "$p" ]]; do shift; done\n"$@"\n',
        )
        self.run_gpu("--slice", 1, "-o", "out", "check")
        self.assertEqual(
            results(read_results(self.archive)[0]),
            {"memcheck.ops_loss_test": "PASS", "racecheck.ops_loss_test": "PASS"},
        )
        self.assertIn("*cuda_f32:*cuda_bf16-*Large*", self.calls(program))
        script(sanitizer, "#!/bin/bash\necho ========= Invalid __global__ write of size 4 bytes; exit 1\n")
        self.assertIn("Invalid __global__ write", self.run_gpu("--slice", 1, "-o", "out", "check", code=1))
        script(sanitizer, "#!/bin/bash\necho ========= Error: Device not supported; exit 1\n")
        self.assertIn("Device not supported", self.run_gpu("--slice", 1, "-o", "out", "check"))

    def test_accuracy_is_checked(self):
        data = self.root / "data"
        for name in (
            "mnist/train-images-idx3-ubyte.gz",
            "mnist/t10k-images-idx3-ubyte.gz",
            "cifar/cifar10-train-000000.tar.xz",
            "cifar/cifar10-test-000000.tar.xz",
        ):
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.packed_file(), data / name)
        self.run_gpu("--slice", 4, "-o", "out", "--data", data)
        calls = (self.root / "bin/calls").read_text()
        self.assertIn(f"data.root={self.root}/out/data --set data.webdataset.train=", calls)
        self.assertEqual((self.root / "out/data/cifar10-test-000000.tar").read_text(), "shard")
        self.set("accuracy", "0.92")
        output = self.run_gpu("--slice", 4, "-o", "out", "--data", data, code=1)
        self.assertIn("accuracy 0.92, expected at least 0.93", output)
        self.run_gpu("--slice", 4, "-o", "out", code=1)
        (self.root / "bin/calls").unlink()
        self.set("accuracy", "0.995")
        self.run_gpu("--slice", 4, "-o", "out", "--data", data, "--rehearse")
        calls = (self.root / "bin/calls").read_text()
        self.assertEqual((calls.count("--device cpu --set train.precision=FP32"), calls.count("BF16")), (2, 0))

    def packed_file(self):
        file = self.root / "shard.xz"
        file.write_bytes(lzma.compress(b"shard"))
        return file

    def test_bundle_without_tests_prints_a_message(self):
        self.assertIn("--no-tests", self.run_gpu("--slice", 1, "-o", "out", code=1))

    def test_missing_test_program_is_an_error(self):
        self.gtest("core_a_test", {"one": "passes"})
        self.gtest("core_b_test", {"one": "passes"}).unlink()
        output = self.run_gpu("--slice", 1, "-o", "out", "core_a", code=1)
        self.assertRegex(output, "cannot execute .*tests/core_b_test")

    def test_nothing_is_tested_without_a_gpu(self):
        self.gtest("core_a_test", {"one": "passes"})
        self.set("gpu", "no")
        self.assertIn("no GPU", self.run_gpu("--slice", 1, "-o", "out", code=77))
        self.assertIn("programs of the emulation", self.run_gpu("--slice", 1, "-o", "out", "--rehearse", code=77))

    def test_results_are_collected(self):
        self.gtest("core_a_test", {"one": "passes"})
        (self.root / "tests/bench/results").mkdir()
        self.run_gpu("--slice", 1, "-o", "out", "core")
        self.run_gpu("--slice", 3, "-o", "out", "--from", self.archive, "--python", "false")
        self.run_gpu("--collect", self.archive)
        files = sorted(file.stem.split("-")[-1] for file in (self.root / "tests/bench/results").glob("gpu-*.json"))
        self.assertEqual(files, ["others", "resnet50"])
        self.assertRegex(
            (self.root / "docs/gpu.md").read_text(), r"\| 1 \| 1 \| 0 \| 0 \| - \| - \| .*0a1b2c3, Stand-in 1000"
        )
        self.assertRegex(
            (self.root / "docs/performance.md").read_text(), r"\| resnet50 \| BF16, 256 \| 200 \| x2.00 \|"
        )
        self.run_gpu("-o", "out", "--rehearse", "core")
        self.assertIn("rehearsal", self.run_gpu("--collect", self.archive, code=2))
        self.set("gpu", "Emulated device")
        self.run_gpu("-o", "out", "core")
        self.assertIn("rehearsal", self.run_gpu("--collect", self.archive, code=2))

    def test_error_names_the_bad_archive_and_its_member(self):
        self.gtest("core_a_test", {"one": "passes"})
        slice_1 = {**FACTS, "seconds": 1, "parts": [{"name": "a", "result": "PASS", "seconds": 1, "detail": ""}]}
        run = {"date": FACTS["date"], "commit": "0a1b2c3", "device": "a GPU", "cases": []}

        def pack(**texts):
            with tarfile.open(self.archive, "w:gz") as tar:
                for name, text in texts.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(text)
                    tar.addfile(member, io.BytesIO(text.encode()))

        def refused(member, reason, *words):
            output = self.run_gpu(*words, code=2)
            self.assertIn(f"tests/gpu: {self.archive}: '{member}'", output)
            self.assertRegex(output, reason)
            self.assertNotIn("Traceback", output)

        start = ("--slice", 1, "-o", "out", "--from", self.archive, "core")
        for name in (".", "/results.json", "./results.json", "logs", "logs/a.log/b", "runs", "x"):
            pack(**{name: "{}"})
            with self.subTest(name=name):
                refused(name, "is not part of an archive", *start)
        for text, reason in (
            ("[" * 100000, "deeply nested"),
            ("[]", "not an object"),
            ("{}", "'slices' is missing"),
            ('{"slices": [7]}', "slice 1 is not an object"),
            (json.dumps({"slices": [{**slice_1, "seconds": "a"}]}), "slice 1: 'seconds' is of another type"),
            (json.dumps({"slices": [{**slice_1, "parts": [{"name": "a"}]}]}), "part of slice 1: 'result' is missing"),
            ("{", "Expecting property name"),
        ):
            pack(**{"results.json": text})
            with self.subTest(text=text[:40]):
                refused("results.json", reason, *start)
                refused("results.json", reason, "--collect", self.archive)
        for text, reason in (
            ("[" * 100000, "deeply nested"),
            ("[]", "not an object"),
            (json.dumps({**run, "date": 7}), "'date' is of another type"),
            (json.dumps({**run, "cases": [7]}), "a case is not an object"),
        ):
            pack(**{"results.json": json.dumps({"slices": [slice_1]}), "bench/a.json": text})
            with self.subTest(text=text[:40]):
                refused("bench/a.json", reason, "--collect", self.archive)
        self.assertFalse((self.root / "tests/bench/results").exists())
        pack(**{"results.json": json.dumps({"slices": [slice_1]})})
        self.run_gpu(*start)

    def test_foreign_folder_is_not_modified(self):
        self.gtest("core_a_test", {"one": "passes"})
        other = self.root / "runs/mine/summary.json"
        other.parent.mkdir(parents=True)
        other.write_text("{}")
        self.run_gpu("--slice", 1, "-o", "out", "core")
        self.assertIn("runs, which tests/gpu did not write", self.run_gpu("--slice", 1, "-o", ".", "--from", self.archive, "core", code=2))
        self.assertTrue(other.exists())


class Harness(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "out"
        self.folder.mkdir()
        self.archive = self.folder.with_suffix(".tar.gz")
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def slice(self, parts, seconds=1000):
        run = Slice(self.folder, self.archive, seconds, FACTS)
        stdout, sys.stdout = sys.stdout, io.StringIO()
        try:
            return run.run(parts), results(run.record), sys.stdout.getvalue()
        finally:
            sys.stdout = stdout

    def test_end_of_a_slice_does_not_fail_its_part(self):
        def endless(run):
            run.deadline = run.part_deadline = time.monotonic()
            run.command(["sleep", 1000])

        parts = [
            Part("quick", lambda run: run.command(["true"])),
            Part("endless", endless),
            Part("third", lambda run: run.command(["true"])),
        ]
        status, found, output = self.slice(parts)
        self.assertEqual(found, {"quick": "PASS", "endless": "CUT", "third": "NOT RUN"})
        self.assertEqual(status, 75)
        self.assertIn("NOT RUN: third", output)

    def test_timeout_of_a_part_ends_all_its_processes(self):
        pid = self.folder / "pid"
        endless = ["bash", "-c", f"sleep 1000 & echo $! >{pid}; wait"]
        for seconds in (0.5, 5, 50):  # until the time suffices to start it
            parts = [Part("endless", lambda run: run.command(endless), seconds), Part("next", lambda run: None)]
            status, found, _ = self.slice(parts)
            self.assertEqual(found, {"endless": "FAIL", "next": "PASS"})
            self.assertEqual(status, 1)
            if pid.exists() and pid.read_text():
                break
        state = pathlib.Path(f"/proc/{pid.read_text().strip()}/stat")
        wait_until(lambda: not state.exists() or ") Z " in state.read_text())

    def test_error_in_a_part_fails_only_that_part(self):
        def broken(_):
            raise KeyError("summary")

        _, found, output = self.slice([Part("broken", broken), Part("next", lambda run: "fine")])
        self.assertEqual(found, {"broken": "FAIL", "next": "PASS"})
        self.assertIn("KeyError", output)

    def test_files_of_a_part_are_packed_while_it_runs(self):
        slices.REPACK_SECONDS, before = 0.05, slices.REPACK_SECONDS
        self.addCleanup(setattr, slices, "REPACK_SECONDS", before)
        (self.folder / "bench").mkdir()
        file = self.folder / "bench/turns.json"
        # The part ends when the archive contains the file that it wrote.
        look = f"echo 1 >{file}; until tar -tzf {self.archive} | grep -q turns.json; do sleep 0.05; done"
        _, found, _ = self.slice([Part("bench", lambda run: run.command(["bash", "-c", look]), 60)])
        self.assertEqual(found, {"bench": "PASS"})

    def test_archive_has_short_logs_and_no_checkpoints(self):
        def writes(run):
            (run.folder / "runs/a").mkdir(parents=True)
            (run.folder / "runs/a/weights.safetensors").write_bytes(b"0" * 1000)
            (run.folder / "runs/a/summary.json").write_text("{}")
            (run.folder / "cache/trireme").mkdir(parents=True)
            (run.folder / "cache/trireme/tuning").write_text("fastest")
            run.log.write(b"first\n" + b"x" * (3 << 20) + b"\nlast\n")

        self.slice([Part("a", writes)])
        with tarfile.open(self.archive) as tar:
            self.assertEqual(
                set(tar.getnames()), {"results.json", "logs/a.log", "runs/a/summary.json", "cache/trireme/tuning"}
            )
            log = tar.extractfile("logs/a.log").read()
        self.assertLess(len(log), (1 << 20) + 100)
        self.assertTrue(log.startswith(b"first\n") and log.endswith(b"\nlast\n"))
        slices.unpack(self.archive, self.folder / "next")
        self.assertEqual((self.folder / "next/cache/trireme/tuning").read_text(), "fastest")

    def test_bad_archives_are_errors(self):
        bad = self.folder / "bad.tar.gz"

        def refused(pattern):
            with self.assertRaisesRegex(BadArchive, pattern):
                slices.unpack(bad, self.folder)

        def archive_of(name, **attributes):
            with tarfile.open(bad, "w:gz", format=tarfile.GNU_FORMAT) as tar:
                member = tarfile.TarInfo(name)
                for attribute, value in attributes.items():
                    setattr(member, attribute, value)
                tar.addfile(member)

        for name in ("../evil", "/evil", "logs/../../evil", "other", ".", "logs", "logs/./a.log", "logs/a/b.log"):
            archive_of(name)
            refused(f"{bad}: '{name}' is not part of an archive")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            archive_of("logs/a.log", type=kind, linkname="/etc/passwd")
            refused("'logs/a.log' is not part of an archive")
        archive_of("logs/a.log", size=-1024)
        refused("'logs/a.log' is not part of an archive")
        archive_of("logs/a.log", size=1 << 30)
        refused("'logs/a.log'.*not an archive that tests/gpu wrote")
        with tarfile.open(bad, "w:gz") as tar:
            for name in ("cache/a", "cache/a/b"):
                tar.addfile(tarfile.TarInfo(name))
        refused("'cache/a/b'.*not an archive that tests/gpu wrote")
        self.slice([Part("a", lambda run: run.note("".join(map(str, range(20000)))))])
        complete = self.archive.read_bytes()
        with mock.patch("slices.MAX_UNPACKED_BYTES", 50000):
            bad.write_bytes(complete)
            refused("MiB unpacked")
        bad.write_bytes(complete[: len(complete) // 2])
        refused("not an archive that tests/gpu wrote")
        for damage in range(200, len(complete), 1000):
            bad.write_bytes(complete[:damage] + b"\xff" * 100 + complete[damage + 100 :])
            refused(str(bad))
        bad.write_bytes(b"no archive")
        refused("not an archive that tests/gpu wrote")

    def test_table_is_always_short(self):
        def part(name, result, detail="", log=()):
            return {"name": name, "result": result, "seconds": 1.5, "detail": detail, "log": list(log)}

        for failing in (0, 1, 20, 100):
            with self.subTest(failing=failing):
                parts = (
                    [part(f"fails-{n}", "FAIL", "reason\n" * 100, ["line " * 100] * 3) for n in range(failing)]
                    + [part(f"passes-with-a-long-name-{n}", "PASS", "detail") for n in range(100)]
                    + [part(f"not-run-{n}", "NOT RUN") for n in range(50)]
                )
                facts = {**FACTS, "device": "a GPU with a long name, " * 4}
                table = slices.table({**facts, "seconds": 540, "parts": parts}, self.archive)
                self.assertLessEqual(len(table), 60)
                self.assertLessEqual(max(map(len, table)), 120)
                self.assertIn("commit 0a1b2c3, 2026-01-02", " ".join(map(str.strip, table)))
                self.assertNotIn("\n", "".join(table))
                self.assertEqual(table[-1], f"archive: {self.archive}"[:120])
                self.assertIn(f"{failing} FAIL" if failing else "100 PASS", table[0])
                if failing:
                    self.assertIn("fails-0 ", table[2])
                self.assertIn("not-run-49", "".join(table))


class Benchmark(Bundle):
    def setUp(self):
        super().setUp()
        script(self.root / "peers/torch_bench.py", PEER)
        script(self.root / "bin/python-with-torch", f'#!/bin/bash\n[[ $1 == -c ]] || exec {sys.executable} "$@"\n')
        script(self.root / "bin/nvidia-smi", f"#!/bin/bash\ntouch {self.root}/nvidia-smi-was-started\n")
        self.environment = {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        self.environment.pop("TRIREME_PEERS", None)

    def bench(self, *words, code=0, **environment):
        output = self.run_gpu(
            "-o",
            self.root / "bench.json",
            "--models",
            "lenet",
            "--batch",
            2,
            "--rounds",
            2,
            "--python",
            self.root / "bin/python-with-torch",
            "--peer",
            self.root / "peers/torch_bench.py",
            *words,
            program="bench/gpu",
            code=code,
            environment={**self.environment, **environment},
        )
        return output, json.loads((self.root / "bench.json").read_text())

    def test_turns_are_written_one_by_one(self):
        _, run = self.bench("--compile", "max-autotune")
        (case,) = run["cases"]
        self.assertEqual(
            [list(one) for one in case["turns"]],
            [["captured", "eager", "peer_eager"]] * 2 + [["captured", "peer_compiled"]] * 2,
        )
        self.assertEqual([one["captured"]["results_before"] for one in case["turns"]], [0, 3, 6, 8])
        self.assertEqual((case["over_eager"], case["over_peer_eager"], case["over_peer_compiled"]), (2, 4, 4))
        self.assertEqual(case["turns"][2]["peer_compiled"]["compile"], "max-autotune")
        self.assertTrue(run["finished"])
        self.assertFalse((self.root / "nvidia-smi-was-started").exists())

    def test_failure_is_recorded_and_other_turns_continue(self):
        self.set("eager", "fails")
        (self.root / "peers/how").write_text("cannot compile")
        output, run = self.bench(code=1)
        (case,) = run["cases"]
        self.assertIn("out of memory", case["turns"][0]["eager"]["failed"])
        self.assertIn("no compiler", case["turns"][2]["peer_compiled"]["failed"])
        self.assertEqual((case["over_eager"], case["over_peer_eager"], case["over_peer_compiled"]), (None, 4, None))
        self.assertIn("2 of 4 turns FAILED", output)

    def test_time_limit_ends_the_first_round(self):
        (self.root / "peers/how").write_text("hangs")
        for minutes in (0.05, 0.5):  # until the time suffices for Trireme's part of a turn
            _, run = self.bench("--minutes", minutes)
            (turn,) = run["cases"][0]["turns"] or [{}]
            if "peer_eager" in turn:
                break
        self.assertTrue(turn["peer_eager"]["cut"])
        self.assertEqual(turn["captured"]["samples_per_second"], 200)
        self.assertFalse(run["finished"])
        _, run = self.bench("--minutes", 0)
        self.assertEqual(run["cases"][0]["turns"], [])

    def test_memory_is_read_only_in_untimed_runs(self):
        source = self.root / "nvml.c"
        source.write_text(NVML)
        (self.root / "nvml").mkdir()
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", self.root / "nvml/libnvidia-ml.so.1", source], check=True)
        more = {"LD_LIBRARY_PATH": str(self.root / "nvml"), "NVML_READS": str(self.root / "bin/nvml_reads")}
        _, run = self.bench("--compile", "none", **more)
        (case,) = run["cases"]
        self.assertEqual(run["driver"], "580.1")
        self.assertEqual((case["captured_peak_device_bytes"], case["predicted_bytes"]), (4000, 2**31))
        self.assertEqual({one[name]["nvml_reads"] for one in case["turns"] for name in ("captured", "eager")}, {0})
        _, run = self.bench("--compile", "none", CUDA_VISIBLE_DEVICES="GPU-2", **more)
        self.assertNotIn("captured_peak_device_bytes", run["cases"][0], "the driver does not know that GPU")

    def test_peers_records_failures(self):
        def compare(code):
            self.run_gpu(
                "-o",
                self.root / "bench.json",
                "--models",
                "lenet",
                "mlp",
                "--rounds",
                2,
                "--python",
                sys.executable,
                "--trireme",
                self.root / "bin/trireme",
                "--peer",
                self.root / "peers/torch_bench.py",
                program="bench/peers",
                code=code,
                environment=self.environment,
            )
            return json.loads((self.root / "bench.json").read_text())["models"]

        rows = compare(0)
        self.assertEqual([row["speed_ratio"] for row in rows], [4, 4])
        (self.root / "peers/how").write_text("fails")
        rows = compare(1)
        self.assertEqual([len(row["turns"]) for row in rows], [2, 2])
        self.assertIn("no PyTorch after all", rows[1]["turns"][1]["peer"]["failed"])
        self.assertNotIn("speed_ratio", rows[0])


if __name__ == "__main__":
    unittest.main()
