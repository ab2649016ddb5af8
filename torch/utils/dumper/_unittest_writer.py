# Writes the guide's "single-operator sample" for a recorded call: one file with the data in it.
"""Writer of single-operator unit tests."""

import base64
import cmath
import io
import os
import zlib

import torch

from . import _calls, _tools
from ._reader import Reader
from ._replay import _grad_names, _names

_EMBED = 24 << 20  # compressed bytes above which the data gets a file of its own

_TEMPLATE = '''"""{overload} of {source}: the results of {devices} are compared.

Written by torch.utils.dumper from the recorded call {path}; runs alone: python {name}
"""

import base64
import io
import os
import unittest
import zlib

import torch

{data}


def tensors(device):
    """The recorded inputs on `device`."""
    loaded = torch.load(io.BytesIO(zlib.decompress(DATA)), weights_only=True)
    return {{name: as_recorded(value.to(device), *how) for name, (value, *how) in loaded.items()}}


def as_recorded(value, stride, requires_grad):
    """The value in its strides."""
    if list(value.stride()) != stride and 0 not in stride:
        value = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device).copy_(value)
    return value.requires_grad_(requires_grad)


def wide(value):
    """The value in float64; a complex one as pairs."""
    return torch.view_as_real(value.resolve_conj()).double() if value.is_complex() else value.double()


class Test{title}(unittest.TestCase):
    """{overload} gives the same on {devices}."""

    def op_exec(self, device):
        """The results on `device`, on CPU."""
        t = tensors(device)
{call}

    def cpu_op_exec(self):
        """The call on {first}."""
        return self.op_exec("{first}")

    def npu_op_exec(self):
        """The call on {second}."""
        return self.op_exec("{second}")

    def test_{function}(self):
        expected, found = self.cpu_op_exec(), self.npu_op_exec()
        self.assertEqual(len(expected), len(found))
        for i, (e, f) in enumerate(zip(expected, found)):
            self.assertEqual((e.shape, e.dtype), (f.shape, f.dtype))
            e, f = wide(e), wide(f)
            same = torch.isfinite(e) == torch.isfinite(f)
            self.assertTrue(bool(same.all()), f"result {{i}}: NaN or Inf on one side only")
            e, f = e.nan_to_num(), f.nan_to_num()
            distance, largest = (f - e).norm().item(), (f - e).abs().max().item() if e.numel() else 0.0
            if largest > {atol}:
                relative = distance / max(e.norm().item(), 1e-300)
                text = f"result {{i}}: relative distance {{relative:.3g}}, largest error {{largest:.3g}}"
                self.assertLessEqual(relative, {rtol}, text)


if __name__ == "__main__":
    unittest.main()
'''


def _literal(value, device_argument: bool) -> str:
    """Python text of an argument that is no tensor."""
    if device_argument:
        return "device"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, (float, complex)):
        return repr(value) if cmath.isfinite(value) else f'{type(value).__name__}("{value}")'
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, False) for item in value)}]"
    return repr(value)


def write_unittest(path: str, operator: str, target: str, devices=("cpu", "npu")) -> str:
    """Writes a unit test of the call `/op/seqid` of the dump file `path`.

    Args:
        path: the dump file.
        operator: `/op/seqid`.
        target: the file to write; a folder means `test_{op}_{seqid}.py` in it.
        devices: the two devices whose results the test compares.

    Returns:
        The path of the test. Data of more than 24 MB, compressed, goes to a `.bin` file beside it.

    Raises:
        RuntimeError: no such call, or it draws random numbers. ValueError: the file does not hold the arguments, an
            argument is a storage, or devices are not two. OSError: the test cannot be written.
    """
    operator = "/" + operator.strip("/")
    if isinstance(devices, str) or len(devices) != 2:
        raise ValueError(f"torch.utils.dumper: devices={devices!r}: two devices, such as ('cpu', 'npu')")
    with Reader(path) as reader:
        call = reader.call(operator)
        if call is None:
            raise RuntimeError(f"torch.utils.dumper: {path} holds no {operator}")
        if call.attributes.get("Kind") == "random":
            raise RuntimeError(f"torch.utils.dumper: {operator} draws random numbers; no test can compare it")
        func, args, kwargs = call.arguments()
        backward = bool(call.attributes.get("Backward"))
        autocast = call.attributes.get("Autocast", "")
        header = [call.header(n, "output") for n in call.names("output")]
        needs = set(_names(call))
        grads = {n: call.value(n) for n in _grad_names(call)} if backward else {}
    op = _calls.describe(func)
    text, stored = _call_text(func, args, kwargs, needs if backward else set())
    for name, value in grads.items():
        stored[name] = (value.contiguous(), list(value.stride()), False)
    base = operator.strip("/").replace("/", "_")
    if os.path.isdir(target):
        target = os.path.join(target, f"test_{base}.py")
    buffer = io.BytesIO()
    torch.save(stored, buffer)
    packed = zlib.compress(buffer.getvalue(), 6)
    if len(packed) > _EMBED:
        beside = os.path.splitext(target)[0] + ".bin"
        with open(beside, "wb") as file:
            file.write(packed)
        data = (
            f"with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "
            f'"{os.path.basename(beside)}"), "rb") as _file:\n    DATA = _file.read()'
        )
    else:
        lines = base64.encodebytes(packed).decode()
        data = f'DATA = base64.b64decode(\n    """\n{lines}"""\n)'
    skip = [i for i, name in enumerate(op.returns) if name in _calls.unspecified(op, args, kwargs)]
    body = _backward_body(text, needs, grads, autocast) if backward else _forward_body(text, op, autocast, skip)
    m = _tools.metrics()
    limits = m.tolerance(*(h[1] for h in header if h), autocast or "bool")
    source = _TEMPLATE.format(
        overload=op.overload + (" (backward)" if backward else ""),
        source=os.path.basename(path),
        devices=" and ".join(devices),
        path=operator,
        name=os.path.basename(target),
        data=data,
        title="".join(part.capitalize() for part in base.split("_")),
        function=base,
        call="\n".join(f"        {line}" for line in body),
        first=devices[0],
        second=devices[1],
        rtol=limits.rtol,
        atol=limits.atol,
    )
    with open(target, "w", encoding="utf-8") as file:
        file.write(source)
    return target


def _call_text(func, args, kwargs, needs):
    """(text of the call, name -> (tensor, strides, requires_grad))."""
    stored: dict = {}

    def one(name, value):
        if isinstance(value, torch.Tensor):
            for other, (tensor, *_) in stored.items():
                if tensor is value:
                    return f't["{other}"]'
            stored[name] = (value, list(value.stride()), name in needs)
            return f't["{name}"]'
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return "[" + ", ".join(one(f"{name}_{i}", item) for i, item in enumerate(value)) + "]"
        if isinstance(value, torch.UntypedStorage):
            raise ValueError(f"torch.utils.dumper: {func}: no test can be written of an operator on storages")
        return _literal(value, isinstance(value, torch.device))

    names = [a.name for a in func._schema.arguments]
    parts = [one(name, value) for name, value in zip(names, args, strict=False)]
    parts += [f"{name}={one(name, value)}" for name, value in kwargs.items()]
    stored = {name: (tensor.detach().clone(), *rest) for name, (tensor, *rest) in stored.items()}
    return f"torch.ops.{str(func)}({', '.join(parts)})", stored


_FLAT = "flat = list(result) if isinstance(result, (list, tuple)) else [result]"


def _autocast(dtype: str) -> str:
    return f"torch.autocast(torch.device(device).type, torch.{dtype})"


def _forward_body(text: str, op, autocast: str, skip) -> list[str]:
    modes = "torch.no_grad()" + (f", {_autocast(autocast)}" if autocast else "")
    lines = [f"with {modes}:", f"    result = {text}", _FLAT]
    if skip:  # nobody says what is in them
        lines.append(f"flat = [r for i, r in enumerate(flat) if i not in {skip}]")
    for name in sorted(op.writes):
        lines.append(f'flat += [t["{name}"]] if "{name}" in t else []')
    lines.append("return [r.detach().cpu() for r in flat if isinstance(r, torch.Tensor)]")
    return lines


def _backward_body(text: str, needs, grads, autocast: str) -> list[str]:
    chosen = sorted(grads, key=lambda name: int(name[5:]))
    lines = [f"with {_autocast(autocast)}:", f"    result = {text}"] if autocast else [f"result = {text}"]
    lines += [_FLAT, "flat = [r for r in flat if isinstance(r, torch.Tensor)]"]
    outputs = ", ".join(f"flat[{name[5:]}]" for name in chosen)
    leaves = ", ".join(f't["{name}"]' for name in sorted(needs))
    entering = ", ".join(f't["{name}"]' for name in chosen)
    lines.append(f"found = torch.autograd.grad([{outputs}], [{leaves}], [{entering}], allow_unused=True)")
    lines.append("return [g.cpu() for g in found if g is not None]")
    return lines
