"""`torch_npu.multiprocessing`: how tensors of an NPU go to another process. They do not: see reductions."""
