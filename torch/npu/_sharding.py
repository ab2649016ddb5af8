"""How attention on npu divides distributed tensors: torch.distributed.tensor knows the operators of other devices only.

Imported with its rules, by a graft. Batches and heads are independent of each other, so all operands may be sharded by
either; positions are not.
"""

from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, PlacementList, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy, register_op_strategy
from torch.distributed.tensor.placement_types import Placement, Replicate, Shard

import torch

_ATEN = torch.ops.aten
_BATCH, _HEADS = 0, 1


def _ways(schema: OpSchema, results: int, others: int, bias: int) -> list[PlacementList]:
    """The placements of `results` tensors, `others` that are numbers or not there, and of the operands.

    bias: the number of the argument that may lack dimensions, or repeat along them.
    """
    ways: list[PlacementList] = []
    for divided in (None, _HEADS, _BATCH):
        placement: Placement = Replicate() if divided is None else Shard(divided)
        way: PlacementList = [*[placement] * results, *[None] * others]
        for number, operand in enumerate(schema.args_schema):
            if isinstance(operand, OpStrategy):
                repeats = divided is None or operand.ndim < 4 or operand.shape[divided] == 1
                way.append(Replicate() if number == bias and repeats else placement)
        ways.append(way)
    return ways


@register_op_strategy(_ATEN._scaled_dot_product_fused_attention_overrideable.default, schema_info=RuntimeSchemaInfo(4))
def _attention(schema: OpSchema) -> OpStrategy:
    ways = _ways(schema, results=2, others=7, bias=3)
    return expand_to_full_mesh_op_strategy(schema.get_mesh_from_args(), schema, ways, input_index=9)


@register_op_strategy(_ATEN._scaled_dot_product_fused_attention_overrideable_backward.default)
def _attention_backward(schema: OpSchema) -> OpStrategy:
    ways = _ways(schema, results=3, others=1, bias=4)
    return expand_to_full_mesh_op_strategy(schema.get_mesh_from_args(validate=False), schema, ways, input_index=4)
