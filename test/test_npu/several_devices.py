"""Gives the simulated host eight devices instead of one: imported by tests that use more, before a device is opened.

The host has a name of its own, too, so that other programs of this machine take no memory of its devices.
"""

import os

os.environ.setdefault("ASCEND_SIM_DEVICE_COUNT", "8")
os.environ.setdefault("ASCEND_SIM_HOST", f"tests-{os.getpid()}")
