"""Checks the manifests of deploy/kubernetes: formatting, schema, and consistency with each other, the image and the program."""

import copy
import json
import shutil
import subprocess
import sys
import time
import unittest

import jsonschema
import yaml
from program import ProgramTest, run

import tools
from tools import DEPLOY, ROOT

FOLDER = DEPLOY / "kubernetes"
LAYOUT = "{extends: default, rules: {line-length: {max: 140}, document-start: disable}}"


def load(name):
    return yaml.safe_load((FOLDER / name).read_text())


def pod(job, replica):
    return job["spec"]["mpiReplicaSpecs"][replica]["template"]["spec"]


class Manifests(ProgramTest):
    def setUp(self):
        super().setUp()
        self.job = load("mpijob.yaml")
        self.launcher = pod(self.job, "Launcher")
        self.worker = pod(self.job, "Worker")

    def test_yamllint(self):
        folders = FOLDER, DEPLOY / "prometheus", ROOT / "tests/deploy"
        tools.check(sys.executable, "-m", "yamllint", "--strict", "-d", LAYOUT, *folders)

    def test_schema(self):
        schema = json.loads((ROOT / "tests/deploy/mpijob.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        self.assertEqual([error.message for error in validator.iter_errors(self.job)], [])
        for field, value in (("cleanPodPolicy", "Sometimes"), ("backoffLimits", 3)):
            wrong = copy.deepcopy(self.job)
            wrong["spec"]["runPolicy"][field] = value
            self.assertTrue(list(validator.iter_errors(wrong)), field)

    def test_names_are_consistent(self):
        kustomization = load("kustomization.yaml")
        self.assertEqual(sorted(kustomization["resources"]), ["metrics.yaml", "mpijob.yaml", "volume.yaml"])
        (config,) = kustomization["configMapGenerator"]
        claim = load("volume.yaml")["metadata"]["name"]
        for spec in (self.launcher, self.worker):
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            self.assertEqual(volumes["volume"]["persistentVolumeClaim"]["claimName"], claim)
            (container,) = spec["containers"]
            self.assertEqual(container["image"], kustomization["images"][0]["name"])
            self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, set(volumes))
        mounts = {mount["name"]: mount["mountPath"] for mount in self.worker["containers"][0]["volumeMounts"]}
        command = self.launcher["containers"][0]["command"]
        self.assertEqual(config["name"], "trireme-run")
        self.assertIn(f"{mounts['config']}/{config['files'][0]}", command)
        self.assertTrue(command[command.index("--run-dir") + 1].startswith(mounts["volume"] + "/"))
        self.assertEqual(mounts["shared-memory"], "/dev/shm")

    def test_manifests_match_the_image(self):
        command = self.launcher["containers"][0]["command"]
        self.assertEqual(command[0], "/opt/trireme/launch/supervise")
        self.assertTrue((ROOT / "launch/supervise").exists())
        grace = int(command[command.index("--grace") + 1].removesuffix("s"))
        self.assertGreater(self.launcher["terminationGracePeriodSeconds"], grace + 10)
        dockerfile = (DEPLOY / "docker/Dockerfile.cpu").read_text()
        sshd = self.worker["containers"][0]["command"]
        self.assertIn(f"COPY deploy/docker/sshd.conf {sshd[-1]}\n", dockerfile)
        user = self.worker["securityContext"]["runAsUser"]
        self.assertIn(f"useradd --uid {user} --create-home trireme", dockerfile)
        self.assertEqual(self.job["spec"]["sshAuthMountPath"], "/home/trireme/.ssh")
        settings = (DEPLOY / "docker/sshd.conf").read_text()
        self.assertIn(f"\nHostKey {self.job['spec']['sshAuthMountPath']}/id_rsa\n", settings)
        ports = {port["name"]: port["containerPort"] for port in self.worker["containers"][0]["ports"]}
        self.assertIn(f"\nPort {ports['ssh']}\n", settings)

    def test_prometheus_finds_rank_0(self):
        ports = {port["name"]: port["containerPort"] for port in self.worker["containers"][0]["ports"]}
        service = load("metrics.yaml")
        monitor = load("podmonitor.yaml")
        selected = {
            "training.kubeflow.org/job-name": self.job["metadata"]["name"],
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-index": "0",
        }
        self.assertEqual(service["spec"]["selector"], selected)
        self.assertEqual(monitor["spec"]["selector"]["matchLabels"], selected)
        self.assertEqual(service["metadata"]["annotations"]["prometheus.io/port"], str(ports["metrics"]))
        self.assertEqual(service["spec"]["ports"][0]["port"], ports["metrics"])
        self.assertEqual(monitor["spec"]["podMetricsEndpoints"][0]["port"], "metrics")
        self.assertIn(f'metrics {{ port: {ports["metrics"]} address: "0.0.0.0" }}', (FOLDER / "run.txtpb").read_text())

    def test_the_run_trains(self):
        fields = ["data.root=data/digits", "metrics.port=0", "train.max_steps=2"]
        options = [part for field in fields for part in ("--set", field)]
        out = run("train", FOLDER / "run.txtpb", "--run-dir", self.scratch / "run", *options)
        self.assertIn("2 steps", out)

    def test_pre_stop_hook_waits_for_the_ranks(self):
        """The worker's preStop hook sends SIGUSR1 to the ranks, and ends process 1 only after they have exited."""
        *_, script = self.worker["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        saved = self.scratch / "saved"
        rank = self.scratch / "trireme"  # the hook finds processes by their program's name
        shutil.copy("/bin/bash", rank)
        program = f"trap 'sleep 0.5; touch {saved}; exit' USR1; touch {self.scratch}/ready; while :; do sleep 0.1; done"
        ours = subprocess.Popen([rank, "-c", program])
        self.addCleanup(ours.kill)
        end = time.monotonic() + 10
        while not (self.scratch / "ready").exists() and time.monotonic() < end:
            time.sleep(0.05)
        # Restricts the script to this process, and replaces the signal to process 1.
        script = script.replace("/proc/[0-9]*/comm", f"/proc/{ours.pid}/comm")
        script = script.replace("kill -TERM 1", f"echo done; ls {saved}")
        self.assertNotIn("TERM 1", script)
        waiting = subprocess.Popen(["/bin/bash", "-c", script], stdout=subprocess.PIPE, text=True)
        self.assertEqual(ours.wait(timeout=20), 0)
        out, _ = waiting.communicate(timeout=20)
        self.assertEqual(out.split(), ["done", str(saved)])

    def test_kustomize(self):
        kubectl = tools.find("kubectl")
        if not kubectl:
            self.skipTest("kubectl is not installed")
        objects = list(yaml.safe_load_all(tools.check(kubectl, "kustomize", FOLDER)))
        self.assertEqual(
            sorted(item["kind"] for item in objects), ["ConfigMap", "MPIJob", "PersistentVolumeClaim", "Service"]
        )
        (job,) = [item for item in objects if item["kind"] == "MPIJob"]
        self.assertEqual(pod(job, "Worker")["containers"][0]["image"], "registry.example.com/trireme:cpu")


if __name__ == "__main__":
    unittest.main(verbosity=2)
