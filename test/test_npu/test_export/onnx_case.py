"""What the tests of ONNX files share: exporting, running in onnxruntime, comparing."""

import importlib.util
import logging
import os
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common_utils import TestCase

import torch
import torch.npu

MISSING = [name for name in ("onnx", "onnxruntime", "onnxscript") if importlib.util.find_spec(name) is None]
needs_onnx = unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}: pip install -r requirements-test.txt")
SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"


def moved(value, device):
    return torch.utils._pytree.tree_map(lambda t: t.to(device) if isinstance(t, torch.Tensor) else t, value)


def export(model, args, *, dynamo, opset=None, quiet=True, **options):
    """Exports to a file and returns the onnx.ModelProto."""
    import onnx

    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        path = os.path.join(folder, "model.onnx")
        if quiet:
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.ERROR)
        try:
            if dynamo:
                options = {"external_data": False, "verbose": False} | options
            torch.onnx.export(model, args, path, dynamo=dynamo, opset_version=opset, **options)
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
        return onnx.load(path)


def flat(value):
    """The tensors of a result, in the order in which the exporters name them."""
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def run(proto, args):
    """onnxruntime's results for the model's inputs, in order."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = flat(args)
    names = [value.name for value in session.get_inputs()]
    feed = {name: t.detach().cpu().numpy() for name, t in zip(names, given, strict=True)}
    return session.run(None, feed)


def opset_of(proto):
    return next(item.version for item in proto.opset_import if item.domain == "")


class OnnxCase(TestCase):
    def agrees(self, proto, model, args, tolerance=1e-4):
        """onnxruntime gives the numbers that the npu gives."""
        with torch.no_grad():
            expected = flat(model(*moved(args, "npu")))
        actual = run(proto, args)
        self.assertEqual(len(actual), len(expected))
        for a, b in zip(actual, expected, strict=True):
            b = b.cpu().numpy()
            self.assertEqual(a.shape, b.shape)
            self.assertEqual(a.dtype, b.dtype)
            scale = max(1.0, float(np.abs(b).max(initial=0)) if b.dtype.kind == "f" else 1.0)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)
