"""The parts of tests/gpu. `a` holds its arguments, with a.tree and a.trireme; `run` is the slice that runs a part."""

import concurrent.futures
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

from slices import Failed, OutOfTime, Part, Skipped, TookTooLong

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def load(path):
    """Returns a script as a module."""
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


peers = load(HERE / "bench/peers")

CASES = "*cuda*:*Cuda*:*Nccl*"
MAX_RANKS = 2  # of a test program; they share a GPU or have one each
IN_SLICE_2 = ("ops_conv2d_", "comm_", "trainer_")
MAX_RETRIES = 20
SANITIZED = ("ops_batch_norm_test", "ops_loss_test", "ops_layer_norm_test")
SANITIZED_CASES = "*cuda_f32:*cuda_bf16-*Large*"
SANITIZED_SHARDS = 8  # processes, since compute-sanitizer mostly keeps the CPU busy
# in shards COUNT COMMAND...: runs a test program COUNT times at once, each with a part of the cases.
IN_SHARDS = """export GTEST_TOTAL_SHARDS=$1 GTEST_SHARD_INDEX
for ((GTEST_SHARD_INDEX = 0; GTEST_SHARD_INDEX < GTEST_TOTAL_SHARDS; GTEST_SHARD_INDEX++)); do
  "${@:2}" & programs+=($!)
done
for program in "${programs[@]}"; do wait "$program" || status=$?; done
exit ${status:-0}"""
DIGITS_ACCURACY, MNIST_ACCURACY, CIFAR_ACCURACY = 0.97, 0.99, 0.93
SHARDS = "cifar10-{}-*.tar"
OTHERS = ("gpt-mini", "vit-tiny", "bert-mini", "lstm", "resnet18-cifar", "lenet", "mlp")  # in slice 3, after ResNet-50


# ---- Test programs ---------------------------------------------------------------------------------------------------


def cases_of(program, pattern):
    """Returns the names of the matching cases of a test program, or None if the program does not start."""
    try:
        done = subprocess.run(
            [program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        return None
    names, suite = [], ""
    for line in done.stdout.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names if done.returncode == 0 else None


def with_cases(programs, pattern):
    """Returns the programs that have matching cases, and those that do not start, which will fail."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = zip(programs, pool.map(lambda program: cases_of(program, pattern), programs))
    return [program for program, cases in found if cases != []]


def outcomes(text):
    """Returns the cases that passed, failed and were skipped according to the output of gtest."""

    def named(mark):
        return set(re.findall(rf"^\[ *{mark} *\] ([\w/]+\.[\w/]+)", text, re.M))

    failed = named("FAILED")
    return named("OK") - failed, failed, named("SKIPPED")


def filtered(command, pattern):
    """Returns a command that runs the matching cases. Colors would break outcomes(); mpirun gives ranks a terminal."""
    return [*command, "--gtest_color=no", f"--gtest_filter={pattern}"]


def gtest(run, command, pattern):
    """Runs a test program. Since a device error may affect later cases, and a crash ends all of them, the cases that
    did not pass are run again one by one."""
    begin = len(run.log_text())
    try:
        run.command(filtered(command, pattern))
    except (TookTooLong, OutOfTime) as error:
        running = re.findall(r"^\[ RUN      \] ([\w./]+)", run.log_text(begin), re.M)
        raise type(error)(f"{error}, in {running[-1] if running else 'no case'}") from None
    except Failed as error:
        return retry(run, command, pattern, begin, error)
    passed, _, skipped = outcomes(run.log_text(begin))
    if not passed:
        raise Skipped(f"{len(skipped)} cases skipped" if skipped else "no case")
    return f"{len(passed)} cases"


def retry(run, command, pattern, begin, error):
    passed, _, skipped = outcomes(run.log_text(begin))
    rest = [case for case in cases_of(command[-1], pattern) or [] if case not in passed | skipped]
    tried, failed = 0, []
    for case in rest[:MAX_RETRIES]:
        if run.part_left() < 5:
            break
        try:
            run.command(filtered(command, case), seconds=60)
        except OutOfTime:
            break
        except Failed:
            failed.append(case)
        tried += 1
    alone = f"; alone {', '.join(failed)} FAILED" if failed else "; alone they pass" if tried else ""
    more = f"; {len(rest) - tried} not tried alone" if len(rest) > tried else ""
    raise Failed(f"{error}: {len(rest)} cases did not pass{alone}{more}")


def mpirun(ranks):
    return ["mpirun", "--quiet", "-np", ranks, "--oversubscribe", "--bind-to", "none"]


def test_programs(a):
    """Returns the test programs in the tree that need a GPU, with the numbers of ranks to run each with under mpirun, or
    none to run it alone."""
    listed = [line.split() for line in (a.tree / "tests/gpu_programs").read_text().splitlines()]
    programs = {a.tree / "tests" / name: ranks for name, *ranks in sorted(listed)}
    for program in programs:
        if not os.access(program, os.X_OK):
            sys.exit(f"tests/gpu: cannot execute {program}: build all tests, or unpack the bundle again")
    return programs


def program_parts(a, wanted):
    parts = []
    programs = {program: ranks for program, ranks in test_programs(a).items() if wanted(program.name)}
    for program in with_cases(programs, CASES):
        if not programs[program]:
            parts.append(Part(program.name, lambda run, command=[program]: gtest(run, command, CASES), a.limit(120)))
        for count in programs[program]:
            if int(count) <= MAX_RANKS:
                parts.append(
                    Part(
                        f"{program.name}.np{count}",
                        lambda run, command=[*mpirun(count), program]: gtest(run, command, CASES),
                        a.limit(180),
                    )
                )
    return parts


def sanitizer_parts(a):
    sanitizer = next(
        (
            path
            for path in map(
                shutil.which,
                ("compute-sanitizer", f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/compute-sanitizer"),
            )
            if path
        ),
        None,
    )

    def check(run, tool, program, pattern):
        if not sanitizer:
            raise Skipped("compute-sanitizer is not installed")
        try:
            run.command(
                [
                    *("bash", "-c", IN_SHARDS, "in shards", SANITIZED_SHARDS),
                    *(sanitizer, "--tool", tool, "--error-exitcode", 1, "--kernel-name-exclude", "regex=cudnn"),
                    program,
                    f"--gtest_filter={pattern}",
                ]
            )
        except TookTooLong as error:
            raise OutOfTime(f"{error}; {len(outcomes(run.log_text())[0])} cases without findings") from None
        except Failed:
            if "Device not supported" in run.log_text():
                raise Skipped("compute-sanitizer: Device not supported") from None
            raise
        return f"{len(outcomes(run.log_text())[0])} cases"

    pattern = "*cuda_f32:*cuda_bf16:*Cuda" if a.sanitize else SANITIZED_CASES
    programs = with_cases(
        [
            program
            for program in test_programs(a)
            if program.name in SANITIZED or a.sanitize and program.name.startswith(("core_device_", "ops_"))
        ],
        pattern,
    )
    return [
        Part(
            f"{tool}.{program.name}",
            lambda run, tool=tool, program=program: check(run, tool, program, pattern),
            900 if a.sanitize else 120,
        )
        for tool in ("memcheck", "racecheck")
        for program in programs
    ]


# ---- Runs of the program, compared step by step ----------------------------------------------------------------------

SHAPES = {"lenet": "[1, 28, 28]", "resnet18-cifar": "[3, 32, 32]"}


def config(network, batch, steps):
    return f"""model {{ zoo {{ name: "{network}" }} }}
data {{ synthetic {{ shape: {SHAPES[network]} classes: 10 count: {batch * 25} eval_count: {batch} }} }}
batch {{ global: {batch} }}
train {{ max_steps: {steps} eval_every_epochs: 0 }}
optimizer {{ sgd {{ momentum: 0.9 }} }}
schedule {{ learning_rate: 0.01 }}
checkpoint {{ every_epochs: 0 }}
"""


def train(run, a, file, name, options, ranks=1):
    """Trains and returns the run folder."""
    folder = run.folder / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    run.command(
        [*mpirun(ranks), a.trireme, "train", file, "--run-dir", folder, "--resume", "never", *options], cwd=ROOT
    )
    return folder


def losses(folder):
    events = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [event["train_loss"] for event in events if event["event"] == "step"]


def agree(run, tolerance, count, one, two):
    """Raises Failed unless both have `count` finite losses that differ by at most `tolerance` (relative; 0: equal)."""
    apart = [
        abs(x - y) if isinstance(x, (int, float)) and isinstance(y, (int, float)) else math.nan
        for x, y in zip(one, two)
    ]
    wrong = [step for step, (x, d) in enumerate(zip(one, apart)) if not d <= tolerance * (1 + abs(x or 0))]
    for step in wrong:
        run.note(f"step {step + 1}: {one[step]!r} and {two[step]!r}")
    if len(one) != count or len(two) != count:
        raise Failed(f"{len(one)} and {len(two)} steps instead of {count}")
    if wrong:
        raise Failed(f"{len(wrong)} of {count} steps differ by more than {tolerance:g}, the first is {wrong[0] + 1}")
    return f"{count} steps, at most {max(apart):.2g} apart"


def same(run, a, name, tolerance, steps, network, ones, twos, ranks=(1, 1), options=()):
    """Checks that two runs of a network have the same losses."""
    steps, batch = (2, 4) if a.rehearse else (steps, 64)
    file = run.folder / "runs" / f"{name}.txtpb"
    file.parent.mkdir(exist_ok=True)
    file.write_text(config(network, batch, steps))
    found = [
        losses(train(run, a, file, f"{name}-{number}", [*own, *options], count))
        for number, (own, count) in enumerate(zip((ones, twos), ranks), 1)
    ]
    return agree(run, tolerance, steps, *found)


CPU, GPU = ("--device", "cpu"), ("--device", "cuda")
EAGER = (*GPU, "--set", "train.eager=true")
STAGED = (*GPU, "--set", "train.transport=mpi")
# With larger steps, rounding errors grow to 0.01 within 20 steps of a ResNet, even between the AVX2 and AVX-512 of a CPU.
STABLE = ("--set", "schedule.learning_rate=0.0001")


def same_part(a, name, tolerance, steps, network, ones, twos, seconds=120, **more):
    return Part(name, lambda run: same(run, a, name, tolerance, steps, network, ones, twos, **more), a.limit(seconds))


def captured_is_eager(a):
    return [
        same_part(
            a,
            f"captured-is-eager.{precision}",
            0,
            100,
            "lenet",
            GPU,
            EAGER,
            options=("--set", f"train.precision={precision}"),
        )
        for precision in ("FP32", "TF32", "BF16", "FP16")
    ] + [
        same_part(
            a,
            "captured-is-eager.resnet18-cifar",
            0,
            20,
            "resnet18-cifar",
            GPU,
            EAGER,
            options=("--set", "train.precision=BF16"),
        )
    ]


def runs_agree(a):
    staged_eager = (*STAGED, "--set", "train.eager=true")
    nccl = (*GPU, "--set", "train.transport=nccl", "--set", "buckets.sum_on_one_rank=true")
    return [
        same_part(a, "gpu-is-cpu.lenet", 1e-4, 20, "lenet", CPU, GPU),
        same_part(a, "gpu-is-cpu.resnet18-cifar", 1e-4, 20, "resnet18-cifar", CPU, GPU, options=STABLE),
        same_part(a, "two-ranks-are-one.staged", 1e-5, 20, "lenet", GPU, STAGED, ranks=(1, 2)),
        same_part(a, "two-ranks-are-one.staged-eager", 0, 20, "lenet", STAGED, staged_eager, ranks=(2, 2)),
        same_part(a, "nccl-of-one-rank.captured", 0, 20, "lenet", GPU, nccl),
    ]


# ---- Training to an accuracy -----------------------------------------------------------------------------------------


def learns(run, a, name, file, min_accuracy, options):
    folder = train(run, a, file, name, options)
    accuracy = json.loads((folder / "summary.json").read_text()).get("eval_accuracy")
    if not isinstance(accuracy, (int, float)) or not accuracy >= min_accuracy:
        raise Failed(f"accuracy {accuracy}, expected at least {min_accuracy}")
    return f"accuracy {100 * accuracy:.2f}%"


def digits(a):
    few = ("--set", "train.max_steps=2") if a.rehearse else ()
    min_accuracy = 0 if a.rehearse else DIGITS_ACCURACY

    def part(precision):
        options = (*GPU, "--set", f"train.precision={precision}", *few)
        file = "launch/configs/digits.txtpb"
        return Part(
            f"learns-digits.{precision}",
            lambda run: learns(run, a, f"digits-{precision}", file, min_accuracy, options),
            a.limit(60),
        )

    return [part(precision) for precision in ("FP32", "BF16", "FP16")]


def find_data(a, *patterns):
    """Returns --data, or the folder in it, that has files of these patterns."""
    for folder in [a.data, *sorted(path for path in a.data.iterdir() if path.is_dir())]:
        if all(any(folder.glob(pattern)) for pattern in patterns):
            return folder
    raise Failed(f"neither {a.data} nor a folder in it has {' and '.join(patterns)}")


def in_bf16(a):
    """Returns options for training in BF16, or FP32 in a rehearsal, since not every CPU supports BF16."""
    return (*CPU, "--set", "train.precision=FP32") if a.rehearse else (*GPU, "--set", "train.precision=BF16")


def mnist(run, a):
    folder = find_data(a, "train-images-idx3-ubyte*", "t10k-images-idx3-ubyte*")
    return learns(
        run,
        a,
        "mnist",
        "launch/configs/mnist.txtpb",
        MNIST_ACCURACY,
        (*in_bf16(a), "--set", f"data.root={folder}"),
    )


def unpacked_shards(run, folder):
    """Returns the folder of the tar files. Compressed ones are unpacked into the folder of the slice."""
    if all(any(folder.glob(SHARDS.format(kind))) for kind in ("train", "test")):
        return folder
    target = run.folder / "data"
    target.mkdir(exist_ok=True)
    for file in sorted(folder.glob("cifar10-*.tar.xz")):
        run.command(
            [
                sys.executable,
                "-c",
                "import lzma, shutil, sys\n"
                "with lzma.open(sys.argv[1]) as source, open(sys.argv[2], 'wb') as target:\n"
                "    shutil.copyfileobj(source, target, 1 << 20)",
                file,
                target / file.stem,
            ]
        )
    return target


def cifar10(run, a):
    """Trains on the files of launch/get-data, or on shards written by `trireme data pack`."""
    try:
        options = ["--set", f"data.root={find_data(a, 'data_batch_1.bin', 'test_batch.bin')}"]
    except Failed:
        shards = unpacked_shards(run, find_data(a, SHARDS.format("train") + "*", SHARDS.format("test") + "*"))
        options = [
            "--set",
            f"data.root={shards}",
            "--set",
            f'data.webdataset.train="{SHARDS.format("train")}"',
            "--set",
            f'data.webdataset.eval="{SHARDS.format("test")}"',
            "--set",
            "data.webdataset.classes=10",
        ]
    few = ("--set", "model.zoo.name=resnet20", "--set", "train.max_steps=2", "--set", "train.eval_every_epochs=0")
    return learns(
        run,
        a,
        "cifar10",
        "launch/configs/cifar10.txtpb",
        0 if a.rehearse else CIFAR_ACCURACY,
        (
            *in_bf16(a),
            *options,
            *(few if a.rehearse else ("--set", "train.eval_every_epochs=5")),
        ),
    )


# ---- Speed -----------------------------------------------------------------------------------------------------------


def bench(run, a, name, options):
    file = run.folder / "bench" / f"{name}.json"
    minutes = max(0.1, (run.part_left() - 5) / 60)
    problem = None
    try:
        run.command(
            [
                sys.executable,
                HERE / "bench/gpu",
                "-o",
                file,
                "--build",
                a.tree,
                "--python",
                a.python,
                "--minutes",
                f"{minutes:.2f}",
                *options,
            ]
        )
    except Failed as error:
        problem = error
    found = speeds(json.loads(file.read_text())) if file.exists() else ""
    if problem:
        raise Failed(f"{problem}; {found}")
    if not found:
        raise OutOfTime("no measurement finished in time")
    return found


def speeds(measured):
    """Returns the measurements so far, for the table."""
    found = [] if "peer" in measured else ["no PyTorch"]
    for case in measured["cases"]:
        speed = case.get("captured_samples_per_second")
        if speed:
            ratios = ", ".join(
                f"x{case[key]:.2f} {text}"
                for key, text in (
                    ("over_eager", "its eager"),
                    ("over_peer_eager", "PyTorch"),
                    ("over_peer_compiled", "compiled"),
                )
                if case.get(key)
            )
            found.append(f"{case['model']} {case['precision']} {peers.speed(speed)}/s ({ratios})")
    return "; ".join(found)


def bench_parts(a):
    if a.rehearse:
        first = ["--models", "lenet", "--batch", 8, "--seconds", 1, "--rounds", 2, "--peer-device", "cpu"]
        return [Part("bench.lenet", lambda run: bench(run, a, "lenet", first), math.inf)]
    first = ["--models", "resnet50", "--precisions", "BF16", "--rounds", 2, "--seconds", 3]
    others = ["--models", *OTHERS, "--rounds", 1, "--seconds", 3, "--compile", "none"]
    return [
        Part("bench.resnet50", lambda run: bench(run, a, "resnet50", first), math.inf, needs=60),
        Part("bench.others", lambda run: bench(run, a, "others", others), math.inf, needs=60),
    ]


# ---- Slices ----------------------------------------------------------------------------------------------------------


def parts_of(number, a):
    doctor = Part("doctor", lambda run: run.command([a.trireme, "doctor"]), 60)
    if number == 1:
        programs = program_parts(a, lambda name: not name.startswith(IN_SLICE_2))
        return [doctor, *programs, *captured_is_eager(a), *sanitizer_parts(a)]
    if number == 2:
        programs = program_parts(a, lambda name: name.startswith(IN_SLICE_2))
        return [*programs, *runs_agree(a), *digits(a)]
    if number == 3:
        return bench_parts(a)
    if not a.data:
        sys.exit("tests/gpu: slice 4 needs --data FOLDER with the files of MNIST and CIFAR-10")
    return [
        Part("train.mnist", lambda run: mnist(run, a), a.limit(240)),
        Part("train.cifar10", lambda run: cifar10(run, a), math.inf, needs=60),
    ]
