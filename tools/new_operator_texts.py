"""The texts that tools/new_operator.py writes: table entry, kernel, simulator operator, test."""

from __future__ import annotations

import re

from npu_operator import Argument, CannotWrite, Operator
from torchgen import local
from torchgen.api.types import DispatcherSignature

__all__ = ["CannotWrite", "kernel", "simulator", "table_entry", "test"]

_SAMPLES = {"int": "1", "float": "0.5", "bool": "False", "ints": "[0]", "scalar": "2"}
_READ = {
    "int": 'const int64_t {n} = c.attrs().integer("{n}", 0);',
    "bool": 'const bool {n} = c.attrs().boolean("{n}", false);',
    "ints": 'const std::vector<int64_t> {n} = c.attrs().integers("{n}");',
    # Attributes of ACL are fp32, so numbers come as inputs.
    "float": "const double {n} = c.in_scalar({i}).toDouble();",
    "scalar": "const at::Scalar {n} = c.in_scalar({i});",
}


def table_entry(operator: Operator, by_hand: bool = False) -> tuple[str, str]:
    """(section, the entry's text); `by_hand`: with a kernel of its own."""
    if operator.own:
        return "custom", "\n".join([f"- func: {_quoted(str(operator.schema))}", *_own_entry(operator, by_hand)])
    if operator.section == "ir_ops":
        return "ir_ops", f"- {{func: {operator.overload}, ir: {operator.ir}}}"
    return "aten_ops", f"- {{funcs: [{', '.join(operator.funcs)}], ir: {operator.ir}}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _own_entry(operator: Operator, by_hand: bool) -> list[str]:
    if by_hand:
        lines = [f"  kernel: {operator.base}"]
        lines += [f"  autograd: {operator.base}_autograd"] if operator.backward else []
    else:
        # Attributes of ACL are fp32, so numbers are inputs.
        numbers = [a.name for a in operator.others if a.kind in ("float", "scalar")]
        attrs = [f"{a.name}: {a.name}" for a in operator.others if a.name not in numbers]
        lines = [f"  ir: {operator.ir}"]
        lines += [f"  inputs: [{', '.join([*operator.tensors, *numbers])}]"] if numbers else []
        lines += [f"  attrs: {{{', '.join(attrs)}}}"] if attrs else []
        lines += _result_of(operator)
        lines += ["  dtypes: [float]"]
        if operator.backward:
            lines += ["  backward:", *(f"    {name}: {_quoted(text)}" for name, text in operator.backward.items())]
    return [*lines, *_documentation(operator), f"  sample: {_quoted(_sample_call(operator))}"]


def _result_of(operator: Operator) -> list[str]:
    first = operator.tensors[0]
    if operator.reduces:
        sizes = f"shape_from_dim_mask({first}, make_dim_mask(dim, {first}.dim()), keepdim)"
        return [f"  output: {{sizes: {_quoted(sizes)}}}"]
    if len(operator.tensors) == 1:
        return []
    sizes = f"{first}.sizes()"
    for other in operator.tensors[1:]:
        sizes = f"infer_size_dimvector({sizes}, {other}.sizes())"
    checks = [_quoted(f'check_one_dtype("{operator.base}", {first}, {t})') for t in operator.tensors[1:]]
    return [f"  check: [{', '.join(checks)}]", f"  output: {{sizes: {_quoted(sizes)}}}"]


def _signature(operator: Operator, name: str) -> str:
    with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        declaration = DispatcherSignature.from_schema(operator.schema, symint=False).decl(name)
    return declaration.replace("at::", "").replace("Tensor & ", "Tensor& ").replace("Scalar & ", "Scalar& ")


def _parameters(operator: Operator) -> str:
    return _signature(operator, "f").split("(", 1)[1].rsplit(")", 1)[0]


def _output(operator: Operator) -> list[str]:
    first = operator.tensors[0]
    if operator.reduces:
        return [
            f"  const auto mask = make_dim_mask(dim, {first}.dim());",
            f"  const Tensor result = at::empty(shape_from_dim_mask({first}, mask, keepdim), {first}.options());",
        ]
    if len(operator.tensors) == 1:
        return [f"  const Tensor result = at::empty_like({first}, MemoryFormat::Contiguous);"]
    lines = [f"  DimVector sizes({first}.sizes());"]
    for other in operator.tensors[1:]:
        lines += [
            f'  TORCH_CHECK({other}.scalar_type() == {first}.scalar_type(), "{operator.base}: {other} is ",',
            f'              {other}.scalar_type(), " and {first} is ", {first}.scalar_type());',
            f"  sizes = infer_size_dimvector(sizes, {other}.sizes());",
        ]
    return [*lines, f"  const Tensor result = at::empty(sizes, {first}.options());"]


def _command(operator: Operator) -> str:
    calls = [f'Name("{operator.ir}")', *(f"Input({name})" for name in operator.tensors)]
    for a in operator.others:
        if a.kind in ("float", "scalar"):
            calls.append(f"Input(Scalar({a.name}), kDouble)" if a.kind == "float" else f"Input({a.name}, kDouble)")
    calls.append("Output(result)")
    calls += [f'Attr("{a.name}", {a.name})' for a in operator.others if a.kind not in ("float", "scalar")]
    return "cmd." + ".".join([*calls, "Run()"]) + ";"


def _autograd(operator: Operator) -> list[str]:
    name = f"{operator.ir}Function"
    saved = [*operator.tensors, "result"]
    keep = {"int": "toInt", "float": "toDouble", "bool": "toBool", "ints": "toDimVector", "scalar": "toScalar"}
    arguments = ", ".join(a.name for a in operator.arguments)
    return [
        "namespace {",
        "",
        f"struct {name} : Function<{name}> {{",
        f"  static Tensor forward(AutogradContext* context, {_parameters(operator)}) {{",
        "    const at::AutoDispatchBelowADInplaceOrView below;",
        f'    Tensor result = NPU_CUSTOM_OP({operator.base}, "{operator.base}", "").call({arguments});',
        f"    context->save_for_backward({{{', '.join(saved)}}});",
        *(f'    context->saved_data["{a.name}"] = {a.name};' for a in operator.others),
        "    return result;",
        "  }",
        "  static variable_list backward(AutogradContext* context, variable_list grads) {",
        "    const Tensor& grad = grads[0];",
        "    const variable_list saved = context->get_saved_variables();",
        *(f"    [[maybe_unused]] const Tensor& {n} = saved[{i}];" for i, n in enumerate(saved)),
        *(
            f'    [[maybe_unused]] const auto {a.name} = context->saved_data["{a.name}"].{keep[a.kind]}();'
            for a in operator.others
        ),
        f"    return {{{', '.join(operator.backward.get(a.name, 'Tensor()') for a in operator.arguments)}}};",
        "  }",
        "};",
        "",
        "}  // namespace",
        "",
        f"{_signature(operator, f'{operator.base}_autograd')} {{ return {name}::apply({arguments}); }}",
        "",
    ]


def kernel(operator: Operator) -> str:
    """<Name>Kernel.cpp of an operator of the fork's own."""
    if any(a.kind == "ints" for a in operator.others) and operator.backward:
        raise CannotWrite("--backward: arguments that are lists are beyond this tool; write the gradient by hand")
    includes = [
        "ATen/native/npu/frame/command/DeviceOf.h",
        "ATen/native/npu/frame/command/OpCommand.h",
        "NPUCustomFunctions.h",
    ]
    includes.append("ATen/ops/empty.h" if operator.reduces or len(operator.tensors) > 1 else "ATen/ops/empty_like.h")
    if operator.reduces:
        includes.append("ATen/native/ReduceOpsUtils.h")
    elif len(operator.tensors) > 1:
        includes.append("ATen/ExpandUtils.h")
    if operator.backward:
        includes += [
            "ATen/ATen.h",
            "ATen/core/LegacyTypeDispatch.h",
            "ATen/native/npu/frame/registration/CustomAutograd.h",
        ]
    lines = [
        f"// torch.{operator.base}: {operator.reference}",
        "",
        *(f"#include <{name}>" for name in sorted(includes, key=lambda n: (not n.startswith("ATen"), n))),
        "",
        "namespace at::native::npu {",
        "",
        f"{_signature(operator, operator.base)} {{",
        *_output(operator),
        "  // Called with meta tensors for the shape alone.",
        f"  if ({operator.tensors[0]}.is_meta() || result.numel() == 0) return result;",
        f"  const DeviceOf guard({operator.tensors[0]});",
        "  OpCommand cmd;",
        f"  {_command(operator)}",
        "  return result;",
        "}",
        "",
        *(_autograd(operator) if operator.backward else []),
        "}  // namespace at::native::npu",
        "",
    ]
    return "\n".join(lines)


def _documentation(operator: Operator) -> list[str]:
    first = operator.tensors[0]
    result = f"of ``{first}`` without the dimensions ``dim``" if operator.reduces else f"of the shape of ``{first}``"
    described = {a.name: "a floating tensor" if a.kind == "tensor" else "see the formula" for a in operator.arguments}
    described |= {a.name: "which dimensions are reduced" for a in operator.others if a.name == "dim"}
    return [
        "  doc:",
        f"    text: {_quoted(f'Computes ``{operator.reference}``, by the IR operator {operator.ir}.')}",
        "    args:",
        *(f"      {name}: {_quoted(text)}" for name, text in described.items()),
        f"    returns: {_quoted(f'A tensor of the dtype of ``{first}``, {result}.')}",
    ]


def _sample_call(operator: Operator) -> str:
    """The arguments of a call, in the words of test_custom_registry.py."""
    return ", ".join("f(4, 3)" if a.kind == "tensor" else _sample(a) for a in operator.arguments)


def simulator(operator: Operator) -> str:
    """The file of the simulator that defines the operator's IR type."""
    if not operator.own:
        out = operator.funcs[-1]
        return "\n".join(
            [
                f"// {operator.ir}: upstream's {operator.base}.",
                "",
                '#include "exec/definition/aten.h"',
                "",
                "namespace acl_sim {",
                "namespace {",
                "",
                f'SIM_ATEN({operator.ir}, "{out}");',
                "",
                "}  // namespace",
                "}  // namespace acl_sim",
                "",
            ]
        )
    function = operator.base.removeprefix("npu_")
    elementwise = len(operator.tensors) == 1 and not operator.reduces
    read: list[str] = []
    for i in range(len(operator.tensors)):
        variable = "x" if i == 0 else f"x{i}"
        read.append(f"const at::Tensor {variable} = c.{'in_any' if elementwise else 'in'}({i});")
    read.append("at::Tensor y = out_for(c, x);" if elementwise else "at::Tensor y = c.out(0);")
    inputs, attrs = len(operator.tensors), []
    for a in operator.others:
        read.append("[[maybe_unused]] " + _READ[a.kind].format(n=a.name, i=inputs))
        if a.kind in ("float", "scalar"):
            inputs += 1
        else:
            attrs.append(f'"{a.name}:{a.kind}"')
    listed = f".attrs({{{', '.join(attrs)}}})" if attrs else ""
    return "\n".join(
        [
            f"// {operator.ir}: {operator.reference}",
            "",
            '#include "ops/common.h"',
            "",
            "namespace acl_sim {",
            "namespace {",
            "",
            f"void {function}(OpContext& c) {{",
            *(f"  {line}" for line in read),
            f"  {operator.compute.rstrip(';')};",
            "}",
            f"SIM_OP({operator.ir}).inputs({inputs}).dtypes(kFloatTypes){listed}.run({function});",
            "",
            "}  // namespace",
            "}  // namespace acl_sim",
            "",
        ]
    )


def _sample(argument: Argument) -> str:
    if argument.default is None:
        return _SAMPLES[argument.kind]
    if argument.kind == "bool":
        return argument.default.capitalize()
    return argument.default if argument.kind != "ints" else f"[{argument.default.strip('[]')}]"


def _cases(operator: Operator) -> list[str]:
    """Values of the arguments that are no tensors, as texts of dicts: one for each run of the test."""
    if operator.reduces:
        rest = {a.name: _sample(a) for a in operator.others if a.name not in ("dim", "keepdim")}
        many = next(a for a in operator.others if a.name == "dim").kind == "ints"
        dims = ("[0]", "[-1]", "[0, 1]") if many else ("0", "-1", "1")
        cases = [{**rest, "dim": d, "keepdim": k} for d, k in zip(dims, ("False", "True", "False"), strict=True)]
    else:
        cases = [{a.name: _sample(a) for a in operator.others}]
    return ["{" + ", ".join(f'"{name}": {value}' for name, value in case.items()) + "}" for case in cases]


_TEST = '''"""torch.{name} on npu against the CPU."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common_device_type import instantiate_device_type_tests
from common_utils import TestCase, run_tests
from util_test import create_common_tensor

import torch


class {class_name}(TestCase):
    def cpu_op_exec(self, {arguments}):
        output = {reference}
        return output.numpy()

    def npu_op_exec(self, {arguments}):
        output = {call}
        self.assertTrue(output.is_npu)
        return output.cpu().numpy()

    def test_{name}_shape_format(self, device):
        shape_format = [
            [np.float32, -1, [4, 3]],
            [np.float32, -1, [2, 5, 7, 3]],
            [np.float32, 0, [8, 16, 6, 6]],
            [np.float32, -1, [1, 1]],
            [np.float16, -1, [16, 32]],
        ]
        cases = [
{cases}
        ]
        for item in shape_format:
            for case in cases:
{made_deep}
                if item[0] == np.float16:
{widened}
                cpu_output = self.cpu_op_exec({cpu}, **case)
                npu_output = self.npu_op_exec({npu}, **case)
                self.assertRtolEqual(cpu_output.astype(npu_output.dtype), npu_output, message=f"{{item}} {{case}}")

    def test_{name}_not_contiguous(self, device):
        item, case = [np.float32, -1, [6, 8]], {case}
{made}
        for view in (lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[:, :1].expand(6, 8)):
            cpu_output = self.cpu_op_exec({cpu_views}, **case)
            npu_output = self.npu_op_exec({npu_views}, **case)
            self.assertRtolEqual(cpu_output, npu_output)
'''

_META_TEST = """
    def test_{name}_meta(self, device):
        item, case = [np.float32, -1, [4, 3]], {case}
{made}
        expected = torch.{name}({npu}, **case)
        output = torch.{name}({meta}, **case)
        self.assertEqual(output.shape, expected.shape)
        self.assertEqual(output.dtype, expected.dtype)
"""

_BACKWARD_TEST = """
    def test_{name}_backward(self, device):
        item, case = [np.float32, -1, [5, 6]], {case}
{made}
        for tensor in ({both}):
            tensor.requires_grad_()
        reference = lambda {arguments}: {reference}  # noqa: E731
        cpu_output = reference({cpu}, **case)
        npu_output = torch.{name}({npu}, **case)
        grad = torch.linspace(-1, 1, cpu_output.numel()).reshape(cpu_output.shape)
        cpu_output.backward(grad)
        npu_output.backward(grad.to(device))
{compared}
"""

_TAIL = """

instantiate_device_type_tests({class_name}, globals(), except_for="cpu")
if __name__ == "__main__":
    run_tests()
"""


def test(operator: Operator) -> str:
    """A test in the style of the fork's operator tests."""

    def renamed(text: str) -> str:
        return re.sub(r"\bself\b", "input1", text)  # self is the test

    tensors = [renamed(name) for name in operator.tensors]
    arguments = ", ".join(renamed(a.name) for a in operator.arguments)
    cases = _cases(operator)

    def each(pattern: str, names: list[str] = tensors, separator: str = ", ") -> str:
        return separator.join(pattern.format(n=name) for name in names)

    made = "cpu_{n}, npu_{n} = create_common_tensor(item, -2, 2)"
    values = {
        "name": operator.base,
        "class_name": "Test" + "".join(part.capitalize() for part in operator.base.split("_")),
        "arguments": arguments,
        "reference": renamed(operator.reference),
        "call": f"torch.{operator.base}({arguments})" if operator.own else renamed(operator.default_reference),
        "cases": ",\n".join(" " * 12 + case for case in cases) + ",",
        "case": cases[0],
        "made": each(" " * 8 + made, separator="\n"),
        "made_deep": each(" " * 16 + made, separator="\n"),
        "widened": each(" " * 20 + "cpu_{n} = cpu_{n}.to(torch.float32)", separator="\n"),
        "cpu": each("cpu_{n}"),
        "npu": each("npu_{n}"),
        "both": each("cpu_{n}, npu_{n}"),
        "cpu_views": each("view(cpu_{n})"),
        "npu_views": each("view(npu_{n})"),
        "meta": each('npu_{n}.to("meta")'),
        "compared": each(
            " " * 8 + 'self.assertRtolEqual(cpu_{n}.grad, npu_{n}.grad.cpu(), message="{n}")',
            [renamed(name) for name in operator.tensors if name in operator.backward],
            "\n",
        ),
    }
    parts = [_TEST, *([_META_TEST] if operator.own else []), *([_BACKWARD_TEST] if operator.backward else []), _TAIL]
    return "".join(part.format(**values) for part in parts)
