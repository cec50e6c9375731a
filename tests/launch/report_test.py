"""Opens the page of `trireme report` in a browser: every chart shows the numbers of its runs, without errors or network access."""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import browser
import program

CURVES = {
    "loss": ("step", "train_loss"),
    "learning_rate": ("step", "learning_rate"),
    "throughput": ("step", "samples_per_second"),
    "utilizations": ("step", "model_flops_utilization"),
    "eval_loss": ("eval", "eval_loss"),
    "accuracy": ("eval", "eval_accuracy"),
    "macro_f1": ("eval", "eval_macro_f1"),
}
HOSTILE = "<img src=x onerror=hit=1>"


def train(folder, *changes):
    assignments = [word for change in ("train.epochs=3", "metrics.utilization=true", *changes) for word in ("--set", change)]
    program.run("train", "launch/configs/digits.txtpb", "--run-dir", folder, *assignments, ranks=2)


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.runs = [cls.folder / "one", cls.folder / HOSTILE]
        train(cls.runs[0])
        train(cls.runs[1], "optimizer={sgd { momentum: 0.9 }}", "schedule.learning_rate=0.05")
        cls.page = cls.folder / "report.html"
        program.run("report", *cls.runs, "-o", cls.page)
        cls.browser = browser.Browser(browser.find())
        cls.addClassCleanup(cls.browser.close)

    def open(self, page=None, **options):
        self.browser.open(page or self.page, **options)
        self.assertTrue(self.browser.evaluate("triremeReport.ready"))
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual(self.browser.evaluate("triremeReport.errors"), [])
        elsewhere = [url for url in self.browser.requests if not url.startswith(("file://", "data:"))]
        self.assertEqual(elsewhere, [])
        for slip in ("null", "undefined", "NaN", "[object"):
            self.assertNotIn(slip, self.browser.evaluate("document.body.innerText"))

    def charts(self):
        return self.browser.evaluate("triremeReport.charts")

    def middle_of(self, chart):
        return self.browser.evaluate(
            f"""(() => {{ const plot = document.querySelector("#chart-{chart} .plot");
                 plot.scrollIntoView({{block: "center"}});
                 const box = plot.getBoundingClientRect();
                 return [box.x + box.width / 2, box.y + box.height / 2]; }})()"""
        )

    def tip(self, chart):
        return self.browser.evaluate(
            f"""(() => {{ const tip = document.querySelector("#chart-{chart} .tip"); return tip.hidden ? null : tip.innerText; }})()"""
        )

    def test_every_curve_shows_the_numbers_of_its_runs(self):
        self.open()
        charts = self.charts()
        for chart, (event, field) in CURVES.items():
            drawn = {each["run"]: each for each in charts[chart]}
            for run in self.runs:
                written = [line for line in lines(run) if line["event"] == event]
                self.assertGreater(len(written), 2)
                self.assertEqual(drawn[run.name]["steps"], [line["step"] for line in written], chart)
                self.assertEqual(drawn[run.name]["values"], [line[field] for line in written], chart)
            paths = self.browser.evaluate(
                f"""[...document.querySelectorAll("#chart-{chart} path.curve")].map((path) => path.getAttribute("d").split(/[ML]/).length - 1)"""
            )
            self.assertGreaterEqual(len(paths), len(self.runs), chart)
            for run, points in zip(self.runs, paths):
                self.assertEqual(points, len(drawn[run.name]["values"]), chart)

    def test_step_time_is_split_into_parts(self):
        self.open()
        for run, drawn in zip(self.runs, self.charts()["times"]):
            steps = [line["step_ms"] for line in lines(run) if line["event"] == "step"][1:]
            self.assertAlmostEqual(sum(drawn["values"]), sum(steps) / len(steps), delta=0.01 * sum(drawn["values"]))
        self.assertEqual(len(self.charts()["times-1"][0]["values"]), len(steps))

    def test_light_and_dark_themes(self):
        colors = []
        for theme in ("light", "dark"):
            self.open(theme=theme)
            colors.append(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*colors)
        self.browser.evaluate("""document.getElementById("theme").click()""")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), colors[0])

    def test_page_fits_a_phone(self):
        self.open(width=360, height=740, touch=True)
        self.assertEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 360)
        self.assertIsNone(self.tip("loss"))
        self.browser.touch(*self.middle_of("loss"))
        self.assertIn("step", self.tip("loss"))

    def test_hovering_shows_the_values_of_all_runs(self):
        self.open()
        self.browser.move_to(*self.middle_of("accuracy"))
        for run in self.runs:
            self.assertIn(run.name, self.tip("accuracy"))
        self.browser.move_to(1, 1)
        self.assertIsNone(self.tip("accuracy"))

    def test_keys_move_along_a_chart(self):
        self.open()
        self.browser.evaluate("""document.querySelector("#chart-loss .plot").focus()""")
        self.browser.press("End")
        self.assertIn(f"step {lines(self.runs[0])[-1]['step']}", self.tip("loss"))

    def test_runs_can_be_hidden_and_the_axis_changed(self):
        self.open()
        self.browser.evaluate("""document.querySelector(".legend button").click()""")
        self.assertEqual([each["run"] for each in self.charts()["loss"]], [HOSTILE])
        for axis in ("Epoch", "Time"):
            self.browser.evaluate(
                f"""[...document.querySelectorAll(".choice button")].find((button) => button.textContent === "{axis}").click()"""
            )
            self.browser.move_to(*self.middle_of("loss"))
            self.assertIn({"Epoch": "epoch 1.", "Time": " s"}[axis], self.tip("loss"))
        self.assertEqual(self.browser.evaluate("triremeReport.errors"), [])

    def test_names_are_escaped(self):
        self.open()
        self.assertIsNone(self.browser.evaluate("window.hit || null"))
        self.assertIn(HOSTILE, self.browser.evaluate("""document.getElementById("runs").innerText"""))

    def test_shows_differences_between_configurations(self):
        self.open()
        text = self.browser.evaluate("""document.getElementById("config").innerText""")
        self.assertIn("schedule.learning_rate", text)
        self.assertNotIn("batch.global", text.split("one")[-1].split(HOSTILE)[0])

    def test_confusion_matrix_of_a_hundred_classes(self):
        run = self.folder / "hundred"
        shutil.copytree(self.runs[0], run, dirs_exist_ok=True)
        matrix = [[90 if row == column else int((row * 7 + column) % 50 == 0) for column in range(100)] for row in range(100)]
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
        mistake = {"index": 1, "where": "here", "label": 3, "predicted": 4, "probability": 0.9, "png": pixel}
        names = [f"class {i}" for i in range(100)]
        (run / "evaluation.json").write_text(json.dumps({"step": 1, "classes": names, "confusion": matrix, "mistakes": [mistake]}))
        program.run("report", run)
        self.open(run / "report.html")
        self.assertEqual(self.charts()["confusion"][0]["values"], sum(matrix, []))
        images = "[...document.querySelectorAll('.images img')].map((image) => image.naturalWidth)"
        self.assertEqual(self.browser.evaluate(images), [1])
        self.assertIn("class 3", self.browser.evaluate("document.querySelector('.images').innerText"))

    def test_scores_of_each_class(self):
        self.open()
        scores = json.loads((self.runs[0] / "evaluation.json").read_text())["per_class"]
        rows = """[...document.querySelectorAll(".classes tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent))"""
        percents = [[f"{100 * of[name]:.1f}%" for name in ("precision", "recall", "f1")] for of in scores]
        wanted = [[str(i), *shown, str(of["support"])] for i, (shown, of) in enumerate(zip(percents, scores))]
        self.assertEqual(self.browser.evaluate(rows), wanted)
        self.assertIn("Macro recall", self.browser.evaluate("""document.getElementById("evaluations").innerText"""))

    def test_run_of_an_older_version(self):
        run = self.folder / "older"
        shutil.copytree(self.runs[0], run, dirs_exist_ok=True)
        old = ("event", "step", "epoch", "samples", "eval_loss", "eval_accuracy", "eval_top5", "seconds")
        written = [{key: line[key] for key in old if key in line} if line["event"] == "eval" else line for line in lines(run)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
        evaluation = json.loads((run / "evaluation.json").read_text())
        new = [name for name in evaluation if name.startswith("macro_") or name == "per_class"]
        for name in new:
            del evaluation[name]
        (run / "evaluation.json").write_text(json.dumps(evaluation))
        program.run("report", run)
        self.open(run / "report.html")
        self.assertNotIn("macro_f1", self.charts())
        self.assertNotIn("Macro", self.browser.evaluate("document.body.innerText"))
        self.assertEqual(len(self.charts()["accuracy"][0]["values"]), 3)
        # Next to a newer run it has gaps.
        both = self.folder / "both.html"
        program.run("report", run, self.runs[0], "-o", both)
        self.open(both)
        self.assertEqual([each["run"] for each in self.charts()["macro_f1"] if any(each["values"])], ["one"])
        self.assertIn("–", self.browser.evaluate("""document.getElementById("evaluations").innerText"""))

    def test_regression(self):
        run = self.folder / "regression"
        rows = [(i % 7, i % 5, 1000 + 2 * (i % 7) - i % 5) for i in range(60)]
        (self.folder / "numbers.csv").write_text("".join(f"{x},{y},{z}\n" for x, y, z in rows))
        config = self.folder / "regression.txtpb"
        config.write_text(
            """model { network { layer { dense { units: 1 } } layer { mean_squared_error {} } } }
            data { root: "%s" csv { train_file: "numbers.csv" regression: true } holdout: 0.2 }
            batch { global: 16 } train { epochs: 3 device: "cpu" } schedule { learning_rate: 0.001 }"""
            % self.folder
        )
        program.run("train", config, "--run-dir", run)
        program.run("report", run)
        self.open(run / "report.html")
        for chart in ("mae", "r2"):
            written = [line[f"eval_{chart}"] for line in lines(run) if line["event"] == "eval"]
            self.assertEqual(self.charts()[chart][0]["values"], written)
        self.assertNotIn("accuracy", self.charts())
        self.assertIn("RMSE", self.browser.evaluate("""document.getElementById("evaluations").innerText"""))

    def test_run_that_has_just_begun(self):
        run = self.folder / "young"
        run.mkdir(exist_ok=True)
        shutil.copy(self.runs[0] / "config.txtpb", run)
        whole = (self.runs[0] / "metrics.jsonl").read_text().splitlines()
        (run / "metrics.jsonl").write_text(whole[0] + "\n" + whole[1][:40])
        program.run("report", run)
        self.open(run / "report.html")
        self.assertIn("dead", self.browser.evaluate("""document.getElementById("runs").innerText"""))

    def test_folder_that_is_not_a_run(self):
        program.run("report", self.folder / "missing", code=2)
        program.run("report", self.folder, code=2)


if __name__ == "__main__":
    if not browser.find():
        print("skipped: there is no Chromium or Chrome to open the report in")
        sys.exit(77)
    unittest.main()
