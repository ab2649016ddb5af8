"""Builds the extension: `python setup.py build_ext --inplace`, or `pip install --no-build-isolation .`."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, NpuExtension

setup(
    name="npu_example",
    version="1.0",
    packages=["npu_example"],
    # py_limited_api: a library of operators, not a Python module; it works with every Python.
    ext_modules=[NpuExtension("npu_example._ops", ["ops.cpp"], py_limited_api=True)],
    cmdclass={"build_ext": BuildExtension},
)
