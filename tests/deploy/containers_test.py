"""Lints the Dockerfiles, the Apptainer definition and the Slurm batch scripts, and checks them against the files they use."""

import os
import pathlib
import re
import shlex
import shutil
import unittest

from program import ProgramTest

import tools
from tools import DEPLOY, ROOT

DOCKERFILES = [DEPLOY / "docker" / name for name in ("Dockerfile.cpu", "Dockerfile.cuda")]
APPTAINER = DEPLOY / "apptainer/trireme.def"


def instructions(dockerfile):
    """Returns [("RUN", "..."), ...] for each stage."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages = []
    for line in filter(str.strip, text.splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((word, rest))
    return stages


def assignments(text):
    return dict(word.split("=", 1) for word in shlex.split(text))


class BundleEnvironment(ProgramTest):
    """The images set the same variables as the env.sh of a bundle in /opt/trireme."""

    def setUp(self):
        super().setUp()
        bundle = self.scratch / "bundle"
        (bundle / "bin").mkdir(parents=True)
        tools.fake(bundle / "bin", "trireme", "")
        shutil.copy(DEPLOY / "env.sh", bundle)
        out = tools.check("bash", "-c", f". {bundle}/env.sh && env", env={"PATH": os.environ["PATH"]})
        wanted = re.compile(r"^((?:TRIREME|OPAL|PMIX|HWLOC|OMPI_MCA_orte)_\w+)=(.*)$", re.MULTILINE)
        self.variables = {
            name: value.replace(str(bundle), "/opt/trireme") for name, value in wanted.findall(out)
        }
        self.assertIn("OPAL_PREFIX", self.variables)

    def test_dockerfiles(self):
        for dockerfile in DOCKERFILES:
            given = {}
            for word, rest in instructions(dockerfile)[-1]:
                if word == "ENV":
                    given.update(assignments(rest))
            self.assertEqual({**given, **self.variables}, given, dockerfile.name)
            self.assertTrue(given["PATH"].startswith("/opt/trireme/bin:"))

    def test_apptainer(self):
        section = re.search(r"^%environment\n((?: .*\n)+)", APPTAINER.read_text(), re.MULTILINE).group(1)
        given = {}
        for line in section.splitlines():
            given.update(assignments(line.replace("export ", "", 1)))
        self.assertEqual({**given, **self.variables}, given)


class Dockerfiles(unittest.TestCase):
    def test_hadolint(self):
        hadolint = tools.find("hadolint")
        if not hadolint:
            self.skipTest("hadolint is not installed")
        tools.check(hadolint, "--no-color", *DOCKERFILES)

    def test_image_contains_only_the_bundle(self):
        for dockerfile in DOCKERFILES:
            build, final = instructions(dockerfile)
            words = [word for word, _ in final]
            self.assertIn(("USER", "1000:1000"), final)
            self.assertEqual(final[-2:], [("ENTRYPOINT", '["trireme"]'), ("CMD", '["--help"]')])
            self.assertIn(("STOPSIGNAL", "SIGUSR1"), final)
            self.assertIn("LABEL", words)
            self.assertNotIn("HEALTHCHECK", words)
            self.assertIn(("COPY", "--from=build /opt/trireme /opt/trireme"), final)
            self.assertIn(("COPY", ". ."), build)

    def test_copied_files_exist(self):
        ignored = [
            line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
        ]
        for dockerfile in DOCKERFILES:
            for word, rest in sum(instructions(dockerfile), []):
                if word == "COPY" and not rest.startswith("--from"):
                    source = rest.split()[0]
                    self.assertTrue((ROOT / source).exists(), f"{dockerfile.name}: COPY {rest}")
                    self.assertFalse(set(map(str, pathlib.Path(source).parents)) & set(ignored), source)
        # .dockerignore must not exclude these, which a build needs.
        for needed in ("CMakeLists.txt", "CMakePresets.json", "data/digits", "deploy/bundle", "launch/setup"):
            self.assertNotIn(needed, ignored)
        self.assertIn("build", ignored)
        self.assertIn(".git", ignored)

    def test_ssh_and_sshd_agree(self):
        port = re.compile(r"^\s*Port (\d+)$", re.MULTILINE)
        client, server = ((DEPLOY / "docker" / name).read_text() for name in ("ssh.conf", "sshd.conf"))
        self.assertEqual(port.findall(client), port.findall(server))


class Apptainer(unittest.TestCase):
    def test_two_stages_with_the_commands_of_the_dockerfile(self):
        text = APPTAINER.read_text()
        self.assertEqual(re.findall(r"^Stage: (\w+)$", text, re.MULTILINE), ["build", "final"])
        self.assertIn("%files from build\n    /opt/trireme /opt/trireme\n", text)
        post = re.search(r"^%post\n((?: .*\n)+)", text, re.MULTILINE).group(1)
        for _, command in instructions(DOCKERFILES[0])[0]:
            for part in re.split(r"\s+&&\s+", command):
                if re.match(r"cmake --build|deploy/bundle|tar|launch/setup$", part):
                    self.assertIn(part, post)

    def test_arguments_have_defaults(self):
        text = APPTAINER.read_text()
        section = re.search(r"^%arguments\n((?: .*\n)+)", text, re.MULTILINE).group(1)
        self.assertEqual(set(re.findall(r"\{\{ (\w+) \}\}", text)), set(assignments(section)))


class Slurm(ProgramTest):
    """Checks the commands that the batch scripts run. tests/faults/slurm_test.sh runs them in a real Slurm."""

    def setUp(self):
        super().setUp()
        for folder in ("deploy", "launch", "bin"):
            (self.scratch / folder).mkdir()
        shutil.copytree(DEPLOY / "slurm", self.scratch / "deploy/slurm")
        tools.fake(self.scratch / "launch", "supervise", 'printf "%s\\n" "$*"')
        tools.fake(self.scratch / "bin", "trireme", 'printf "trireme %s\\n" "$*"')

    def run_script(self, script, **environment):
        return tools.check(
            "bash",
            f"deploy/slurm/{script}.sbatch",
            "run.txtpb",
            "--run-dir",
            "r",
            cwd=self.scratch,
            env={
                "PATH": f"{self.scratch}/bin:{os.environ['PATH']}",
                "SLURM_SUBMIT_DIR": str(self.scratch),
                "SLURM_CPUS_PER_TASK": "3",
                **environment,
            },
        ).splitlines()

    def test_ranks_are_supervised(self):
        for script in ("one-node", "many-nodes"):
            by_srun = "srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=3"
            supervise = "--requeue --grace 90s --"
            train = "train run.txtpb --run-dir r"
            self.assertEqual(self.run_script(script), [f"{supervise} {by_srun} trireme {train}"])
            self.assertEqual(
                self.run_script(script, LAUNCHER="mpirun"), [f"{supervise} mpirun --bind-to none trireme {train}"]
            )
            self.assertEqual(
                self.run_script(script, IMAGE="a.sif"),
                [f"{supervise} {by_srun} apptainer run --nv --bind {self.scratch} a.sif {train}"],
            )

    def test_debug_script_is_not_supervised(self):
        self.assertEqual(
            self.run_script("debug"),
            ["trireme doctor", "trireme train run.txtpb --run-dir r --device cuda --eager"],
        )

    def test_options_of_sbatch_are_known(self):
        known = """job-name nodes ntasks ntasks-per-node cpus-per-task gpus-per-node time signal requeue open-mode output"""
        for script in (DEPLOY / "slurm").glob("*.sbatch"):
            options = re.findall(r"^##?SBATCH --([\w-]+)", script.read_text(), re.MULTILINE)
            self.assertGreater(len(options), 4)
            self.assertLessEqual(set(options), set(known.split()), script.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
