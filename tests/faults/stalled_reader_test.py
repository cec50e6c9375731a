"""Training must continue and end if the reader of its output stops reading."""

import fcntl
import json
import os
import subprocess

from program import ROOT, TRIREME, ProgramTest, unittest

# Prints a line per epoch, ten times as much as the pipe below holds.
CONFIG = """
model { zoo { name: "mlp" hidden: [16] } }
data { synthetic { shape: [1, 4, 4] count: 64 eval_count: 16 } }
batch { global: 16 }
train { epochs: 99 threads: 1 }
optimizer { sgd {} }
schedule { learning_rate: 0.05 }
checkpoint { every_epochs: 0 keep_best: false }
"""


class StalledReaderTest(ProgramTest):
    def test_a_full_pipe(self):
        (self.scratch / "run.txtpb").write_text(CONFIG)
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        self.assertLess(fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096), 8192)
        process = subprocess.Popen(
            [TRIREME, "train", str(self.scratch / "run.txtpb"), "--run-dir", str(self.scratch / "run")],
            cwd=ROOT,
            stdout=writes,
            stderr=subprocess.PIPE,
        )
        os.close(writes)
        _, error = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(json.loads((self.scratch / "run/summary.json").read_text())["steps"], 396)
        self.assertIn("warning: console hangs", (self.scratch / "run/log/rank-0.log").read_text())


if __name__ == "__main__":
    unittest.main()
