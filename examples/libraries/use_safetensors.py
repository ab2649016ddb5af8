"""safetensors: files written from npu, read to npu."""

import tempfile
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from side_by_side import check, main, randn

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool)


@check("save_file, load_file, every dtype", tolerance=0.0)
def files(device):
    tensors = {str(dtype): (randn(5, 3) * 9).to(dtype).to(device) for dtype in DTYPES}
    tensors["view"] = randn(6, 4).to(device).t().contiguous()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        save_file(tensors, path, metadata={"format": "pt"})
        found = load_file(path, device=device)
    assert {t.device.type for t in found.values()} == {torch.device(device).type}
    assert {name: t.dtype for name, t in found.items()} == {name: t.dtype for name, t in tensors.items()}
    return found.values()


@check("safe_open, slices", tolerance=0.0)
def slices(device):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        save_file({"a": randn(8, 6).to(device)}, path)
        with safe_open(path, framework="pt", device=device) as file:
            part = file.get_slice("a")[2:5, ::1]
            assert part.device.type == torch.device(device).type
            return [part, file.get_tensor("a")]


@check("save_model with shared weights, load_model, bytes", tolerance=0.0)
def models(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False))
    model[1].weight = model[0].weight
    model = model.to(device)
    other = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)).to(device)
    other[1].weight = other[0].weight
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, f"{folder}/m.safetensors")
        load_model(other, f"{folder}/m.safetensors", device=device)
    return [other[0].weight, load(save({"w": model[0].weight.detach()}))["w"]]


if __name__ == "__main__":
    main("safetensors")
