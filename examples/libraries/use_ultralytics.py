"""ultralytics: detection networks, their losses, suppression and the trainer on npu."""

import os
import tempfile
from pathlib import Path

os.environ.update(YOLO_OFFLINE="true", YOLO_VERBOSE="false", YOLO_AUTOINSTALL="false")

import numpy as np
import ultralytics
from PIL import Image
from side_by_side import check, main, randn, train
from ultralytics.cfg import get_cfg
from ultralytics.nn.tasks import DetectionModel

import torch


def batch(device: str) -> dict:
    # 128 px: at 64 the last batch norms see eight numbers a channel, and two layouts of the CPU lie 1e-3 apart.
    boxes = torch.tensor([[0.3, 0.4, 0.2, 0.3], [0.6, 0.5, 0.3, 0.2], [0.5, 0.5, 0.4, 0.4]])
    labels = {"cls": torch.tensor([[0.0], [1.0], [2.0]]), "bboxes": boxes, "batch_idx": torch.tensor([0.0, 0.0, 1.0])}
    return {"img": randn(2, 3, 128, 128).abs().clamp(0, 1).to(device)} | {k: v.to(device) for k, v in labels.items()}


def register(name: str) -> None:
    @check(f"{name}, training", tolerance=1e-3, slow=name != "yolo11n")
    def run(device: str) -> list[float]:
        torch.manual_seed(0)
        model = DetectionModel(f"{name}.yaml", nc=3, verbose=False).to(device).train()
        model.args = get_cfg()
        data = batch(device)
        return train(model, lambda m, _: m(data)[0].sum(), lr=1e-5)


for each in ("yolo11n", "yolov8n", "yolov5n", "yolo12n"):
    register(each)


@check("yolo11n, inference with suppression", tolerance=1e-3)
def inference(device):
    from ultralytics.utils import nms

    torch.manual_seed(0)
    model = DetectionModel("yolo11n.yaml", nc=3, verbose=False).to(device).eval()
    with torch.no_grad():
        found = model(batch(device)["img"])[0]
    return [found, *nms.non_max_suppression(found, conf_thres=0.0, max_det=5)]


def data_set(folder: Path) -> Path:
    """Eight pictures of one bright square each."""
    for number in range(8):
        random = np.random.default_rng(number)
        pixels = random.integers(0, 60, (64, 64, 3), dtype=np.uint8)
        x, y = random.integers(8, 40, 2)
        pixels[y : y + 16, x : x + 16] = 250
        for kind in ("images", "labels"):
            (folder / kind).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        where = f"0 {(x + 8) / 64} {(y + 8) / 64} 0.25 0.25\n"
        (folder / "labels" / f"{number}.txt").write_text(where)
    description = folder / "data.yaml"
    description.write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [square]\n")
    return description


@check("YOLO.train, val and predict", tolerance=5e-2, slow=True, once=True)
def trainer(device):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = ultralytics.YOLO("yolo11n.yaml")
        off = {"mosaic": 0.0, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0, "translate": 0.0, "scale": 0.0, "fliplr": 0.0}
        off |= {"erasing": 0.0, "auto_augment": None}
        model.train(
            data=str(data_set(folder)),
            epochs=2,
            imgsz=64,
            batch=4,
            device="npu:0" if device == "npu" else "cpu",
            workers=0,
            amp=False,
            plots=False,
            project=str(folder / "runs"),
            verbose=False,
            seed=0,
            **off,
        )
        assert next(model.model.parameters()).device.type in (device, "cpu")
        losses = (folder / "runs").rglob("results.csv").__next__().read_text().splitlines()
        names = [name.strip() for name in losses[0].split(",")]
        rows = [dict(zip(names, map(float, line.split(",")), strict=True)) for line in losses[1:]]
        return [row[f"train/{kind}_loss"] for row in rows for kind in ("box", "cls", "dfl")]


if __name__ == "__main__":
    main("ultralytics")
