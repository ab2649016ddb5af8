"""Averages of bilinear samples over the cells of regions."""

from torch.nn.modules.utils import _pair

import torch


class ROIAlign(torch.nn.Module):
    """Features (n, c, h, w) and regions (k, 5), index of the image and corners, to (k, c, *output_size).

    Args:
        output_size: cells from top to bottom and from left to right.
        spatial_scale: size of the features divided by the image's.
        sampling_ratio: samples per cell in each direction; 0: as many as the cell has pixels.
        aligned: whether regions are moved by half a pixel.
    """

    def __init__(self, output_size, spatial_scale, sampling_ratio, aligned=True):
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale, self.sampling_ratio, self.aligned = spatial_scale, sampling_ratio, aligned

    def forward(self, input_tensor, rois):
        cells = self.output_size
        end = 2 if self.aligned else 0
        return torch.npu_roi_align(
            input_tensor, rois.to(input_tensor.dtype), self.spatial_scale, *cells, self.sampling_ratio, end
        )
