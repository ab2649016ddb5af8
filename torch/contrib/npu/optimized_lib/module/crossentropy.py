"""Cross entropy against softened classes."""

import torch


class LabelSmoothingCrossEntropy(torch.nn.Module):
    """The mean cross entropy against ``1 - smooth_factor`` for the class and the rest shared by the others.

    Args:
        num_classes: number of classes.
        smooth_factor: between 0 and 1.
    """

    def __init__(self, num_classes=1000, smooth_factor=0.0):
        super().__init__()
        self.on_value = 1.0 - smooth_factor
        self.off_value = smooth_factor / (num_classes - 1)

    def forward(self, pred, target):
        others = torch.full_like(pred, self.off_value)
        wanted = others.scatter(-1, target.long().unsqueeze(-1), self.on_value)
        loss = -(wanted.float() * torch.log_softmax(pred.float(), -1)).sum(-1)
        return loss.mean()
