"""Under pytest all tests share one process, whose number of devices is settled by the first that asks."""

import several_devices  # noqa: F401
