"""Gives the simulated host eight devices instead of one: imported by tests that use more, before a device is opened."""

import os

os.environ.setdefault("ASCEND_SIM_DEVICE_COUNT", "8")
