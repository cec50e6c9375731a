"""Runs trireme as a user would. For tests in Python."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRIREME = os.environ.get("TRIREME", str(ROOT / "build/release/bin/trireme"))


def run(*arguments, ranks=0, code=0, environment=None, timeout=300):
    """Returns stdout. Fails the test unless the exit code is `code`. Runs without mpirun if `ranks` is 0."""
    command = [TRIREME, *map(str, arguments)]
    if ranks:
        command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode != code:
        raise AssertionError(
            f"{' '.join(command)}: ended with {done.returncode} instead of {code}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout


class ProgramTest(unittest.TestCase):
    """A test case with a temporary folder, self.scratch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)
