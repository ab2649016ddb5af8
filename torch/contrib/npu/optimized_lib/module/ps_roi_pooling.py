"""Position-sensitive pooling of regions."""

import torch


class PSROIPool(torch.nn.Module):
    """Averages over the cells of regions, each cell from channels of its own.

    Args:
        pooled_height, pooled_width, group_size: cells in each direction; all three alike.
        spatial_scale: size of the features divided by the image's.
        output_dim: channels of the result.

    Raises:
        ValueError: the numbers of cells differ.
    """

    def __init__(self, pooled_height=7, pooled_width=7, spatial_scale=1 / 16.0, group_size=7, output_dim=22):
        super().__init__()
        if not pooled_height == pooled_width == group_size:
            raise ValueError(
                f"PSROIPool: pooled_height, pooled_width and group_size must be one number, not {pooled_height}, "
                f"{pooled_width} and {group_size}"
            )
        self.group_size, self.spatial_scale, self.output_dim = group_size, spatial_scale, output_dim

    def forward(self, features, rois):
        """Regions are of shape (batch, 5, n): index of the image, then corners."""
        return torch.npu_ps_roi_pooling(features, rois, self.spatial_scale, self.group_size, self.output_dim)
