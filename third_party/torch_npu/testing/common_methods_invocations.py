"""Samples of operators for upstream's databases."""

from torch.testing import make_tensor
from torch.testing._internal.opinfo.core import SampleInput


def sample_inputs_median_custom(self, device, dtype, requires_grad, **kwargs):
    """Return samples of median: all of a tensor, and along dimensions, which may stay."""

    def made():
        return make_tensor((5, 3, 4), dtype=dtype, device=device, requires_grad=requires_grad)

    along = [SampleInput(made(), args=(dim,), kwargs={"keepdim": keep}) for dim in (0, 1, -1) for keep in (False, True)]
    return [SampleInput(made()), *along]


def sample_inputs_normal_tensor_second(self, device, dtype, requires_grad, **kwargs):
    """Return samples of torch.normal of a number and a tensor of standard deviations."""
    deviation = make_tensor((2, 3), dtype=dtype, device=device, low=0.1, high=2, requires_grad=requires_grad)
    return [SampleInput(mean, args=(deviation,)) for mean in (0.0, 1.6)]
