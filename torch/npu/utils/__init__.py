r"""Tools for those who write operators; see :mod:`torch.npu.utils.cpp_extension`."""
