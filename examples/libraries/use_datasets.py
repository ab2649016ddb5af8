"""datasets: rows as tensors of npu, batches, maps that compute there, streams, files."""

import tempfile

import _offline  # noqa: F401
import datasets
from side_by_side import check, main, randint, randn

import torch

datasets.disable_progress_bars()


def rows(device: str) -> datasets.Dataset:
    columns = {"x": randn(24, 6).tolist(), "label": randint(3, 24).tolist(), "name": [f"row {n}" for n in range(24)]}
    return datasets.Dataset.from_dict(columns).with_format("torch", columns=["x", "label"], device=device)


@check('with_format("torch", device=...): rows, slices, columns, DataLoader', tolerance=0.0)
def formats(device):
    made = rows(device)
    found = [made[3]["x"], made[4:9]["x"], made["label"][2], *(row["x"].sum() for row in made.select(range(4)))]
    assert all(value.device.type == device for value in found)
    return [*found, *(batch["x"] for batch in torch.utils.data.DataLoader(made, batch_size=8))]


@check("map, filter, sort, train_test_split with tensors on the device", tolerance=1e-6)
def maps(device):
    made = rows(device)
    weights = randn(6, 3).to(device)
    scored = made.map(lambda batch: {"score": (batch["x"] @ weights).cpu().numpy()}, batched=True, batch_size=8)
    scored = scored.with_format("torch", columns=["x", "score", "label"], device=device)
    kept = scored.filter(lambda row: bool((row["x"].sum() > 0).item()))
    parts = kept.sort("label").train_test_split(0.25, seed=0)
    return [scored[:]["score"], *(part[:][column] for part in parts.values() for column in ("x", "label"))]


@check("streams: IterableDataset, shuffled, batched", tolerance=0.0)
def streams(device):
    plain = rows(device).with_format(None).select_columns(["x", "label"])
    made = plain.to_iterable_dataset(num_shards=2).shuffle(seed=0, buffer_size=8).with_format("torch")
    return [batch["x"].to(device) for batch in torch.utils.data.DataLoader(made, batch_size=6)]


@check("saved, loaded, concatenated", tolerance=0.0)
def files(device):
    with tempfile.TemporaryDirectory() as folder:
        rows(device).save_to_disk(folder)
        again = datasets.load_from_disk(folder).with_format("torch", columns=["x"], device=device)
        both = datasets.concatenate_datasets([again, again.shuffle(seed=1)])
        return [both[:]["x"]]


if __name__ == "__main__":
    main("datasets")
