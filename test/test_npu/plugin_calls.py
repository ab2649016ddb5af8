"""A call of every public name of the plug-in that works here, by area; test_plugin_names.py watches which are made.

Results of most are compared elsewhere (test_plugin_contrib.py, test_npu_api.py, ...); here a call must not fail.
"""

import contextlib
import io
import os
import tempfile
import warnings
from pathlib import Path

import torch_npu

import torch

npu = torch_npu.npu


def fails(kind, call, *args, **kwargs):
    """The error of a call that has to fail."""
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{call} did not raise {kind.__name__}")


def boxes(n):
    corner = torch.rand(n, 2) * 20
    return torch.cat([corner, corner + 5 + torch.rand(n, 2) * 20], 1).npu()


def contrib_functions():
    from torch_npu.contrib import function
    from torch_npu.contrib.function.anchor_generator import box_dtype_check

    box_dtype_check(boxes(2).double())
    function.npu_single_level_responsible_flags((4, 5), boxes(3), (8, 8), 3)
    function.npu_bbox_coder_encode_xyxy2xywh(boxes(3), boxes(3))
    function.npu_bbox_coder_decode_xywh2xyxy(boxes(3), torch.rand(3, 4).npu())
    function.npu_bbox_coder_encode_yolo(boxes(3), boxes(3), torch.tensor([8, 8, 8], dtype=torch.int32).npu())
    function.dropout_with_byte_mask(torch.rand(4, 4).npu())
    scores = torch.rand(2, 2, 4, 4).npu()
    function.fuse_add_softmax_dropout(True, torch.nn.Dropout(0.1), scores, scores, 16)
    function.npu_fast_condition_index_put(scores, scores > 0.5, 0.0)
    function.matmul_transpose(scores, scores)
    function.npu_multiclass_nms(boxes(6), torch.rand(6, 4).npu(), max_num=4)
    function.npu_batched_multiclass_nms(boxes(6).view(1, 6, 4), torch.rand(1, 6, 4).npu(), max_num=4)
    function.roll(scores, (1, 1), (2, 3))
    square, row = torch.rand(64, 64).half().npu(), torch.rand(64).half().npu()
    mask = torch.zeros(2, 1, 32, 32).half().npu()
    parts = (square, mask, square, square, square, row, row, row)
    function.npu_fused_attention(*parts, scale=0.125, keep_prob=0.9)
    function.npu_fused_attention_with_layernorm(*parts, row, row, scale=0.125, keep_prob=0.9)


def contrib_modules():
    from torch_npu.contrib import module
    from torch_npu.contrib.module import activations, channel_shuffle, deform_conv, focus, multihead_attention

    image = torch.rand(2, 4, 6, 6).npu()
    for kind in (activations.Mish, activations.SiLU, activations.Swish):
        kind()(image)
    module.BiLSTM(3, 4).npu()(torch.rand(5, 2, 3).npu())
    module.ChannelShuffle(8)(image, image)
    order = torch.arange(8).npu()
    pair = [image.clone().requires_grad_() for _ in range(2)]
    channel_shuffle.IndexSelectFullImplementation.apply(*pair, order, order[:4], order[4:]).sum().backward()
    halves = channel_shuffle.IndexSelectHalfImplementation.apply(*pair, order[:4], order[4:], order[:4], order[4:])
    sum(half.sum() for half in halves).backward()
    module.LabelSmoothingCrossEntropy(5, 0.1)(torch.rand(3, 5).npu(), torch.tensor([0, 4, 2]).npu())
    layer = module.ModulatedDeformConv(4, 4, 3, padding=1).npu()
    layer(image.requires_grad_()).sum().backward()
    deform_conv.ModulatedDeformConv2dFunction.apply(
        image, torch.zeros(2, 18, 6, 6).npu(), torch.ones(2, 9, 6, 6).npu(), layer.weight, None, False, 1, 1
    )
    image = image.detach()
    module.NpuDropPath.enable_droppath_ensemble(layer)
    module.NpuDropPath(0.5)(image)
    for kind in (module.NpuFairseqDropout, module.NpuCachedDropout):
        kind.enable_dropout_ensemble(layer)
        kind(0.5)(image)
    focus.autopad(3), focus.fast_slice(image)
    module.Focus(4, 5).npu()(image)
    focus.Conv(4, 5).npu().fuseforward(image)
    module.DropoutWithByteMask()(image)
    fetched = module.Prefetcher([(torch.rand(2), torch.rand(1))])
    fetched.next()
    module.PSROIPool(2, 2, 0.5, 2, 1)(image, torch.zeros(2, 5, 1).npu())
    module.ROIAlign((2, 2), 0.5, 2)(image, torch.tensor([[0, 0, 0, 4, 4.0]]).npu())
    attention = module.MultiheadAttention(8, 2, self_attention=True).npu()
    rows = torch.rand(2 * 3, 8).npu()
    attention(rows, None, None, 2, 3, 3)
    attention.multi_attn(rows, rows, rows, None, 2, 3)
    attention.apply_sparse_mask(rows, 3, 3, 2)
    attention.prepare_for_onnx_export_(), attention.prepare_for_tpu_()
    attention.upgrade_state_dict_named({"in_proj_weight": torch.rand(24, 8)}, "")
    multihead_attention.Matmul_transpose(rows, rows)
    bytes_of = torch.randint(-5, 5, (3, 16), dtype=torch.int8).npu()
    for kind in (module.LinearQuant, module.LinearA8W8Quant):
        kind(16, 8).npu()(bytes_of)
    module.LinearWeightQuant(16, 8, dtype=torch.float16).npu()(torch.rand(3, 16).npu().half())
    module.QuantConv2d(4, 5, 3, torch.float16).npu()(torch.ones(1, 4, 6, 6, dtype=torch.int8).npu())


def distributed():
    import torch.distributed as dist
    from torch_npu import distributed as ours
    from torch_npu.distributed import fsdp, pipelining, rpc, run
    from torch_npu.distributed.tensor.experimental import context_parallel
    from torch_npu.testing import common_distributed

    ours.is_available(), ours.is_hccl_available()
    with tempfile.TemporaryDirectory() as folder:
        common_distributed.init_pg("hccl", 1, 0, f"file://{folder}/meet")
        try:
            x = torch.rand(3, 2).npu()
            ours.all_gather_into_tensor_uneven(torch.empty(3, 2).npu(), x, [3])
            ours.reduce_scatter_tensor_uneven(torch.empty(3, 2).npu(), x, [3])
            ours.reinit_process_group(rebuild_link=False)
            mesh = dist.init_device_mesh("npu", (1,))
            context_parallel(mesh)
            fsdp.fully_shard(torch.nn.Linear(4, 4).npu(), mesh=mesh)
        finally:
            dist.destroy_process_group()

        class Group:
            world_size, rank, file_name = 1, 0, f"{folder}/again"

            @common_distributed.with_comms
            def test(self):
                return dist.get_world_size()

        assert Group().test() == 1
    pipelining.pipeline(torch.nn.Linear(4, 4), (torch.rand(2, 4),))
    options = rpc.options.NPUTensorPipeRpcBackendOptions()
    fails(NotImplementedError, options.set_device_map, "other", {0: 0})
    fails(NotImplementedError, options.set_devices, [0])
    run.parse_args(["script.py"])
    common_distributed.TestSkip(1, "why")
    common_distributed.skipIfUnsupportMultiNPU(1)(lambda: None)()


def rewriting():
    @torch.jit.script
    def model(x):
        return torch.nn.functional.gelu(x)

    torch_npu.jit.optimize(model)


def tensors():
    x = torch.rand(4, 4).npu()
    side = npu.Stream()
    x.record_stream(side)
    torch_npu.erase_stream(x, side)
    torch_npu.matmul_checksum(*[x.bfloat16()] * 3)
    torch_npu.fast_gelu(x)
    for kind in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(npu, f"{kind}Storage")(4)


def graphs():
    x = torch.rand(4, device="npu")
    graph = npu.NPUGraph()
    with npu.graph(graph, npu.graph_pool_handle()):
        x.add_(1)
    graph.pool(), graph.replay()
    with tempfile.TemporaryDirectory() as folder:
        graph.debug_dump(f"{folder}/graph.json")
    graph.reset()
    with npu.stream(npu.Stream()):
        graph.capture_begin(), graph.capture_end()
    npu.make_graphed_callables(torch.nn.Linear(4, 4).npu(), (x,))(x)


def graph_updates():
    x, out, side = torch.rand(4, device="npu"), torch.rand(4, device="npu"), npu.Stream()
    graph = npu.NPUGraph()
    with npu.graph(graph):
        npu.graph_task_group_begin(npu.current_stream())
        torch.add(x, 1, out=out)
        handle = npu.graph_task_group_end(npu.current_stream())
    with npu.stream(side):
        npu.graph_task_update_begin(side, handle)
        torch.add(x, 2, out=out)
        npu.graph_task_update_end(side)
    graph.replay()
    assert out.tolist() == (x + 2).tolist()

    class Handler(npu.NpuGraphOpHandler):
        UPDATE_SPECS = {"leaky_relu.default": [("arg", 1, "slope")]}

    parts = [torch.rand(1, 1, 4, 16).half().npu() for _ in range(3)]
    registered = npu._graph_updates._NPU_GRAPH_OP_HANDLERS
    npu.register_npu_graph_handler("leaky_relu.default")(Handler)
    npu.NpuGraphOpHandler()
    try:
        with npu.graph(graph := npu.NPUGraph(), auto_dispatch_capture=True):
            y = torch.ops.aten.leaky_relu.default(-x, 0.5)
            z = torch.ops.npu.npu_fused_infer_attention_score(*parts, input_layout="BNSD", num_heads=1)
        graph.update([{"slope": 0.25}, {"actual_seq_lengths_kv": [2]}])
        graph.replay()
        assert y.tolist() == (x * -0.25).tolist() and len(z) == 2
    finally:
        del registered["leaky_relu.default"]


def compiled_graphs():
    x = torch.rand(4, device="npu")

    def model(x):
        return torch.sigmoid(x) * x + 1

    npu.npugraph_ex.register_replacement(
        lambda x: torch.sigmoid(x) * x, lambda x: torch.nn.functional.silu(x), [torch.rand(4, device="npu")]
    )
    try:
        run = npu.npugraph_ex.compile_fx(torch.fx.symbolic_trace(model), [x])
        torch.testing.assert_close(run(x), model(x))
    finally:
        npu.npugraph_ex._compiler._replacements.clear()
    scope = npu.npugraph_ex.scope
    with scope.deterministic(1):
        assert torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with scope.limit_core_num(1, 2):
            assert npu.get_stream_limit(npu.current_stream()) == {"cube_core_num": 1, "vector_core_num": 2}


def eight_bits():
    codes = torch_npu.HiFloat8Tensor.to_hifloat8(torch.tensor([[1.0, 2.1], [-3.0, 0.3]]).npu())
    made = torch_npu.HiFloat8Tensor(data=codes._data.clone(), dtype=torch.float16)
    made.float(), made.half(), made.bfloat16(), made.cpu(), made.clone(), made.from_hifloat8()
    made.view(4), made.reshape(4), made.transpose(0, 1).contiguous(), made.to_dtype(torch.float32)
    torch_npu.HiFloat8Tensor.make_like(made, data=codes._data)


def devices():
    npu.init(), npu.is_initialized(), npu.is_available(), npu.device_count()
    npu.set_device(0), npu.current_device(), npu.synchronize()
    with npu.device(0), npu.device_of(torch.rand(1).npu()):
        npu.get_device_name(), npu.get_device_capability(), npu.get_device_properties()
    npu.can_device_access_peer(0, 0)
    npu.is_bf16_supported(), npu.is_current_stream_capturing(), npu.ipc_collect()
    npu.set_sync_debug_mode(npu.get_sync_debug_mode())
    npu.utilization(), npu.get_amp_supported_dtype()
    npu.set_op_timeout_ms(600_000), npu.stress_detect()
    npu.use_compatible_impl(npu.are_compatible_impl_enabled())
    npu.aclnn.backends.version()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        npu.current_blas_handle()
        npu.clear_npu_overflow_flag()
        npu.get_npu_overflow_flag()
        npu.set_stream_limit(npu.current_stream(), 1, 1)
        npu.get_stream_limit(npu.current_stream())
        npu.reset_stream_limit(npu.current_stream())
        fails(ValueError, npu.set_device_limit, 0, 0)
        npu.get_device_limit(0)


def deterministic():
    x = torch.rand(2).npu().requires_grad_()
    was = torch.are_deterministic_algorithms_enabled()
    y = npu.disable_deterministic_with_backward(npu.enable_deterministic_with_backward(x) * 2)
    y.sum().backward()
    npu.set_deterministic_level(0)
    torch.use_deterministic_algorithms(was)


def streams():
    stream, other = npu.Stream(), npu.Stream(priority=-1)
    stream.query(), stream.synchronize(), stream.wait_stream(other)
    stream.wait_event(other.record_event())
    stream.set_data_preprocess_stream(False)
    npu.current_stream(), npu.default_stream()
    with npu.stream(stream), npu.StreamContext(other):
        torch.ones(2).npu()
    npu.set_stream(npu.default_stream())
    npu.ExternalStream(stream.npu_stream)
    npu.SyncLaunchStream().synchronize()
    begin, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    begin.record(), end.record()
    end.wait(), end.synchronize(), end.query()
    begin.elapsed_time(end), begin.recorded_time()
    event = npu.ExternalEvent()
    event.record(), event.wait(stream), event.reset()


def memory():
    keep = torch.rand(10).npu()
    npu.caching_allocator_delete(npu.caching_allocator_alloc(100))
    npu.get_allocator_backend(), npu.empty_cache(), npu.host_empty_cache()
    fails(RuntimeError, npu.empty_virt_addr_cache)
    npu.set_per_process_memory_fraction(npu.get_per_process_memory_fraction())
    npu.mem_get_info(), npu.memory_allocated(), npu.memory_reserved(), npu.memory_snapshot(), npu.memory_stats()
    npu.memory_stats_as_nested_dict(), npu.memory_summary(), npu.max_memory_allocated(), npu.max_memory_reserved()
    npu.host_memory_stats(), npu.host_memory_stats_as_nested_dict()
    npu.reset_accumulated_host_memory_stats(), npu.reset_accumulated_memory_stats()
    npu.reset_peak_host_memory_stats(), npu.reset_peak_memory_stats()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        npu.memory_cached(), npu.max_memory_cached(), npu.reset_max_memory_allocated(), npu.reset_max_memory_cached()
    pool = npu.MemPool()
    with npu.use_mem_pool(pool):
        torch.rand(10).npu()
    fails(OSError, npu.NPUPluggableAllocator, "/nowhere.so", "alloc", "free")
    fails(RuntimeError, npu.change_current_allocator, npu.memory._get_current_allocator())
    del keep


def random_numbers():
    states = npu.get_rng_state_all()
    npu.manual_seed(1), npu.manual_seed_all(1), npu.initial_seed(), npu.seed(), npu.seed_all()
    npu.set_rng_state(npu.get_rng_state())
    npu.set_rng_state_all(states)


def mixed_precision():
    amp = npu.amp
    amp.amp_definitely_not_available()
    scaler = amp.GradScaler(init_scale=2.0, dynamic=False)
    weight = torch.ones(2).npu().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer), scaler.step(optimizer), scaler.update()
    scaler.load_state_dict(scaler.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler.get_npu_overflow_flag(), scaler.clear_npu_overflow_flag()

    class Double(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    with amp.autocast():
        Double.apply(weight).sum().backward()
    npu.set_autocast_dtype(npu.get_autocast_dtype())
    npu.set_autocast_enabled(npu.is_autocast_enabled())


def options():
    jit = not npu.is_jit_compile_false()
    npu.set_compile_mode(jit_compile=jit)
    nd = npu.get_mm_bmm_format_nd()
    npu.set_mm_bmm_format_nd(nd)
    npu.options._mm_bmm_format_nd = None
    npu.set_option({})
    fails(ValueError, npu.set_aoe, "no such folder")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "acl.json"
        config.write_text(f'{{"dump": {{"dump_path": "{folder}", "dump_op_switch": "off", "dump_list": []}}}}')
        npu.init_dump(), npu.set_dump(str(config)), npu.finalize_dump()


def marks():
    mstx = npu.mstx
    mstx.mark("here")
    mstx.range_end(mstx.range_start("a"))
    mstx.range_push("b"), mstx.range_pop()
    with mstx.mstx_range("c"):
        pass
    mstx.annotate()(lambda: None)()
    mstx()


def optimizers():
    from torch_npu import optim

    for kind in (
        optim.NpuFusedAdadelta,
        optim.NpuFusedAdam,
        optim.NpuFusedAdamP,
        optim.NpuFusedAdamW,
        optim.NpuFusedBertAdam,
        optim.NpuFusedLamb,
        optim.NpuFusedRMSprop,
        optim.NpuFusedRMSpropTF,
        optim.NpuFusedSGD,
    ):
        weight = torch.nn.Parameter(torch.rand(4, 4).npu())
        optimizer = kind([weight], lr=0.1)
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.clip_grad_norm_fused_(1.0)
        optimizer.get_combined_params(), optimizer.get_combined_grads()


def profiling():
    from torch_npu import profiler
    from torch_npu.profiler import dynamic_profile
    from torch_npu.utils.profiler import Profile, Singleton

    profiler.AiCMetrics(), profiler.ExportType(), profiler.HostSystem(), profiler.ProfilerLevel()
    profiler.supported_activities(), profiler.supported_ai_core_metrics()
    profiler.supported_export_type(), profiler.supported_profiler_level()
    profiler.ProfilerAction(0), profiler._ExperimentalConfig()
    with tempfile.TemporaryDirectory() as folder:
        schedule = profiler.schedule(wait=0, active=1)
        handler = profiler.tensorboard_trace_handler(folder)
        with profiler.profile(schedule=schedule, on_trace_ready=handler) as prof:
            torch.ones(2).npu().sum()
            prof.step()
            fails(RuntimeError, prof.enable_profiler_in_child_thread)
            prof.disable_profiler_in_child_thread()
        prof.set_custom_trace_id_callback(lambda: "1")
        prof.get_trace_id()
        profiler.profiler.analyse(folder)
        dynamic_profile.init(f"{folder}/dynamic")
        dynamic_profile.set_state({"cur_step": 0})
        dynamic_profile.step(), dynamic_profile.start()
        dynamic_profile._state.path = None
        Singleton(dict)()
        steps = Profile(f"{folder}/steps")
        steps.start(), steps.end()


def testing():
    from torch.testing._internal.opinfo.core import SampleInput
    from torch_npu.testing import common_methods_invocations, common_utils, decorator, testcase

    class Case(testcase.TestCase):
        def test(self):
            self.assertAlmostEqual(1.0, 1.0 + 1e-9), self.assertEqual(torch.ones(2), torch.ones(2).npu())
            self.assertExpectedRaises(ValueError, int, "x")
            self.assertNotEqual(1, 2), self.assertNotWarn(lambda: None), self.assertObjectIn(int, [int])
            self.assertRtolEqual([1.0], [1.0]), self.assertTensorsSlowEqual(torch.ones(2), torch.ones(2))
            self.assertWarns(lambda: warnings.warn("now", stacklevel=1))
            with self.maybeWarnsRegex(UserWarning, "x"):
                pass
            self.safeToDense(self.genSparseTensor([3, 3], 2, 2, True)[0])
            fails(AssertionError, self.assertExpectedStripMangled, "text", "never kept")

    Case.setUpClass()
    result = Case("test").run()
    assert result is None or result.wasSuccessful(), result
    fails(SystemExit, lambda: with_arguments(testcase.run_tests))
    with tempfile.TemporaryDirectory() as folder:
        kept = common_utils.Baseline(f"{folder}/times.json")
        kept.set_baseline("a", 1)
        kept.get_baseline("a"), kept.save_baseline()
        here = os.getcwd()
        os.chdir(folder)
        try:
            common_utils.dump_baseline()
        finally:
            os.chdir(here)
    for condition in (
        common_utils.SkipIfNoLapack(),
        common_utils.SupportedDevices(["Ascend"]),
        common_utils.SkipIfNotGteCANNVersion("1.0"),
        common_utils.SkipIfNotRegistered()("aten::add", "why"),
    ):
        condition(lambda: None)()
    with torch.profiler.profile() as prof:
        torch.ones(2) + 1
    common_utils.check_operators_in_prof(["aten::add"], prof)
    common_utils.create_common_tensor([__import__("numpy").float32, 0, (2,)], 0, 1)
    common_utils.create_dtype_tensor((2,), torch.float32)
    with common_utils.freeze_rng_state():
        common_utils.get_cycles_per_ms()
    common_utils.is_iterable([]), common_utils.iter_indices(torch.ones(2))
    common_utils.get_npu_device(), common_utils.set_npu_device()

    class Spread:
        @decorator.Dtypes(torch.float32)
        @decorator.Formats(0)
        def test(self, dtype, npu_format):
            return dtype, npu_format

        def test_op(self, op, dtype):
            return op

    decorator.instantiate_ops_tests(["add"])(decorator.instantiate_tests(Spread))
    decorator.feed_data(lambda self, x: x, "test_x", 1)(None)
    common_utils.test_2args_broadcast(torch.add)

    class Generated:
        def test_op(self, op, dtype, npu_format):
            return op.name, dtype, npu_format

    entry = next(op for op in common_op_db() if op.name == "add")
    kinds = decorator.gen_op_input("test_op", Generated.test_op, entry)
    assert torch.float32 in kinds["dtype"], kinds
    decorator.gen_ops_testcase(Generated, Generated.test_op, "add", list(kinds), [torch.float32, 2], entry)
    assert Generated().test_op_add_float32_2() == ("add", torch.float32, 2)
    for samples in (
        common_methods_invocations.sample_inputs_median_custom,
        common_methods_invocations.sample_inputs_normal_tensor_second,
    ):
        assert all(isinstance(sample, SampleInput) for sample in samples(None, "cpu", torch.float32, False))


def common_op_db():
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def with_arguments(call):
    """Run a test runner for the module of the caller: there are no tests in it."""
    import sys

    arguments = sys.argv
    sys.argv = ["nothing", "-k", "no such test"]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            call()
    finally:
        sys.argv = arguments


def utilities():
    from torch_npu import utils
    from torch_npu.utils import collect_env, combine_tensors

    counter = utils.FlopsCounter()
    counter.start()
    torch.rand(2, 3) @ torch.rand(3, 4)
    counter.pause(), counter.resume(), counter.get_flops(), counter.stop()
    with contextlib.redirect_stdout(io.StringIO()):
        collect_env.main()
    with tempfile.TemporaryDirectory() as folder:
        collect_env.check_directory_path_readable(folder)
        utils.save_async(torch.ones(2).npu(), f"{folder}/saved.pt")
        for thread in __import__("threading").enumerate():
            if thread.name == "torch.npu.utils.save_async":
                thread.join()
        utils.serialization.load(f"{folder}/saved.pt")
    collect_env.get_torch_npu_install_path()
    parts = [torch.ones(2).npu(), torch.ones(3).npu()]
    whole = combine_tensors.npu_combine_tensors(parts)
    combine_tensors.get_part_combined_tensor(whole, 0, 2)
    combine_tensors.is_combined_tensor_valid(whole, parts)
    utils.cpp_extension.NpuExtension("name", ["no.cpp"])
    utils.set_thread_affinity(), utils.reset_thread_affinity()
    npu.utils.is_support_inf_nan(), npu.utils.npu_check_overflow(1.0)


SCENARIOS = (
    contrib_functions,
    contrib_modules,
    distributed,
    rewriting,
    tensors,
    devices,
    graphs,
    graph_updates,
    compiled_graphs,
    eight_bits,
    deterministic,
    streams,
    memory,
    random_numbers,
    mixed_precision,
    options,
    marks,
    optimizers,
    profiling,
    testing,
    utilities,
)
