"""The older name of :class:`LinearQuant`."""

from .linear_quant import LinearQuant


class LinearA8W8Quant(LinearQuant):
    """See :class:`LinearQuant`."""
