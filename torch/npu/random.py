r"""Random number state of the NPUs. A state is a CPU ByteTensor of 16 bytes: the seed and the Philox offset."""

from collections.abc import Iterable
from typing import Any

import torch


def _generator(device: Any) -> torch._C.Generator:
    if isinstance(device, int):
        device = torch.device("npu", device)
    index = torch.npu._utils._get_device_index(device, optional=True)
    torch.npu._lazy_init()
    return torch.npu.default_generators[index]


def get_rng_state(device: int | str | torch.device = "npu") -> torch.Tensor:
    r"""Return the state of an NPU's default generator, a CPU ``uint8`` tensor of shape [16]. Initialises the NPU.

    Args:
        device (torch.device, str or int, optional): default the current NPU.

    Raises:
        ValueError: the device is not an NPU.
    """
    torch.npu._lazy_init()
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    r"""Return the states of all NPUs, in order of their index."""
    return [get_rng_state(i) for i in range(torch.npu.device_count())]


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = "npu") -> None:
    r"""Set the state of an NPU's default generator.

    Args:
        new_state (torch.ByteTensor): what :func:`get_rng_state` returned.
        device (torch.device, str or int, optional): default the current NPU.

    Raises:
        TypeError, RuntimeError: the state has another dtype or size.
        ValueError: the device is not an NPU.
    """
    if not torch.npu.is_initialized():
        # Copied, since it is read when the device is initialised.
        with torch._C._DisableFuncTorch():
            new_state = new_state.clone(memory_format=torch.contiguous_format)
    torch.npu._lazy_call(lambda: _generator(device).set_state(new_state))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    r"""Set the states of all NPUs, one per device in order of their index."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    r"""Seed the current NPU's default generator."""
    seed = int(seed)
    torch.npu._lazy_call(lambda: _generator("npu").manual_seed(seed), seed=True)


def manual_seed_all(seed: int) -> None:
    r"""Seed the default generators of all NPUs. ``torch.manual_seed`` calls this."""
    seed = int(seed)

    def seed_all_devices() -> None:
        for generator in torch.npu.default_generators:
            generator.manual_seed(seed)

    torch.npu._lazy_call(seed_all_devices, seed_all=True)


def seed() -> None:
    r"""Seed the current NPU's default generator with a number that differs each time."""
    torch.npu._lazy_call(lambda: _generator("npu").seed())


def seed_all() -> None:
    r"""Seed the default generators of all NPUs with one number that differs each time."""

    def seed_all_devices() -> None:
        number = torch.npu.default_generators[0].seed()
        for generator in torch.npu.default_generators[1:]:
            generator.manual_seed(number)

    torch.npu._lazy_call(seed_all_devices)


def initial_seed() -> int:
    r"""Return the seed of the current NPU's default generator. Initialises the NPU."""
    torch.npu._lazy_init()
    return _generator("npu").initial_seed()


def _get_rng_state_offset(device: int | str | torch.device = "npu") -> int:
    r"""Return the Philox offset of an NPU's default generator."""
    return _generator(device).get_offset()


def _set_rng_state_offset(offset: int, device: int | str | torch.device = "npu") -> None:
    r"""Set the Philox offset of an NPU's default generator."""
    torch.npu._lazy_call(lambda: _generator(device).set_offset(offset))
