"""The modules of _affinity_cases.py: each beside what models write without the affinity library."""

import copy
from collections.abc import Callable

from _affinity_cases import FUNCTIONS, Case, Kit, Made
from torch.nn import functional as F

import torch
from torch import Tensor, nn
from torch.contrib.npu.optimized_lib import PreLoader, module


def activation(kind: type, plain: Callable[[Tensor], Tensor]) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        x, layer = k.rand(k.size(3, 128), k.size(4, 4096), grad=True), kind()
        return Made(lambda: layer(x), lambda: plain(x), [x])

    return make


def shuffle_by_views(x: Tensor, groups: int = 2) -> Tensor:
    """torchvision's channel shuffle."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def channel_shuffle(split: bool) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        channels, side = k.size(6, 58), k.size(3, 28)
        x1, x2 = (k.rand(k.size(2, 32), channels, side, side, grad=True) for _ in range(2))
        layer = k.place(module.ChannelShuffle(2 * channels, split_shuffle=split))

        def plain():
            y = shuffle_by_views(torch.cat((x1, x2), 1))
            # What reads a half is a convolution, which takes whole tensors.
            return tuple(half.contiguous() for half in y.chunk(2, 1)) if split else y

        return Made(lambda: layer(x1, x2), plain, [x1, x2])

    return make


def label_smoothing(k: Kit) -> Made:
    classes = k.size(5, 1000)
    x, target = k.rand(k.size(3, 256), classes, grad=True), k.whole(0, classes, k.size(3, 256))
    layer = module.LabelSmoothingCrossEntropy(classes, 0.1)

    def plain():
        soft = torch.full_like(x, 0.1 / (classes - 1)).scatter_(1, target[:, None], 0.9)
        return -(soft.float() * F.log_softmax(x.float(), 1)).sum(1).mean()

    return Made(lambda: layer(x, target), plain, [x])


def regions(k: Kit) -> tuple[Tensor, Tensor]:
    images = k.size(2, 4)
    number = (torch.arange(k.size(3, 64)) % images).to(k.device, k.dtype)
    return number, k.boxes(k.size(3, 64)) / 256


def roi_align(k: Kit) -> Made:
    side = k.size(8, 32)
    x = k.rand(k.size(2, 4), k.size(3, 64), side, side, grad=True)
    number, boxes = regions(k)
    rois = torch.cat([number[:, None], boxes * side * 8], 1)
    layer = module.ROIAlign((3, 3), 0.125, 2)

    def plain():
        """Samples by grid_sample, region by region's image; two samples a cell in each direction."""
        size = x.shape[-1]
        low, high = rois[:, 1:3] * 0.125 - 0.5, rois[:, 3:5] * 0.125 - 0.5
        place = (torch.arange(6, device=x.device, dtype=x.dtype) + 0.5) / 6
        xs = low[:, 0, None] + (high - low)[:, 0, None] * place
        ys = low[:, 1, None] + (high - low)[:, 1, None] * place
        grid = torch.stack([xs[:, None].expand(-1, 6, -1), ys[:, :, None].expand(-1, -1, 6)], -1)
        grid = (grid.clamp(0, size - 1) * 2 + 1) / size - 1
        return F.avg_pool2d(F.grid_sample(x[rois[:, 0].long()], grid, align_corners=False), 2)

    return Made(lambda: layer(x, rois), plain, [x])


def ps_roi_pool(k: Kit) -> Made:
    side, cells, out = k.size(8, 32), 3, k.size(2, 4)
    x = k.rand(1, out * cells * cells, side, side, grad=True)
    corner = torch.randint(0, side // 2, (2, k.size(3, 16)), generator=k.generator).float()
    extent = torch.randint(2, side // 2, (2, k.size(3, 16)), generator=k.generator).float()
    rois = k.put(torch.cat([torch.zeros(1, corner.shape[1]), corner, corner + extent])[None])
    layer = module.PSROIPool(cells, cells, 1.0, cells, out)

    def plain():
        """Cell by cell, from the channels that are its own, as R-FCN's paper has it."""
        maps = x.view(out, cells, cells, side, side)
        rows = []
        for left, top, right, bottom in rois[0, 1:].t().tolist():
            right, bottom = right + 1, bottom + 1
            high, wide = max(bottom - top, 0.1) / cells, max(right - left, 0.1) / cells
            row = []
            for i in range(cells):
                for j in range(cells):
                    y1, y2 = int(top + i * high), -int(-(top + (i + 1) * high) // 1)
                    x1, x2 = int(left + j * wide), -int(-(left + (j + 1) * wide) // 1)
                    row.append(maps[:, i, j, y1 : min(y2, side), x1 : min(x2, side)].mean((1, 2)))
            rows.append(torch.stack(row, 1).view(out, cells, cells))
        return torch.stack(rows)

    return Made(lambda: layer(x, rois), plain, [x])


def deform_conv(k: Kit) -> Made:
    n, c, side = k.size(2, 4), k.size(3, 32), k.size(5, 28)
    x = k.rand(n, c, side, side, grad=True)
    # Displacements are fractions of a pixel, so that no sample lies where the gradient jumps.
    offset = k.put(torch.rand(n, 18, side, side, generator=k.generator) * 0.4 + 0.1, True)
    mask = k.put(torch.rand(n, 9, side, side, generator=k.generator), True)
    layer = k.place(module.ModulatedDeformConv(c, c, 3, padding=1, pack=False))

    def plain():
        """Nine samplings and a product, as where there is no operator for it."""
        base = torch.arange(side, device=x.device, dtype=x.dtype)
        columns = []
        for at in range(9):
            ys = base[:, None] + (at // 3 - 1) + offset[:, 2 * at]
            xs = base + (at % 3 - 1) + offset[:, 2 * at + 1]
            grid = torch.stack([xs, ys], -1) * (2 / side) + (1 / side - 1)
            columns.append(F.grid_sample(x, grid, align_corners=False) * mask[:, at, None])
        columns = torch.stack(columns, 2).flatten(1, 2).flatten(2)
        return (layer.weight.flatten(1) @ columns + layer.bias[:, None]).view(n, c, side, side)

    return Made(lambda: layer((x, offset, mask)), plain, [x, offset, mask, layer.weight, layer.bias])


def bilstm(k: Kit) -> Made:
    x = k.rand(k.size(4, 26), k.size(2, 32), k.size(3, 128), grad=True)
    layer = k.place(module.BiLSTM(x.shape[2], k.size(4, 128)))

    def plain():
        forwards = layer.fw_rnn(x)[0]
        return torch.cat([forwards, layer.bw_rnn(x.flip(0))[0].flip(0)], 2)

    return Made(lambda: layer(x), plain, [x, *layer.parameters()])


def attention(k: Kit) -> Made:
    batch, length, width, heads = k.size(2, 8), k.size(3, 64), k.size(8, 256), k.size(2, 4)
    rows = k.rand(batch * length, width, grad=True)
    layer = k.place(module.MultiheadAttention(width, heads, self_attention=True))
    # Numbers that are added to the scores, as the plug-in's fused layer has them.
    mask = k.put(torch.rand(batch, heads, length, length, generator=k.generator) * -4)

    def plain():
        """fairseq's, batch first."""
        parts = [
            p(rows).view(batch, length, heads, -1).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
        ]
        q, key, value = parts
        scores = torch.matmul(q * layer.head_dim**-0.5, key.transpose(-2, -1)) + mask
        weights = torch.softmax(scores.float(), -1).to(value.dtype)
        context = torch.matmul(weights, value).transpose(1, 2).reshape(batch * length, width)
        return layer.out_proj(context)

    return Made(lambda: layer(rows, None, None, batch, length, length, mask)[0], plain, [rows, *layer.parameters()])


def dropout(kind: Callable[[float], nn.Module]) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        x, p = k.rand(k.size(4, 256), k.size(5, 1024), grad=True), 0.3 if k.draws else 0.0
        layer = kind(p)
        return Made(lambda: layer(x), lambda: F.dropout(x, p), [x])

    return make


def drop_path(k: Kit) -> Made:
    x, p = k.rand(k.size(4, 64), k.size(5, 49), k.size(3, 96), grad=True), 0.3 if k.draws else 0.0
    layer = module.NpuDropPath(p)

    def plain():  # Swin's, as timm wrote it
        if p == 0.0:
            return x
        keep = 1 - p
        mask = (keep + torch.rand((x.shape[0], 1, 1), dtype=x.dtype, device=x.device)).floor_()
        return x.div(keep) * mask

    return Made(lambda: layer(x), plain, [x])


def focus(k: Kit) -> Made:
    side = k.size(6, 128)
    x = k.rand(k.size(2, 8), 3, side, side, grad=True)
    layer = k.place(module.Focus(3, k.size(4, 16), 3))
    conv = layer.conv

    def plain():  # YOLOv5's
        parts = [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]]
        return F.silu(conv.bn(conv.conv(torch.cat(parts, 1))))

    return Made(lambda: layer(x), plain, [x, *layer.parameters()])


def linear_quant(kind: type) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        inputs, outputs = k.size(16, 512), k.size(8, 512)
        x = k.whole(-9, 9, k.size(3, 256), inputs, dtype=torch.int8)
        layer = kind(inputs, outputs, output_dtype=torch.float16).to(k.device)
        layer.weight.data = k.whole(-9, 9, outputs, inputs, dtype=torch.int8)
        layer.scale.data = torch.full((outputs,), 0.015625, device=k.device)
        layer.bias.data = k.whole(-50, 50, outputs, dtype=torch.int32)

        def plain():  # with numbers of float32 instead of bytes
            y = F.linear(x.float(), layer.weight.float(), layer.bias.float())
            return (y * layer.scale).half()

        return Made(lambda: layer(x), plain)

    return make


def linear_weight_quant(k: Kit) -> Made:
    inputs, outputs = k.size(16, 512), k.size(8, 512)
    x = k.rand(k.size(3, 256), inputs).half()
    layer = module.LinearWeightQuant(inputs, outputs, dtype=torch.float16, antiquant_offset=True).to(k.device)
    layer.weight.data = k.whole(-9, 9, outputs, inputs, dtype=torch.int8)
    layer.antiquant_scale.data = torch.full((outputs, 1), 0.0625, device=k.device).half()
    layer.antiquant_offset.data = torch.full((outputs, 1), 2.0, device=k.device).half()

    def plain():
        weight = (layer.weight.half() + layer.antiquant_offset) * layer.antiquant_scale
        return F.linear(x, weight, layer.bias)

    return Made(lambda: layer(x), plain)


def quant_conv(k: Kit) -> Made:
    channels, side = k.size(2, 32), k.size(5, 28)
    x = k.whole(-9, 9, k.size(1, 8), channels, side, side, dtype=torch.int8)
    layer = module.QuantConv2d(channels, channels, 3, torch.float16, padding=1).to(k.device)
    layer.weight.data = k.whole(-9, 9, *layer.weight.shape, dtype=torch.int8)
    layer.scale.data = torch.full((channels,), 0.015625, device=k.device)
    layer.bias.data = k.whole(-50, 50, channels, dtype=torch.int32)

    def plain():
        y = F.conv2d(x.float(), layer.weight.float(), layer.bias.float(), padding=1)
        return (y * layer.scale.view(-1, 1, 1)).half()

    return Made(lambda: layer(x), plain)


def batches_of(k: Kit) -> tuple[list[tuple[Tensor, Tensor]], nn.Module]:
    """Batches on the host, and a network that takes long enough for a copy to hide behind it."""
    size = k.size(4, 64)
    data = [
        (torch.rand(size, 3, k.size(4, 64), k.size(4, 64), generator=k.generator), torch.full((size,), n))
        for n in range(k.size(3, 8))
    ]
    if k.device != "cpu":
        data = [tuple(t.pin_memory() for t in batch) for batch in data]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1))
    return data, net.to(k.device).requires_grad_(False)


def fetching(affinity: Callable) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        data, net = batches_of(k)

        def plain():
            return torch.stack([net(x.to(k.device)).sum() + y.to(k.device).sum() for x, y in data])

        def ours():
            return torch.stack([net(x).sum() + y.sum() for x, y in affinity(data, k.device)])

        return Made(plain if k.device == "cpu" else ours, plain)

    return make


def prefetched(data, device):
    fetched = module.Prefetcher(data)
    pair = fetched.next()
    while pair[0] is not None:
        yield pair
        pair = fetched.next()


def batch_norm(kind: type, plain_kind: type, shape: Callable[[Kit], tuple[int, ...]]) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        x = k.rand(*shape(k), grad=True)
        layer = k.place(kind(x.shape[1]))
        plain = copy.deepcopy(layer)
        plain.__class__ = plain_kind
        plain.weight, plain.bias = layer.weight, layer.bias
        return Made(lambda: layer(x), lambda: plain(x), [x, *layer.parameters()])

    return make


MODULES = [
    Case("module.ChannelShuffle", channel_shuffle(True)),
    Case("module.ChannelShuffle, split_shuffle=False", channel_shuffle(False)),
    Case("module.LabelSmoothingCrossEntropy", label_smoothing),
    Case("module.ROIAlign", roi_align, half_tolerance=5e-2),
    Case("module.PSROIPool", ps_roi_pool),
    Case("module.ModulatedDeformConv", deform_conv, half=False),
    Case("module.Mish", activation(module.Mish, lambda x: x * torch.tanh(F.softplus(x)))),
    Case("module.SiLU", activation(module.SiLU, lambda x: x * torch.sigmoid(x))),
    Case("module.Swish", activation(module.Swish, lambda x: x * torch.sigmoid(x))),
    Case("module.BiLSTM", bilstm),
    Case("module.MultiheadAttention", attention),
    Case("module.DropoutWithByteMask", dropout(module.DropoutWithByteMask), same=True),
    Case("module.NpuFairseqDropout", dropout(module.NpuFairseqDropout), same=True),
    Case("module.NpuCachedDropout", dropout(module.NpuCachedDropout), same=True),
    Case("module.NpuDropPath", drop_path),
    Case("module.Focus", focus, half_tolerance=5e-2),
    Case("module.LinearQuant", linear_quant(module.LinearQuant), half=False),
    Case("module.LinearA8W8Quant", linear_quant(module.LinearA8W8Quant), half=False),
    Case("module.LinearWeightQuant", linear_weight_quant, half=False, tolerance=2e-2),
    Case("module.QuantConv2d", quant_conv, half=False),
    *(
        Case(f"module.{kind.__name__}", batch_norm(kind, plain, shape), same=True)
        for kind, plain, shape in (
            (module.FastBatchNorm1d, nn.BatchNorm1d, lambda k: (k.size(4, 256), k.size(3, 512))),
            (module.FastBatchNorm2d, nn.BatchNorm2d, lambda k: (k.size(2, 16), k.size(3, 64), *[k.size(3, 28)] * 2)),
            (module.FastBatchNorm3d, nn.BatchNorm3d, lambda k: (2, k.size(3, 16), *[k.size(3, 16)] * 3)),
        )
    ),
    Case("module.Prefetcher", fetching(prefetched), half=False),
    Case("PreLoader", fetching(PreLoader), half=False),
]

CASES = FUNCTIONS + MODULES
