"""Fine-tuning: from weights that know digits, another question about them is learnt in fewer epochs than from nothing."""

import gzip
import json

import numpy
from program import ROOT, ProgramTest, run, unittest
from safetensors.numpy import load_file, save_file

CONFIG = """
model {{
  network {{
    name: "digits-cnn"
    layer {{ name: "conv1" conv2d {{ channels: 16 kernel: 3 padding: 1 bias: false }} }}
    layer {{ name: "bn1" batch_norm {{}} }}
    layer {{ name: "relu1" relu {{}} }}
    layer {{ name: "conv2" conv2d {{ channels: 32 kernel: 3 padding: 1 bias: false }} }}
    layer {{ name: "bn2" batch_norm {{}} }}
    layer {{ name: "relu2" relu {{}} }}
    layer {{ name: "pool" max_pool {{ kernel: 2 }} }}
    layer {{ name: "flatten" flatten {{}} }}
    layer {{ name: "fc1" dense {{ units: 32 }} }}
    layer {{ name: "relu3" relu {{}} }}
    layer {{ name: "fc2" dense {{ units: {classes} }} }}
    layer {{ name: "loss" softmax_cross_entropy {{}} }}
  }}
}}
data {{
  root: "{root}"
  npy {{
    train_inputs: "{name}-train-x.npy" train_targets: "{name}-train-y.npy"
    eval_inputs: "{name}-eval-x.npy" eval_targets: "{name}-eval-y.npy"
    scale: 0.0625
  }}
  normalize {{ mean: 0.3 std: 0.37 }}
}}
batch {{ global: {batch} }}
train {{ epochs: {epochs} threads: 1 }}
optimizer {{ sgd {{ momentum: 0.9 }} }}
schedule {{ learning_rate: 0.01 }}
metrics {{ tensorboard: false }}
"""

ENOUGH = 0.75  # right of what was not trained on


class FineTuneTest(ProgramTest):
    def setUp(self):
        super().setUp()
        with gzip.open(ROOT / "data/digits/digits.csv.gz", "rt") as file:
            rows = numpy.loadtxt(file, delimiter=",", dtype=numpy.float32)
        images, digits = rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(numpy.int32)
        # One half for what the weights know, 70 images a digit; of the other eight a digit, two of which are one class.
        half = len(digits) // 2
        self.write("old", images[:half], digits[:half], digits[:half], each=70)
        self.write("new", images[half:], digits[half:], digits[half:] % 5, each=8)

    def write(self, name, images, digits, labels, each):
        train = numpy.concatenate([numpy.flatnonzero(digits == digit)[:each] for digit in range(10)])
        test = numpy.setdiff1d(numpy.arange(len(digits)), train)
        for part, chosen in (("train", train), ("eval", test)):
            numpy.save(self.scratch / f"{name}-{part}-x.npy", images[chosen])
            numpy.save(self.scratch / f"{name}-{part}-y.npy", labels[chosen])

    def train(self, name, data, *options, **numbers):
        config = self.scratch / f"{data}.txtpb"
        config.write_text(CONFIG.format(root=self.scratch, name=data, **numbers))
        return run("train", config, "--run-dir", self.scratch / name, *options)

    def accuracies(self, name):
        events = [json.loads(line) for line in (self.scratch / name / "metrics.jsonl").read_text().splitlines()]
        return [event["eval_accuracy"] for event in events if event["event"] == "eval"]

    def epochs_to_enough(self, name):
        return next(epoch for epoch, accuracy in enumerate(self.accuracies(name), 1) if accuracy >= ENOUGH)

    def test_fewer_epochs_than_from_nothing(self):
        self.train("old", "old", classes=10, epochs=12, batch=50)
        self.assertGreater(self.accuracies("old")[-1], 0.9)
        # As another program would hand it on: half precision, a prefix before every name.
        [saved] = sorted((self.scratch / "old/checkpoints").glob("step-*"))[-1:]
        tensors = {"module." + name: value.astype("f2") for name, value in load_file(saved / "model.safetensors").items()}
        save_file(tensors, self.scratch / "old.safetensors")

        numbers = dict(classes=5, batch=20)
        self.train("nothing", "new", epochs=15, **numbers)
        start = ("--init-from", self.scratch / "old.safetensors")
        output = self.train("finetuned", "new", *start, epochs=5, **numbers)
        self.assertIn("init: 12 of 14 tensors from old.safetensors; fc2 is newly initialized (10 -> 5 classes)", output)
        output = self.train("frozen", "new", *start, "--set", "model.freeze=(conv|bn).*", epochs=5, **numbers)
        self.assertIn("(16.58 k trained, the others frozen)", output)

        epochs = {name: self.epochs_to_enough(name) for name in ("nothing", "finetuned", "frozen")}
        print(f"epochs to {ENOUGH:.0%}: {epochs}")
        self.assertLess(2 * epochs["finetuned"], epochs["nothing"])
        self.assertLess(2 * epochs["frozen"], epochs["nothing"])


if __name__ == "__main__":
    unittest.main()
