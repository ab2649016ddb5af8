"""onnxruntime: what npu models export is computed as npu computes it."""

import tempfile

import onnxruntime
from side_by_side import check, main, randn

import torch


def networks() -> dict[str, tuple[torch.nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    images = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 16, 5),
    )
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    return {"convolutions": (images, randn(2, 3, 8, 8)), "encoder layer": (layer, randn(2, 6, 16))}


def register(name: str, dynamo: bool) -> None:
    way = "torch.export" if dynamo else "TorchScript"

    @check(f"{name}, exported by {way}", tolerance=1e-4)
    def run(device: str) -> list:
        model, x = networks()[name]
        model, x = model.to(device).eval(), x.to(device)
        options = {} if dynamo else {"opset_version": 17}
        with tempfile.TemporaryDirectory() as folder:
            torch.onnx.export(model, (x,), f"{folder}/m.onnx", dynamo=dynamo, **options)
            session = onnxruntime.InferenceSession(f"{folder}/m.onnx", providers=["CPUExecutionProvider"])
            found = session.run(None, {session.get_inputs()[0].name: x.cpu().numpy()})[0]
        own = model(x).detach().cpu()
        assert (torch.from_numpy(found) - own).abs().max() < 1e-4
        return [own, torch.from_numpy(found)]


register("convolutions", dynamo=True)
register("convolutions", dynamo=False)
# TorchScript's tracing of this layer fails on the CPU, too.
register("encoder layer", dynamo=True)


if __name__ == "__main__":
    main("onnxruntime", "onnx", "onnxscript")
