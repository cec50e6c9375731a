"""Reads the event files of a run with TensorBoard's own reader: scalars, histograms, samples, the configuration."""

import io
import json
import math

import numpy
import PIL.Image
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from program import ProgramTest, run, unittest

# RGB images, and a convolution whose weights are padded on CPUs with blocked layouts; three epochs of 5 steps.
CONFIG = """
model {{ network {{
  layer {{ conv2d {{ channels: 20 kernel: 3 padding: 1 }} }}
  layer {{ relu {{}} }}
  layer {{ conv2d {{ channels: 24 kernel: 3 stride: 2 }} }}
  layer {{ flatten {{}} }}
  layer {{ dense {{ units: 10 }} }}
  layer {{ softmax_cross_entropy {{}} }}
}} }}
data {{
  root: "{root}"
  cifar {{ train_file: "train.bin" eval_file: "train.bin" }}
}}
batch {{ global: 8 }}
train {{ epochs: 3 eval_every_steps: 4 }}
optimizer {{ sgd {{ momentum: 0.9 }} }}
schedule {{ learning_rate: 0.01 cosine {{}} }}
checkpoint {{ every_steps: 5 every_epochs: 0 }}
metrics {{ images: 6 csv: true utilization: true }}
"""
SAMPLES = 40
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def pixels(sample):
    """Returns the pixels of a CIFAR-10 record: three planes of 32 x 32."""
    return bytes((sample * 5 + i // 7) % 256 for i in range(3 * 32 * 32))


class TensorBoardTest(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.scratch / "train.bin").write_bytes(b"".join(bytes([i % 10]) + pixels(i) for i in range(SAMPLES)))
        self.config = self.scratch / "run.txtpb"
        self.config.write_text(CONFIG.format(root=self.scratch))
        self.run_dir = self.scratch / "run"

    def train(self, *more, ranks=2):
        return run("train", self.config, "--run-dir", self.run_dir, *more, ranks=ranks)

    def records(self, event):
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def accumulator(self):
        """Returns an accumulator that has read all events of all files in the folder."""
        accumulator = event_accumulator.EventAccumulator(
            str(self.run_dir / "tensorboard"), {kind: 0 for kind in event_accumulator.DEFAULT_SIZE_GUIDANCE}
        )
        return accumulator.Reload()

    def expect_scalar(self, accumulator, tag, records, key):
        got = [(scalar.step, scalar.value) for scalar in accumulator.Scalars(tag)]
        self.assertEqual([step for step, _ in got], [record["step"] for record in records], tag)
        for (step, value), record in zip(got, records):
            # metrics.jsonl has four decimals of milliseconds, TensorBoard the float.
            self.assertTrue(math.isclose(value, record[key], rel_tol=1e-5, abs_tol=6e-5), (tag, step, value, record[key]))

    def test_scalars_match_metrics_jsonl(self):
        self.train()
        accumulator = self.accumulator()
        steps = self.records("step")
        evaluations = self.records("eval")
        self.assertEqual(len(steps), 15)
        self.assertEqual(len(evaluations), 6)
        for tag, key in (
            ("train/loss", "train_loss"),
            ("train/learning_rate", "learning_rate"),
            ("speed/samples_per_second", "samples_per_second"),
            ("speed/model_flops_utilization", "model_flops_utilization"),
            ("step_ms/whole", "step_ms"),
            ("step_ms/data_wait", "data_wait_ms"),
            ("step_ms/exposed_communication", "exposed_comm_ms"),
            ("step_ms/forward", "forward_ms"),
            ("step_ms/backward", "backward_ms"),
            ("step_ms/update", "update_ms"),
        ):
            self.expect_scalar(accumulator, tag, steps, key)
        losses = numpy.float32([scalar.value for scalar in accumulator.Scalars("train/loss")])
        self.assertEqual(losses.tolist(), numpy.float32([record["train_loss"] for record in steps]).tolist(), "to the bit")
        for name in ("loss", "accuracy", "top5", "macro_precision", "macro_recall", "macro_f1"):
            self.expect_scalar(accumulator, f"eval/{name}", evaluations, f"eval_{name}")
        lags = self.records("ranks")
        for record in lags:
            self.assertEqual(len(record["lag_ms"]), 2)
        tags = accumulator.Tags()["scalars"]
        self.assertEqual("rank_lag_ms/1" in tags, bool(lags))

    def test_histograms_count_every_parameter(self):
        self.train(ranks=0)
        accumulator = self.accumulator()
        histograms = self.records("histograms")
        self.assertEqual(histograms[0]["step"], 5, "after the first epoch at the latest")
        self.assertGreater(histograms[0]["stall_seconds"], 0)
        count = {
            "layer1.weight": 20 * 3 * 9,
            "layer3.weight": 24 * 20 * 9,
            "layer5.weight": 10 * 24 * 15 * 15,
            "layer1.bias": 20,
            "layer3.bias": 24,
            "layer5.bias": 10,
        }
        tags = accumulator.Tags()["histograms"]
        of_kind = {kind: [tag for tag in tags if tag.startswith(kind)] for kind in ("weights/", "gradients/")}
        for kind, found in of_kind.items():
            total = 0
            for tag in found:
                events = accumulator.Histograms(tag)
                self.assertEqual([event.step for event in events], [record["step"] for record in histograms])
                histogram = events[0].histogram_value
                self.assertEqual(sum(histogram.bucket), histogram.num, tag)
                self.assertEqual(len(histogram.bucket), len(histogram.bucket_limit))
                self.assertEqual(list(histogram.bucket_limit), sorted(histogram.bucket_limit))
                self.assertLessEqual(histogram.min, histogram.max)
                total += histogram.num
            self.assertEqual(total, sum(count.values()), kind)
            self.assertEqual(len(found), len(count), kind)
        parameters = self.records("start")[0]["parameters"]
        self.assertEqual(sum(count.values()), parameters)

    def test_samples_are_the_images_that_the_network_receives(self):
        self.train(ranks=0)
        accumulator = self.accumulator()
        tags = accumulator.Tags()["images"]
        self.assertEqual(tags, [f"samples/{i:02}" for i in range(6)])
        all_pixels = {}
        for sample in range(SAMPLES):
            planes = pixels(sample)
            all_pixels[bytes(planes[c * 1024 + p] for p in range(1024) for c in range(3))] = sample
        for tag in tags:
            (event,) = accumulator.Images(tag)
            image = PIL.Image.open(io.BytesIO(event.encoded_image_string))
            self.assertEqual((image.size, image.mode), ((32, 32), "RGB"))
            self.assertEqual((event.width, event.height), (32, 32))
            sample = all_pixels[image.tobytes()]
            self.assertIn(accumulator.SummaryMetadata(tag).display_name, (f"class {sample % 10}", NAMES[sample % 10]))

    def test_hyperparameters_and_configuration(self):
        self.train(ranks=0)
        # The reader of the HPARAMS tab.
        accumulator = plugin_event_accumulator.EventAccumulator(str(self.run_dir / "tensorboard")).Reload()
        content = accumulator.PluginTagToContent(metadata.PLUGIN_NAME)

        def data(tag):
            return plugin_data_pb2.HParamsPluginData.FromString(content[tag])

        start = data(metadata.SESSION_START_INFO_TAG).session_start_info
        self.assertEqual(start.hparams["optimizer.sgd.momentum"].number_value, 0.9)
        self.assertEqual(start.hparams["batch.global"].number_value, 8)
        self.assertEqual(start.hparams["train.precision"].string_value, "FP32")
        experiment = data(metadata.EXPERIMENT_TAG).experiment
        self.assertEqual({info.name for info in experiment.hparam_infos}, set(start.hparams))
        scalars = set(self.accumulator().Tags()["scalars"])
        metrics = [info.name.tag for info in experiment.metric_infos]
        self.assertIn("eval/accuracy", metrics)
        self.assertLessEqual(set(metrics), scalars, "every metric has a curve")
        self.assertEqual(data(metadata.SESSION_END_INFO_TAG).session_end_info.status, 1)
        (text,) = accumulator.Tensors("configuration")
        self.assertIn("learning_rate: 0.01", text.tensor_proto.string_val[0].decode())

    def test_resumed_run_has_each_step_once(self):
        self.train("--set", "train.max_steps=12", ranks=0)
        for checkpoint in (self.run_dir / "checkpoints").iterdir():
            if checkpoint.name != "step-00000005":  # simulates a crash after that checkpoint
                remove(checkpoint)
        self.train(ranks=0)
        files = sorted((self.run_dir / "tensorboard").iterdir())
        self.assertEqual(len(files), 2)
        steps = self.records("step")
        self.assertEqual([record["step"] for record in steps], list(range(1, 16)))
        self.expect_scalar(self.accumulator(), "train/loss", steps, "train_loss")
        self.expect_scalar(self.accumulator(), "eval/loss", self.records("eval"), "eval_loss")
        rows = (self.run_dir / "steps.csv").read_text().splitlines()
        self.assertEqual([row.split(",")[0] for row in rows], ["step", *(str(step) for step in range(1, 16))])
        evaluations = (self.run_dir / "evaluations.csv").read_text().splitlines()
        self.assertEqual(len(evaluations), 1 + len(self.records("eval")))


def remove(path):
    """Removes a checkpoint, or a link to one."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


if __name__ == "__main__":
    unittest.main()
