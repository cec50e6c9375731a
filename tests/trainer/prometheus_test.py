"""The metrics port of a run can be parsed by Prometheus' own parser and agrees with metrics.jsonl."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from program import ROOT, TRIREME, ProgramTest, run, unittest

# Would run for minutes; the tests stop it.
CONFIG = """
model { zoo { name: "mlp" hidden: [64, 64] } }
data { synthetic { shape: [1, 8, 8] count: 4096 eval_count: 64 } }
batch { global: 32 }
train { max_steps: 1000000 eval_every_steps: 25 eval_every_epochs: 0 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.001 }
checkpoint { every_steps: 50 every_epochs: 0 keep_best: false }
"""
# Names and types of metrics used by the dashboard and the alerts in deploy/.
GAUGES = """run_info step epoch planned_steps train_loss learning_rate samples_per_second step_seconds data_wait_seconds
exposed_communication_seconds forward_seconds backward_seconds update_seconds resident_memory_bytes
last_step_timestamp_seconds eval_loss eval_accuracy eval_top5 eval_macro_precision
eval_macro_recall eval_macro_f1 checkpoint_step checkpoint_timestamp_seconds""".split()
COUNTERS = "samples skipped_steps bad_records metrics_dropped".split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PrometheusTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.config = self.scratch / "run.txtpb"
        self.config.write_text(CONFIG)
        self.run_dir = self.scratch / "run"

    def start(self, port, *more, ranks=0):
        command = [TRIREME, "train", self.config, "--run-dir", self.run_dir, "--metrics-port", port, *more]
        if ranks:
            command = ["mpirun", "-np", ranks, "--oversubscribe", "--bind-to", "none", *command]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        process = subprocess.Popen(
            [str(word) for word in command], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def scrape(self, port, process, until, patience=60):
        """Returns the metric families by name, once all of `until` are there."""
        end = time.monotonic() + patience
        families = {}
        while time.monotonic() < end and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))
                    text = answer.read().decode()
            except OSError:  # it does not listen yet
                time.sleep(0.05)
                continue
            families = {family.name: family for family in text_string_to_metric_families(text)}
            if until <= families.keys():
                return families
            time.sleep(0.05)
        self.fail(f"{until - families.keys()} did not appear; exit code of the run: {process.poll()}")

    def test_names_kinds_and_values(self):
        port = free_port()
        process = self.start(port)
        wanted = {f"trireme_{name}" for name in GAUGES + COUNTERS}
        families = self.scrape(port, process, wanted)
        for name in GAUGES:
            self.assertEqual(families[f"trireme_{name}"].type, "gauge", name)
        for name in COUNTERS:
            self.assertEqual(families[f"trireme_{name}"].type, "counter", name)
        for name in wanted:
            self.assertTrue(families[name].documentation, name)

        def value(name):
            return families[f"trireme_{name}"].samples[0].value

        labels = families["trireme_run_info"].samples[0].labels
        self.assertEqual((labels["model"], labels["precision"], labels["ranks"]), ("mlp", "FP32", "1"))
        self.assertEqual(labels["run_dir"], str(self.run_dir))
        self.assertEqual(value("planned_steps"), 1000000)
        step = int(value("step"))
        self.assertEqual(value("samples"), 32 * step)
        self.assertAlmostEqual(value("last_step_timestamp_seconds"), time.time(), delta=60)
        self.assertGreater(value("resident_memory_bytes"), 1e6)
        dropped = {sample.labels["sink"]: sample.value for sample in families["trireme_metrics_dropped"].samples}
        self.assertLessEqual({"metrics.jsonl", "tensorboard", "prometheus"}, dropped.keys())
        self.assertEqual(set(dropped.values()), {0})

        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 75)
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        losses = {record["step"]: record["train_loss"] for record in records if record["event"] == "step"}
        self.assertAlmostEqual(value("train_loss"), losses[step], places=6)
        evaluations = [record["eval_loss"] for record in records if record["event"] == "eval"]
        self.assertIn(round(value("eval_loss"), 9), [round(loss, 9) for loss in evaluations])

    def test_lag_of_each_rank(self):
        port = free_port()
        process = self.start(port, ranks=2)
        families = self.scrape(port, process, {"trireme_rank_lag_seconds"})
        lags = {sample.labels["rank"]: sample.value for sample in families["trireme_rank_lag_seconds"].samples}
        self.assertEqual(lags.keys(), {"0", "1"})
        self.assertEqual(min(lags.values()), 0, "one of two waits at least as long as the other")
        self.assertLess(max(lags.values()), 1)
        process.send_signal(signal.SIGUSR1)  # mpirun forwards it
        self.assertEqual(process.wait(60), 75)

    def test_slow_connections_block_neither_metrics_nor_the_end(self):
        port = free_port()
        process = self.start(port)
        self.scrape(port, process, {"trireme_step"})
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
        for connection in slow:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=0.9) as answer:
            self.assertEqual(answer.status, 200)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 75)
        for connection in slow:
            connection.close()

    def test_serves_the_same_host_only(self):
        port = free_port()
        process = self.start(port)
        self.scrape(port, process, {"trireme_step"})
        listening = [line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()
                     if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")]
        self.assertEqual(listening, [f"0100007F:{port:04X}"])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 75)

    def test_port_in_use_is_a_warning(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            out = run("train", self.config, "--run-dir", self.run_dir, "--metrics-port", port, "--set", "train.max_steps=50")
        self.assertIn(f"warning: metrics.port: cannot listen on 127.0.0.1:{port}", out)
        self.assertIn("done: ", out)

    def losses(self, run_dir):
        """Returns the recorded loss by step."""
        losses = {}
        for line in (run_dir / "metrics.jsonl").read_text().splitlines(keepends=True):
            record = json.loads(line) if line.endswith("\n") else {"event": "unfinished"}
            if record["event"] == "step":
                losses[record["step"]] = record["train_loss"]
        return losses

    def test_hanging_scrapers_do_not_affect_training(self):
        straight = self.scratch / "straight"
        run("train", self.config, "--run-dir", straight, "--set", "train.max_steps=200", "--set", "metrics.tensorboard=false")
        port = free_port()
        process = self.start(port)
        self.scrape(port, process, {"trireme_step"})
        hung = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        for connection in hung:
            self.addCleanup(connection.close)
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")  # an incomplete request
        begun = len(self.losses(self.run_dir))
        while len(losses := self.losses(self.run_dir)) < begun + 200:
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        for step, loss in self.losses(straight).items():
            self.assertEqual(losses[step], loss, step)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 75)


if __name__ == "__main__":
    unittest.main()
