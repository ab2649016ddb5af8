# check_overflow: which operator overflowed or underflowed, told by the device's status after each of its operators.
"""Overflow check."""

import sys

import torch

from . import _calls
from ._sinks import DumpSink, _twins


def refuse_dynamic_loss_scale() -> None:
    """Raises RuntimeError when apex is set to dynamic loss scaling or to combined tensors."""
    module = sys.modules.get("apex.amp._amp_state")
    state = getattr(module, "_amp_state", None)
    if any(getattr(scaler, "dynamic", False) for scaler in getattr(state, "loss_scalers", ())):
        raise RuntimeError(
            "torch.utils.dumper: check_overflow does not go with apex's dynamic loss scale, which overflows on "
            "purpose; use a static one, amp.initialize(..., loss_scale=128.0)"
        )
    properties = getattr(state, "opt_properties", None)
    if any(getattr(properties, name, False) for name in ("combine_grad", "combine_ddp")):
        raise RuntimeError(
            "torch.utils.dumper: check_overflow does not go with combined tensors; set combine_grad=False"
        )


class _StaticScaleOnly:
    """While in force, a GradScaler that changes its scale is refused when it is used."""

    def __enter__(self) -> None:
        self._scale = scale = torch.amp.GradScaler.scale

        def checked(scaler, outputs):
            if scaler.is_enabled() and (scaler.get_growth_factor() != 1.0 or scaler.get_backoff_factor() != 1.0):
                raise RuntimeError(
                    "torch.utils.dumper: check_overflow does not go with dynamic loss scaling, which overflows on "
                    "purpose: multiply the loss by a fixed scale, or use GradScaler(enabled=False)"
                )
            return scale(scaler, outputs)

        self._checked = torch.amp.GradScaler.scale = checked  # type: ignore[method-assign]

    def __exit__(self, *_) -> None:
        if torch.amp.GradScaler.scale is self._checked:
            torch.amp.GradScaler.scale = self._scale  # type: ignore[method-assign]


class OverflowSink(DumpSink):
    """Runs each operator, asks the device, prints the IR name and keeps inputs and outputs of one that was hit.

    Args:
        make_writer: called at the first hit; returns the writer, so that no file is made without one.
        kinds: what to report, of "overflow" and "underflow".
    """

    def __init__(self, make_writer, kinds, step: int = 1) -> None:
        super().__init__(None, step)
        self._make_writer, self._kinds = make_writer, kinds
        self.found: list[dict] = []
        self._guard = _StaticScaleOnly()

    def start(self) -> None:
        """Switches the check on. RuntimeError when there is no npu, or the script scales its loss dynamically."""
        if not (hasattr(torch, "npu") and torch.npu.is_available()):
            raise RuntimeError("torch.utils.dumper: check_overflow reads an NPU's status register; no npu is available")
        refuse_dynamic_loss_scale()
        torch.npu.init()
        torch._C._npu_set_overflow_check(True)
        torch._C._npu_take_overflows()
        self._guard.__enter__()

    def stop(self) -> None:
        """Switches the check off."""
        self._guard.__exit__()
        torch._C._npu_set_overflow_check(False)

    def run(self, call):
        """Makes one call and asks the device."""
        if "combine_tensors" in call.name:
            raise RuntimeError("torch.utils.dumper: check_overflow does not go with combined tensors")
        values = dict(_calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)))
        if not any(isinstance(value, torch.Tensor) and value.device.type == "npu" for value in values.values()):
            return self._checked(call, {})
        # Only what is written has to be copied before.
        before = {
            name: value.clone()
            for name, value in values.items()
            if isinstance(value, torch.Tensor) and _calls.is_written(call.op, name)
        }
        return self._checked(call, before)

    def _checked(self, call, before):
        result = call.execute(call.args, call.kwargs)
        hits = [hit for hit in torch._C._npu_take_overflows() if hit["kind"] in self._kinds]
        if hits:
            self._report(call, before, result, hits)
        return result

    def _report(self, call, before, result, hits) -> None:
        for hit in hits:
            count = f"; results that became 0: {hit['lost']}" if hit["lost"] else ""
            print(
                f"dumper: {hit['op_type']} ({hit['op_name']}) {hit['kind']}ed on npu:{hit['device']} "
                f"in aten operator {call.path}{count}",
                flush=True,
            )
            self.found.append({**hit, "operator": call.path})
        if self.writer is None:
            self.writer = self._make_writer()
        attributes = {
            **self.attributes(call),
            "IrOp": ",".join(dict.fromkeys(hit["op_type"] for hit in hits)),
            "Regions": 0,
        }
        where = self.writer.begin(call.name, call.seqid, attributes)
        twins = _twins(call)
        for name, value in _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)):
            self.writer.value(where, "input", name, before.get(name, value), same_as=twins.get(name), like=value)
        self.write_results(where, call, result)
