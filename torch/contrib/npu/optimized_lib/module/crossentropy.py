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
        scores = torch.log_softmax(pred.float(), -1)
        right = scores.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
        # The softened classes are never laid out: all scores weigh off_value, and the class's the rest besides.
        loss = torch.mul(right, self.off_value - self.on_value)
        return (loss if self.off_value == 0 else torch.sub(loss, scores.sum(-1), alpha=self.off_value)).mean()
