// Sampling at the points of a grid, in two and three dimensions.

#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/ops/zeros_like.h>
#include <NPUNativeFunctions.h>

#include <array>
#include <tuple>

namespace at::native::npu {
namespace {

constexpr std::array<const char*, 3> kInterpolations = {"bilinear", "nearest", "bicubic"};
constexpr std::array<const char*, 3> kPaddings = {"zeros", "border", "reflection"};

struct Modes {
  Modes(const Tensor& input, const Tensor& grid, int64_t interpolation_mode, int64_t padding_mode, bool corners)
      : align_corners(corners) {
    check_grid_sampler_common(input, grid);
    if (input.dim() == 5) {
      check_grid_sampler_3d(input, grid, interpolation_mode);
    } else {
      check_grid_sampler_2d(input, grid);
    }
    check_dtype(input.scalar_type(), kDtypeFloat, "grid_sampler");
    TORCH_CHECK(input.scalar_type() == grid.scalar_type(),
                "grid_sampler(): expected input and grid to have one dtype, ", "but input has ", input.scalar_type(),
                " and grid has ", grid.scalar_type());
    TORCH_CHECK(interpolation_mode >= 0 && interpolation_mode < 3, "grid_sampler(): no interpolation mode ",
                interpolation_mode);
    TORCH_CHECK(padding_mode >= 0 && padding_mode < 3, "grid_sampler(): no padding mode ", padding_mode);
    interpolation = kInterpolations[static_cast<size_t>(interpolation_mode)];
    padding = kPaddings[static_cast<size_t>(padding_mode)];
  }
  void add_to(OpCommand& cmd) const {
    cmd.Attr("interpolation_mode", interpolation).Attr("padding_mode", padding).Attr("align_corners", align_corners);
  }

 private:
  const char* interpolation;
  const char* padding;
  bool align_corners;
};

}  // namespace

// Serves grid_sampler_2d and grid_sampler_3d: images are [N, C, H, W], volumes [N, C, D, H, W].
Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation_mode, int64_t padding_mode,
                    bool align_corners) {
  DeviceOf guard(input);
  const Modes modes(input, grid, interpolation_mode, padding_mode, align_corners);
  DimVector sizes = {input.size(0), input.size(1)};
  sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  const Tensor y = empty_npu(sizes, input.scalar_type(), input.device());
  if (y.numel() > 0) {
    OpCommand cmd;
    cmd.Name(input.dim() == 5 ? "GridSampler3D" : "GridSampler2D").Input(input).Input(grid).Output(y);
    modes.add_to(cmd);
    cmd.Run();
  }
  return y;
}

std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad_output, const Tensor& input, const Tensor& grid,
                                                 int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                                                 std::array<bool, 2> output_mask) {
  DeviceOf guard(input);
  const Modes modes(input, grid, interpolation_mode, padding_mode, align_corners);
  if (grad_output.numel() == 0) {
    return {output_mask[0] ? at::zeros_like(input) : Tensor(), at::zeros_like(grid)};
  }
  const Tensor dx = empty_as(input);
  const Tensor dgrid = empty_as(grid);
  OpCommand cmd;
  cmd.Name(input.dim() == 5 ? "GridSampler3DGrad" : "GridSampler2DGrad").Input(grad_output).Input(input).Input(grid);
  cmd.Output(dx).Output(dgrid);
  modes.add_to(cmd);
  cmd.Run();
  return {output_mask[0] ? dx : Tensor(), dgrid};
}

}  // namespace at::native::npu
