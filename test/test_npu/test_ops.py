"""Every operator, module and optimizer of upstream's test databases on npu against the CPU: results, out=, in-place
forms, views, errors, gradients; and what fake and meta tensors announce against what comes out.

    python test_ops.py                   a part of it, chosen by --seed (minutes)
    python test_ops.py --all             everything, in two processes; prints percentages of right and native samples
    python test_ops.py --all --shard 2/4 --records FILE     a quarter, to go on from FILE after an interruption
    python test_ops.py -k nn_functional_grid_sample         what has this in its name

A sample is right if the npu gives what the CPU gives, wrong if it gives something else, refused if it raises where the
CPU does not; native if no operator fell back to the CPU and no values came to the host. What the CPU refuses or draws
at random is counted apart. Known differences are listed with their reason in op_exceptions.yaml; op_modules.py has the
modules, optimizers and foreach operators, op_fake.py the announcements (a "sample" of its line is one call of an aten
operator on fake or meta tensors; "wrong" are those whose strides, shape or dtype differ), op_checks.py the comparison,
op_runner.py the processes.
"""

import os
import re
import sys
import unittest

import op_checks
import op_runner
import torch.utils._pytree as pytree
from op_case import LIMIT, OpsCase, WorkerRunner
from op_checks import DEVICE, Tally, Unsuited, Wrong, place
from op_fake import TestAnnounced
from op_modules import TestForeach, TestModules, TestOptimizers, TestRandom
from torch.testing._internal.common_device_type import OpDTypes, PrivateUse1TestBase, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db

import torch

# Their values are whatever the memory holds.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
# Of one operand these look at the shape alone, or copy it, or upstream wants it on the host.
TAKES_ANY_DEVICE = {
    *("broadcast_tensors", "expand_as", "reshape_as", "view_as", "atleast_1d", "atleast_2d", "atleast_3d"),
    *("resize_as_", "diagonal_scatter", "as_strided_scatter", "select_scatter", "slice_scatter"),
    *("tensor_split", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "nn.functional.ctc_loss"),
}
# Which operands (those that are no 0-d tensors) may be on the CPU: indices, which go where the values are.
FROM_ANY_DEVICE = {"index_put": (1,)}
# What is said of operands on two devices.
ON_TWO_DEVICES = "[dD]evice|Input type .* and weight type .* should be the same"
# Samples that are laid out in other ways too.
LAYOUTS = 2
# out= and in-place forms, views and errors do not differ by more than these.
FEW_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)


class TestOperators(OpsCase):
    @ops(op_db)
    def test_forward(self, device, dtype, op):
        tally = Tally()
        with op_checks.quiet():
            for name, values, _ in op_checks.samples_of(op, dtype, limit=LIMIT, layouts=LAYOUTS):
                self.one(
                    tally,
                    name,
                    op_checks.meant(op, lambda given: op_checks.run_forward(op, given)),
                    values,
                    metadata_only=op.name in UNINITIALISED,
                )
        self.judge(tally, "forward", op.full_name, dtype)

    @ops([op for op in op_db if op.supports_autograd], dtypes=OpDTypes.supported_backward)
    def test_gradients(self, device, dtype, op):
        tally = Tally()
        with op_checks.quiet():
            for name, values, finish in op_checks.samples_of(op, dtype, grad=True, limit=LIMIT):
                # A half's gradient is as good as the half's result, which the next operator's rounding multiplies.
                factor = 4.0 if dtype.itemsize == 2 or dtype is torch.complex32 else 1.0
                self.one(tally, name, lambda given, f=finish: op_checks.run_gradients(op, given, f), values, factor)
        self.judge(tally, "gradients", op.full_name, dtype)

    @ops([op for op in op_db if op.supports_out], allowed_dtypes=FEW_DTYPES)
    def test_out(self, device, dtype, op):
        """out= of the right size, strided, empty, of another size, of another dtype, of a wider one."""
        tally = Tally()
        with op_checks.quiet():
            for name, values, _ in op_checks.samples_of(op, dtype, limit=3):
                for kind in OUTS:
                    self.one(
                        tally,
                        f"{name} {kind}",
                        lambda given, k=kind: into_out(op, given, k),
                        values,
                        op_checks.factor_of_wider(values) if kind == "wider dtype" else 1.0,
                        metadata_only=op.name in UNINITIALISED,
                    )
        self.judge(tally, "out", op.full_name, dtype)

    @ops([op for op in op_db if op.inplace_variant is not None], allowed_dtypes=FEW_DTYPES)
    def test_inplace(self, device, dtype, op):
        inplace = op.inplace_variant

        def call(values):
            target = values[0].clone() if values[0].is_leaf and values[0].requires_grad else values[0]
            pointer, version = target.data_ptr(), target._version
            try:
                result = inplace(target, *values[1], **values[2])
                torch.npu.synchronize()
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                return type(error).__name__
            if result is not target or target.data_ptr() != pointer:
                raise Wrong("the result is another tensor")
            return [target, target._version - version, target.stride()]

        tally = Tally()
        with op_checks.quiet():
            for name, values, _ in op_checks.samples_of(op, dtype, limit=LIMIT, layouts=1):
                # Writing to memory that several elements share is undefined.
                if isinstance(values[0], torch.Tensor) and not name.endswith("expanded"):
                    self.one(tally, name, call, values)
        self.judge(tally, "inplace", op.full_name, dtype)

    @ops(op_db, dtypes=OpDTypes.any_one)
    def test_views(self, device, dtype, op):
        """What shares memory with the input on the CPU shares it on npu, at the same place; nothing else does."""
        tally = Tally()

        def call(values):
            results = [r for r in pytree.tree_leaves(op(values[0], *values[1], **values[2])) if is_tensor(r)]
            inputs = [v for v in pytree.tree_leaves(values) if is_tensor(v)]
            found = []
            for result in results:
                sharing = [i for i, v in enumerate(inputs) if share(result, v)]
                place_of = (result.storage_offset(), result.stride()) if sharing else None
                found.append([sharing, place_of, result._base is not None, result.is_conj(), result.is_neg()])
            for result, (sharing, *_) in zip(results, found, strict=True):
                if (
                    sharing
                    and result.numel()
                    and len(set(result.stride())) == result.dim()
                    and 0 not in result.stride()
                ):
                    result.detach().fill_(1)
            return [found, [v for v in inputs if any(sharing for sharing, *_ in found)]]

        with op_checks.quiet():
            for name, values, _ in op_checks.samples_of(op, dtype, limit=4, layouts=1):
                self.one(tally, name, call, values, metadata_only=op.name in UNINITIALISED)
        self.judge(tally, "views", op.full_name, dtype, metered=False)

    @ops([op for op in op_db if op.error_inputs_func is not None], dtypes=OpDTypes.none)
    def test_errors(self, device, op, dtype=None):
        """What the CPU refuses raises the same class here, and the device goes on working."""
        tally = Tally()
        with op_checks.quiet():
            for number, error_input in enumerate(op.error_inputs("cpu")):
                values = op_checks.parts(error_input.sample_input)
                self.error(tally, f"{number}", lambda given: op(given[0], *given[1], **given[2]), values)
        self.judge(tally, "errors", op.full_name, dtype, metered=False)

    @ops([op for op in op_db if op.full_name not in TAKES_ANY_DEVICE], dtypes=OpDTypes.any_one)
    def test_mixeddevices(self, device, dtype, op):
        """Each operand by itself on the CPU among the others on npu is refused, in a batch of nothing, too."""
        tally = Tally()
        with op_checks.quiet():
            for name, values, _ in op_checks.samples_of(op, dtype, limit=6):
                for note, these in (("", values), (" empty", without_batch(values))):
                    if self.expected(lambda given: op_checks.run_forward(op, given), these, tally) is None:
                        continue
                    try:
                        given = place(these, DEVICE)
                    except Unsuited:
                        tally.skipped += 1
                        continue
                    large = [t for t in pytree.tree_leaves(given) if is_tensor(t) and t.dim()]
                    for i, stray in enumerate(large if len(large) > 1 else []):
                        if i in FROM_ANY_DEVICE.get(op.name, ()):
                            continue
                        mixed = pytree.tree_map(lambda t, stray=stray: t.cpu() if t is stray else t, given)
                        self.mixed(tally, f"{name}{note} operand {i}", lambda: op_checks.run_forward(op, mixed))  # noqa: B023
        self.judge(tally, "mixeddevices", op.full_name, dtype, metered=False)

    def mixed(self, tally, name, call):
        try:
            call()
            torch.npu.synchronize()
            tally.bad(name, Wrong("operands on two devices are accepted"))
        except RuntimeError as error:
            if re.search(ON_TWO_DEVICES, str(error)):
                tally.good()
            else:
                tally.bad(name, error)
        op_checks.settle()

    def error(self, tally, name, call, values):
        try:
            call(place(values, "cpu", grad=True))
        except Unsuited:
            tally.skipped += 1
            return
        except Exception as error:  # the class that is asked for
            expected = error
        else:
            tally.skipped += 1
            return
        at_the_call = False
        try:
            given = place(values, DEVICE, grad=True)
            call(given)
            at_the_call = True
            torch.npu.synchronize()
        except Unsuited:
            tally.skipped += 1
            return
        except Exception as error:  # as above
            # Values are known on the device only, which tells of them at the synchronisation.
            if isinstance(error, type(expected)) or (at_the_call and isinstance(error, RuntimeError)):
                tally.good()
            else:
                tally.bad(name, Wrong(f"{op_checks.reason(error)} instead of {op_checks.reason(expected)}"))
        else:
            tally.bad(name, Wrong(f"no error instead of {op_checks.reason(expected)}"))
        op_checks.settle()
        if (torch.ones(3, device=DEVICE) + 1).sum().item() != 6:
            tally.bad(name, Wrong("the device computes wrong numbers after the error"))


def into_out(op, values, kind):
    """The op's results in out= tensors; an error's class where it raises. Raises Unsuited where out= has no meaning."""
    results = op(values[0], *values[1], **values[2])
    single = isinstance(results, torch.Tensor)
    tensors = [results] if single else list(results)
    if not all(isinstance(t, torch.Tensor) for t in tensors):
        raise Unsuited("no tensors")
    outs = [OUTS[kind](t) for t in tensors]
    before = [t.clone() for t in outs]
    try:
        given = op(values[0], *values[1], **values[2], out=outs[0] if single else tuple(outs))
        if values_device(outs) == "npu":
            torch.npu.synchronize()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return [type(error).__name__, before]
    for out, result in zip(outs, [given] if single else given, strict=True):
        if result is not out:
            raise Wrong("the result is not the out= tensor")
    return [outs, [t.stride() for t in outs] if kind == "strided" else None]


def without_batch(values):
    """The same with nothing in the first operand's first dimension, nor in the same of the others."""
    sizes = [v.shape[0] for v in pytree.tree_leaves(values) if is_tensor(v) and v.dim()]
    return pytree.tree_map(
        lambda v: v.detach()[:0] if is_tensor(v) and v.dim() and v.shape[0] == sizes[0] else v, values
    )


def is_tensor(value):
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested


def share(a, b):
    """Whether two tensors have one storage."""
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def values_device(tensors):
    return tensors[0].device.type if tensors else None


def _garbage(t):
    return t.detach().clone().zero_() if t.dtype is torch.bool else torch.full_like(t.detach(), 3)


OUTS = {
    "right": _garbage,
    "strided": lambda t: _garbage(torch.cat([t, t], -1) if t.dim() else t)[..., ::2] if t.dim() else _garbage(t),
    "empty": lambda t: t.detach().new_empty(0),
    "wrong size": lambda t: _garbage(t).new_ones((*t.shape, 2)),
    "wrong dtype": lambda t: t.detach().new_zeros(
        t.shape, dtype=torch.int16 if t.dtype.is_floating_point else torch.half
    ),
    "wider dtype": lambda t: t.detach().new_zeros(t.shape, dtype=torch.promote_types(t.dtype, torch.float64)),
}

PrivateUse1TestBase.setUpClass()  # gives the classes made from here on the name of the device
for case in (TestOperators, TestAnnounced, TestForeach, TestModules, TestOptimizers, TestRandom):
    instantiate_device_type_tests(case, globals(), only_for="npu")
del case, OpsCase

if "NPU_OPS_TESTS" in os.environ:
    with open(os.environ["NPU_OPS_TESTS"], encoding="utf-8") as file:
        op_runner.keep(globals(), set(file.read().split("\n")))
elif __name__ != "__main__":
    part = op_runner.chosen(op_runner.all_names(globals()), op_runner.seed(), op_runner.PYTEST_SHARE)
    op_runner.keep(globals(), set(part))

if __name__ == "__main__":
    if "NPU_OPS_TESTS" in os.environ:
        unittest.main(argv=sys.argv[:1], testRunner=WorkerRunner)
    sys.exit(op_runner.main(globals()))
