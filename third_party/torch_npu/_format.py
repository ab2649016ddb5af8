"""`torch_npu.Format`: the numbers of the formats of device memory by name, as npu_format_cast takes them."""

from torch.npu._format import Format as Format
