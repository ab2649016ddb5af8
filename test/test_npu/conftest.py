"""Under pytest all tests share one process: its number of devices is settled by the first that asks, and a test that
leaves a switch of the process turned fails itself, instead of another one later."""

import pytest
import several_devices  # noqa: F401

import torch


def switches() -> dict[str, object]:
    """What a test can turn for the whole process."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "autocast": torch.is_autocast_enabled("npu"),
        "autocast's dtype": torch.get_autocast_dtype("npu"),
        "HF32 of products": torch.npu.matmul.allow_hf32,
        "HF32 of convolutions": torch.npu.conv.allow_hf32,
        "internal formats": torch.npu.config.allow_internal_format,
        "synchronisation's debug mode": torch.npu.get_sync_debug_mode(),
        "graph mode": torch.npu.is_graph_mode(),
        "device": torch.npu.current_device() if torch.npu.is_initialized() else 0,
    }


@pytest.fixture(autouse=True)
def turns_every_switch_back():
    before = switches()
    yield
    after = switches()
    turned = [f"{name}: {before[name]} before, {after[name]} after" for name in before if before[name] != after[name]]
    assert not turned, f"the test leaves a switch turned: {'; '.join(turned)}"
