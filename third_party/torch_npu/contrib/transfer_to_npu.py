"""`from torch_npu.contrib import transfer_to_npu`: torch.npu.transfer_to_npu under the plug-in era's name."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("torch.npu.transfer_to_npu")
