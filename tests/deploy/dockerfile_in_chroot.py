#!/usr/bin/env python3
"""Executes a Dockerfile without Docker, with a chroot per stage. Run manually as root; needs debootstrap.

    tests/deploy/dockerfile_in_chroot.py deploy/docker/Dockerfile.cpu WORK [--base ROOT] [--bind FROM:TO]...

Executes every COPY and RUN instruction with the ENV, ARG and WORKDIR before it, and honors .dockerignore. Leaves the last stage
in WORK/<stage> and prints the command to start a shell in it. --base is an unpacked Debian to use instead of a new `debootstrap
bookworm`. --bind mounts a folder, such as a compiler cache, into every stage.
"""

import argparse
import fnmatch
import pathlib
import re
import shlex
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def instructions(dockerfile):
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            yield word, rest


def ignored(path, patterns):
    return any(
        fnmatch.fnmatch(str(part), pattern.removeprefix("**/"))
        for pattern in patterns
        for part in ([path, *path.parents] if not pattern.startswith("**/") else [pathlib.Path(path.name)])
    )


def copy_context(source, target):
    """Implements COPY from the repository, without the files in .dockerignore."""
    if (ROOT / source).is_file():
        if target.is_dir():
            target /= pathlib.Path(source).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / source, target)
        return
    patterns = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and line[0] != "#"]

    def ignored_names(folder, names):
        relative = pathlib.Path(folder).resolve().relative_to(ROOT)
        return [name for name in names if ignored(relative / name, patterns)]

    shutil.copytree(ROOT / source, target, ignore=ignored_names, symlinks=True, dirs_exist_ok=True)


class Stage:
    def __init__(self, root, base, binds):
        self.root = root
        self.variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.folder = "/"
        self.binds = binds
        subprocess.run(["cp", "-a", base, root], check=True)

    def path(self, inside):
        return self.root / str(pathlib.PurePosixPath(self.folder) / inside).lstrip("/")

    def run(self, command):
        binds = [("/proc", "/proc"), ("/dev", "/dev"), *self.binds]
        mounts = "".join(
            f"mkdir -p {self.root}{to} && mount --rbind {source} {self.root}{to}\n" for source, to in binds
        )
        enter = shlex.join(["chroot", str(self.root), "env", "-i", *(f"{k}={v}" for k, v in self.variables.items())])
        script = f"set -e\n{mounts}exec {enter} /bin/sh -c {shlex.quote(f'cd {self.folder} && {command}')}"
        subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--base", type=pathlib.Path)
    parser.add_argument("--bind", action="append", default=[])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    work = options.work.resolve()
    base = options.base or work / "base"
    if not base.exists():
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", base], check=True)
    stages = {}
    stage = None
    for word, rest in instructions(options.dockerfile):
        print(f"--- {word} {rest}", flush=True)
        if word == "FROM":
            name = rest.split(" AS ")[1] if " AS " in rest else "final"
            stage = stages[name] = Stage(work / name, base, [bind.split(":") for bind in options.bind])
        elif word == "WORKDIR":
            stage.folder = rest
            stage.path(".").mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *flags, source, target = rest.split()
            if flags:
                origin = stages[flags[0].removeprefix("--from=")]
                shutil.copytree(origin.path(source), stage.path(target), symlinks=True)
            else:
                copy_context(source, stage.path(target))
        elif word == "RUN":
            stage.run(rest)
        elif word in ("ENV", "ARG") and stage:
            stage.variables.update(pair.split("=", 1) for pair in shlex.split(rest))
    command = ["chroot", "--userspec=1000:1000", str(stage.root), "env", "-i"]
    print(shlex.join([*command, *(f"{k}={v}" for k, v in stage.variables.items()), "/bin/bash"]))


main()
