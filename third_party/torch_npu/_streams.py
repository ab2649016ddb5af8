"""`torch_npu.erase_stream`: the opposite of Tensor.record_stream."""

import torch


def erase_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Forget that ``stream`` uses the memory of ``tensor``, as Tensor.record_stream told: freed, it is free at once.

    Whoever calls it has made the stream that goes on with the memory wait for ``stream``.

    Raises:
        RuntimeError: the tensor's memory is not of the caching allocator.
    """
    address = tensor.untyped_storage().data_ptr()
    torch._C._npu_eraseStream(address, stream.stream_id, stream.device_index, stream.device_type)
