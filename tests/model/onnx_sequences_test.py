"""Exported networks for sequences compute the logits of the reference in ONNX Runtime."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import onnx
import onnxruntime

ROWS, LENGTH = 4, 12
NOT_PADDED = 8  # tokens of the second row; the others are padding
UNMASKED = {"bert_plain", "lstm_both", "gru_both"}  # read padding as other tokens
PROGRAM = os.environ.get("TRIREME_ONNX_LOGITS", "build/release/tests/onnx_logits")


class OnnxSequencesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_equal_logits(self, name):
        path = self.folder / f"{name}.onnx"
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        read, written = session.get_inputs()[0], session.get_outputs()[0]
        self.assertEqual((read.name, read.shape[0], written.name, written.shape[0]), ("input", "N", "logits", "N"))
        tokens = read.type == "tensor(int64)"
        inputs = numpy.fromfile(self.folder / f"{name}.input", numpy.int64 if tokens else numpy.float32)
        inputs = inputs.reshape(ROWS, *([LENGTH] if tokens else read.shape[1:]))
        wanted = numpy.fromfile(self.folder / f"{name}.logits", numpy.float32)
        wanted = wanted.reshape(ROWS, *(LENGTH if size == "T" else size for size in written.shape[1:]))
        found = session.run(None, {"input": inputs})[0]
        self.assertEqual(found.shape, wanted.shape)
        self.assertGreater(numpy.abs(wanted).max(), 0.1)
        self.assertGreater(numpy.ptp(wanted, axis=0).max(), 0.01)  # rows differ
        self.assertLess(numpy.abs(found - wanted).max(), 1e-4)
        # The batch size is dynamic.
        numpy.testing.assert_allclose(session.run(None, {"input": inputs[1:2]})[0], found[1:2], atol=1e-5)
        if tokens and name not in UNMASKED:
            self.assertEqual(read.shape[1], "T")
            shorter = session.run(None, {"input": inputs[1:2, :NOT_PADDED]})[0]
            same = found[1:2, :NOT_PADDED] if found.ndim == 3 else found[1:2]
            numpy.testing.assert_allclose(shorter, same, atol=1e-5)

    def test_networks_give_the_same_logits(self):
        names = subprocess.run([PROGRAM, self.folder], check=True, capture_output=True, text=True).stdout.split()
        self.assertGreaterEqual(len(names), 14)
        for name in names:
            with self.subTest(name):
                self.assert_equal_logits(name)


if __name__ == "__main__":
    unittest.main()
