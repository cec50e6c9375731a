"""Exported models work with the onnx checker and ONNX Runtime, and can be imported again; so do models of other programs."""

import gzip
import json
import pathlib

import numpy
import onnx
import onnxruntime
from program import ROOT, ProgramTest, run
import safetensors
from safetensors import numpy as safetensors_numpy

SAMPLES = 4
# The smallest images that each network accepts. VGG is left out because it needs 224 x 224 (half a gigabyte of parameters): its
# layers are tested here as part of other networks, and its graph in tests/model/onnx_test.cc.
ZOO = {
    "mlp": ([3, 6, 6], "hidden: [40, 30]"),
    "lenet": ([1, 28, 28], ""),
    "alexnet": ([3, 63, 63], ""),
    "resnet18": ([3, 33, 32], ""),
    "resnet34": ([3, 32, 32], ""),
    "resnet50": ([3, 32, 32], ""),
    "resnet18-cifar": ([3, 16, 16], ""),
    "resnet20": ([3, 16, 16], ""),
    "resnet56": ([3, 16, 16], ""),
    "vit-tiny": ([3, 16, 24], "blocks: 2 patch: 8"),
}
# Every kind of layer that the zoo does not have.
LAYERS = """
network {
  layer { name: "conv" conv2d { channels: 8 kernel: [3, 2] stride: [2, 1] padding: [1, 0] dilation: [1, 2] groups: 2 } }
  layer { name: "norm" batch_norm { epsilon: 0.01 } }
  layer { name: "groups" group_norm { num_groups: 4 epsilon: 0.001 } }
  layer { name: "plain" group_norm { num_groups: 2 affine: false } }
  layer { name: "instance" group_norm { num_groups: 8 } }
  layer { name: "silu" silu {} }
  layer { name: "mean" average_pool { kernel: 3 stride: 2 padding: 1 include_padding: false } }
  layer { name: "padded" average_pool { kernel: 3 stride: 1 padding: 1 } }
  layer { name: "gelu" gelu {} input: "padded" }
  layer { name: "gelu_tanh" gelu_tanh {} input: "padded" }
  layer { name: "sum" add {} input: "gelu" input: "gelu_tanh" }
  layer { name: "max" max_pool { kernel: 3 stride: 1 padding: 1 } input: "mean" }
  layer { name: "both" concat {} input: "sum" input: "max" }
  layer { name: "tanh" tanh {} }
  layer { name: "flat" flatten {} }
  layer { name: "drop" dropout {} }
  layer { name: "hidden" dense { units: 12 bias: false } }
  layer { name: "rows" layer_norm {} }
  layer { name: "row_groups" group_norm { num_groups: 3 } }
  layer { name: "sigmoid" sigmoid {} }
  layer { name: "head" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
"""


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def metadata(path):
    return session(path).get_modelmeta().custom_metadata_map


def outputs(path, inputs):
    onnx.checker.check_model(str(path), full_check=True)
    return session(path).run(None, {"input": inputs.astype(numpy.float32)})[0]


class OnnxTest(ProgramTest):
    def train(self, name, model, samples, labels, more=""):
        """Trains one step on u8 samples, so that all values differ from their initialization."""
        folder = self.scratch / name
        folder.mkdir()
        numpy.save(folder / "inputs.npy", numpy.moveaxis(samples, 1, -1))  # as images are stored
        numpy.save(folder / "labels.npy", labels)
        (folder / "run.txtpb").write_text(f"""
            model {{ {model} }}
            data {{
              root: "{folder}"
              npy {{ train_inputs: "inputs.npy" train_targets: "labels.npy"
                     eval_inputs: "inputs.npy" eval_targets: "labels.npy" classes: 10 }}
              normalize {{ mean: 0.45 std: 0.25 }}
            }}
            batch {{ global: {len(samples)} }}
            train {{ max_steps: 1 }}
            schedule {{ learning_rate: 0.001 constant {{}} }}
            metrics {{ tensorboard: false }}
            {more}""")
        run("train", folder / "run.txtpb", "--run-dir", folder / "run")
        return folder

    def logits(self, folder):
        lines = run("predict", folder / "run", folder / "inputs.npy", "--logits", "--format", "jsonl").splitlines()
        return numpy.array([json.loads(line)["logits"] for line in lines])

    def assert_equal_logits(self, name, model, shape):
        random = numpy.random.default_rng(5)
        samples = random.integers(0, 256, (SAMPLES, *shape), dtype=numpy.uint8)
        folder = self.train(name, model, samples, random.integers(0, 10, SAMPLES))
        exported = folder / "model.onnx"
        run("export", folder / "run", exported)
        found = outputs(exported, samples)
        wanted = self.logits(folder)
        self.assertEqual(found.shape, wanted.shape)
        self.assertLess(numpy.abs(found - wanted).max() / numpy.abs(wanted).max(), 1e-4)
        # The batch size is dynamic.
        numpy.testing.assert_allclose(outputs(exported, samples[:1]), found[:1], rtol=1e-3, atol=1e-4)
        return folder, samples, found

    def test_networks_of_the_zoo_give_the_same_logits(self):
        for name, (shape, options) in ZOO.items():
            with self.subTest(name):
                self.assert_equal_logits(name, f'zoo {{ name: "{name}" {options} }}', shape)

    def test_gpt2_gives_the_logits_of_transformers(self):
        golden = ROOT / "tests/golden/gpt2"
        size = json.loads((golden / "config.json").read_text())
        tokens = numpy.loadtxt(golden / "tokens.txt", dtype=numpy.uint16)
        file = self.scratch / "tokens.bin"
        numpy.append(tokens, 0).astype(numpy.uint16).tofile(file)
        (self.scratch / "run.txtpb").write_text(f"""
            model {{ zoo {{ name: "gpt2-124m" blocks: {size["n_layer"]} width: {size["n_embd"]} heads: {size["n_head"]} }}
                     init_from: "{golden}" }}
            data {{ tokens {{ train: "{file}" eval: "{file}" length: {size["n_positions"]} vocab_size: {size["vocab_size"]} }} }}
            batch {{ global: 1 }}
            train {{ max_steps: 0 device: "cpu" }}
            schedule {{ learning_rate: 0.001 constant {{}} }}
            metrics {{ tensorboard: false }}""")
        run("train", self.scratch / "run.txtpb", "--run-dir", self.scratch / "run")
        output = run("export", self.scratch / "run", self.scratch / "gpt2.onnx")
        self.assertIn("input: i64 [N, 80]: token ids from 0 to 60", output)
        onnx.checker.check_model(str(self.scratch / "gpt2.onnx"), full_check=True)
        logits = session(self.scratch / "gpt2.onnx").run(None, {"input": tokens.astype(numpy.int64)})[0]
        wanted = safetensors_numpy.load_file(golden / "logits.safetensors")["logits"]
        self.assertLess(numpy.abs(logits - wanted).max(), 1e-4)
        found = metadata(self.scratch / "gpt2.onnx")
        self.assertEqual((found["input.range"], found["input.layout"], found["input.vocab_size"]), ("tokens", "NT", "61"))

        # The file defines a network with the same logits, whose head is tied to the embedding.
        config = (self.scratch / "run.txtpb").read_text()
        begin, end = config.index("model {"), config.index("data {")
        (self.scratch / "again.txtpb").write_text(f'{config[:begin]}model {{ onnx: "{self.scratch}/gpt2.onnx" }} {config[end:]}')
        run("train", self.scratch / "again.txtpb", "--run-dir", self.scratch / "again")
        self.assertIn('tied_to: "wte"', (self.scratch / "again/config.txtpb").read_text())
        run("export", self.scratch / "again", self.scratch / "again.onnx")
        again = session(self.scratch / "again.onnx").run(None, {"input": tokens.astype(numpy.int64)})[0]
        numpy.testing.assert_allclose(again, logits, atol=1e-6)

    def test_every_kind_of_layer_gives_the_same_logits(self):
        folder, samples, logits = self.assert_equal_logits("layers", LAYERS, [4, 12, 10])
        graph = onnx.load(folder / "model.onnx").graph
        self.assertIn("conv.weight", [tensor.name for tensor in graph.initializer])
        self.assertIn("gelu", [node.name for node in graph.node])
        self.assertEqual(graph.input[0].type.tensor_type.shape.dim[0].dim_param, "N")

        run("export", folder / "run", folder / "probabilities.onnx", "--softmax")
        exponentials = numpy.exp(logits - logits.max(1, keepdims=True))
        numpy.testing.assert_allclose(
            outputs(folder / "probabilities.onnx", samples), exponentials / exponentials.sum(1, keepdims=True), atol=1e-5
        )
        run("export", folder / "run", folder / "plain.onnx", "--no-normalize")
        numpy.testing.assert_allclose(
            outputs(folder / "plain.onnx", (samples / 255 - 0.45) / 0.25), logits, rtol=1e-3, atol=1e-4
        )

    def test_describes_the_expected_input(self):
        folder, samples, logits = self.assert_equal_logits("range", 'zoo { name: "resnet20" }', [3, 16, 16])
        output = run("export", folder / "run", folder / "model.onnx")
        self.assertIn("input: f32 [N, 3, 16, 16]: pixels from 0 to 255, not divided by 255, RGB, channels first (NCHW)", output)
        normalization = {"applied_by": "model", "scale": numpy.float32(1 / 255), "mean": [0.45], "std": [0.25]}
        found = metadata(folder / "model.onnx")
        self.assertEqual(found["input.range"], "0..255")
        self.assertEqual(found["input.layout"], "NCHW")
        self.assertEqual(found["input.channels"], "RGB")
        self.assertEqual(found["Image.BitmapPixelFormat"], "Rgb8")
        self.assertEqual(found["Image.NominalPixelRange"], "NominalRange_0_255")
        self.assert_normalization(found, normalization)

        output = run("export", folder / "run", folder / "unit.onnx", "--input-range", "0..1")
        self.assertIn("pixels from 0 to 1, RGB", output)
        numpy.testing.assert_allclose(outputs(folder / "unit.onnx", samples / 255), logits, rtol=1e-3, atol=1e-4)
        found = metadata(folder / "unit.onnx")
        self.assertEqual((found["input.range"], found["Image.NominalPixelRange"]), ("0..1", "Normalized_0_1"))
        self.assert_normalization(found, {**normalization, "scale": 1})
        self.assertEqual(onnx.load(folder / "unit.onnx").graph.input[0].type.denotation, "IMAGE")
        # Both can be used to initialize another run.
        config = (folder / "run.txtpb").read_text()
        for name in ("model.onnx", "unit.onnx"):
            again = config.replace('zoo { name: "resnet20" }', f'onnx: "{folder / name}"').replace("0.001", "0")
            (folder / "again.txtpb").write_text(again)
            output = run("train", folder / "again.txtpb", "--run-dir", folder / f"again-{name}")
            self.assertNotIn("data.normalize is not", output)

            # Without data.normalize, that of the file is used, with the same logits.
            again = again.replace("normalize { mean: 0.45 std: 0.25 }", "").replace("max_steps: 1", "max_steps: 0")
            (folder / "again.txtpb").write_text(again)
            run("train", folder / "again.txtpb", "--run-dir", folder / f"bare-{name}")
            lines = run("predict", folder / f"bare-{name}", folder / "inputs.npy", "--logits", "--format", "jsonl").splitlines()
            same = numpy.array([json.loads(line)["logits"] for line in lines])
            numpy.testing.assert_allclose(same, logits, rtol=1e-3, atol=1e-4)
            (folder / "again.txtpb").write_text(again.replace("npy {", "normalize { mean: 0.4 } npy {"))
            run("train", folder / "again.txtpb", "--run-dir", folder / f"other-{name}", code=2)

        output = run("export", folder / "run", folder / "plain.onnx", "--no-normalize")
        self.assertIn("input: f32 [N, 3, 16, 16]: (x * 0.00392157 - mean) / std of pixels x from 0 to 255, with mean 0.45 and std 0.25", output)
        found = metadata(folder / "plain.onnx")
        self.assertEqual(found["input.range"], "normalized")
        self.assertNotIn("Image.NominalPixelRange", found)
        self.assert_normalization(found, {**normalization, "applied_by": "caller"})

        run("export", folder / "run", folder / "model.safetensors")
        with safetensors.safe_open(folder / "model.safetensors", framework="numpy") as file:
            self.assertEqual(file.metadata(), {**found, "format": "pt"})
        run("export", folder / "run", folder / "x.onnx", "--input-range", "0..1", "--no-normalize", code=2)
        run("export", folder / "run", folder / "x.safetensors", "--input-range", "0..1", code=2)

    def assert_normalization(self, found, wanted):
        actual = json.loads(found["input.normalization"])
        self.assertEqual(actual.pop("applied_by"), wanted["applied_by"])
        for key in actual:
            numpy.testing.assert_allclose(actual[key], wanted[key], rtol=1e-6, err_msg=key)
        self.assertEqual(set(actual), {"scale", "mean", "std"})

    def test_safetensors_hold_the_same_values(self):
        folder, _, _ = self.assert_equal_logits("names", 'zoo { name: "resnet18" }', [3, 32, 32])
        run("export", folder / "run", folder / "model.safetensors", "--names", "torchvision")
        values = safetensors_numpy.load_file(folder / "model.safetensors")
        for tensor in onnx.load(folder / "model.onnx").graph.initializer:
            if tensor.name in values:
                numpy.testing.assert_array_equal(values.pop(tensor.name), onnx.numpy_helper.to_array(tensor))
        self.assertEqual(values, {})
        run("export", folder / "run", folder / "model.pt", code=2)
        run("export", folder / "run", folder / "model.onnx", "--names", "huggingface", code=2)

    def digits(self, model, folder, classes=10, more=""):
        """A configuration for the digits of this repository, the last 359 for evaluation."""
        folder.mkdir()
        rows = gzip.decompress((ROOT / "data/digits/digits.csv.gz").read_bytes()).decode().splitlines()
        if classes < 10:
            rows = [row for row in rows if int(row.rsplit(",", 1)[1]) < classes]
        (folder / "train.csv").write_text("\n".join(rows[:-359]) + "\n")
        (folder / "eval.csv").write_text("\n".join(rows[-359:]) + "\n")
        (folder / "run.txtpb").write_text(f"""
            model {{ {model} }}
            data {{
              root: "{folder}"
              csv {{ train_file: "train.csv" eval_file: "eval.csv" shape: [1, 8, 8] scale: 0.0625 }}
              {more}
            }}
            batch {{ global: 64 }}
            train {{ epochs: 4 }}
            optimizer {{ adam {{}} }}
            schedule {{ learning_rate: 0.004 constant {{}} }}
            metrics {{ tensorboard: false }}""")
        return folder

    def accuracy(self, folder, *options):
        run("train", folder / "run.txtpb", "--run-dir", folder / "run", *options)
        return json.loads(run("eval", folder / "run", "--json"))["eval_accuracy"]

    def test_exported_digits_can_be_imported(self):
        model = """network { name: "digits"
          layer { name: "conv" conv2d { channels: 16 kernel: 3 padding: 1 } }
          layer { name: "norm" batch_norm {} }
          layer { name: "relu" relu {} }
          layer { name: "pool" max_pool { kernel: 2 } }
          layer { name: "flatten" flatten {} }
          layer { name: "fc" dense { units: 10 } }
          layer { name: "loss" softmax_cross_entropy {} } }"""
        folder = self.digits(model, self.scratch / "digits", more="normalize { mean: 0.3 std: 0.37 }")
        accuracy = self.accuracy(folder)
        self.assertGreater(accuracy, 0.85)
        exported = folder / "digits.onnx"
        run("export", folder / "run", exported)
        run("export", folder / "run", folder / "unit.onnx", "--input-range", "0..1", code=2)  # the input is not pixels
        self.assertEqual(metadata(exported)["input.range"], "raw")
        rows = numpy.loadtxt(folder / "eval.csv", delimiter=",")
        logits = outputs(exported, rows[:, :-1].reshape(-1, 1, 8, 8))
        self.assertEqual(numpy.count_nonzero(logits.argmax(1) == rows[:, -1]), round(accuracy * len(rows)))

        # Initializes another run, which without learning has the same accuracy. The run's folder is self-contained.
        again = self.digits(f'onnx: "{exported}"', self.scratch / "again")
        still = ("--set", "schedule.learning_rate=0", "--set", "train.max_steps=1")
        run("train", again / "run.txtpb", "--run-dir", again / "run", *still, "--set", 'model.freeze=norm.*')
        exported.unlink()
        self.assertEqual(json.loads(run("eval", again / "run", "--json"))["eval_accuracy"], accuracy)
        config = (again / "run/config.txtpb").read_text()
        self.assertNotIn("onnx:", config)
        self.assertIn("std: [0.37]", config)

        # With another number of classes, the head is new.
        run("export", folder / "run", exported)
        fewer = self.digits(f'onnx: "{exported}"', self.scratch / "fewer", classes=4)
        self.assertGreater(self.accuracy(fewer), 0.95)
        run("export", fewer / "run", fewer / "fewer.onnx")
        self.assertEqual(session(fewer / "fewer.onnx").get_outputs()[0].shape, ["N", 4])

        run("inspect", exported)

    def test_unsupported_and_damaged_files_are_errors(self):
        clip = onnx.helper.make_graph(
            [onnx.helper.make_node("Clip", ["x"], ["y"], name="clip")],
            "clip",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 64])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 64])],
        )
        onnx.save(onnx.helper.make_model(clip), self.scratch / "clip.onnx")
        folder = self.digits(f'onnx: "{self.scratch}/clip.onnx"', self.scratch / "clip")
        run("train", folder / "run.txtpb", code=2)
        (self.scratch / "clip.onnx").write_bytes(b"\x08")
        run("train", folder / "run.txtpb", code=3)
        pathlib.Path(self.scratch / "clip.onnx").unlink()
        run("train", folder / "run.txtpb", code=2)


NPY = 'npy { train_inputs: "x.npy" train_targets: "y.npy" eval_inputs: "x.npy" eval_targets: "y.npy" }'
CSV = 'csv { train_file: "x.csv" eval_file: "x.csv" label: "k" }'
SCALAR = (1,)


def softmax_loss(logits, labels):
    shifted = logits - logits.max(1, keepdims=True)
    return (numpy.log(numpy.exp(shifted).sum(1)) - shifted[numpy.arange(len(labels)), labels]).mean()


class ImportedValues(ProgramTest):
    """Files of other programs compute and train what they say. The reference is double precision with numerical gradients."""

    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(7)
        self.inputs = self.random.normal(0.5, 2, (24, 4)).astype(numpy.float32)
        self.labels = numpy.arange(24) % 3
        self.constants = {}
        self.runs = 0

    def constant(self, name, *shape):
        self.constants[name] = numpy.asarray(self.random.normal(0.7, 0.5, shape), numpy.float32)
        return name

    def model(self, name, nodes, outputs=3):
        """Nodes are (operator, inputs, output, attributes...). The constants are initializers."""
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(op, inputs, [output], **dict(more)) for op, inputs, output, *more in nodes],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", *self.inputs.shape[1:]])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", outputs])],
            [onnx.numpy_helper.from_array(values, key) for key, values in self.constants.items()],
        )
        path = self.scratch / f"{name}.onnx"
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
        onnx.checker.check_model(str(path))
        return path

    def train(self, name, data=NPY, more="", steps=3, code=0):
        numpy.save(self.scratch / "x.npy", self.inputs)
        numpy.save(self.scratch / "y.npy", self.labels)
        if self.inputs.ndim == 2:
            table = numpy.column_stack([self.inputs, self.labels])
            header = ",".join([*"abcdefgh"[: self.inputs.shape[1]], "k"])
            numpy.savetxt(self.scratch / "x.csv", table, "%.9g", ",", header=header, comments="")
        (self.scratch / f"{name}.txtpb").write_text(f"""
            model {{ onnx: "{self.scratch}/{name}.onnx" }}
            data {{ root: "{self.scratch}" {data} shuffle: false {more} }}
            batch {{ global: 8 }} train {{ max_steps: {steps} device: "cpu" }} optimizer {{ sgd {{}} }}
            schedule {{ learning_rate: 0.2 constant {{}} }} metrics {{ tensorboard: false }}""")
        self.runs += 1
        folder = self.scratch / f"run{self.runs}"
        run("train", self.scratch / f"{name}.txtpb", "--run-dir", folder, code=code)
        return folder

    def losses(self, folder):
        events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [event["train_loss"] for event in events if event["event"] == "step"]

    def expect_losses(self, name, forward, trained, data=NPY):
        """`forward` computes logits from x and the constants, of which `trained` are parameters."""
        parameters = {key: values.astype(numpy.float64) for key, values in self.constants.items()}
        wanted = []
        for step in range(3):
            x, labels = (values[8 * step : 8 * step + 8] for values in (self.inputs.astype(numpy.float64), self.labels))
            wanted.append(softmax_loss(forward(x, parameters), labels))
            gradients = {}
            for key in trained:
                gradients[key] = numpy.zeros_like(parameters[key])
                for place in numpy.ndindex(parameters[key].shape):
                    value = parameters[key][place]
                    sides = []
                    for moved in (value + 1e-6, value - 1e-6):
                        parameters[key][place] = moved
                        sides.append(softmax_loss(forward(x, parameters), labels))
                    parameters[key][place] = value
                    gradients[key][place] = (sides[0] - sides[1]) / 2e-6
            for key in trained:
                parameters[key] -= 0.2 * gradients[key]
        numpy.testing.assert_allclose(self.losses(self.train(name, data)), wanted, rtol=1e-4, err_msg=name)

    def test_scales_and_shifts_of_the_input_are_trained(self):
        w, b = self.constant("w", 4, 3), self.constant("b", 3)
        last = ("Gemm", ["h", w, b], "y")
        cases = {
            "affine": (("Mul", ["x", "s"], "a"), ("Add", ["a", "t"], "h")),
            "scale": (("Mul", ["s", "x"], "h"),),
            "shift": (("Add", ["x", "t"], "h"),),
            "number": (("Mul", ["x", "n"], "a"), ("Add", ["n", "a"], "h")),
        }
        forwards = {
            "affine": lambda x, p: x * p["s"] + p["t"],
            "scale": lambda x, p: x * p["s"],
            "shift": lambda x, p: x + p["t"],
            "number": None,
        }
        kept = dict(self.constants)
        for name, nodes in cases.items():
            self.constants = dict(kept)
            for key in {key for node in nodes for key in node[1]} & set("stn"):
                self.constant(key, *(SCALAR if key == "n" else (4,)))
            self.model(name, [*nodes, last])
            if name == "number":  # as weight and bias, which cannot be one parameter
                self.train(name, code=2)
                continue
            for data in (CSV, NPY) if name == "affine" else (NPY,):
                with self.subTest(name, data=data[:3]):
                    self.expect_losses(name, lambda x, p: forwards[name](x, p) @ p["w"] + p["b"], list(self.constants), data)

    def test_a_scale_within_the_network_is_trained(self):
        self.inputs = self.random.normal(0, 1, (24, 2, 3, 3)).astype(numpy.float32)
        c, s, t, n, w = (
            self.constant("c", 3, 2, 1, 1), self.constant("s", 3, 1, 1), self.constant("t", 1, 3, 1, 1),
            self.constant("n"), self.constant("w", 27, 3),
        )  # fmt: skip
        self.model("within", [
            ("Conv", ["x", c], "a"), ("Mul", ["a", s], "b"), ("Tanh", ["b"], "d"), ("Sub", ["d", t], "e"),
            ("Mul", [n, "e"], "f"), ("Flatten", ["f"], "g"), ("MatMul", ["g", w], "y"),
        ])  # fmt: skip

        def forward(x, p):
            b = numpy.einsum("nihw,oi->nohw", x, p["c"][:, :, 0, 0]) * p["s"]
            return (p["n"] * (numpy.tanh(b) - p["t"])).reshape(len(x), -1) @ p["w"]

        self.expect_losses("within", forward, list(self.constants))

    def test_a_tensor_that_several_operators_read_is_one_parameter(self):
        u, v, b, w = self.constant("u", 5, 4), self.constant("v", 5, 5), self.constant("b", 5), self.constant("w", 5, 3)
        twice = ("transB", 1)
        self.model("tied", [
            ("Gemm", ["x", u, b], "1", twice), ("Tanh", ["1"], "2"), ("Gemm", ["2", v, b], "3", twice), ("Tanh", ["3"], "4"),
            ("Gemm", ["4", v, b], "5", twice), ("Tanh", ["5"], "6"), ("MatMul", ["6", w], "y"),
        ])  # fmt: skip

        def forward(x, p):
            h = numpy.tanh(x @ p["u"].T + p["b"])
            for _ in range(2):
                h = numpy.tanh(h @ p["v"].T + p["b"])
            return h @ p["w"]

        self.expect_losses("tied", forward, list(self.constants))
        # The exported file shares them, too.
        run("export", self.scratch / "run1", self.scratch / "again.onnx")
        names = [tensor.name for tensor in onnx.load(self.scratch / "again.onnx").graph.initializer]
        self.assertEqual(len(names), 4)

    def test_a_convolution_that_runs_twice_is_one_parameter(self):
        self.inputs = self.random.normal(0, 1, (24, 2, 3, 3)).astype(numpy.float32)
        c, w = self.constant("c", 2, 2, 1, 1), self.constant("w", 18, 3)
        self.model("conv", [
            ("Conv", ["x", c], "1"), ("Relu", ["1"], "2"), ("Conv", ["2", c], "3"), ("Flatten", ["3"], "4"), ("MatMul", ["4", w], "y"),
        ])  # fmt: skip

        def forward(x, p):
            for step in range(2):
                x = numpy.einsum("nihw,oi->nohw", x if step == 0 else numpy.maximum(x, 0), p["c"][:, :, 0, 0])
            return x.reshape(len(x), -1) @ p["w"]

        self.expect_losses("conv", forward, ["c", "w"])

    def test_normalizes_its_own_input_whatever_the_data_does(self):
        mean, std, w, b = (self.constant(name, *shape) for name, shape in (("m", (4,)), ("s", (4,)), ("w", (4, 3)), ("b", (3,))))
        self.constants["s"] = numpy.abs(self.constants["s"]) + 0.2
        path = self.model("norm", [("Sub", ["x", mean], "a"), ("Div", ["a", std], "h"), ("Gemm", ["h", w, b], "y")])
        for data, more, inputs in (
            (CSV, "", self.inputs),
            (NPY, "", self.inputs),
            (CSV, "normalize { mean: 1 std: 2 }", (self.inputs - 1) / 2),
            (NPY, "normalize { mean: [1, 2, 3, 4] std: 2 }", (self.inputs - [1, 2, 3, 4]) / 2),
            (NPY.replace("npy {", "npy { scale: 0.5"), "", self.inputs / 2),
        ):
            with self.subTest(data=data, more=more):
                folder = self.train("norm", data, more, steps=0)
                lines = run("predict", folder, self.scratch / "x.npy" if data is not CSV else self.scratch / "x.csv",
                            "--logits", "--format", "jsonl").splitlines()  # fmt: skip
                got = numpy.array([json.loads(line)["logits"] for line in lines])
                wanted = session(path).run(None, {"x": inputs.astype(numpy.float32)})[0]
                numpy.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
                # The exported file takes samples as stored.
                run("export", folder, self.scratch / "again.onnx")
                numpy.testing.assert_allclose(outputs(self.scratch / "again.onnx", self.inputs), wanted, rtol=1e-4, atol=1e-4)

    def test_a_long_chain_is_inspected_without_trying_recomputation(self):
        """That took minutes. The number of operators is limited in tests/model/onnx_import_test.cc."""
        self.constant("w", 4, 3)
        names = ["x", *(f"v{i}" for i in range(2500))]
        chain = [("Tanh", [before], after) for before, after in zip(names, names[1:], strict=False)]
        output = run("inspect", self.model("chain", [*chain, ("MatMul", [names[-1], "w"], "y")]))
        self.assertIn("no recomputation, which is tried for up to 2000 layers", output)
        self.assertEqual(output.count("\n  NONE "), 2)

    def test_regression_on_arrays(self):
        self.constant("w", 4, 2)
        self.model("regression", [("MatMul", ["x", "w"], "y")], outputs=2)
        self.labels = self.random.normal(0, 1, (24, 2)).astype(numpy.float32)
        folder = self.train("regression", steps=1)
        wanted = numpy.square(self.inputs[:8] @ self.constants["w"] - self.labels[:8]).mean()
        numpy.testing.assert_allclose(self.losses(folder), [wanted], rtol=1e-5)


if __name__ == "__main__":
    import unittest

    unittest.main()
