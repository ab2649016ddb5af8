// Private formats: their names, their sizes, and the storages that are in them. See Note [Formats].

#include <ATen/native/npu/frame/layout/Format.h>

#include <algorithm>
#include <array>

namespace at::native::npu {

std::atomic<int64_t> stored_formats{0};

void release_stored_format(void* format) {
  delete static_cast<StoredFormat*>(format);
  stored_formats.fetch_sub(1, std::memory_order_relaxed);
}

namespace {

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

constexpr FormatName kFormats[] = {
    {ACL_FORMAT_NCHW, "NCHW", false},
    {ACL_FORMAT_NHWC, "NHWC", false},
    {ACL_FORMAT_ND, "ND", false},
    {ACL_FORMAT_NCDHW, "NCDHW", false},
    {ACL_FORMAT_NC1HWC0, "NC1HWC0", true},
    {ACL_FORMAT_FRACTAL_Z, "FRACTAL_Z", true},
    {ACL_FORMAT_FRACTAL_NZ, "FRACTAL_NZ", true},
    {ACL_FORMAT_NDC1HWC0, "NDC1HWC0", true},
    {ACL_FRACTAL_Z_3D, "FRACTAL_Z_3D", true},
};

}  // namespace

const FormatName& named_format(int64_t format) {
  for (const FormatName& f : kFormats) {
    if (f.format == format) return f;
  }
  TORCH_CHECK(false, "npu_format_cast: there is no format ", format,
              "; known are 0 NCHW, 1 NHWC, 2 ND, 3 NC1HWC0, 4 FRACTAL_Z, 29 FRACTAL_NZ, 30 NCDHW, 32 NDC1HWC0 and 33 "
              "FRACTAL_Z_3D");
}

aclFormat natural_format(int64_t rank) {
  return rank == 4 ? ACL_FORMAT_NCHW : rank == 5 ? ACL_FORMAT_NCDHW : ACL_FORMAT_ND;
}

namespace {

// Fewer than four dimensions as an image: what is there fills C, H, W in this order.
DimVector as_image(IntArrayRef sizes) {
  DimVector image(sizes.begin(), sizes.end());
  if (image.size() < 4) image.insert(image.begin(), 1);
  while (image.size() < 4) image.push_back(1);
  return image;
}

}  // namespace

DimVector stored_sizes(const FormatName& f, IntArrayRef sizes, int64_t c0, DimVector& seen) {
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto needs = [&](bool right, const char* ranks) {
    TORCH_CHECK(right, "npu_format_cast: ", f.name, " (", static_cast<int64_t>(f.format),
                ") is a format of tensors of ", ranks, " dimensions, but the shape is ", sizes);
  };
  seen.assign(sizes.begin(), sizes.end());
  switch (f.format) {
    case ACL_FORMAT_NC1HWC0:
      needs(rank <= 4, "up to 4");
      seen = as_image(sizes);
      return {seen[0], blocks(seen[1], c0), seen[2], seen[3], c0};
    case ACL_FORMAT_FRACTAL_Z:
      needs(rank <= 4, "up to 4");
      seen = as_image(sizes);
      return {blocks(seen[1], c0) * seen[2] * seen[3], blocks(seen[0], kFormatBlock), kFormatBlock, c0};
    case ACL_FORMAT_FRACTAL_NZ: {
      needs(rank >= 2, "2 or more");
      DimVector stored(seen.begin(), seen.end() - 2);
      const int64_t rows = seen[seen.size() - 2], columns = seen.back();
      stored.append({blocks(columns, c0), blocks(rows, kFormatBlock), kFormatBlock, c0});
      return stored;
    }
    case ACL_FORMAT_NDC1HWC0:
      needs(rank == 5, "5");
      return {seen[0], seen[2], blocks(seen[1], c0), seen[3], seen[4], c0};
    case ACL_FRACTAL_Z_3D:
      needs(rank == 5, "5");
      return {seen[2] * blocks(seen[1], c0) * seen[3] * seen[4], blocks(seen[0], kFormatBlock), kFormatBlock, c0};
    default:
      return seen;
  }
}

bool fills_storage(const Tensor& t, const StoredFormat& format) {
  return t.storage_offset() == 0 && t.is_contiguous() && t.sizes() == IntArrayRef(format.sizes) &&
         t.scalar_type() == format.dtype;
}

Tensor view_over(const Tensor& view, const Tensor& base) {
  Tensor out(
      c10::make_intrusive<TensorImpl, UndefinedTensorImpl>(Storage(base.storage()), view.key_set(), view.dtype()));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides());
  out.unsafeGetTensorImpl()->set_storage_offset(view.storage_offset());
  return out;
}

const DataPtr& allocation_of(const Tensor& t) {
  const StoredFormat* format = stored_format(storage_of(t));
  return format == nullptr ? t.storage().data_ptr() : format->memory.storage().data_ptr();
}

int64_t format_of(const Tensor& t) {
  const StoredFormat* format = t.has_storage() ? stored_format(storage_of(t)) : nullptr;
  return format != nullptr && fills_storage(t, *format) ? format->format : natural_format(t.dim());
}

int64_t block_for(const Tensor& t, int64_t format, std::optional<int64_t> customize_dtype) {
  if (!customize_dtype.has_value()) return t.element_size() == 1 ? 2 * kFormatBlock : kFormatBlock;
  constexpr std::array<ScalarType, 8> kDtypes{kByte, kChar, kShort, kInt, kHalf, kFloat, kBool, kBFloat16};
  const auto dtype = static_cast<ScalarType>(*customize_dtype);
  TORCH_CHECK(std::find(kDtypes.begin(), kDtypes.end(), dtype) != kDtypes.end(), "npu_format_cast: customize_dtype ",
              *customize_dtype, " is not the number of a dtype of 1, 2 or 4 bytes, such as 3 (torch.int32)");
  if (dtype == kInt && format == ACL_FORMAT_FRACTAL_NZ) return kFormatBlock / 2;
  return elementSize(dtype) == 1 ? 2 * kFormatBlock : kFormatBlock;
}

bool already_in(const Tensor& t, int64_t format, int64_t c0) {
  if (named_format(format).is_private && t.dim() < 2) return true;
  if (format_of(t) != format) return false;
  return !in_private_format(t) || stored_format(storage_of(t))->c0 == c0;
}

}  // namespace at::native::npu
