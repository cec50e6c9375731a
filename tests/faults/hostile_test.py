"""Hostile files of every format that the program reads, and hostile settings. Each must be refused with a message or be
read, in bounded time and memory: the program never crashes, never hangs, and passes no control characters on."""

import collections
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import subprocess
import tarfile
import time
import unittest
import zlib

import numpy
import onnx
from onnx import TensorProto, helper
from program import ROOT, TRIREME, ProgramTest
from PIL import Image

SECONDS = 20  # more than any of these commands takes, even on a slow machine
MEMORY = 3 << 30  # bytes of address space; the libraries alone take about 1 GiB
MUTATIONS = 12  # of each valid file
ESCAPE = "x\nwarning: forged \x1b[2J\u202e"
# Never the message: what the C++ library or oneDNN would say.
INTERNAL = re.compile(r"bad_alloc|aligned_alloc|could not create a primitive|internal error|terminate called")
# Refused with 2 (configuration) or 3 (data); 1 is for what the system refuses, such as memory.
REFUSED = {1, 2, 3}


def png(mode, size, **options):
    file = io.BytesIO()
    Image.new(mode, size).save(file, "PNG", **options)
    return file.getvalue()


def png_header(width, height, interlaced):
    """A PNG that declares a size, with compressed zeros as its data."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, interlaced])
    zeros = zlib.compress(bytes(1 << 24), 9) * 16
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zeros) + chunk(b"IEND", b"")


def jpeg(size=(8, 8)):
    file = io.BytesIO()
    Image.new("RGB", size, (10, 200, 30)).save(file, "JPEG")
    return file.getvalue()


def idx(extents, values):
    return bytes([0, 0, 8, len(extents)]) + b"".join(extent.to_bytes(4, "big") for extent in extents) + values


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def npy_header(text):
    text = text.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def tar(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def safetensors(header, values=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


def onnx_model(name="x", nodes=1, shape=(3, 4), bytes_of_shape=None, graph_name="g", weight_name="w"):
    weight = TensorProto(name=weight_name, data_type=TensorProto.FLOAT, dims=shape, raw_data=bytes(bytes_of_shape or 48))
    layers = [helper.make_node("Tanh", [f"{name}{i}"], [f"{name}{i + 1}"]) for i in range(nodes)]
    last = helper.make_node("Gemm", [f"{name}{nodes}", weight_name], ["out"], transB=1)
    graph = helper.make_graph(
        [*layers, last],
        graph_name,
        [helper.make_tensor_value_info(f"{name}0", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 3])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def mutations(valid, seed):
    """Truncated, extended and overwritten copies of a valid file."""
    generator = random.Random(seed)
    for i in range(MUTATIONS):
        bytes_ = bytearray(valid)
        if i % 4 == 0:
            del bytes_[generator.randrange(len(bytes_)) :]
        elif i % 4 == 1:
            bytes_ += generator.randbytes(100)
        else:
            for _ in range(1 << (i % 6)):
                bytes_[generator.randrange(min(len(bytes_), 200 if i % 2 else len(bytes_)))] = generator.choice(
                    [0, 1, 127, 128, 255, generator.randrange(256)]
                )
        yield bytes(bytes_)


class HostileTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.outcomes = collections.Counter()

    def tearDown(self):
        total = sum(self.outcomes.values())
        print(f"{self.id().split('.')[-1]}: {total} inputs, {dict(self.outcomes)}")

    def expect_survived(self, what, *arguments, refused=None, says=None, limits={}, environment={}, cwd=ROOT):
        """Runs the program on one input. With `refused`, it must (or must not) be refused."""

        def limit():
            for kind, value in {resource.RLIMIT_AS: MEMORY, resource.RLIMIT_CORE: 0, **limits}.items():
                resource.setrlimit(kind, (value, value))

        began = time.monotonic()
        with self.subTest(what):
            try:
                done = subprocess.run(
                    [TRIREME, *map(str, arguments)],
                    cwd=cwd,
                    env={**os.environ, **environment},
                    capture_output=True,
                    timeout=SECONDS,
                    preexec_fn=limit,
                )
            except subprocess.TimeoutExpired:
                self.outcomes["hung"] += 1
                self.fail(f"hangs: {arguments}")
            text = (done.stdout + done.stderr).decode(errors="replace")
            refusal = done.returncode in REFUSED
            self.outcomes["refused" if refusal else "accepted" if done.returncode == 0 else "crashed"] += 1
            self.assertIn(done.returncode, {0} | REFUSED, f"crashed after {time.monotonic() - began:.1f} s: {text}")
            self.assertNotRegex(text, INTERNAL)
            self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028\u202e]", "control characters")
            self.assertNotRegex(text, r"1844674407|16777216\.0 TiB", "2^64")
            self.assertNotRegex(text, r"(?m)^warning: forged")
            self.assertLess(len(text), 20000)
            if refused is not None:
                self.assertEqual(refusal, refused, text)
            if says:
                self.assertIn(says, text)

    def data(self, what, fields, **expected):
        """Reads all samples of a data set."""
        config = self.scratch / "run.txtpb"
        config.write_text(
            f'model {{ zoo {{ name: "mlp" hidden: 4 }} }} data {{ root: "{self.scratch}" {fields} }} batch {{ global: 2 }}'
            "train { max_steps: 1 } schedule { learning_rate: 0.1 }"
        )
        self.expect_survived(what, "data", "stats", config, **expected)

    def read(self, name, content, what, fields, **expected):
        """Reads all samples of a data set that has the content in a file."""
        self.write(name, content)
        self.data(what, fields, **expected)

    def mutate(self, valid, seed, check):
        """Calls check(what, content) with a valid file, which must be read, and with mutations of it."""
        check("the valid file", valid, refused=False)
        for number, content in enumerate(mutations(valid, seed)):
            check(f"mutation {number}", content)

    def write(self, name, content):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def test_idx(self):
        fields = 'idx { train_images: "i" train_labels: "l" eval_images: "i" eval_labels: "l" }'
        self.write("l", idx([4], bytes([0, 1, 2, 3])))
        images = idx([4, 2, 2], bytes(16))
        for valid in (images, gzip.compress(images)):
            self.mutate(valid, 1, lambda what, content, **expected: self.read("i", content, what, fields, **expected))
        zeros = gzip.compress(bytes(1 << 22))
        bomb = gzip.compress(images) + zeros * 2500  # 10 GiB from 10 MB
        for what, content, says in (
            ("a bomb after the last record", bomb, "data after its last record"),
            ("a header that declares terabytes", gzip.compress(idx([2**32 - 1, 65535, 65535], bytes(9))), "memory"),
            ("extents whose product overflows", idx([4, 2**32 - 1, 2**32 - 1], bytes(9)), "truncated"),
            ("no records", idx([0, 2, 2], b""), "no elements"),
            ("five dimensions", idx([1, 1, 1, 1, 1], b"1"), "dimension"),
        ):
            self.read("i", content, what, fields, refused=True, says=says)

    def test_tables(self):
        fields = 'csv { train_file: "t.csv" eval_file: "t.csv" classes: 3 }'
        valid = b"".join(b"%d.5,2,%d\n" % (i, i % 3) for i in range(20))
        self.mutate(valid, 2, lambda what, content, **expected: self.read("t.csv", content, what, fields, **expected))
        for what, content in (
            ("a line of 20 MB", b"1," * 10_000_000 + b"1\n"),
            ("quotes that do not end", b'"1,2\n' * 1000),
            ("control characters", ESCAPE.encode() + b",2,1\n"),
            ("zeros", bytes(1 << 20)),
            ("a number of a million digits", b"1" * 1_000_000 + b",2,1\n"),
            ("a class of 20 digits", b"1,2,99999999999999999999\n"),
            ("a bomb", gzip.compress(b"1,2,0\n" * (1 << 20)) * 500),  # 3 GB from 9 MB
        ):
            self.read("t.csv", content, what, fields, refused=True)
        self.read("t.csv", b"a,x\x1b[2J\xe2\x80\xae\n1,0\n2,1\n", "a label with control characters", fields, refused=False)
        for file in ("status", "pagemap", "mem"):
            (self.scratch / "t.csv").unlink()
            (self.scratch / "t.csv").symlink_to(f"/proc/self/{file}")
            self.data(f"/proc/self/{file}", fields, refused=True, says="t.csv")

    def test_texts(self):
        self.write("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
        plain = 'text { train_file: "t.gz" length: 64 } holdout: 0.5'
        labeled = 'labeled_text { train: "t.jsonl.gz" eval: "t.jsonl.gz" tokenizer { wordpiece { vocab: "vocab.txt" } } length: 8 }'
        says = "times larger when it is decompressed"
        self.read("t.gz", gzip.compress(b"ab" * (1 << 24)) * 8, "a bomb", plain, refused=True, says=says)
        self.read("t.jsonl.gz", gzip.compress(b"\n" * (1 << 25)) * 8, "a bomb of lines", labeled, refused=True, says=says)
        lines = gzip.compress(b"\n" * (1 << 23))
        self.read("t.jsonl.gz", lines, "8 million empty lines", labeled)
        config = self.scratch / "run.txtpb"
        skip = ["--set", "data.on_bad_record=SKIP", "--run-dir", self.scratch / "run"]
        self.expect_survived("8 million bad records", "train", config, *skip, refused=True, says="data.max_bad_records")
        characters = "ab\u202e\u2028\u061c\x9b" * 300
        self.read("t.gz", gzip.compress(characters.encode()), "characters that control the terminal", plain, refused=False)

    def test_nested_json(self):
        """Each reader of JSON but those of runs, safetensors and tars, which have tests of their own."""
        nested = b"[" * 1_000_000 + b"]" * 1_000_000
        self.write("merges.txt", b"")
        self.write("t.jsonl", b'{"text":"a","label":0}\n' * 4)
        bpe = 'labeled_text { train: "t.jsonl" eval: "t.jsonl" tokenizer { bpe { vocab: "v.json" merges: "merges.txt" } } length: 8 }'
        self.read("v.json", b'{"a":0,"b":' + nested + b"}", "nesting in a vocabulary", bpe, refused=True, says="v.json")
        self.write("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
        wordpiece = 'labeled_text { train: "t.jsonl" eval: "t.jsonl" tokenizer { wordpiece { vocab: "vocab.txt" } } length: 8 }'
        self.read("t.jsonl", b'{"text":' + nested + b"}\n", "nesting in a record", wordpiece, refused=True, says="t.jsonl")
        pack = ["data", "pack", "launch/configs/digits.txtpb", self.scratch / "packed"]
        self.expect_survived("records are packed", *pack, refused=False)
        for state in (self.scratch / "packed").glob("*.json"):
            state.write_bytes(b'{"done":false,"shards":[],"plan":' + nested + b"}")
        self.expect_survived("nesting in the state of packing", *pack, refused=True, says=".json")

    def test_npy(self):
        fields = 'npy { train_inputs: "x.npy" train_targets: "y.npy" eval_inputs: "x.npy" eval_targets: "y.npy" classes: 3 }'
        self.write("y.npy", npy(numpy.arange(6, dtype=numpy.int32) % 3))
        valid = npy(numpy.zeros((6, 2, 3, 1), numpy.float32))
        self.mutate(valid, 3, lambda what, content, **expected: self.read("x.npy", content, what, fields, **expected))
        for what, header in (
            ("overflow", "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 4611686018427387904, 4), }\n"),
            ("negative", "{'descr': '<f4', 'fortran_order': False, 'shape': (6, -1), }\n"),
            ("pickle", "{'descr': '|O', 'fortran_order': False, 'shape': (6,), }\n"),
            ("nesting", "(" * 60000),
            ("control characters", "{'descr': '" + ESCAPE + "', 'fortran_order': False, 'shape': (6, 2), }\n"),
        ):
            self.read("x.npy", npy_header(header) + bytes(1000), what, fields, refused=True)

    def test_images(self):
        fields = "image_folder {} decode { max_pixels: 1000000 } transform { resize { size: 8 } }"
        fields += " eval_transform { resize { size: 8 } } on_bad_record: SKIP max_bad_records: 1"
        for folder in ("train/a", "train/b", "val/a", "val/b"):
            self.write(f"{folder}/1.png", png("RGB", (9, 9)))
        for name, valid in (("x.png", png("RGB", (9, 7))), ("x.jpg", jpeg())):
            path = self.scratch / "train/a" / name
            self.mutate(valid, 4, lambda what, content, **expected: self.read(path, content, what, fields, **expected))
            path.unlink()
        for what, content in (
            ("a PNG of 16000 x 16000", png_header(16000, 16000, 0)),
            ("an interlaced PNG of 16000 x 16000", png_header(16000, 16000, 1)),
            ("a PNG of 2^31 x 2^31", png_header(2**31 - 1, 2**31 - 1, 1)),
            ("a PNG of 900000 x 1", png("L", (900000, 1))),
            ("a PNG of 1 x 900000", png("L", (1, 900000))),
            ("an empty file", b""),
        ):
            path = self.write("train/a/x.png", content)
            self.data(f"{what} is skipped", fields, refused=False, says="bad")
            path.unlink()
        path = self.write("train/a/x.jpg", jpeg())
        with open(path, "r+b") as file:
            file.truncate(3 << 30)
        self.data("a sparse JPEG of 3 GiB is skipped", fields, refused=False, says="bad")
        path.unlink()
        self.write(f"train/{ESCAPE}/{ESCAPE}.png", png("RGB", (9, 9)))
        self.data("names that control the terminal", fields, refused=False)

    def test_tar(self):
        fields = 'webdataset { train: "t.tar" eval: "t.tar" classes: 2 } transform { resize { size: 8 } }'
        fields += " eval_transform { resize { size: 8 } }"
        members = {f"{i}.{kind}": content for i in range(3) for kind, content in (("png", png("RGB", (9, 9))), ("cls", b"1"))}
        self.mutate(
            tar(members), 5, lambda what, content, **expected: self.read("t.tar", content, what, fields, **expected)
        )
        header = bytearray(tar({"0.png": b"x"})[:512])
        header[124:136] = b"77777777777\0"  # 8 GiB
        header[148:156] = b"        "
        header[148:156] = b"%06o\0 " % sum(header)
        for what, content in (
            ("a member of 8 GiB", bytes(header) + bytes(1024)),
            ("names that control the terminal", tar({f"{ESCAPE}{i}.png": b"no image" for i in range(3)})),
            ("names of 30,000 characters", tar({"y" * 30000 + ".png": b"no image"})),
            ("a header that ends early", tar(members)[:2248]),
            ("names outside of the folder", tar({"../../../etc/x.png": b"no image", "../../../etc/x.cls": b"1"})),
        ):
            self.read("t.tar", content, what, fields, refused=True)
        self.write("classes.txt", ESCAPE.encode() + b"\nb\nc\n")
        named = fields.replace("classes: 2", 'class_names: "classes.txt"')
        self.read("t.tar", tar(members), "class names that control the terminal", named, refused=False)

    def model(self, what, path, **expected):
        config = self.scratch / "model.txtpb"
        config.write_text(
            f'model {{ init_from: "{path}" network {{ name: "n" layer {{ name: "fc" dense {{ units: 3 }} }} '
            "layer { softmax_cross_entropy {} } } } data { synthetic { shape: [4] classes: 3 count: 16 eval_count: 4 } }"
            "batch { global: 4 } train { max_steps: 1 } schedule { learning_rate: 0.1 }"
        )
        shutil.rmtree(self.scratch / "run", ignore_errors=True)
        self.expect_survived(what, "train", config, "--run-dir", self.scratch / "run", **expected)

    def test_safetensors(self):
        valid = safetensors(
            {
                "fc.weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
                "fc.bias": {"dtype": "F32", "shape": [3], "data_offsets": [48, 60]},
            },
            bytes(60),
        )
        self.mutate(
            valid, 6, lambda what, content, **expected: self.model(what, self.write("w.safetensors", content), **expected)
        )
        many = {f"t{i}": {"dtype": "F32", "shape": [262144], "data_offsets": [0, 1 << 20]} for i in range(20000)}
        tensor = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
        for what, content in (
            ("20,000 tensors that overlap", safetensors(many, bytes(1 << 20))),
            ("a header of 2^62 bytes", (1 << 62).to_bytes(8, "little") + b"{}"),
            ("nesting", safetensors(b"[" * 100000)),
            ("names that control the terminal", safetensors({ESCAPE: tensor}, bytes(12))),
            ("a name of a million characters", safetensors({"y" * 1000000: tensor}, bytes(12))),
            ("an overflow", safetensors({"fc.weight": {**tensor, "shape": [2**62, 4]}}, bytes(12))),
        ):
            self.model(what, self.write("w.safetensors", content), refused=True)

    def test_onnx(self):
        self.mutate(
            onnx_model().SerializeToString(),
            7,
            lambda what, content, **expected: self.expect_survived(
                what, "inspect", self.write("m.onnx", content), **expected
            ),
        )
        for what, model in (
            ("names that control the terminal", onnx_model(ESCAPE, shape=(2**40, 4))),
            ("a tensor larger than its values", onnx_model(shape=(2**40, 4))),
            ("200,000 layers", onnx_model(nodes=200000)),
            ("a name of 30,000 characters", onnx_model("y" * 30000, shape=(2**40, 4))),
        ):
            self.expect_survived(what, "inspect", self.write("m.onnx", model.SerializeToString()), refused=True)

    def test_names_of_models(self):
        """The name of the graph is that of the run folder if none is given."""
        folder = self.scratch / "a" / "b"
        folder.mkdir(parents=True)
        config = self.write(
            "o.txtpb",
            f'model {{ onnx: "{self.scratch}/m.onnx" }} data {{ synthetic {{ shape: [4] classes: 3 count: 16 eval_count: 4 }} }}'
            "batch { global: 4 } train { max_steps: 1 } schedule { learning_rate: 0.1 }".encode(),
        )
        for name in ("../../evil", f"{self.scratch}/evil", ESCAPE, "y" * 300):
            self.write("m.onnx", onnx_model(graph_name=name).SerializeToString())
            self.expect_survived(f"{name[:40]!r}, inspected", "inspect", self.scratch / "m.onnx", refused=False)
            self.expect_survived(f"{name[:40]!r}, trained", "train", config, cwd=folder, refused=False)
        self.write("m.onnx", onnx_model(weight_name=ESCAPE + ".weight").SerializeToString())
        self.expect_survived("a layer, inspected", "inspect", self.scratch / "m.onnx", refused=False)
        profiled = ["train", config, "--run-dir", self.scratch / "profiled", "--profile", "steps=1..1"]
        self.expect_survived("a layer, profiled", *profiled, refused=False)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["runs"])
        self.assertEqual(len(list((folder / "runs").iterdir())), 4)
        self.assertFalse(list(self.scratch.glob("evil*")))

    def test_run_folders(self):
        """Folders of other users, as in a bug report."""
        run = self.scratch / "run"
        train = ["train", "launch/configs/digits.txtpb", "--set", "train.epochs=1", "--run-dir", run]
        self.expect_survived("a run", *train, refused=False)
        nested = '{"event":"x","step":1,"a":' + "[" * 300000 + "]" * 300000 + "}\n"
        with open(run / "metrics.jsonl", "a") as file:
            file.write(nested)
        for command in ("runs", "report"):
            self.expect_survived(f"nesting, {command}", command, run, refused=False)
        samples = json.loads((run / "samples.json").read_text())
        samples["class_names"] = [ESCAPE + str(number) for number in range(10)]
        (run / "samples.json").write_text(json.dumps(samples))
        rows = gzip.decompress((ROOT / "data/digits/digits.csv.gz").read_bytes()).splitlines(keepends=True)
        table = self.write("rows.csv", b"".join(rows[:3]))
        self.expect_survived("class names that control the terminal", "predict", run, table)
        victim = self.write("victim", b"precious")
        for name in (".lock", "metrics.jsonl", "log/rank-0.log"):
            path = run / name
            kept = path.read_bytes()
            path.unlink()
            path.symlink_to(victim)
            self.expect_survived(f"{name} is a link", *train, "--set", "train.epochs=2")
            self.assertEqual(victim.read_bytes(), b"precious", name)
            path.unlink()
            path.write_bytes(kept)

    def test_links_to_tokenizers(self):
        """A run replaces the files of its tokenizer, and those of no other folder."""
        vocabulary = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"
        self.write("vocab.txt", vocabulary)
        self.write("t.jsonl", b'{"text":"a","label":0}\n{"text":"b","label":1}\n' * 8)
        config = self.write(
            "c.txtpb",
            f"""model {{ network {{
              layer {{ embedding {{ units: 4 }} }} layer {{ token_pool {{ mode: MEAN }} }}
              layer {{ dense {{}} }} layer {{ softmax_cross_entropy {{}} }} }} }}
            data {{ root: "{self.scratch}" labeled_text {{ train: "t.jsonl" eval: "t.jsonl" length: 8
              tokenizer {{ wordpiece {{ vocab: "vocab.txt" }} }} }} }}
            batch {{ global: 4 }} train {{ max_steps: 2 }} schedule {{ learning_rate: 0.1 }}""".encode(),
        )
        run = self.scratch / "run"
        self.expect_survived("a tokenizer of a run", "train", config, "--run-dir", run, refused=False)
        shutil.rmtree(run)
        victim = self.write("victim/vocab.txt", b"precious")
        run.mkdir()
        (run / "tokenizer").symlink_to(victim.parent)
        says = "is a symbolic link, which is not followed"
        self.expect_survived("a link", "train", config, "--run-dir", run, refused=True, says=says)
        self.assertEqual(victim.read_bytes(), b"precious")

    def test_settings(self):
        config = "launch/configs/digits.txtpb"
        for setting in (
            "batch.global=2147483648",
            "batch.global=9223372036854775807",
            "batch.global=-1",
            "batch.micro=-9",
            "train.threads=100000",
            "train.epochs=1e300",
            "data.prefetch=2147483647",
            "data.holdout=2",
            "schedule.learning_rate=nan",
            "schedule.learning_rate=-inf",
            "model.network.layer=7",
            "model={network{layer{dense{units:4611686018427387904}}layer{softmax_cross_entropy{}}}}",
            "model={network{layer{dense{units:99999999999}}layer{softmax_cross_entropy{}}}}",
            "model={network{layer{conv2d{channels:2 kernel:4611686018427387904}}layer{softmax_cross_entropy{}}}}",
            "model={network{" + "layer{name:" * 2000,
            "model.freeze=" + "(" * 30000,
            "model.freeze=(?=x)",
            "x" * 100000 + "=1",
            "\x1b[2J=1",
        ):
            self.expect_survived(
                setting[:60], "train", config, "--run-dir", self.scratch / "run", "--set", setting, refused=True
            )
        for arguments in (
            ["inspect", "resnet50", "--batch", "1000000000000"],
            ["inspect", "resnet50", "--ranks", "99999999999"],
            ["inspect", "/dev/zero"],
            ["config", "check", "/dev/zero"],
            ["config", "check", self.scratch],
            ["predict", self.scratch],
            ["report", "/dev/null", "-o", self.scratch / "x.html"],
        ):
            self.expect_survived(" ".join(map(str, arguments)), *arguments, refused=True)

    def test_environment(self):
        train = ["train", "launch/configs/digits.txtpb", "--set", "train.epochs=1", "--run-dir", self.scratch / "run"]
        threads = {"OMP_NUM_THREADS": "100000"}
        self.expect_survived("100,000 threads", *train, refused=True, says="OMP_NUM_THREADS", environment=threads)
        small = {resource.RLIMIT_FSIZE: 10000}
        self.expect_survived("a limit of file sizes", *train, refused=True, says="File too large", limits=small)
        generator = random.Random(1)
        letters = "abcdefghijklmnop"
        text = "".join(f"{''.join(generator.choices(letters, k=1 + i % 9))}\n" for i in range(300_000))
        tokenizer = ["data", "tokenizer", self.write("text", text.encode()), "-o", self.scratch / "t", "--vocab", "2000"]
        little = {resource.RLIMIT_AS: 250 << 20}
        self.expect_survived("a tokenizer in little memory", *tokenizer, refused=True, says="out of memory", limits=little)

    def test_configurations(self):
        valid = (ROOT / "launch/configs/digits.txtpb").read_bytes()
        self.mutate(
            valid,
            8,
            lambda what, content, **expected: self.expect_survived(
                what, "config", "check", self.write("c.txtpb", content), **expected
            ),
        )
        for what, content in (
            ("30,000 open braces", b"model {" * 30000),
            ("a word of 50 MB", b"x" * 50_000_000),
            ("200,000 layers", b"model { network {" + b"layer { relu {} }\n" * 200000 + b"} }"),
            ("zeros", bytes(1000)),
            ("control characters", ESCAPE.encode() + b": 1"),
        ):
            self.expect_survived(what, "config", "check", self.write("c.txtpb", content), refused=True)


if __name__ == "__main__":
    unittest.main()
