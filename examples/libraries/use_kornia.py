"""kornia: colour, filters, geometry, augmentation, features and losses on npu, differentiable."""

import kornia
from side_by_side import check, main, randn

import torch


def images(device: str, seed: int = 0) -> torch.Tensor:
    return randn(2, 3, 32, 32, seed=seed).abs().clamp(0, 1).to(device)


def with_gradient(function, x: torch.Tensor) -> list[torch.Tensor]:
    """A result, and the gradient of its squares' sum."""
    x = x.clone().requires_grad_()
    found = function(x)
    found.square().sum().backward()
    return [found, x.grad]


@check("colour: hsv, hls, lab, luv, yuv, ycbcr, xyz, grayscale and back", tolerance=1e-4)
def colours(device):
    x, color = images(device), kornia.color
    back = [
        color.hsv_to_rgb(color.rgb_to_hsv(x)),
        color.lab_to_rgb(color.rgb_to_lab(x)),
        color.yuv_to_rgb(color.rgb_to_yuv(x)),
    ]
    kinds = (color.rgb_to_hls, color.rgb_to_luv, color.rgb_to_ycbcr, color.rgb_to_xyz, color.rgb_to_grayscale)
    return [*back, *(kind(x) for kind in kinds), *with_gradient(color.rgb_to_lab, x)]


@check("filters: gaussian, median, sobel, laplacian, bilateral, canny, unsharp", tolerance=1e-4)
def filters(device):
    x, f = images(device), kornia.filters
    return [
        *with_gradient(lambda t: f.gaussian_blur2d(t, (5, 5), (1.5, 1.5)), x),
        f.median_blur(x, (3, 3)),
        *with_gradient(f.sobel, x),
        f.laplacian(x, 3),
        f.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
        f.canny(x)[0],
        f.unsharp_mask(x, (3, 3), (1.0, 1.0)),
        f.motion_blur(x, 5, 30.0, 0.5),
    ]


@check("geometry: affine, rotate, perspective, homography, elastic", tolerance=1e-3)
def geometry(device):
    x, g = images(device), kornia.geometry
    angle = torch.tensor([30.0, -45.0], device=device)
    points = torch.tensor([[[0.0, 0.0], [31.0, 0.0], [31.0, 31.0], [0.0, 31.0]]], device=device).repeat(2, 1, 1)
    moved = points + randn(2, 4, 2, seed=3).to(device)
    transform = g.get_perspective_transform(points, moved)
    return [
        *with_gradient(lambda t: g.rotate(t, angle), x),
        transform,
        g.warp_perspective(x, transform, (32, 32)),
        g.find_homography_dlt(points, moved),
        g.resize(x, (20, 20), antialias=True),
        g.elastic_transform2d(x, randn(2, 2, 32, 32, seed=4).to(device)),
        g.conversions.quaternion_to_rotation_matrix(randn(4, 4, seed=5).to(device)),
    ]


@check("morphology, enhancement, histograms", tolerance=1e-4)
def enhancement(device):
    x, kernel = images(device), torch.ones(3, 3, device=device)
    e, m = kornia.enhance, kornia.morphology
    return [
        m.dilation(x, kernel),
        m.erosion(x, kernel),
        m.opening(x, kernel),
        e.adjust_brightness(x, 0.2),
        e.adjust_gamma(x, 1.4),
        e.equalize(x),
        e.posterize(x, 3),
        e.sharpness(x, 1.5),
        e.normalize_min_max(x),
    ]


@check("features: Harris, GFTT, SIFT descriptors, matching", tolerance=1e-3)
def features(device):
    x = kornia.color.rgb_to_grayscale(images(device))
    a, b = (randn(20, 16, seed=s).to(device) for s in (1, 2))
    f = kornia.feature
    torch.manual_seed(0)
    return [
        f.harris_response(x),
        f.gftt_response(x),
        f.SIFTDescriptor(32)(x),
        f.match_nn(a, b)[0],
        f.match_mnn(a, b)[1],
    ]


@check("losses: SSIM, dice, focal, Tversky, Hausdorff, total variation", tolerance=1e-4)
def losses(device):
    x, y = images(device), images(device, seed=1)
    scores, labels = randn(2, 4, 16, 16).to(device), (randn(2, 16, 16, seed=1).abs() * 2).long().clamp(0, 3).to(device)
    k = kornia.losses
    return [
        *with_gradient(lambda t: k.ssim_loss(t, y, 5), x),
        *with_gradient(lambda t: k.dice_loss(t, labels), scores),
        *with_gradient(lambda t: k.focal_loss(t, labels, 0.5, reduction="mean"), scores),
        k.tversky_loss(scores, labels, 0.5, 0.5),
        k.total_variation(x),
        k.psnr_loss(x, y, 1.0),
    ]


@check("augmentation with parameters given", tolerance=1e-4)
def augmentation(device):
    torch.manual_seed(0)
    chain = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomHorizontalFlip(p=1.0),
        kornia.augmentation.RandomVerticalFlip(p=1.0),
        kornia.augmentation.CenterCrop(24),
        kornia.augmentation.Normalize(torch.tensor([0.5] * 3), torch.tensor([0.2] * 3)),
        data_keys=["input", "mask"],
    ).to(device)
    x = images(device)
    return chain(x, x[:, :1].round())


if __name__ == "__main__":
    main("kornia")
