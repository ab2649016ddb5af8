"""tensorboard: everything that a SummaryWriter takes, from npu tensors; the file is read again."""

import tempfile

from side_by_side import check, main, randn
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import torch


@check("scalars, histograms, images, graph, embeddings, figures' text", tolerance=1e-6)
def written(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).to(device)
    x = randn(6, 4).to(device)
    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            for step in range(3):
                writer.add_scalar("loss", x[step].sum(), step)
            writer.add_scalars("both", {"a": x[0, 0], "b": x[0, 1]}, 0)
            writer.add_histogram("weights", model[0].weight, 0)
            writer.add_image("image", randn(3, 8, 8).abs().clamp(0, 1).to(device), 0)
            writer.add_images("images", randn(2, 3, 8, 8).abs().clamp(0, 1).to(device), 0)
            writer.add_graph(model, x)
            writer.add_embedding(x, metadata=list("abcdef"))
            writer.add_pr_curve("curve", (x[:, 0] > 0).int(), torch.sigmoid(x[:, 1]), 0)
            writer.add_hparams({"lr": 0.1}, {"accuracy": x[0, 0]})
            writer.add_text("note", "text", 0)
        read = EventAccumulator(folder).Reload()
        found = [event.value for event in read.Scalars("loss")]
        histogram = read.Histograms("weights")[0].histogram_value
        assert read.Tags()["graph"] and read.Tags()["images"], read.Tags()
        return [*found, histogram.min, histogram.max, histogram.sum]


if __name__ == "__main__":
    main("tensorboard")
