"""What the tests of deploy/ have in common."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"


def find(name):
    """A program beside this Python or in PATH; None where there is none."""
    beside = pathlib.Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def check(*command, **more):
    """Runs it and returns stdout; fails the test with what it printed when it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **more)
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def fake(folder, name, script):
    """A program of that name, in a folder to be put in front of PATH."""
    file = folder / name
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)
    return file
