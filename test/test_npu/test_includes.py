"""Lower layers include nothing of the layers above them: architecture.md says which is which."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "aten/src/ATen/native/npu"
# What the files of a folder must not include.
FORBIDDEN = {
    "c10/npu": r"ATen/|torch/csrc/|exec/|ops/",
    "simulator/core": r"exec/|ops/|libascendcl/|libhccl/|ATen/|c10/npu",
    "simulator/exec": r"ops/|libascendcl/|libhccl/|c10/npu|ATen/native/npu",
    "simulator/exec/layout": r"exec/(?!layout/)",
    f"{KERNELS}/frame": r"ATen/native/npu/(?!frame/)",
    f"{KERNELS}/frame/inference": r"ATen/native/npu/frame/registration/",
    f"{KERNELS}/frame/command": r"ATen/native/npu/frame/registration/",
    # Where elements lie; what moves them is a command.
    f"{KERNELS}/frame/layout": r"ATen/native/npu/frame/(registration|command)/",
    KERNELS: r"torch/csrc/npu|libascendcl/",
    "torch/csrc/npu": r"exec/|libascendcl/",
}


class IncludesTest(unittest.TestCase):
    def test_no_layer_includes_a_higher_one(self):
        for folder, forbidden in FORBIDDEN.items():
            files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h", ".hpp")]
            self.assertTrue(files, folder)
            for path in files:
                found = re.findall(r'^#include [<"]([^>"]+)', path.read_text(encoding="utf-8"), re.M)
                with self.subTest(path.relative_to(ROOT)):
                    self.assertEqual([name for name in found if re.match(forbidden, name)], [])


if __name__ == "__main__":
    unittest.main()
