"""npu operators in ONNX files: CANN's own nodes with their attributes and shapes, ONNX's where they are composed."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import run_tests
from onnx_calls import CANN, COMPOSED, npu, quantized, rand
from onnx_case import SLOW, OnnxCase, export, needs_onnx, run

import torch
import torch.npu
from torch import nn
from torch.npu.onnx._custom_operators import OPERATORS


class Call(nn.Module):
    """A model that is one call."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


# Of CANN's, those that onnxruntime can run where plain operators are asked for.
PLAIN = ("npu_fast_gelu", "npu_geglu", "npu_group_norm_silu", "npu_mish", "npu_rms_norm", "npu_rotary_mul", "npu_slice",
         "npu_scaled_masked_softmax", "npu_softmax_cross_entropy_with_logits")  # fmt: skip
EXPORTERS = ((False, 11), (True, 18))
# What the TorchScript exporter first writes at a later opset.
OPSETS = {"npu_interleave_rope": 18}
# Whose results the TorchScript exporter writes with a size that it calls unknown, whatever it is told.
UNKNOWN = {("npu_nms_v4", False)}
# A default run takes every twelfth operator through the slower exporter, NPU_SLOW_TESTS=1 all.
DYNAMO_SHARE = 1 if SLOW else 12


def on_npu(args):
    return torch.utils._pytree.tree_map(lambda t: t.npu(), args)


@needs_onnx
class TestCannNodes(OnnxCase):
    def node(self, name, dynamo, opset):
        """Exports a model of one call; gives the file and its node of CANN's domain."""
        call, arguments, kind, attributes = CANN[name]
        args = on_npu(arguments())
        # What comes after it has to know its shape.
        model = Call(lambda *a: torch.utils._pytree.tree_map(lambda t: t.flatten(), call(*a)))
        proto = export(model, args, dynamo=dynamo, opset=opset)
        nodes = [node for node in proto.graph.node if node.domain == "npu"]
        self.assertEqual([node.op_type for node in nodes], [kind])
        return proto, nodes[0], attributes, call(*args)

    def test_names_attributes_and_shapes(self):
        import onnx

        for number, name in enumerate(CANN):
            for dynamo, opset in EXPORTERS:
                if dynamo and number % DYNAMO_SHARE:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    proto, node, attributes, eager = self.node(name, dynamo, opset)
                    versions = {item.domain: item.version for item in proto.opset_import}
                    self.assertEqual(versions["npu"], 1)
                    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
                    for attribute, value in attributes.items():
                        self.assertIn(attribute, found)
                        self.assertEqual(found[attribute], value, prec=1e-6)
                    # Shape inference goes on behind it: the flat result's size is known.
                    inferred = onnx.shape_inference.infer_shapes(proto)
                    for value, tensor in zip(
                        inferred.graph.output, torch.utils._pytree.tree_leaves(eager), strict=True
                    ):
                        if (name, dynamo) not in UNKNOWN:
                            (dim,) = value.type.tensor_type.shape.dim
                            self.assertEqual(dim.dim_value, tensor.numel(), name)

    def test_values_of_the_nodes_are_typed(self):
        import onnx

        for dynamo, opset in EXPORTERS:
            proto, node, _, eager = self.node("npu_dynamic_quant", dynamo, opset)
            typed = (*proto.graph.value_info, *proto.graph.output)
            known = {value.name: value.type.tensor_type for value in typed}
            for name, tensor in zip(node.output, eager, strict=True):
                kind = onnx.helper.tensor_dtype_to_np_dtype(known[name].elem_type)
                self.assertEqual(str(kind), str(tensor.dtype).removeprefix("torch."))
                self.assertEqual([dim.dim_value for dim in known[name].shape.dim], list(tensor.shape))

    def test_dynamic_batch(self):
        import onnx

        cases = {
            "npu_rms_norm": lambda x, w: x + torch.relu(npu.npu_rms_norm(x, w)[0]),
            "npu_deep_norm": lambda x, w: npu.npu_deep_norm(x, x, w, w)[2] + x,
            "npu_slice": lambda x, w: npu.npu_slice(torch.cat([x, x], -1), [0, 0, 0], [1, 3, 8]) * w,
            "npu_geglu": lambda x, w: npu.npu_geglu(torch.cat([x, x], -1))[0] * w,
            "npu_mish": lambda x, w: npu.npu_mish(x) * w,
        }
        for number, (name, call) in enumerate(cases.items()):
            args = on_npu((rand(3, 3, 8), rand(8)))
            axes = {"x": {0: "batch"}, "y": {0: "batch"}}
            for dynamo, opset, options in (
                (False, 11, {"dynamic_axes": axes, "input_names": ["x", "w"], "output_names": ["y"]}),
                (True, 18, {"dynamic_shapes": {"args": ({0: "batch"}, None)}}),
            ):
                if dynamo and number and not SLOW:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    proto = export(Call(call), args, dynamo=dynamo, opset=opset, **options)
                    (node,) = [node for node in proto.graph.node if node.domain == "npu"]
                    typed = (*proto.graph.value_info, *proto.graph.output)
                    known = {value.name: value.type.tensor_type.shape.dim for value in typed}
                    moves = name != "npu_slice" or not dynamo  # its result has the size that it was told
                    for output in node.output:
                        if output in known and known[output]:  # not written where nothing is known
                            self.assertEqual(known[output][0].dim_value == 0, moves)
                    (output,) = onnx.shape_inference.infer_shapes(proto).graph.output
                    self.assertEqual(len(output.type.tensor_type.shape.dim), 3)

    def test_shapes_of_symbols(self):
        """With dynamo=True results of a call with sizes that may differ have the sizes that follow from them."""
        for name, shapes, expected in (
            ("npu_iou", {"args": ({0: "n"}, {0: "m"})}, [["n", "m"], ["m", "n"]]),
            ("npu_bounding_box_encode", {"args": ({0: "n"}, {0: "n"})}, [["n", 4]]),
        ):
            call, arguments, _, _ = CANN[name]
            proto = export(Call(call), on_npu(arguments()), dynamo=True, opset=18, dynamic_shapes=shapes)
            (output,) = proto.graph.output
            dims = [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim]
            self.assertIn(dims, expected)

    def test_absent_inputs_have_their_places(self):
        for dynamo, opset in EXPORTERS[: 2 if SLOW else 1]:
            _, node, _, _ = self.node("npu_group_norm_silu", dynamo, opset)
            self.assertEqual(len(node.input), 3)
            self.assertTrue(all(node.input))

    def test_arguments_that_cann_has_no_place_for(self):
        calls = (
            (lambda x, c, s: npu.npu_rotary_mul(x, c, s, "interleave"), (rand(1, 2, 3, 8),) * 3, "rotary_mode"),
            (lambda x: npu.npu_anti_quant(x, torch.ones(1).npu(), dst_dtype=6), (quantized(2, 4),), "dtype"),
        )
        for call, args, words in calls:
            for dynamo, opset in EXPORTERS:
                try:
                    call(*on_npu(args))
                except (RuntimeError, ValueError):
                    continue  # it is refused before there is anything to export
                with self.assertRaises(Exception) as caught:
                    export(Call(call), on_npu(args), dynamo=dynamo, opset=opset)
                text, cause = "", caught.exception
                while cause is not None:
                    text, cause = f"{text}\n{cause}", cause.__cause__ or cause.__context__
                self.assertIn(words, text)

    def test_methods_and_functions_of_torch(self):
        for call in (lambda x: x.npu_mish(), lambda x: torch.npu_mish(x), lambda x: npu.npu_mish.default(x)):
            proto = export(Call(call), on_npu((rand(3),)), dynamo=False, opset=11)
            self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])
        proto = export(Call(call), on_npu((rand(3),)), dynamo=True, opset=18)
        self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])

    def test_the_caller_s_own_translation_comes_first(self):
        import onnxscript

        def mine(x):
            return onnxscript.opset18.Tanh(x)

        proto = export(
            Call(npu.npu_mish), on_npu((rand(3),)), dynamo=True, opset=18,
            custom_translation_table={npu.npu_mish.default: mine},
        )  # fmt: skip
        self.assertEqual([node.op_type for node in proto.graph.node], ["Tanh"])
        torch.onnx.register_custom_op_symbolic("npu::npu_silu", lambda g, x: g.op("own::Silu", x), 11)
        try:
            proto = export(Call(npu.npu_silu), on_npu((rand(3),)), dynamo=False, opset=11)
        finally:
            torch.onnx.unregister_custom_op_symbolic("npu::npu_silu", 11)
        self.assertEqual([(node.domain, node.op_type) for node in proto.graph.node], [("own", "Silu")])

    def test_a_traced_model_keeps_its_nodes(self):
        traced = torch.jit.trace(Call(npu.npu_mish), on_npu((rand(3),)))
        proto = export(traced, on_npu((rand(3),)), dynamo=False, opset=11)
        self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])

    def test_an_operator_that_cannot_be_exported(self):
        call = Call(lambda x: npu._npu_dropout(x, 0.5)[0])
        with self.assertRaises(torch.onnx.errors.UnsupportedOperatorError) as caught:
            export(call, on_npu((rand(3),)), dynamo=False, opset=11)
        self.assertIn("npu::_npu_dropout", str(caught.exception))
        with self.assertRaisesRegex(RuntimeError, "_npu_dropout"):
            export(call, on_npu((rand(3),)), dynamo=True, opset=18)


@needs_onnx
class TestComposed(OnnxCase):
    def test_plain_onnx(self):
        for number, (name, (call, arguments)) in enumerate(COMPOSED.items()):
            for dynamo, opset in EXPORTERS:
                if dynamo and number % DYNAMO_SHARE:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    args = arguments()
                    opset = OPSETS.get(name, opset)
                    proto = export(Call(call), on_npu(args), dynamo=dynamo, opset=opset)
                    self.assertEqual({node.domain for node in proto.graph.node}, {""})
                    self.agrees(proto, Call(call), args, 2e-3 if name == "npu_dtype_cast" else 1e-4)

    def test_plain_operators_on_request(self):
        for number, name in enumerate(PLAIN):
            call, arguments, _, _ = CANN[name]
            for dynamo, opset in EXPORTERS:
                if dynamo and number % DYNAMO_SHARE:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    args = arguments()
                    with torch.npu.onnx.plain_operators():
                        proto = export(Call(call), on_npu(args), dynamo=dynamo, opset=opset)
                    self.assertEqual({node.domain for node in proto.graph.node}, {""})
                    self.agrees(proto, Call(call), args)
        proto = export(Call(npu.npu_mish), on_npu((rand(3),)), dynamo=False, opset=11)
        self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])

    def test_other_batches_in_plain_onnx(self):
        for call, args in (
            (lambda x: npu.npu_group_norm_silu(x, None, None, 2, 1e-4)[0], (rand(2, 4, 5, 5),)),
            (lambda x: npu.npu_swiglu(x), (rand(2, 8),)),
            (lambda q: npu.npu_fusion_attention(q, q, q, 2, "BNSD")[0], (rand(2, 2, 4, 8),)),
        ):
            with torch.npu.onnx.plain_operators():
                proto = export(
                    Call(call),
                    on_npu(args),
                    dynamo=False,
                    opset=11,
                    input_names=["x"],
                    dynamic_axes={"x": {0: "batch"}},
                )
            more = torch.cat([args[0], args[0], -args[0]])
            (result,) = run(proto, (more,))
            self.assertEqual(result, call(more.npu()).cpu().numpy(), prec=1e-4)


class TestTable(OnnxCase):
    def test_each_operator_is_there_and_so_are_its_arguments(self):
        for name, operator in OPERATORS.items():
            packet = getattr(torch.ops.npu, name)
            arguments = {a.name for o in packet.overloads() for a in getattr(packet, o)._schema.arguments}
            inputs = (one for way in operator.inputs for one in way.split("|"))
            told = {*inputs, *operator.rename, *operator.kinds, *operator.require, *operator.drop}
            told |= {*operator.computed, *operator.like}
            self.assertEqual(told - arguments, set(), name)

    def test_each_operator_has_a_call_here_and_a_place_in_the_guide(self):
        self.assertEqual(set(CANN), set(OPERATORS))
        guide = Path(__file__).parents[3] / "docs" / "export.md"
        if not guide.is_file():
            self.skipTest("the tests lie apart from docs")
        text = guide.read_text(encoding="utf-8")
        for name, operator in OPERATORS.items():
            self.assertIn(f"`{name}` {operator.type}", text)

    def test_the_plug_in_s_name_of_the_package(self):
        import torch_npu.onnx

        self.assertIs(torch_npu.onnx, torch.npu.onnx)

    def test_nothing_is_loaded_or_changed_by_the_import(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(callable(torch.npu.onnx.plain_operators))
        with self.assertRaisesRegex(AttributeError, "torch.npu.onnx"):
            torch.npu.onnx.nothing  # noqa: B018


if __name__ == "__main__":
    run_tests()
