"""Digits of which one is rare: class weights and balanced sampling find more of it. Early stopping ends a run that would
overfit, and keeps its best. docs/training-control.md has the figures that this prints."""

import csv
import gzip
import json
import statistics

from program import ROOT, ProgramTest, run, unittest

RARE, OF_RARE, TESTED = 8, 6, 40
SEEDS = (1, 2, 3)

CONFIG = """
model {{ zoo {{ name: "mlp" hidden: [32] }} }}
data {{
  root: "{root}"
  csv {{ train_file: "train.csv" eval_file: "eval.csv" scale: 0.0625 }}
  normalize {{ mean: 0.3 std: 0.37 }}
}}
batch {{ global: 64 }}
train {{ epochs: {epochs} threads: 1 }}
optimizer {{ adam {{}} }}
schedule {{ learning_rate: {rate} }}
metrics {{ tensorboard: false }}
"""


class TrainingControlTest(ProgramTest):
    def write(self, kept):
        """40 of each digit to evaluate; of the others `kept(digit)` at most to train on."""
        with gzip.open(ROOT / "data/digits/digits.csv.gz", "rt") as file:
            rows = list(csv.reader(file))
        of_digit = {digit: [row for row in rows if int(row[-1]) == digit] for digit in range(10)}
        parts = {
            "eval": [row for digit in range(10) for row in of_digit[digit][:TESTED]],
            "train": [row for digit in range(10) for row in of_digit[digit][TESTED:][: kept(digit)]],
        }
        for part, chosen in parts.items():
            with open(self.scratch / f"{part}.csv", "w") as file:
                csv.writer(file).writerows(chosen)

    def train(self, name, *settings, epochs, rate):
        config = self.scratch / "run.txtpb"
        config.write_text(CONFIG.format(root=self.scratch, epochs=epochs, rate=rate))
        run("train", config, "--run-dir", self.scratch / name, *(part for each in settings for part in ("--set", each)))
        return [json.loads((self.scratch / name / file).read_text()) for file in ("evaluation.json", "summary.json")]

    def test_the_rare_class_is_found_more_often(self):
        self.write(lambda digit: OF_RARE if digit == RARE else 1000)
        ways = {
            "plain": (),
            "class weights": ("model.zoo.balanced_class_weights=true",),
            "balanced sampling": ("data.sampling=BALANCED",),
        }
        recalls = {}
        for name, settings in ways.items():
            found = []
            for seed in SEEDS:
                evaluation, _ = self.train(f"{name}-{seed}", f"seed={seed}", *settings, epochs=20, rate=0.002)
                rare = evaluation["confusion"][RARE]
                found.append((rare[RARE] / sum(rare), evaluation["accuracy"]))
            recalls[name] = statistics.mean(recall for recall, _ in found)
            print(f"{name}: recall of digit {RARE}, accuracy:", ", ".join(f"{r:.1%} {a:.1%}" for r, a in found))
        self.assertGreater(recalls["class weights"], recalls["plain"] + 0.2)
        self.assertGreater(recalls["balanced sampling"], recalls["plain"] + 0.2)

    def test_early_stopping_ends_an_overfitting_run_with_its_best(self):
        self.write(lambda digit: 6)
        for seed in SEEDS:
            _, straight = self.train(f"straight-{seed}", f"seed={seed}", epochs=300, rate=0.01)
            stop = "train.early_stopping={monitor: 'loss' patience: 10}"
            evaluation, early = self.train(f"early-{seed}", f"seed={seed}", stop, epochs=300, rate=0.01)
            print(f"seed {seed}: {early['epochs']} of 300 epochs, best after {evaluation['epoch']}: loss "
                  f"{early['best_eval_loss']:.3f}, at the end of all {straight['eval_loss']:.3f}")
            self.assertEqual(early["ended_by"], "early_stopping")
            self.assertLess(early["epochs"], 150)
            self.assertLess(early["best_eval_loss"], straight["eval_loss"] * 0.95)
            self.assertEqual(evaluation["step"], early["best_step"])
            self.assertLess(early["best_step"], early["steps"])


if __name__ == "__main__":
    unittest.main()
