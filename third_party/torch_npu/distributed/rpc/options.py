"""Options of the RPC back end, which sends tensors of the CPU."""

from typing import NoReturn

from torch.distributed.rpc import TensorPipeRpcBackendOptions, constants

import torch

DeviceType = int | str | torch.device


def _refuse() -> NoReturn:
    raise NotImplementedError("RPC sends tensors of the CPU only: move them to the NPU where they arrive")


class NPUTensorPipeRpcBackendOptions(TensorPipeRpcBackendOptions):
    """torch.distributed.rpc's options. Devices are refused: tensors of an NPU are not sent.

    Raises:
        NotImplementedError: device_maps or devices are given.
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: dict[str, dict[DeviceType, DeviceType]] | None = None,
        devices: list[DeviceType] | None = None,
        _transports: list | None = None,
        _channels: list | None = None,
    ):
        if device_maps or devices:
            _refuse()
        super().__init__(
            num_worker_threads=num_worker_threads,
            rpc_timeout=rpc_timeout,
            init_method=init_method,
            _transports=_transports,
            _channels=_channels,
        )

    def set_device_map(self, to: str, device_map: dict[DeviceType, DeviceType]) -> None:
        """Refused, see the class."""
        _refuse()

    def set_devices(self, devices: list[DeviceType]) -> None:
        """Refused, see the class."""
        _refuse()
