r"""Products of integers, float8 and float4 with a collective before or after them. Without gradients."""

import torch
from torch import Tensor

from ._between import check_defaults, check_matrices, packed_factor
from ._checks import check, check_dtype, check_none
from ._groups import all_gather, exchanged, group_named, reduce_scatter
from ._numbers import BLOCK, FLOAT8, block_scales, exact, float4, numbered, rows_rounded
from ._registration import operator

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT4 = torch.float4_e2m1fn_x2
E8M0 = torch.float8_e8m0fnu
_RESULTS = (torch.float16, torch.bfloat16, torch.float32)
_TILE = 128
_BIAS = "pages put it before and behind the scales"


def as_bytes(tensor: Tensor) -> Tensor:
    r"""What collectives carry: numbers of eight bits as bytes."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def numbers_of(name: str, argument: str, tensor: Tensor, dtype: int | None) -> Tensor:
    r"""The numbers that a tensor of float8 holds, or one of bytes that float4 is told of; float32."""
    if dtype is not None and numbered(name, f"{argument}_dtype", dtype, (_FLOAT4, *FLOAT8)) is _FLOAT4:
        check(tensor.dtype.itemsize == 1, name, f"{argument} must be of bytes, but is {tensor.dtype}")
        pairs = tensor.detach().view(torch.uint8)
        # The numbers of a view that transposes lie along what was its last dimension.
        return float4(pairs) if pairs.is_contiguous() else float4(pairs.mT).mT
    check_dtype(name, argument, tensor, FLOAT8)
    return tensor.detach().float()


def check_scale_dtype(name: str, argument: str, scale: Tensor | None, dtype: int | None) -> None:
    if dtype is None:
        return
    wanted = numbered(name, f"{argument}_dtype", dtype, (torch.float32, E8M0))
    held = (torch.float32,) if wanted is torch.float32 else (E8M0, torch.uint8)
    if scale is not None:
        check_dtype(name, argument, scale, held)


def result_dtype(name: str, argument: str, dtype: int | None) -> torch.dtype:
    if dtype is None:
        raise NotImplementedError(f"{name}: {argument} must be given")
    return numbered(name, argument, dtype, _RESULTS)


def _check_plain(name, bias, quant_scale, block_size, comm_turn, amax_output, group_sizes, small: bool) -> None:
    check_none(name, "it is reserved", quant_scale=quant_scale)
    check_defaults(name, block_size=(block_size, 0), comm_turn=(comm_turn, 0), amax_output=(amax_output, False))
    if small:
        check_none(name, _BIAS, bias=bias)
    sizes = list(group_sizes or [0, 0, 0])
    check(
        sizes in ([0, 0, 0], [1, 1, BLOCK], [_TILE] * 3),
        name,
        f"group_sizes must be what the scales' shapes tell, but is {sizes}",
    )


def _spread_tiles(table: Tensor, rows: int, columns: int) -> Tensor:
    r"""The factor of each number of tiles of 128 by 128, of tables (..., tiles, tiles)."""
    return table.float().repeat_interleave(_TILE, -2).repeat_interleave(_TILE, -1)[..., :rows, :columns]


def check_fits(name: str, argument: str, scale: Tensor, shape: tuple[int, ...]) -> None:
    check(scale.shape == shape, name, f"{argument} must be of shape {shape}, but is {tuple(scale.shape)}")


class _Scaled:
    r"""The product of rows, of one rank or of all, with a matrix, both with their scales."""

    def __init__(self, name, x1, x2, x1_scale, x2_scale, dtypes: tuple[int | None, ...]):
        self.name, self.scale, self.x1_dtype = name, x1_scale, dtypes[0]
        self.rows = x1.shape[0]
        check_scale_dtype(name, "x1_scale", x1_scale, dtypes[2])
        check_scale_dtype(name, "x2_scale", x2_scale, dtypes[3])
        check(x2_scale is not None, name, "small numbers need x2_scale")
        self.integers = x1.dtype is torch.int8
        if self.integers:
            check_none(name, "x1 is of torch.int8", x1_dtype=dtypes[0], x2_dtype=dtypes[1])
            check_dtype(name, "x2", x2, (torch.int8,))
            check_dtype(name, "x2_scale", x2_scale, (torch.float32, torch.int64))
            check_matrices(name, x1, x2)
            check(x2_scale.numel() == x2.shape[1], name, f"x2_scale must be of shape (1, {x2.shape[1]})")
            if x1_scale is not None:
                check_fits(name, "x1_scale", x1_scale, (self.rows, 1))
            self.wide = exact(x1.shape[1])
            self.right, self.factor = x2.detach().to(self.wide), packed_factor(x2_scale, self.wide).reshape(1, -1)
            return
        check(x1_scale is not None, name, "float8 and float4 need x1_scale")
        right = numbers_of(name, "x2", x2, dtypes[1])
        k, n = right.shape
        check_matrices(name, numbers_of(name, "x1", x1, dtypes[0]), right)
        self.kind = {1: "tensor", 2: "tiles", 3: "blocks"}.get(x1_scale.dim(), "")
        down, tiles = -(-k // _TILE), -(-n // _TILE)
        shapes = {
            "tensor": ((1,), (1,)),
            "tiles": ((-(-self.rows // _TILE), down), (down, tiles)),
            "blocks": ((self.rows, -(-k // 64), 2), (-(-k // 64), n, 2)),
        }
        check(self.kind in shapes, name, f"x1_scale must be of 1, 2 or 3 dimensions, but is {tuple(x1_scale.shape)}")
        for argument, scale, shape in zip(
            ("x1_scale", "x2_scale"), (x1_scale, x2_scale), shapes[self.kind], strict=True
        ):
            check_fits(name, argument, scale, shape)
            held = (torch.uint8, E8M0) if self.kind == "blocks" else (torch.float32,)
            check_dtype(name, argument, scale, held)
        check(
            self.kind == "blocks" or x1.dtype in FLOAT8, name, f"{x1.dtype} needs scales of blocks, in pairs of bytes"
        )
        if self.kind == "tensor":
            self.right = right * x2_scale
        elif self.kind == "tiles":
            self.right = right * _spread_tiles(x2_scale, k, n)
        else:
            self.right = right * block_scales(name, "x2_scale", x2_scale, 0, k)

    def product(self, rows: Tensor, scale: Tensor | None, ranks: int = 1) -> Tensor:
        r"""Of rows of ``x1``'s form with their scales: those of several ranks lie one behind the other."""
        if self.integers:
            out = rows.to(self.wide) @ self.right * self.factor
            return out if scale is None else out * scale.to(self.wide)
        assert scale is not None
        left = numbers_of(self.name, "x1", rows, self.x1_dtype)
        if self.kind == "tensor":
            return (left.unflatten(0, (ranks, self.rows)) * scale.view(ranks, 1, 1)).flatten(0, 1) @ self.right
        if self.kind == "tiles":
            each = _spread_tiles(scale.unflatten(0, (ranks, scale.shape[0] // ranks)), self.rows, left.shape[1])
            return (left * each.flatten(0, 1)) @ self.right
        return (left * block_scales(self.name, "x1_scale", scale, 1, left.shape[1])) @ self.right


_SCALES = "Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, Tensor? quant_scale=None, int block_size=0"
_DTYPES = (
    "int? y_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, int? x2_scale_dtype=None, "
    "str? comm_mode=None"
)


def _check_comm(name: str, comm_mode: str | None) -> None:
    modes = (None, "ai_cpu", "aiv", "ccu")
    check(comm_mode in modes, name, f"comm_mode must be one of {modes}, but is {comm_mode!r}")


@operator(
    f"npu_all_gather_quant_mm(Tensor self, Tensor x2, str hcom, int world_size, *, {_SCALES}, int gather_index=0, "
    f"bool gather_output=True, int comm_turn=0, int[]? group_sizes=None, bool amax_output=False, {_DTYPES}) "
    "-> (Tensor, Tensor, Tensor)"
)
def npu_all_gather_quant_mm(
    self,
    x2,
    hcom,
    world_size,
    *,
    bias=None,
    x1_scale=None,
    x2_scale=None,
    quant_scale=None,
    block_size=0,
    gather_index=0,
    gather_output=True,
    comm_turn=0,
    group_sizes=None,
    amax_output=False,
    y_dtype=None,
    x1_dtype=None,
    x2_dtype=None,
    x1_scale_dtype=None,
    x2_scale_dtype=None,
    comm_mode=None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The rows of all ranks of a group times x2, both with scales that are gathered too.

    Args:
        self: the rank's rows, (m, k); float16 or bfloat16 without scales; int8; float8_e4m3fn or float8_e5m2; or bytes
            that hold two numbers of float4_e2m1fn_x2, of which ``x1_dtype`` tells.
        x2: (k, n), of the kind of ``self``; of float4 a view that transposes (n, k / 2).
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        bias: (n), of the dtype of ``self``; must be None with small numbers.
        x1_scale: with int8 a factor of each row, (m, 1), or None; with float8 (1) for all, or (m / 128, k / 128) for
            tiles, float32; bytes of E8M0, (m, k / 64, 2), for each 32 numbers of a row.
        x2_scale: with int8 a factor of each column, (1, n), float32 or what npu_trans_quant_param makes; with float8
            (1), or (k / 128, n / 128); bytes of E8M0, (k / 64, n, 2).
        quant_scale: must be None.
        block_size: must be 0.
        gather_index: must be 0: ``self`` is gathered.
        gather_output: whether the second result holds the gathered rows.
        comm_turn: must be 0.
        group_sizes: None, or what the scales' shapes tell.
        amax_output: must be False.
        y_dtype: of the result with small numbers: float16, bfloat16 or float32; needed there.
        x1_dtype: 296 for float4_e2m1fn_x2.
        x2_dtype: like ``x1_dtype``.
        x1_scale_dtype: 293 for E8M0.
        x2_scale_dtype: like ``x1_scale_dtype``.
        comm_mode: of no effect.

    Returns:
        (ranks * m, n); the gathered rows, or an empty tensor; an empty tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be None or 0 and is not.
    """
    name = "npu_all_gather_quant_mm"
    check_defaults(name, gather_index=(gather_index, 0))
    _check_comm(name, comm_mode)
    small = self.dtype not in _HALVES
    _check_plain(name, bias, quant_scale, block_size, comm_turn, amax_output, group_sizes, small)
    empty = self.new_empty(0, dtype=torch.float32)
    group = group_named(name, hcom, world_size)
    if not small:
        check_none(name, "self is not of small numbers", x1_scale=x1_scale, x2_scale=x2_scale)
        check_dtype(name, "x2", x2, (self.dtype,))
        check_matrices(name, self, x2)
        if y_dtype is not None:
            numbered(name, "y_dtype", y_dtype, (self.dtype,))
        rows = all_gather(self, world_size, group)
        out = rows.float() @ x2.detach().float()
        out = (out if bias is None else out + bias.float()).to(self.dtype)
    else:
        result = result_dtype(name, "y_dtype", y_dtype)
        dtypes = (x1_dtype, x2_dtype, x1_scale_dtype, x2_scale_dtype)
        matrix = _Scaled(name, self, x2, x1_scale, x2_scale, dtypes)
        rows = all_gather(as_bytes(self), world_size, group).view(self.dtype)
        scale = None if x1_scale is None else all_gather(as_bytes(x1_scale), world_size, group).view(x1_scale.dtype)
        out = matrix.product(rows, scale, world_size).to(result)
    return out, rows if gather_output else self.new_empty(0), empty


@operator(
    f"npu_quant_mm_reduce_scatter(Tensor self, Tensor x2, str hcom, int world_size, *, str reduce_op='sum', {_SCALES}, "
    f"int comm_turn=0, int[]? group_sizes=None, bool amax_output=False, {_DTYPES}) -> (Tensor, Tensor)"
)
def npu_quant_mm_reduce_scatter(
    self,
    x2,
    hcom,
    world_size,
    *,
    reduce_op="sum",
    bias=None,
    x1_scale=None,
    x2_scale=None,
    quant_scale=None,
    block_size=0,
    comm_turn=0,
    group_sizes=None,
    amax_output=False,
    y_dtype=None,
    x1_dtype=None,
    x2_dtype=None,
    x1_scale_dtype=None,
    x2_scale_dtype=None,
    comm_mode=None,
) -> tuple[Tensor, Tensor]:
    r"""
    The sum over a group's ranks of self @ x2, both with scales, of which each rank gets its rows.

    Args:
        self: (m, k), m being a multiple of the ranks; as in :func:`npu_all_gather_quant_mm`.
        x2: as there.
        hcom: as there.
        world_size: the group's ranks.
        reduce_op: must be "sum".
        bias: as there.
        x1_scale: as there.
        x2_scale: as there.
        quant_scale: must be None.
        block_size: must be 0.
        comm_turn: must be 0.
        group_sizes: as there.
        amax_output: must be False.
        y_dtype: as there.
        x1_dtype: as there.
        x2_dtype: as there.
        x1_scale_dtype: as there.
        x2_scale_dtype: as there.
        comm_mode: of no effect.

    Returns:
        (m / ranks, n); an empty tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be None or 0 and is not.
    """
    name = "npu_quant_mm_reduce_scatter"
    check_defaults(name, reduce_op=(reduce_op, "sum"))
    _check_comm(name, comm_mode)
    small = self.dtype not in _HALVES
    _check_plain(name, bias, quant_scale, block_size, comm_turn, amax_output, group_sizes, small)
    group = group_named(name, hcom, world_size)
    check(self.shape[0] % world_size == 0, name, f"the {self.shape[0]} rows must be a multiple of {world_size}")
    if not small:
        check_none(name, "self is not of small numbers", x1_scale=x1_scale, x2_scale=x2_scale)
        check_dtype(name, "x2", x2, (self.dtype,))
        check_matrices(name, self, x2)
        result = self.dtype if y_dtype is None else numbered(name, "y_dtype", y_dtype, (self.dtype,))
        out = self.detach().float() @ x2.detach().float()
        out = out if bias is None else out + bias.float()
    else:
        result = result_dtype(name, "y_dtype", y_dtype)
        dtypes = (x1_dtype, x2_dtype, x1_scale_dtype, x2_scale_dtype)
        out = _Scaled(name, self, x2, x1_scale, x2_scale, dtypes).product(self, x1_scale)
    return reduce_scatter(out.float(), world_size, group).to(result), self.new_empty(0, dtype=torch.float32)


def _check_modes(name: str, modes: tuple[int | None, int | None], allowed: tuple[int, int]) -> None:
    for argument, mode, wanted in zip(("x1_quant_mode", "x2_quant_mode"), modes, allowed, strict=True):
        if mode not in (None, wanted):
            raise NotImplementedError(f"{name}: {argument} must be {wanted} for these numbers, not {mode}")


_ALL_TO_ALL = (
    "Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, Tensor? common_scale=None, "
    "Tensor? x1_offset=None, Tensor? x2_offset=None, int? x1_quant_mode=None, int? x2_quant_mode=None, "
    "int? common_quant_mode=None, int[]? group_sizes=None, int[]? all2all_axes=None, int? comm_quant_dtype=None"
)
_ALL_TO_ALL_DTYPES = (
    "int? x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, int? x2_scale_dtype=None, "
    "int? output_scale_dtype=None, int? comm_scale_dtype=None, int? y_dtype=None, str? comm_mode=None"
)


@operator(
    "npu_all_to_all_quant_matmul(Tensor x1, Tensor x2, str hcom, int world_size, *, bool all2all_out_flag=True, "
    f"{_ALL_TO_ALL}, int? x1_quant_dtype=None, {_ALL_TO_ALL_DTYPES}) -> (Tensor, Tensor)"
)
def npu_all_to_all_quant_matmul(
    x1,
    x2,
    hcom,
    world_size,
    *,
    all2all_out_flag=True,
    bias=None,
    x1_scale=None,
    x2_scale=None,
    common_scale=None,
    x1_offset=None,
    x2_offset=None,
    x1_quant_mode=None,
    x2_quant_mode=None,
    common_quant_mode=None,
    group_sizes=None,
    all2all_axes=None,
    comm_quant_dtype=None,
    x1_quant_dtype=None,
    x1_dtype=None,
    x2_dtype=None,
    x1_scale_dtype=None,
    x2_scale_dtype=None,
    output_scale_dtype=None,
    comm_scale_dtype=None,
    y_dtype=None,
    comm_mode=None,
) -> tuple[Tensor, Tensor]:
    r"""
    Rows become those of one rank, their columns those of all ranks; times x2 of float8 or float4.

    Args:
        x1: (rows, width), the rows being a multiple of the ranks: float16 or bfloat16, each row of which is quantised
            behind the exchange; or float8, or bytes of float4 of which ``x1_dtype`` tells.
        x2: (width * ranks, n), float8; with float4 a view that transposes (n, width * ranks / 2) bytes.
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        all2all_out_flag: whether there is a second result.
        bias: must be None.
        x1_scale: None with float16 and bfloat16; else bytes of E8M0, (rows, width / 64, 2), width being a multiple of
            64.
        x2_scale: a factor of each column, (n), float32; with ``x1_scale`` bytes of E8M0, (width * ranks / 64, n, 2).
        common_scale: must be None.
        x1_offset: must be None.
        x2_offset: must be None.
        x1_quant_mode: None, 7 with float16 and bfloat16, or 6.
        x2_quant_mode: None, 2 with float16 and bfloat16, or 6.
        common_quant_mode: must be None or 0.
        group_sizes: None, zeros, or (1, 1, 32).
        all2all_axes: None or (-2, -1).
        comm_quant_dtype: of no effect.
        x1_quant_dtype: what rows are quantised to: float8_e5m2 (23) or float8_e4m3fn (24); needed there.
        x1_dtype: 296 for float4_e2m1fn_x2.
        x2_dtype: like ``x1_dtype``.
        x1_scale_dtype: 293 for E8M0.
        x2_scale_dtype: like ``x1_scale_dtype``.
        output_scale_dtype: must be None.
        comm_scale_dtype: must be None.
        y_dtype: float32 (None or 6), float16 (5) or bfloat16 (15).
        comm_mode: of no effect.

    Returns:
        (rows / ranks, n); what is multiplied before it is quantised, (rows / ranks, width * ranks), or an empty tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be None or 0 and is not.
    """
    name = "npu_all_to_all_quant_matmul"
    check_none(name, _BIAS, bias=bias)
    check_none(name, "it is reserved", common_scale=common_scale, x1_offset=x1_offset, x2_offset=x2_offset)
    check_none(name, "it is reserved", output_scale_dtype=output_scale_dtype, comm_scale_dtype=comm_scale_dtype)
    check_defaults(name, common_quant_mode=(common_quant_mode, None, 0))
    check(list(all2all_axes or (-2, -1)) == [-2, -1], name, f"all2all_axes must be [-2, -1], but is {all2all_axes}")
    sizes = list(group_sizes or [0, 0, 0])
    check(sizes in ([0, 0, 0], [1, 1, BLOCK]), name, f"group_sizes must be [1, 1, {BLOCK}], but is {sizes}")
    _check_comm(name, comm_mode)
    result = torch.float32 if y_dtype is None else numbered(name, "y_dtype", y_dtype, _RESULTS)
    group = group_named(name, hcom, world_size)
    check(
        x1.dim() == 2 and x1.shape[0] % world_size == 0,
        name,
        f"the rows of x1 must be a multiple of {world_size}, but it is {tuple(x1.shape)}",
    )
    check(x2_scale is not None, name, "x2_scale is needed")
    rows = x1.shape[0] // world_size

    def turned(part: Tensor) -> Tensor:
        got = exchanged(as_bytes(part).reshape(world_size, rows, *part.shape[1:]), group)
        return got.transpose(0, 1).reshape(rows, world_size * part.shape[1], *part.shape[2:]).view(part.dtype)

    permuted = turned(x1)
    second = permuted if all2all_out_flag else x1.new_empty(0)
    if x1.dtype in _HALVES:
        _check_modes(name, (x1_quant_mode, x2_quant_mode), (7, 2))
        check_none(name, "x1 is quantised here", x1_scale=x1_scale)
        if x1_quant_dtype is None:
            raise NotImplementedError(f"{name}: x1_quant_dtype must be given")
        dtype = numbered(name, "x1_quant_dtype", x1_quant_dtype, FLOAT8)
        right = numbers_of(name, "x2", x2, x2_dtype)
        check_dtype(name, "x2_scale", x2_scale, (torch.float32,))
        check_fits(name, "x2_scale", x2_scale, (right.shape[1],))
        numbers, scale = rows_rounded(name, permuted.float(), dtype)
        check_matrices(name, numbers, right)
        return (numbers.float() @ right * scale.unsqueeze(1) * x2_scale).to(result), second
    _check_modes(name, (x1_quant_mode, x2_quant_mode), (6, 6))
    check(x1_scale is not None and x1_scale.dim() == 3, name, "float8 and float4 need x1_scale of three dimensions")
    dtypes = (x1_dtype, x2_dtype, x1_scale_dtype, x2_scale_dtype)
    width = x1.shape[1] if x1.dtype in FLOAT8 else 2 * x1.shape[1]
    check(width % 64 == 0, name, f"the width must be a multiple of 64, but is {width}")
    scale = turned(x1_scale)
    return _Scaled(name, permuted, x2, scale, x2_scale, dtypes).product(permuted, scale).to(result), second


@operator(
    f"npu_quant_matmul_all_to_all(Tensor x1, Tensor x2, str hcom, int world_size, {_ALL_TO_ALL}, "
    f"{_ALL_TO_ALL_DTYPES}) -> Tensor"
)
def npu_quant_matmul_all_to_all(
    x1,
    x2,
    hcom,
    world_size,
    bias=None,
    x1_scale=None,
    x2_scale=None,
    common_scale=None,
    x1_offset=None,
    x2_offset=None,
    x1_quant_mode=None,
    x2_quant_mode=None,
    common_quant_mode=None,
    group_sizes=None,
    all2all_axes=None,
    comm_quant_dtype=None,
    x1_dtype=None,
    x2_dtype=None,
    x1_scale_dtype=None,
    x2_scale_dtype=None,
    output_scale_dtype=None,
    comm_scale_dtype=None,
    y_dtype=None,
    comm_mode=None,
) -> Tensor:
    r"""
    x1 @ x2 * x1_scale * x2_scale, of which each rank gets its columns of all ranks' rows.

    Args:
        x1: (rows, k); float8_e4m3fn, float8_e5m2 or int8.
        x2: (k, n), n being a multiple of the ranks; float8, or int8.
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        bias: must be None.
        x1_scale: a factor of each row, (rows), float32.
        x2_scale: a factor of each column, (n), float32.
        common_scale: must be None.
        x1_offset: must be None.
        x2_offset: must be None.
        x1_quant_mode: None or 3.
        x2_quant_mode: None or 2.
        common_quant_mode: must be None or 0.
        group_sizes: None or zeros.
        all2all_axes: None or (-1, -2).
        comm_quant_dtype: of no effect.
        x1_dtype: must be None.
        x2_dtype: must be None.
        x1_scale_dtype: must be None.
        x2_scale_dtype: must be None.
        output_scale_dtype: must be None.
        comm_scale_dtype: must be None.
        y_dtype: float16 (5), bfloat16 (15) or float32 (6); needed.
        comm_mode: of no effect.

    Returns:
        (rows * ranks, n / ranks), of ``y_dtype``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be None or 0 and is not.
    """
    name = "npu_quant_matmul_all_to_all"
    check_none(name, _BIAS, bias=bias)
    check_none(name, "it is reserved", common_scale=common_scale, x1_offset=x1_offset, x2_offset=x2_offset)
    check_none(name, "it is reserved", output_scale_dtype=output_scale_dtype, comm_scale_dtype=comm_scale_dtype)
    check_none(
        name,
        "these numbers have a dtype of torch",
        x1_dtype=x1_dtype,
        x2_dtype=x2_dtype,
        x1_scale_dtype=x1_scale_dtype,
        x2_scale_dtype=x2_scale_dtype,
    )
    check_defaults(name, common_quant_mode=(common_quant_mode, None, 0), group_sizes=(any(group_sizes or ()), False))
    _check_modes(name, (x1_quant_mode, x2_quant_mode), (3, 2))
    _check_comm(name, comm_mode)
    check(list(all2all_axes or (-1, -2)) == [-1, -2], name, f"all2all_axes must be [-1, -2], but is {all2all_axes}")
    check_dtype(name, "x1", x1, (*FLOAT8, torch.int8))
    check_dtype(name, "x2", x2, (torch.int8,) if x1.dtype is torch.int8 else FLOAT8)
    check_matrices(name, x1, x2)
    result = result_dtype(name, "y_dtype", y_dtype)
    group, (rows, n) = group_named(name, hcom, world_size), (x1.shape[0], x2.shape[1])
    check(n % world_size == 0, name, f"the {n} columns must be a multiple of {world_size}")
    for argument, scale, shape in (("x1_scale", x1_scale, (rows,)), ("x2_scale", x2_scale, (n,))):
        check(scale is not None, name, f"{argument} is needed")
        check_dtype(name, argument, scale, (torch.float32,))
        check_fits(name, argument, scale, shape)
    wide = exact(x1.shape[1]) if x1.dtype is torch.int8 else torch.float32
    out = x1.detach().to(wide) @ x2.detach().to(wide) * x1_scale.to(wide).unsqueeze(1) * x2_scale.to(wide)
    parts = out.to(result).view(rows, world_size, n // world_size).permute(1, 0, 2)
    return exchanged(parts, group).reshape(world_size * rows, n // world_size)
