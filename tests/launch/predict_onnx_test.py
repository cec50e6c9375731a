"""`trireme predict` and ONNX Runtime with the exported network give the same results for the same pixels."""

import io
import json
import tarfile
import unittest

import numpy
import onnxruntime
from PIL import Image

import program

CONFIG = """
model {{ network {{
  name: "stripes"
  layer {{ name: "conv1" conv2d {{ channels: 16 kernel: 3 padding: 1 bias: false }} }}
  layer {{ name: "bn1" batch_norm {{}} }} layer {{ name: "relu1" relu {{}} }}
  layer {{ name: "conv2" conv2d {{ channels: 16 kernel: 3 padding: 1 bias: false }} }}
  layer {{ name: "bn2" batch_norm {{}} }}
  layer {{ name: "sum" add {{}} input: "bn2" input: "relu1" }} layer {{ name: "relu2" relu {{}} }}
  layer {{ name: "pool" global_pool {{}} }} layer {{ name: "flat" flatten {{}} }}
  layer {{ name: "fc" dense {{ units: 4 }} }} layer {{ name: "loss" softmax_cross_entropy {{}} }}
}} }}
data {{
  root: "{root}" image_folder {{}}
  normalize {{ mean: [0.45, 0.5, 0.4] std: [0.2, 0.25, 0.3] }}
  transform {{ random_crop {{ size: 20 }} }}
  eval_transform {{ resize {{ size: 22 }} }} eval_transform {{ center_crop {{ size: 20 }} }}
}}
batch {{ global: 16 }} train {{ epochs: 3 device: "cpu" }}
optimizer {{ adam {{}} }} schedule {{ learning_rate: 0.01 }}
"""


def stripes(kind, random):
    """An image of stripes, whose direction and width determine the class."""
    y, x = numpy.mgrid[0:24, 0:24]
    wave = numpy.sin((x if kind % 2 else y) * (0.5 if kind < 2 else 1.2) + random.uniform(0, 6))
    noise = random.normal(0, 25, (24, 24, 3))
    return Image.fromarray(numpy.clip(128 + 80 * wave[..., None] + noise, 0, 255).astype(numpy.uint8))


class PredictTest(program.ProgramTest):
    def test_matches_onnx_runtime(self):
        random = numpy.random.default_rng(1)
        for part, count in ("train", 24), ("val", 6):
            for kind in range(4):
                folder = self.scratch / "data" / part / f"kind{kind}"
                folder.mkdir(parents=True)
                for i in range(count):
                    stripes(kind, random).save(folder / f"{i}.png")
        config = self.scratch / "run.txtpb"
        config.write_text(CONFIG.format(root=self.scratch / "data"))
        run = self.scratch / "run"
        program.run("train", config, "--run-dir", run)
        program.run("export", run, self.scratch / "model.onnx")
        output = program.run("export", run, self.scratch / "unit.onnx", "--input-range", "0..1")
        self.assertIn("of images after resize { size: 22 interpolation: BILINEAR } then center_crop { size: 20 }", output)
        session = onnxruntime.InferenceSession(self.scratch / "model.onnx", providers=["CPUExecutionProvider"])

        # Both get the same pixels: PNG is lossless, and Pillow resizes and crops like Trireme.
        shard = self.scratch / "val.tar"
        pixels = {}
        with tarfile.open(shard, "w") as tar:
            for path in sorted((self.scratch / "data" / "val").rglob("*.png")):
                image = Image.open(path).resize((22, 22), Image.Resampling.BILINEAR).crop((1, 1, 21, 21))
                name = f"{path.parent.name}-{path.name}"
                pixels[name] = numpy.asarray(image, dtype=numpy.float32).transpose(2, 0, 1)
                info = tarfile.TarInfo(name)
                info.size = path.stat().st_size
                tar.addfile(info, io.BytesIO(path.read_bytes()))
        wanted = session.run(None, {"input": numpy.stack(list(pixels.values()))})[0]
        predictions = [json.loads(line) for line in program.run(
            "predict", run, shard, "--logits", "--format", "jsonl", "--batch", 5).splitlines()]
        self.assertEqual([one["name"] for one in predictions], [f"{shard}: {name}" for name in pixels])
        got = numpy.array([one["logits"] for one in predictions])
        self.assertGreater(numpy.abs(wanted).max(), 0.5)  # it did learn something

        unit = onnxruntime.InferenceSession(self.scratch / "unit.onnx", providers=["CPUExecutionProvider"])
        of_unit = unit.run(None, {"input": numpy.stack(list(pixels.values())) / 255})[0]
        numpy.testing.assert_allclose(of_unit, wanted, rtol=1e-4, atol=1e-4 * numpy.abs(wanted).max())
        metadata = unit.get_modelmeta().custom_metadata_map
        self.assertEqual(json.loads(metadata["classes"]), [f"kind{kind}" for kind in range(4)])
        self.assertEqual(json.loads(metadata["input.transforms"]), [
            {"resize": {"size": [22], "interpolation": "BILINEAR"}}, {"center_crop": {"size": [20]}}])
        numpy.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * numpy.abs(wanted).max())


if __name__ == "__main__":
    unittest.main()
