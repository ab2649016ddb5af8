r"""Of apex.contrib there is ``combine_tensors`` alone; the rest are CUDA kernels."""
