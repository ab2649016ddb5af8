# The one table of CUDA names and what stands for them on npu. The porting tool rewrites by it, docs/porting.md prints
# it and torch.npu.transfer_to_npu patches by it, so the three cannot tell different stories.
"""CUDA API to NPU API table.

Each line of a section reads ``cuda name | npu name | since | remark``. ``~`` as the npu name is the same name with npu
for cuda. ``-`` means that there is no counterpart; the remark then says why and what to do instead. ``=`` means that
the name is kept because it is harmless or already works; the remark becomes a hint in the tool's log. ``since`` is the
first API version that has it.
"""

from dataclasses import dataclass

# name: dotted Python names; member: methods and attributes of tensors and modules; keyword: keyword arguments;
# string: literal values; env: environment variables; package: third-party packages that need CUDA.
KINDS = ("name", "member", "keyword", "string", "env", "package")


@dataclass(frozen=True)
class Row:
    """One API: ``npu`` is None where nothing stands for ``cuda``; ``kept`` marks a name that stays as it is."""

    cuda: str
    npu: str | None
    since: str
    remark: str
    kind: str
    section: str
    is_module: bool = False
    kept: bool = False


_SECTIONS = (
    (
        "Devices (guide, table 5)",
        "name",
        """
        torch.cuda.is_available | ~ | 1.5 | Checks whether a device can be used.
        torch.cuda.current_device | ~ | 1.5 | Index of the device in use.
        torch.cuda.device_count | ~ | 1.5 | Number of devices.
        torch.cuda.set_device | ~ | 1.5 | Sets the device in use.
        torch.cuda.synchronize | ~ | 1.5 | Waits for all work of a device.
        torch.cuda.device | ~ | 1.5 | Context manager that selects a device.
        torch.cuda.Stream | ~ | 1.5 | A stream.
        torch.cuda.stream | ~ | 1.5 | Context manager that selects a stream.
        torch.cuda.current_stream | ~ | 1.5 | The stream in use.
        torch.cuda.default_stream | ~ | 1.5 | The default stream.
        torch.cuda.Event | ~ | 1.5 | An event of a stream.
        """,
    ),
    (
        "Tensors and modules (guide, tables 5 and 6)",
        "member",
        """
        Tensor.cuda | ~ | 1.5 | Copies a tensor to the device; also on modules, storages and packed sequences.
        Tensor.is_cuda | Tensor.is_npu | 1.5 | Whether a tensor lies on the device.
        """,
    ),
    (
        "Device strings (guide, tables 5 and 6)",
        "string",
        """
        cuda | npu | 1.5 | In device positions: torch.device("cuda"), .to("cuda"), device="cuda", map_location, ...
        cuda:0 | npu:0 | 1.5 | The same with an index, in f-strings, % and .format too.
        gpu:0 | npu:0 | 1.5 | The guide's manual example spells a device this way.
        torch.cuda.FloatTensor | ~ | 1.5 | As the argument of Tensor.type and set_default_tensor_type.
        nccl | hccl | 1.5 | Back end of torch.distributed.
        cpu:gloo,cuda:nccl | cpu:gloo,npu:hccl | 2.1 | Back ends by device type.
        """,
    ),
    (
        "Tensor types (guide, table 6)",
        "name",
        """
        torch.cuda.BoolTensor | ~ | 1.5 | Constructor of a bool tensor.
        torch.cuda.FloatTensor | ~ | 1.5 | Constructor of a float32 tensor.
        torch.cuda.IntTensor | ~ | 1.5 | Constructor of an int32 tensor.
        torch.cuda.LongTensor | ~ | 1.5 | Constructor of an int64 tensor.
        torch.cuda.HalfTensor | ~ | 1.5 | Constructor of a float16 tensor.
        torch.cuda.ByteTensor | ~ | 1.5 | Constructor of a uint8 tensor.
        torch.cuda.CharTensor | ~ | 1.5 | Constructor of an int8 tensor.
        torch.cuda.ShortTensor | ~ | 1.5 | Constructor of an int16 tensor.
        torch.cuda.DoubleTensor | ~ | 1.5 | Constructor of a float64 tensor.
        torch.cuda.BFloat16Tensor | ~ | 2.1 | Constructor of a bfloat16 tensor.
        torch.cuda.BoolStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.FloatStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.IntStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.LongStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.HalfStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.ByteStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.CharStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.ShortStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.DoubleStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.BFloat16Storage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.ComplexFloatStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        torch.cuda.ComplexDoubleStorage | ~ | 2.1 | Deprecated typed storage; torch.UntypedStorage(n, device="npu").
        """,
    ),
    (
        "Further device functions",
        "name",
        """
        torch.cuda | ~ | 1.5 | module: the device's module.
        torch.cuda.init | ~ | 1.5 | Initialises the device layer now instead of at first use.
        torch.cuda.is_initialized | ~ | 1.5 | Whether it is initialised.
        torch.cuda.device_of | ~ | 1.5 | Context manager: the device of an object.
        torch.cuda.get_device_name | ~ | 1.5 | Name of a device.
        torch.cuda.get_device_properties | ~ | 1.8 | Name and memory of a device; other fields differ.
        torch.cuda.get_device_capability | ~ | 2.1 | There is no compute capability to compare with.
        torch.cuda.can_device_access_peer | ~ | 2.1 | Whether two devices can copy directly.
        torch.cuda.is_bf16_supported | ~ | 2.1 | Whether bfloat16 can be computed with.
        torch.cuda.ipc_collect | ~ | 2.1 | Frees memory that other processes gave back.
        torch.cuda.get_sync_debug_mode | ~ | 2.1 | Mode of warnings about synchronising calls.
        torch.cuda.set_sync_debug_mode | ~ | 2.1 | Sets that mode.
        torch.cuda.OutOfMemoryError | torch.OutOfMemoryError | 2.1 | The one exception of all devices.
        torch.cuda.StreamContext | ~ | 2.1 | Class behind torch.npu.stream.
        torch.cuda.ExternalStream | ~ | 2.1 | Wraps a stream handle: an aclrtStream here, a cudaStream_t there.
        torch.cuda.get_stream_from_external | ~ | 2.1 | The same as a function.
        torch.cuda.is_current_stream_capturing | ~ | 2.1 | Whether the current stream is captured into a graph.
        torch.cuda.CUDAGraph | torch.npu.NPUGraph | 2.13 | A graph of captured work.
        torch.cuda.graph | ~ | 2.13 | Context manager that captures work into a graph.
        torch.cuda.graphs | ~ | 2.13 | module: capture and replay of graphs.
        torch.cuda.graphs.CUDAGraph | torch.npu.NPUGraph | 2.13 | A graph of captured work.
        torch.cuda.graphs.graph | torch.npu.graph | 2.13 | Context manager that captures work into a graph.
        torch.cuda.graph_pool_handle | ~ | 2.13 | A memory pool that graphs share.
        torch.cuda.make_graphed_callables | ~ | 2.13 | Modules whose passes are replays of graphs.
        torch.cuda.has_half | ~ | 1.5 | Always true.
        torch.cuda.has_magma | ~ | 1.5 | Always false.
        torch.cuda.is_tf32_supported | ~ | 2.13 | Always false: TF32 is NVIDIA's.
        torch.cuda.DeferredCudaCallError | torch.npu.DeferredNpuCallError | 2.1 | A queued call failed.
        torch.cuda.set_stream | ~ | 1.8 | Makes a stream the one in use.
        torch.cuda.streams | ~ | 1.5 | module: streams and events.
        torch.cuda._is_compiled | = | 2.1 | Internal; whether CUDA's bindings are there, which others then import.
        torch.cuda._sleep | ~ | 2.1 | Internal; keeps the stream in use busy.
        torch.cuda._is_in_bad_fork | ~ | 2.1 | Internal; whether the process was forked after initialisation.
        torch.cuda._lazy_init | ~ | 2.1 | Internal; initialises the device layer.
        torch.cuda._lazy_call | ~ | 2.1 | Internal; calls once it is initialised.
        torch.cuda._exchange_device | ~ | 2.1 | Internal; sets the device in use and returns the one before.
        torch.cuda._maybe_exchange_device | ~ | 2.1 | Internal; the same, but for a negative index.
        torch.cuda._DeviceGuard | ~ | 2.1 | Internal; context manager that selects a device by its index.
        torch.cuda._get_device_index | ~ | 2.1 | Internal; the index that an argument means.
        torch.cuda._utils | ~ | 2.1 | module: internal helpers.
        torch.cuda._utils._get_device_index | ~ | 2.1 | Internal; the index that an argument means.
        torch.cuda.streams.Stream | ~ | 1.5 | As torch.npu.Stream.
        torch.cuda.streams.Event | ~ | 1.5 | As torch.npu.Event.
        torch.cuda.streams.ExternalStream | ~ | 2.1 | As torch.npu.ExternalStream.
        """,
    ),
    (
        "Memory",
        "name",
        """
        torch.cuda.memory | ~ | 1.5 | module: memory functions.
        torch.cuda.empty_cache | ~ | 1.5 | Gives unused cached memory back to the device.
        torch.cuda.memory_allocated | ~ | 1.5 | Bytes in tensors.
        torch.cuda.max_memory_allocated | ~ | 1.5 | Its peak.
        torch.cuda.memory_reserved | ~ | 1.5 | Bytes held by the caching allocator.
        torch.cuda.max_memory_reserved | ~ | 1.5 | Its peak.
        torch.cuda.memory_cached | ~ | 1.5 | Old name of memory_reserved.
        torch.cuda.max_memory_cached | ~ | 1.5 | Old name of max_memory_reserved.
        torch.cuda.reset_peak_memory_stats | ~ | 1.5 | Restarts the peaks.
        torch.cuda.reset_accumulated_memory_stats | ~ | 1.5 | Restarts the sums.
        torch.cuda.reset_max_memory_allocated | ~ | 1.5 | Restarts one peak.
        torch.cuda.reset_max_memory_cached | ~ | 1.5 | Restarts one peak.
        torch.cuda.memory_stats | ~ | 1.5 | All counters of the allocator.
        torch.cuda.memory_stats_as_nested_dict | ~ | 1.5 | The same, nested.
        torch.cuda.memory_summary | ~ | 1.5 | The same as text.
        torch.cuda.memory_snapshot | ~ | 1.5 | Segments and blocks.
        torch.cuda.memory._record_memory_history | ~ | 2.13 | Starts or stops recording allocations.
        torch.cuda.memory._snapshot | ~ | 2.13 | Returns them.
        torch.cuda.memory._dump_snapshot | ~ | 2.13 | Writes them to a file.
        torch.cuda.memory._set_allocator_settings | ~ | 2.13 | Internal; options of the allocator.
        torch.cuda.memory._get_current_allocator | ~ | 2.13 | Internal; the allocator in use.
        torch.cuda.mem_get_info | ~ | 1.8 | Free and total bytes.
        torch.cuda.set_per_process_memory_fraction | ~ | 1.8 | Limits this process.
        torch.cuda.get_per_process_memory_fraction | ~ | 2.1 | That limit.
        torch.cuda.caching_allocator_alloc | ~ | 1.5 | Raw allocation.
        torch.cuda.caching_allocator_delete | ~ | 1.5 | Frees a raw allocation.
        torch.cuda.host_memory_stats | ~ | 2.13 | Counters of pinned memory.
        torch.cuda.host_memory_stats_as_nested_dict | ~ | 2.13 | The same, nested.
        torch.cuda.reset_peak_host_memory_stats | ~ | 2.13 | Restarts those peaks.
        torch.cuda.reset_accumulated_host_memory_stats | ~ | 2.13 | Restarts those sums.
        torch.cuda.device_memory_used | ~ | 2.13 | Bytes in use on a device, by any process.
        torch.cuda.get_allocator_backend | ~ | 2.1 | Name of the allocator.
        """,
    ),
    (
        "Random numbers",
        "name",
        """
        torch.cuda.random | ~ | 1.5 | module: random number functions.
        torch.cuda.manual_seed | ~ | 1.5 | Seeds the device in use.
        torch.cuda.manual_seed_all | ~ | 1.5 | Seeds all devices.
        torch.cuda.seed | ~ | 1.5 | Random seed, device in use.
        torch.cuda.seed_all | ~ | 1.5 | Random seed, all devices.
        torch.cuda.initial_seed | ~ | 1.5 | The seed.
        torch.cuda.get_rng_state | ~ | 1.5 | State of a generator.
        torch.cuda.set_rng_state | ~ | 1.5 | Restores it.
        torch.cuda.get_rng_state_all | ~ | 1.5 | States of all devices.
        torch.cuda.set_rng_state_all | ~ | 1.5 | Restores them.
        torch.cuda.default_generators | ~ | 1.5 | The generators, one per device.
        torch.cuda._get_rng_state_offset | ~ | 2.13 | Internal; how far a generator has come.
        torch.cuda._set_rng_state_offset | ~ | 2.13 | Internal; sets that.
        """,
    ),
    (
        "Mixed precision",
        "name",
        """
        torch.cuda.amp | ~ | 1.8 | module: automatic mixed precision.
        torch.cuda.amp.autocast | ~ | 1.8 | Computes in float16 where it is safe.
        torch.cuda.amp.GradScaler | ~ | 1.8 | Scales the loss.
        torch.cuda.amp.custom_fwd | ~ | 1.8 | Decorator of a custom forward.
        torch.cuda.amp.custom_bwd | ~ | 1.8 | Decorator of a custom backward.
        torch.cuda.amp.autocast_mode | ~ | 1.8 | module: where autocast lives.
        torch.cuda.amp.autocast_mode.autocast | torch.npu.amp.autocast | 1.8 | As torch.npu.amp.autocast.
        torch.cuda.amp.autocast_mode.custom_fwd | torch.npu.amp.custom_fwd | 1.8 | As torch.npu.amp.custom_fwd.
        torch.cuda.amp.autocast_mode.custom_bwd | torch.npu.amp.custom_bwd | 1.8 | As torch.npu.amp.custom_bwd.
        torch.cuda.amp.grad_scaler | ~ | 1.8 | module: where GradScaler lives.
        torch.cuda.amp.grad_scaler.GradScaler | torch.npu.amp.GradScaler | 1.8 | As torch.npu.amp.GradScaler.
        torch.cuda.amp.common | ~ | 2.1 | module: where amp_definitely_not_available lives.
        torch.cuda.amp.common.amp_definitely_not_available | torch.npu.amp.amp_definitely_not_available | 2.1 | Same.
        torch.cuda.amp.amp_definitely_not_available | ~ | 2.1 | Internal; ask torch.npu.is_available() instead.
        torch.get_autocast_gpu_dtype | - | - | Use torch.get_autocast_dtype("npu").
        torch.set_autocast_gpu_dtype | - | - | Use torch.set_autocast_dtype("npu", dtype).
        """,
    ),
    (
        "Profiler",
        "name",
        """
        torch.profiler.ProfilerActivity.CUDA | torch.profiler.ProfilerActivity.PrivateUse1 | 2.1 | Device activity.
        torch.cuda.profiler | - | - | Starts NVIDIA's tools; use torch.npu.profile.
        torch.cuda.nvtx | - | - | Marks for NVIDIA's tools; use torch.npu.mstx or torch.profiler.record_function.
        torch.autograd.profiler.emit_nvtx | - | - | Marks for NVIDIA's tools; use torch.autograd.profiler.emit_msprof.
        """,
    ),
    (
        "Profiler arguments (guide, table 5)",
        "keyword",
        """
        torch.autograd.profiler.profile(use_cuda) | use_npu | 1.5 | Records device time.
        """,
    ),
    (
        "Distributed",
        "name",
        """
        torch.distributed.Backend.NCCL | torch.distributed.Backend.HCCL | 1.8 | Name of the back end.
        torch.distributed.ProcessGroupNCCL | torch.distributed.ProcessGroupHCCL | 1.5 | The process group.
        torch.distributed.is_nccl_available | torch.distributed.is_hccl_available | 1.5 | Whether the back end is there.
        torch.nn.DataParallel | = | 1.5 | Becomes a move to the device; several devices need DistributedDataParallel.
        torch.nn.parallel.data_parallel | = | 2.13 | One process for all devices; DistributedDataParallel is faster.
        torch.cuda.nccl | - | - | Use torch.distributed with the hccl back end.
        torch.cuda.comm | torch.npu.comm | 2.13 | Copies through the host where devices do not reach each other.
        torch.nn.parallel.comm | = | 2.13 | Works on npu tensors.
        torch.distributed.launch | = | 1.5 | Works with hccl; torchrun is its successor (LOCAL_RANK, no --local_rank).
        """,
    ),
    (
        "Back end switches",
        "name",
        """
        torch.backends.cudnn.is_available | torch.npu.is_available | 1.5 | Asks for the device.
        torch.backends.cudnn.benchmark | = | 1.5 | Has no effect on npu; kept, harmless.
        torch.backends.cudnn.benchmark_limit | = | 2.1 | Has no effect on npu; kept, harmless.
        torch.backends.cudnn.deterministic | = | 1.5 | No effect on npu; torch.use_deterministic_algorithms(True) has.
        torch.backends.cudnn.enabled | = | 1.5 | Has no effect on npu; kept, harmless.
        torch.backends.cudnn.allow_tf32 | = | 1.8 | Has no effect on npu; kept, harmless.
        torch.backends.cudnn.flags | = | 1.5 | Has no effect on npu; kept, harmless.
        torch.backends.cudnn.set_flags | = | 1.5 | Has no effect on npu; kept, harmless.
        torch.backends.cudnn.version | - | - | There is no cuDNN; None on this wheel.
        torch.backends.cudnn.rnn | - | - | There is no cuDNN.
        torch.backends.cudnn.conv | = | 2.13 | Has no effect on npu; kept, harmless.
        torch.backends.cuda.matmul | = | 1.8 | Has no effect on npu; kept, harmless.
        torch.backends.cuda.is_built | = | 1.5 | False on this wheel; torch.npu.is_available() asks for the device.
        torch.backends.cuda.cufft_plan_cache | torch.backends.npu.fft_plan_cache | 2.13 | npu needs no plans.
        torch.backends.cuda.preferred_linalg_library | - | - | Chooses between NVIDIA libraries.
        torch.backends.cuda.preferred_blas_library | - | - | Chooses between NVIDIA libraries.
        torch.backends.cuda.enable_flash_sdp | = | 2.1 | Of all devices: npu's fused kernel, or the composite.
        torch.backends.cuda.enable_mem_efficient_sdp | = | 2.1 | Chooses between CUDA kernels; no effect on npu.
        torch.backends.cuda.enable_math_sdp | = | 2.1 | Of all devices: npu's fused kernel, or the composite.
        torch.backends.cuda.enable_cudnn_sdp | = | 2.13 | Chooses between CUDA kernels; no effect on npu.
        torch.backends.cuda.sdp_kernel | = | 2.1 | Of all devices: npu's fused kernel, or the composite.
        torch.backends.cuda | = | 1.5 | module: switches of CUDA libraries; no effect on npu.
        torch.backends.cudnn | = | 1.5 | module: switches of cuDNN; no effect on npu.
        torch.version.cuda | - | - | None on this wheel; torch.npu.is_available() asks for the device.
        """,
    ),
    (
        "Without a counterpart",
        "name",
        """
        torch.cuda.cudart | - | - | CUDA's runtime.
        torch.cuda.check_error | - | - | CUDA's runtime.
        torch.cuda.cudaStatus | - | - | CUDA's runtime.
        torch.cuda.CudaError | - | - | CUDA's runtime; npu errors are RuntimeError.
        torch.cuda.current_blas_handle | - | - | cuBLAS.
        torch.cuda.current_solver_handle | - | - | cuSOLVER.
        torch.cuda.MemPool | ~ | 2.13 | A memory pool of its own.
        torch.cuda.use_mem_pool | ~ | 2.13 | Allocations go to a pool.
        torch.cuda.GreenContext | - | - | CUDA green contexts.
        torch.cuda.green_contexts | - | - | CUDA green contexts.
        torch.cuda.CUDAPluggableAllocator | torch.npu.NPUPluggableAllocator | 2.13 | Its functions call AscendCL.
        torch.cuda.change_current_allocator | ~ | 2.13 | Takes an NPUPluggableAllocator.
        torch.cuda.caching_allocator_enable | - | - | The caching allocator is always on.
        torch.cuda.caching_allocator_disabled | - | - | The caching allocator is always on.
        torch.cuda.get_arch_list | - | - | CUDA architectures.
        torch.cuda.get_gencode_flags | - | - | CUDA architectures.
        torch.cuda.jiterator | - | - | Compiles CUDA code.
        torch.cuda.tunable | - | - | Tunes CUDA's GEMM.
        torch.cuda.gds | - | - | GPUDirect storage.
        torch.cuda.sparse | - | - | Sparse CUDA tensor types.
        torch.cuda.utilization | ~ | 2.13 | The simulated device's load; of a card npu-smi info tells it.
        torch.cuda.list_gpu_processes | - | - | NVIDIA's management library; npu-smi info.
        torch.cuda.memory_usage | ~ | 2.13 | Raises NotImplementedError; npu-smi info.
        torch.cuda.temperature | ~ | 2.13 | Raises NotImplementedError; npu-smi info.
        torch.cuda.power_draw | ~ | 2.13 | Raises NotImplementedError; npu-smi info.
        torch.cuda.clock_rate | ~ | 2.13 | Raises NotImplementedError; npu-smi info.
        torch.utils.cpp_extension.CUDAExtension | - | - | Kernels written in CUDA; write the operator for npu.
        torch.utils.cpp_extension.CUDA_HOME | - | - | Path of the CUDA toolkit.
        """,
    ),
    (
        "apex",
        "name",
        """
        apex.amp | = | 1.5 | Kept; amp.initialize(..., combine_grad=True) speeds up the gradients.
        apex.normalization.FusedLayerNorm | torch.nn.LayerNorm | 1.5 | apex has no fused kernels on npu.
        apex.normalization.fused_layer_norm.FusedLayerNorm | torch.nn.LayerNorm | 1.5 | As above.
        apex.normalization.FusedRMSNorm | torch.nn.RMSNorm | 2.13 | apex has no fused kernels on npu.
        apex.optimizers.FusedAdam | apex.optimizers.NpuFusedAdamW | 1.5 | Fused; NpuFusedAdam for adam_w_mode=False.
        apex.optimizers.FusedSGD | apex.optimizers.NpuFusedSGD | 1.5 | Fused optimizer for npu.
        apex.optimizers.FusedLAMB | apex.optimizers.NpuFusedLamb | 1.5 | Fused optimizer for npu.
        apex.optimizers.FusedNovoGrad | - | - | Not among the fused optimizers for npu; use one of torch.optim.
        apex.optimizers.FusedAdagrad | - | - | Not among the fused optimizers for npu; use torch.optim.Adagrad.
        apex.parallel.DistributedDataParallel | torch.nn.parallel.DistributedDataParallel | 1.5 | Is for CUDA.
        apex.parallel.SyncBatchNorm | torch.nn.SyncBatchNorm | 1.8 | apex's own is for CUDA.
        apex.parallel.convert_syncbn_model | torch.nn.SyncBatchNorm.convert_sync_batchnorm | 1.8 | Is for CUDA.
        apex.contrib | - | - | CUDA kernels of apex.
        apex.multi_tensor_apply | - | - | CUDA kernels of apex.
        apex.fp16_utils | - | - | Removed from apex; use apex.amp or torch.npu.amp.
        apex.transformer | - | - | CUDA kernels of apex.
        apex.mlp | - | - | CUDA kernels of apex; use torch.nn.Sequential.
        amp_C | - | - | CUDA kernels of apex.
        """,
    ),
    (
        "Environment variables",
        "env",
        """
        CUDA_VISIBLE_DEVICES | ASCEND_RT_VISIBLE_DEVICES | 1.5 | Devices that a process sees.
        CUDA_LAUNCH_BLOCKING | - | - | TASK_QUEUE_ENABLE=0 ASCEND_LAUNCH_BLOCKING=1 bring errors to their call.
        CUDA_DEVICE_ORDER | - | - | Devices are numbered by their logical id.
        CUBLAS_WORKSPACE_CONFIG | - | - | cuBLAS; remove.
        PYTORCH_CUDA_ALLOC_CONF | PYTORCH_NPU_ALLOC_CONF | 1.8 | Takes the same options of the native allocator.
        NCCL_DEBUG | - | - | hccl logs through ASCEND_GLOBAL_LOG_LEVEL.
        NCCL_SOCKET_IFNAME | - | - | hccl has HCCL_SOCKET_IFNAME.
        NCCL_IB_DISABLE | - | - | Of NCCL; remove.
        NCCL_P2P_DISABLE | - | - | Of NCCL; remove.
        """,
    ),
    (
        "Packages that need CUDA",
        "package",
        """
        flash_attn | - | - | Use torch.nn.functional.scaled_dot_product_attention.
        xformers | - | - | Use torch.nn.functional.scaled_dot_product_attention.
        bitsandbytes | - | - | CUDA kernels.
        triton | - | - | Compiles for NVIDIA and AMD devices.
        cupy | - | - | NumPy on CUDA; use torch.
        numba.cuda | - | - | Kernels for CUDA; use torch operators.
        pycuda | - | - | Kernels for CUDA; use torch operators.
        tensorrt | - | - | Inference on NVIDIA devices.
        torch_tensorrt | - | - | Inference on NVIDIA devices.
        nvidia.dali | - | - | Data loading on NVIDIA devices; use torchvision or PIL.
        pynvml | - | - | NVIDIA's management library; npu-smi info.
        transformer_engine | - | - | CUDA kernels.
        spconv | - | - | CUDA kernels.
        torch_scatter | - | - | Has no npu kernels; use Tensor.scatter_reduce.
        """,
    ),
)

# What profiles call device time: (name with cuda, name in API version 2, name in API version 1.5).
PROFILE_COLUMNS = {
    f"{own}cuda_{what}": (f"{own}device_{what}", f"{own}npu_{what}")
    for own in ("", "self_")
    for what in ("time_total", "time", "memory_usage")
}

VERSIONS = ("1.5", "1.8", "1.11", "2.1", "2.13")
DEFAULT_VERSION = "2.13"


def version_key(version: str) -> tuple[int, ...]:
    """Sort key of an API version such as ``"1.11"``."""
    return tuple(int(part) for part in version.split("."))


def _parse() -> tuple[Row, ...]:
    rows = []
    for section, kind, text in _SECTIONS:
        for line in filter(str.strip, text.splitlines()):
            cuda, npu, since, remark = (cell.strip() for cell in line.split("|"))
            is_module = remark.startswith("module:")
            kept = npu == "="
            same = cuda if kept else cuda.replace(".cuda", ".npu", 1)
            target = None if npu == "-" else same if npu in "=~" else npu
            remark = remark.removeprefix("module:").strip()
            rows.append(Row(cuda, target, since, remark[:1].upper() + remark[1:], kind, section, is_module, kept))
    return tuple(rows)


ROWS = _parse()
NAMES = {row.cuda: row for row in ROWS if row.kind == "name"}
ENVIRONMENT = {row.cuda: row for row in ROWS if row.kind == "env"}
PACKAGES = {row.cuda: row for row in ROWS if row.kind == "package"}

# Other spellings of one name, brought to the table's spelling before a look-up.
CANONICAL = {
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.distributed.distributed_c10d.init_process_group": "torch.distributed.init_process_group",
    "torch.profiler.profiler.ProfilerActivity": "torch.profiler.ProfilerActivity",
    "torch.autograd.ProfilerActivity": "torch.profiler.ProfilerActivity",
    "torch.autograd.profiler_legacy.profile": "torch.autograd.profiler.profile",
    "torch.amp.autocast_mode.autocast": "torch.amp.autocast",
    "torch.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "torch.autocast": "torch.amp.autocast",
    "torch.GradScaler": "torch.amp.GradScaler",
}
# torch.cuda.memory.X, torch.cuda.random.X and the like are torch.cuda.X.
_HOMES = ("memory", "random")


def canonical(name: str) -> str:
    """The table's spelling of a dotted name: ``torch.nn.parallel.DataParallel`` -> ``torch.nn.DataParallel``."""
    return CANONICAL.get(name, name)


def find(name: str, names: dict[str, Row] = NAMES) -> Row | None:
    """Row of a dotted name, or None; ``torch.cuda.memory.empty_cache`` finds a row of its own home module."""
    name = canonical(name)
    row = names.get(name)
    if row is None:
        for home in _HOMES:
            prefix = f"torch.cuda.{home}."
            if name.startswith(prefix):
                short = names.get("torch.cuda." + name[len(prefix) :])
                if short is not None and short.npu is not None:
                    return Row(name, name.replace(".cuda.", ".npu.", 1), *_tail(short))
                return short
    return row


def _tail(row: Row) -> tuple:
    return row.since, row.remark, row.kind, row.section


def markdown() -> str:
    """The table as docs/porting.md prints it."""
    lines: list[str] = []
    for section, kind, _ in _SECTIONS:
        rows = [row for row in ROWS if row.section == section]
        if lines:
            lines.append("")
        counterpart = "Instead" if kind == "package" else "On npu"
        lines += [f"### {section}", "", f"| On CUDA | {counterpart} | Since | Remark |", "| --- | --- | --- | --- |"]
        for row in rows:
            npu = "kept" if row.kept else f"`{row.npu}`" if row.npu else "none"
            lines.append(f"| `{row.cuda}` | {npu} | {row.since} | {row.remark} |")
    return "\n".join(lines) + "\n"
