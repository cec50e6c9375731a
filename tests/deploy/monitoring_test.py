"""Checks Prometheus' configuration and alerts and Grafana's dashboard with promtool and against the metrics of the program."""

import itertools
import json
import os
import re
import unittest

import yaml
from program import ProgramTest

import tools
from tools import DEPLOY, ROOT

PROMETHEUS = DEPLOY / "prometheus"
METRIC = re.compile(r"\btrireme_[a-z0-9_]+")


def served():
    """Returns the names of all metrics that the program can serve, from the sources of the sink and of the evaluation metrics."""
    names = set()
    for source in (ROOT / "trainer/report/sinks").glob("prometheus*.cc"):
        names.update(METRIC.findall(source.read_text()))
    names.discard("trireme_eval_")  # only a prefix
    evaluation = (ROOT / "trainer/base/evaluation_metrics.h").read_text()
    names.update("trireme_eval_" + name for name in re.findall(r'\{\.name = "(\w+)"', evaluation))
    return names


def metrics_in(expressions):
    return set(METRIC.findall(" ".join(expressions)))


class Prometheus(ProgramTest):
    def promtool(self, *arguments):
        promtool = tools.find("promtool")
        if not promtool:
            self.skipTest("promtool is not installed (Debian's package prometheus)")
        return tools.check(promtool, *arguments)

    def test_configuration(self):
        self.promtool("check", "config", PROMETHEUS / "prometheus.yml")

    def test_alerts_fire_when_they_should(self):
        self.promtool("test", "rules", ROOT / "tests/deploy/alerts_test.yml")

    def test_every_alert_is_tested(self):
        (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
        names = [rule["alert"] for rule in group["rules"]]
        cases = yaml.safe_load((ROOT / "tests/deploy/alerts_test.yml").read_text())["tests"]
        for name in names:
            tried = [rule for case in cases for rule in case["alert_rule_test"] if rule["alertname"] == name]
            self.assertTrue(any("exp_alerts" in rule for rule in tried), f"{name} never fires")
            self.assertTrue(any("exp_alerts" not in rule for rule in tried), f"{name} is never silent")

    def test_metrics_of_alerts_are_served(self):
        (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
        self.assertLessEqual(metrics_in(rule["expr"] for rule in group["rules"]), served())

    def test_expressions_of_the_dashboard(self):
        rules = [
            {"record": f"panel:{index}", "expr": Dashboard.filled_in(target["expr"])}
            for index, (_, target) in enumerate(Dashboard.targets())
        ]
        file = self.scratch / "rules.yml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
        self.assertIn(f"{len(rules)} rules found", self.promtool("check", "rules", file))

    def test_slurm_targets(self):
        tools.fake(self.scratch, "squeue", 'echo "$*" >"$ASKED"; printf "n7 41 ada\\nn9 42 bob\\n"')
        environment = {"PATH": f"{self.scratch}:{os.environ['PATH']}", "ASKED": str(self.scratch / "asked")}
        folder = self.scratch / "targets"
        script = PROMETHEUS / "slurm-targets"
        tools.check(script, folder, "9500", "digits", env=environment)
        self.assertIn("--name=digits", (self.scratch / "asked").read_text())
        self.assertEqual([file.name for file in folder.iterdir()], ["slurm.json"])
        self.assertEqual(
            json.loads((folder / "slurm.json").read_text()),
            [
                {"targets": ["n7:9500"], "labels": {"slurm_job": "41", "user": "ada"}},
                {"targets": ["n9:9500"], "labels": {"slurm_job": "42", "user": "bob"}},
            ],
        )
        tools.fake(self.scratch, "squeue", "")
        tools.check(script, folder, env=environment)
        self.assertEqual(json.loads((folder / "slurm.json").read_text()), [])
        tools.fake(self.scratch, "squeue", "echo n1 1 eve; exit 1")
        with self.assertRaises(AssertionError):
            tools.check(script, folder, env=environment)
        self.assertEqual(json.loads((folder / "slurm.json").read_text()), [])


class Dashboard(unittest.TestCase):
    @staticmethod
    def load():
        return json.loads((DEPLOY / "grafana/trireme.json").read_text())

    @classmethod
    def targets(cls):
        return [(panel, target) for panel in cls.load()["panels"] for target in panel.get("targets", [])]

    @staticmethod
    def filled_in(expression):
        """Returns the query that Grafana sends if all models and runs are selected."""
        for name, value in {"model": ".*", "run": ".*", "__rate_interval": "1m"}.items():
            expression = re.sub(rf"\${name}\b", value, expression)
        return expression

    def test_metrics_are_served(self):
        names = metrics_in(target["expr"] for _, target in self.targets())
        self.assertLessEqual(names, served())
        self.assertEqual(sorted(served() - names), [], "served, but in no panel")

    def test_panels_do_not_overlap(self):
        panels = self.load()["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            self.assertGreater(place["h"] * place["w"], 0)
        for a, b in itertools.combinations(panels, 2):
            p, q = a["gridPos"], b["gridPos"]
            apart = (
                p["x"] + p["w"] <= q["x"]
                or q["x"] + q["w"] <= p["x"]
                or p["y"] + p["h"] <= q["y"]
                or q["y"] + q["h"] <= p["y"]
            )
            self.assertTrue(apart, f"{a['title']} overlaps {b['title']}")

    def test_variables(self):
        dashboard = self.load()
        declared = {variable["name"] for variable in dashboard["templating"]["list"]}
        text = json.dumps(dashboard)
        used = set(re.findall(r"\$\{?([a-z]\w*)", text))
        self.assertEqual(used, declared)
        sources = re.findall(r'"uid": "(\$[^"]*)"', text)
        self.assertEqual(set(sources), {"${datasource}"})

    def test_panels_are_complete(self):
        for panel, target in self.targets():
            self.assertTrue(panel["title"])
            self.assertEqual(panel["datasource"]["type"], "prometheus")
            if panel["type"] != "table":
                self.assertIn("{{run_dir}}", target["legendFormat"], panel["title"])
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
