"""Classes of test_ops.py that are not about one operator: foreach operators, modules, optimizers, random numbers."""

import copy
import inspect
import itertools
import random

import op_checks
from op_case import LIMIT, OpsCase
from op_checks import DEVICE, Meter, Tally, Wrong
from torch.testing._internal.common_device_type import OpDTypes, dtypes, ops
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims

import torch

FOREACH = [
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
]
GRADIENT_DTYPES = (torch.float32, torch.float64, torch.complex128)


class TestForeach(OpsCase):
    @ops([op for op in FOREACH if op.op is not None], dtypes=OpDTypes.supported)
    def test_foreach(self, device, dtype, op):
        self.check("foreach", op, dtype, op.op)

    @ops([op for op in FOREACH if op.inplace_variant is not None], dtypes=OpDTypes.supported)
    def test_foreachinplace(self, device, dtype, op):
        def inplace(tensors, *args, **kwargs):
            op.inplace_variant(tensors, *args, **kwargs)
            return tensors

        self.check("foreachinplace", op, dtype, inplace)

    @ops([op for op in FOREACH if op.op is not None and op.supports_autograd], allowed_dtypes=GRADIENT_DTYPES)
    def test_foreachgradients(self, device, dtype, op):
        tally = Tally()
        random.seed(0)
        torch.manual_seed(0)
        with op_checks.quiet():
            samples = op.sample_inputs("cpu", dtype, requires_grad=True)
            for number, sample in enumerate(itertools.islice(samples, LIMIT)):
                self.one(tally, str(number), lambda v: op_checks.run_gradients(op.op, v), op_checks.parts(sample))
        self.judge(tally, "foreachgradients", op.full_name, dtype)

    def check(self, kind, op, dtype, function):
        tally = Tally()
        random.seed(0)
        torch.manual_seed(0)
        with op_checks.quiet():
            for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), LIMIT)):
                self.one(tally, str(number), lambda v: function(v[0], *v[1], **v[2]), op_checks.parts(sample))
        self.judge(tally, kind, op.full_name, dtype)


class TestModules(OpsCase):
    @modules(module_db)
    def test_modules(self, device, dtype, module_info, training):
        """Outputs, gradients of inputs and parameters, and buffers of a module that has the CPU's parameters."""
        tally = Tally()
        torch.manual_seed(0)
        inputs = module_info.module_inputs_func(
            module_info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        with op_checks.quiet():
            for number, item in enumerate(inputs):
                if item.forward_input is not None:
                    self.module(tally, str(number), module_info, item, dtype, training)
        self.judge(tally, "modules", module_info.name, dtype)

    def module(self, tally, name, info, item, dtype, training):
        make, given = item.constructor_input, item.forward_input
        torch.manual_seed(0)
        with_dtype = "dtype" in inspect.signature(info.module_cls.__init__).parameters
        kwargs = {**make.kwargs, **({"dtype": dtype} if with_dtype else {})}
        try:
            reference = info.module_cls(*make.args, **kwargs).train(training)
            reference = reference.to(dtype) if not info.is_lazy else reference
        except Exception:  # what the CPU cannot make is no sample
            tally.skipped += 1
            return

        def call(values, wide=False):
            on_npu = any(t.device.type == "npu" for t in torch.utils._pytree.tree_leaves(values) if is_tensor(t))
            module = copy.deepcopy(reference).to(DEVICE if on_npu else "cpu", torch.float64 if wide else None)
            leaves = [t for t in torch.utils._pytree.tree_leaves(values) if is_tensor(t) and t.requires_grad]
            result = module(*values[1], **values[2])
            outputs = [t for t in torch.utils._pytree.tree_leaves(result) if is_tensor(t)]
            leaves += list(module.parameters())
            grads = op_checks.gradients_of(outputs, leaves)
            return [outputs, grads, list(module.buffers())]

        factor = 4.0 if dtype.itemsize == 2 else 1.0
        values = (None, given.args, given.kwargs)
        self.one(tally, name, call, values, factor, wide=lambda v: call(v, wide=True))


class TestOptimizers(OpsCase):
    @optims(optim_db, dtypes=[torch.float32, torch.float64, torch.complex64])
    def test_optimizers(self, device, dtype, optim_info):
        """Three steps with each set of options and each implementation (loop, foreach, fused)."""
        tally = Tally()
        if optim_info.only_supports_sparse_grads or (dtype.is_complex and not optim_info.supports_complex):
            tally.skipped += 1
        else:
            with op_checks.quiet():
                for options in optim_info.optim_inputs_func(device="cpu"):
                    for kind in (None, *optim_info.supported_impls):
                        if kind == "fused" and dtype.is_complex or kind == "differentiable":
                            continue
                        name = f"{options.desc} {kind or 'default'}"
                        kwargs = {**options.kwargs, **({kind: True} if kind else {})}
                        self.steps(tally, name, optim_info, kwargs, dtype)
        self.judge(tally, "optimizers", optim_info.name, dtype)

    def steps(self, tally, name, info, kwargs, dtype):
        torch.manual_seed(0)
        # Muon takes matrices only.
        start = [torch.randn(s, dtype=dtype) for s in ((5, 3), (4, 2) if info.name == "Muon" else (7,))]
        grads = [[torch.randn_like(p) for p in start] for _ in range(3)]

        def call(values):
            start, grads, kwargs = values
            parameters = [p.clone().requires_grad_() for p in start]
            optimizer = info.optim_cls(parameters, **kwargs)
            for step in grads:
                for p, g in zip(parameters, step, strict=True):
                    p.grad = g.clone()
                optimizer.step((lambda: (parameters[0] * 0).abs().sum()) if info.step_requires_closure else None)
            state = [optimizer.state[p] for p in parameters if optimizer.state[p]]
            keys = [sorted(s) for s in state]
            return [parameters, keys, [p.grad for p in parameters]]

        # Numbers given as tensors stay where the user made them: on the CPU.
        given = {
            k: torch.utils._pytree.tree_map(lambda v: op_checks.OnHost(v) if is_tensor(v) else v, v)
            for k, v in kwargs.items()
        }
        self.one(tally, name, call, (start, grads, given))


def is_tensor(value):
    return isinstance(value, torch.Tensor)


SIZE = 20000
# Expected mean and standard deviation.
DISTRIBUTIONS = {
    "rand": (lambda **k: torch.rand(SIZE, **k), 0.5, 12**-0.5),
    "randn": (lambda **k: torch.randn(SIZE, **k), 0.0, 1.0),
    "normal": (lambda **k: torch.empty(SIZE, **k).normal_(2.0, 3.0), 2.0, 3.0),
    "uniform": (lambda **k: torch.empty(SIZE, **k).uniform_(-1.0, 3.0), 1.0, 4 / 12**0.5),
    "exponential": (lambda **k: torch.empty(SIZE, **k).exponential_(2.0), 0.5, 0.5),
    "log_normal": (lambda **k: torch.empty(SIZE, **k).log_normal_(0.0, 0.25), 1.0317, 0.2620),
    "geometric": (lambda **k: torch.empty(SIZE, **k).geometric_(0.25), 4.0, 12**0.5),
    "bernoulli": (lambda **k: torch.full((SIZE,), 0.3, **k).bernoulli(), 0.3, 0.21**0.5),
    "bernoulli_": (lambda **k: torch.empty(SIZE, **k).bernoulli_(0.3), 0.3, 0.21**0.5),
    "dropout": (lambda **k: torch.dropout(torch.ones(SIZE, **k), 0.25, True), 1.0, (1 / 3) ** 0.5),
    "random": (lambda **k: torch.empty(SIZE, **k).random_(0, 9), 4.0, (80 / 12) ** 0.5),
    "poisson": (lambda **k: torch.poisson(torch.full((SIZE,), 4.0, **k)), 4.0, 2.0),
    "binomial": (
        lambda **k: torch.binomial(torch.full((SIZE,), 10.0, **k), torch.full((SIZE,), 0.3, **k)),
        3.0,
        2.1**0.5,
    ),
    "gamma": (lambda **k: torch._standard_gamma(torch.full((SIZE,), 2.0, **k)), 2.0, 2.0**0.5),
    "rrelu": (lambda **k: torch.rrelu(-torch.ones(SIZE, **k), 0.1, 0.3, True), -0.2, 0.2 / 12**0.5),
}


class TestRandom(OpsCase):
    """Numbers drawn on npu: the same with the same seed, others with another, and of the right distribution."""

    @dtypes(torch.float32, torch.float64, torch.float16)
    def test_random(self, device, dtype):
        tally = Tally()
        for name, (draw, mean, deviation) in DISTRIBUTIONS.items():
            try:
                draw(device="cpu", dtype=dtype)
            except RuntimeError:  # a dtype that upstream does not draw
                tally.skipped += 1
                continue
            self.distribution(tally, f"{name} {dtype}", lambda d=draw: d(device=device, dtype=dtype), mean, deviation)
        self.judge(tally, "random", "distributions", dtype)

    def test_random_integers(self, device):
        tally = Tally()
        draws = {
            "randint": lambda: torch.randint(-3, 4, (SIZE,), device=device),
            "randint_like": lambda: torch.randint_like(torch.empty(SIZE, dtype=torch.int32, device=device), -3, 4),
            "multinomial": lambda: torch.multinomial(torch.ones(7, device=device), SIZE, replacement=True) - 3,
        }
        for name, draw in draws.items():
            self.distribution(tally, name, draw, 0.0, 2.0)
        try:
            order = torch.randperm(SIZE, device=device)
            if not torch.equal(order.sort()[0].cpu(), torch.arange(SIZE)) or (order.cpu() == torch.arange(SIZE)).all():
                raise Wrong("randperm gives no permutation")
            tally.good()
        except Exception as error:  # counted
            tally.bad("randperm", error)
        self.judge(tally, "random", "integers", None, metered=False)

    def distribution(self, tally, name, draw, mean, deviation):
        try:
            torch.manual_seed(3)
            with Meter() as meter:
                first = draw()
                torch.npu.synchronize()
            other = draw()
            torch.manual_seed(3)
            again = draw()
            if not op_checks.same_values(first, again):
                raise Wrong("one seed gives different numbers")
            if op_checks.same_values(first, other):
                raise Wrong("the second draw repeats the first")
            values = first.cpu().double()
            error = deviation / SIZE**0.5
            # Six standard errors for the mean; the spread within a twentieth.
            if abs(values.mean().item() - mean) > 6 * error or abs(values.std().item() / deviation - 1) > 0.05:
                raise Wrong(f"mean {values.mean():.4f}, deviation {values.std():.4f}, not {mean:.4f}, {deviation:.4f}")
            tally.good(meter)
        except Exception as error:  # counted
            op_checks.settle()
            tally.bad(name, error)
