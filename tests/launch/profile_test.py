"""End-to-end test of `trireme train --profile`: the trace follows the Trace Event Format, the table agrees with it, and the
losses do not change."""

import collections
import decimal
import json
import unittest

from program import ROOT, ProgramTest, run

CONFIG = ROOT / "launch/configs/digits.txtpb"
# The layers after fusion. The loss appears in the forward pass only, since it computes its own gradient there.
LAYERS = ["conv2d_0", "conv2d_2", "max_pool_4", "flatten_5", "dropout_6", "dense_7", "dense_9"]
LOSS = "softmax_cross_entropy_10"
PHASES = ["data wait", "prepare", "forward", "backward", "exposed communication", "update"]


def nanoseconds(microseconds):
    """Converts exactly; requires at most three decimals."""
    value = decimal.Decimal(microseconds) * 1000
    assert value == int(value), microseconds
    return int(value)


def read_trace(path):
    return json.loads(path.read_text(), parse_float=decimal.Decimal)


def begin_of(event):
    return nanoseconds(event["ts"])


def end_of(event):
    return begin_of(event) + nanoseconds(event["dur"])


class TraceCheck:
    """Checks the rules that viewers rely on. `trace` is the result of read_trace."""

    def __init__(self, test, trace):
        self.test = test
        test.assertIsInstance(trace, dict)
        test.assertIn("traceEvents", trace)
        test.assertIn(trace.get("displayTimeUnit"), ("ms", "ns"))
        self.events = trace["traceEvents"]
        self.names = {}
        self.tracks = collections.defaultdict(list)
        for event in self.events:
            self.check_event(event)
        for track, events in self.tracks.items():
            self.check_nesting(track, events)
            test.assertIn(("process_name", track[0], 0), self.names)
            test.assertIn(("thread_name", *track), self.names)

    def check_event(self, event):
        test = self.test
        for key in ("ph", "name", "pid", "tid", "ts"):
            test.assertIn(key, event)
        for key in ("pid", "tid"):
            test.assertIs(type(event[key]), int)
            test.assertGreaterEqual(event[key], 0)
        test.assertIsInstance(event["name"], str)
        test.assertIsInstance(event.get("args", {}), dict)
        test.assertGreaterEqual(begin_of(event), 0)
        test.assertIn(event["ph"], ("X", "M"))
        if event["ph"] == "M":
            test.assertIn(
                event["name"], ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            )
            key = (event["name"], event["pid"], event["tid"])
            test.assertNotIn(key, self.names)
            self.names[key] = event["args"].get("name", event["args"].get("sort_index"))
            return
        test.assertIsInstance(event["cat"], str)
        test.assertGreaterEqual(nanoseconds(event["dur"]), 0)
        self.tracks[event["pid"], event["tid"]].append(event)

    def check_nesting(self, track, events):
        """Checks that events of one track do not overlap unless one contains the other."""
        open_until = []
        for event in sorted(events, key=lambda e: (begin_of(e), -end_of(e))):
            while open_until and open_until[-1] <= begin_of(event):
                open_until.pop()
            if open_until:
                self.test.assertLessEqual(end_of(event), open_until[-1], f"{track} {event}")
            open_until.append(end_of(event))

    def track(self, rank, name):
        for (kind, pid, tid), given in self.names.items():
            if kind == "thread_name" and pid == rank and given == name:
                return self.tracks[pid, tid]
        raise AssertionError(f"rank {rank} has no track {name!r}")


def losses(folder):
    found = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            found.append((event["step"], event["train_loss"], event["parameter_checksum"]))
    return found


class ProfileTest(ProgramTest):
    def train(self, name, *options, ranks=2, steps=12, code=0):
        folder = self.scratch / name
        output = run(
            "train", CONFIG, "--run-dir", folder, "--resume", "never",
            "--set", "train.epochs=9", "--set", f"train.max_steps={steps}", "--set", "train.threads=1",
            "--set", "checks.parameter_checksum_every_steps=1", *options,
            ranks=ranks, code=code,
        )  # fmt: skip
        return folder, output

    def profiled(self, *options, window="3..6", **more):
        folder, output = self.train("profiled", "--profile", f"steps={window}", *options, **more)
        self.trace = read_trace(folder / "trace.json")
        return folder, output, TraceCheck(self, self.trace)

    def check_steps(self, check, rank, steps):
        """Checks that each step occurs once and that its phases cover it completely."""
        events = check.track(rank, "step")
        self.assertEqual([e["args"]["step"] for e in events if e["cat"] == "step"], steps)
        for step in steps:
            total = next(e for e in events if e["cat"] == "step" and e["args"]["step"] == step)
            phases = [e for e in events if e["cat"] == "phase" and e["args"]["step"] == step]
            at = begin_of(total)
            for phase in phases:
                self.assertEqual(begin_of(phase), at)
                at = end_of(phase)
            self.assertEqual(at, end_of(total))
            self.assertEqual(sorted({e["name"] for e in phases}), sorted(PHASES))

    def check_layers(self, check, rank, steps, passes=1):
        """Checks that every layer occurs in every pass, forward and backward, within its phase."""
        phases = check.track(rank, "step")
        compute = check.track(rank, "compute")
        count = collections.Counter((e["args"]["step"], e["cat"], e["name"]) for e in compute)
        layers = {(e["cat"], e["name"]) for e in compute}
        self.assertLessEqual({("forward", layer) for layer in [*LAYERS, LOSS]}, layers)
        self.assertLessEqual({("backward", layer) for layer in LAYERS}, layers)
        for step in steps:
            for layer in layers:
                self.assertEqual(count[(step, *layer)], passes, layer)
        for event in compute:
            self.assertGreaterEqual(event["args"]["FLOP"], 0)
            self.assertGreater(event["args"]["bytes"], 0)
            around = [
                e for e in phases
                if e["name"] == event["cat"] and begin_of(e) <= begin_of(event) and end_of(event) <= end_of(e)
            ]  # fmt: skip
            self.assertEqual(len(around), 1, event)

    def check_buckets(self, check, rank, steps):
        count = collections.Counter()
        parameters = {}
        for event in check.track(rank, "communication"):
            count[event["args"]["step"], event["args"]["bucket"]] += 1
            parameters[event["args"]["bucket"]] = event["args"]
            self.assertEqual(event["args"]["bytes"], 4 * event["args"]["elements"])
        self.assertGreater(len(parameters), 1)
        self.assertEqual(sorted(parameters), list(range(len(parameters))))
        at = 0
        for bucket in range(len(parameters)):  # together they are all gradients
            self.assertEqual(parameters[bucket]["first_element"], at)
            at += parameters[bucket]["elements"]
            self.assertTrue(parameters[bucket]["parameters"])
        for step in steps:
            for bucket in parameters:
                self.assertEqual(count[step, bucket], 1)

    def test_trace_of_two_ranks(self):
        buckets = ["--set", "buckets.first_bytes=1000", "--set", "buckets.bytes=50000"]
        _, _, check = self.profiled(*buckets)
        steps = [3, 4, 5, 6]
        spans = []
        for rank in (0, 1):
            self.assertRegex(check.names["process_name", rank, 0], rf"^rank {rank} \(.+, .+\)$")
            self.check_steps(check, rank, steps)
            self.check_layers(check, rank, steps)
            self.check_buckets(check, rank, steps)
            self.assertEqual([e["args"]["step"] for e in check.track(rank, "update")], steps)
            self.assertEqual([e["args"]["step"] for e in check.track(rank, "data: next batch")], steps)
            events = check.track(rank, "step")
            spans.append((begin_of(events[0]), end_of(events[-1])))
        self.assertLess(max(begin for begin, _ in spans), min(end for _, end in spans))
        about = self.trace["otherData"]
        self.assertEqual((about["steps"], about["ranks"]), ("steps 3 to 6", 2))
        for rank, clock in enumerate(about["clocks"]):  # one host has one clock
            self.assertEqual((clock["rank"], clock["ahead_of_rank_0_ns"]), (rank, 0))
            self.assertLess(clock["uncertainty_ns"], 10**9)
        self.assertGreater(about["peak_flops_per_second"], 0)
        self.assertGreater(about["peak_bytes_per_second"], 0)

    def test_allreduce_ends_on_all_ranks_after_all_have_begun_it(self):
        """Would fail if the clocks of the ranks were aligned wrongly."""
        _, _, check = self.profiled()
        slack = max(clock["uncertainty_ns"] for clock in self.trace["otherData"]["clocks"])
        sums = collections.defaultdict(list)
        for rank in (0, 1):
            for event in check.track(rank, "communication"):
                sums[event["args"]["step"], event["args"]["bucket"]].append(event)
        for pair in sums.values():
            self.assertEqual(len(pair), 2)
            self.assertLessEqual(max(map(begin_of, pair)), min(map(end_of, pair)) + slack)

    def test_profiling_does_not_change_the_losses(self):
        plain, _ = self.train("plain")
        profiled, _, _ = self.profiled()
        self.assertEqual(len(losses(plain)), 12)
        self.assertEqual(losses(profiled), losses(plain))
        self.assertFalse((plain / "trace.json").exists())
        self.assertFalse((plain / "profile.txt").exists())

    def test_table_agrees_with_the_trace(self):
        folder, output, check = self.profiled()
        table = (folder / "profile.txt").read_text()
        self.assertIn(table.strip(), output)
        self.assertRegex(table, r"(?m)^\S+, FP32, steps 3 to 6 on .+: means of 4 steps on 2 ranks$")
        mean = collections.Counter()
        for rank in (0, 1):
            for event in check.track(rank, "step") + check.track(rank, "compute"):
                mean[event["cat"], event["name"]] += (end_of(event) - begin_of(event)) / 8e6
        rows = {}
        for line in table.splitlines():
            for name in [*PHASES, "not accounted for", "step", *LAYERS]:
                if line.startswith(name + " "):
                    rows.setdefault(name, line[len(name) :].split())
        for phase in PHASES:
            self.assertAlmostEqual(float(rows[phase][0]), mean["phase", phase], delta=0.002)
        for layer in LAYERS:
            self.assertAlmostEqual(float(rows[layer][1]), mean["forward", layer], delta=0.002)
            self.assertAlmostEqual(float(rows[layer][2]), mean["backward", layer], delta=0.002)
        parts = sum(float(rows[name][0]) for name in [*PHASES, "not accounted for"])
        self.assertAlmostEqual(parts, float(rows["step"][0]), delta=0.01)

    def test_loader_threads_and_passes(self):
        _, _, check = self.profiled("--set", "data.threads=2", "--set", "batch.micro=8", ranks=0)
        self.check_steps(check, 0, [3, 4, 5, 6])
        self.check_layers(check, 0, [3, 4, 5, 6], passes=8)
        read = [e for e in check.events if e["ph"] == "X" and e["name"] == "read"]
        self.assertTrue(read)
        for event in read:
            self.assertRegex(check.names["thread_name", event["pid"], event["tid"]], r"^data: loader \d$")
            self.assertGreaterEqual(event["args"]["position"], 0)

    def test_run_that_ends_within_the_window_writes_a_partial_profile(self):
        _, output, check = self.profiled(window="10..20")
        self.check_steps(check, 0, [10, 11, 12])
        self.assertIn("steps 10 to 12", output)

    def test_run_that_ends_before_the_window_prints_a_message(self):
        folder, output = self.train("short", "--profile", "steps=100..120", ranks=0, steps=3)
        self.assertIn("nothing was profiled: the run had no steps 100 to 120", output)
        self.assertFalse((folder / "trace.json").exists())

    def test_unwritable_trace_does_not_end_the_run(self):
        folder = self.scratch / "profiled"
        (folder / "trace.json").mkdir(parents=True)
        _, output = self.train("profiled", "--profile", "steps=3..6", ranks=0)
        self.assertIn("warning: profile: ", output)
        self.assertTrue((folder / "profile.txt").exists())
        self.assertEqual(len(losses(folder)), 12)

    def test_invalid_window_is_an_error(self):
        for window in ("3..6", "steps=6..3", "steps=0..3"):
            self.train("refused", "--profile", window, ranks=0, code=2)
        self.assertFalse((self.scratch / "refused").exists())


if __name__ == "__main__":
    unittest.main()
