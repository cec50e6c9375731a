"""Functions shared by the tests of deploy/."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"


def find(name):
    """Returns the path of a program next to this Python or in PATH, or None."""
    sibling = pathlib.Path(sys.executable).parent / name
    return str(sibling) if sibling.exists() else shutil.which(name)


def check(*command, **more):
    """Runs a command and returns its stdout. Fails the test with its output if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **more)
    if done.returncode:
        raise AssertionError(f"{command[0]} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def fake(folder, name, script):
    """Writes a program of that name to a folder that the test puts at the front of PATH."""
    file = folder / name
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)
    return file
