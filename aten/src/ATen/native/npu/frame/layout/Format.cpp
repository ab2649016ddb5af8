// Private formats: their sizes, the casts between them and plain memory, and their storages. See Note [Formats].

#include <ATen/native/npu/frame/layout/Format.h>

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/layout/Contiguity.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

namespace at::native::npu {

std::atomic<int64_t> stored_formats{0};

void release_stored_format(void* format) {
  delete static_cast<StoredFormat*>(format);
  stored_formats.fetch_sub(1, std::memory_order_relaxed);
}

namespace {

constexpr int64_t kBlock = 16;

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

struct FormatName {
  aclFormat format;
  const char* name;
  bool is_private;
};

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

const FormatName& named(int64_t format) {
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

// Fewer than four dimensions as an image: what is there fills C, H, W in this order.
DimVector as_image(IntArrayRef sizes) {
  DimVector image(sizes.begin(), sizes.end());
  if (image.size() < 4) image.insert(image.begin(), 1);
  while (image.size() < 4) image.push_back(1);
  return image;
}

// The sizes in memory of a tensor of `sizes`, and in `seen` the plain sizes that TransData works on.
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
      return {blocks(seen[1], c0) * seen[2] * seen[3], blocks(seen[0], kBlock), kBlock, c0};
    case ACL_FORMAT_FRACTAL_NZ: {
      needs(rank >= 2, "2 or more");
      DimVector stored(seen.begin(), seen.end() - 2);
      const int64_t rows = seen[seen.size() - 2], columns = seen.back();
      stored.append({blocks(columns, c0), blocks(rows, kBlock), kBlock, c0});
      return stored;
    }
    case ACL_FORMAT_NDC1HWC0:
      needs(rank == 5, "5");
      return {seen[0], seen[2], blocks(seen[1], c0), seen[3], seen[4], c0};
    case ACL_FRACTAL_Z_3D:
      needs(rank == 5, "5");
      return {seen[2] * blocks(seen[1], c0) * seen[3] * seen[4], blocks(seen[0], kBlock), kBlock, c0};
    default:
      return seen;
  }
}

void trans_data(const Tensor& from, IntArrayRef from_sizes, aclFormat source, const Tensor& to, IntArrayRef to_sizes,
                aclFormat target) {
  if (from.numel() == 0) return;
  OpCommand cmd;
  cmd.Name("TransData").InputAs(from, from_sizes, source).OutputAs(to, to_sizes, target);
  cmd.Attr("src_format", named(source).name).Attr("dst_format", named(target).name).Run();
}

// The memory of the contiguous tensor `t` in a format.
std::unique_ptr<StoredFormat> stored(const Tensor& t, const FormatName& f, int64_t c0) {
  auto format = std::make_unique<StoredFormat>();
  format->format = f.format;
  format->is_private = f.is_private;
  format->sizes.assign(t.sizes().begin(), t.sizes().end());
  format->dtype = t.scalar_type();
  format->c0 = c0;
  DimVector seen;
  const DimVector sizes = stored_sizes(f, t.sizes(), c0, seen);
  format->memory = empty_npu(sizes, t.scalar_type(), t.device());
  if (f.is_private) {
    trans_data(t, seen, natural_format(static_cast<int64_t>(seen.size())), format->memory, sizes, f.format);
  } else {
    copy_same_dtype(format->memory, t);
  }
  return format;
}

DataPtr data_of(std::unique_ptr<StoredFormat> format) {
  void* memory = format->memory.storage().mutable_data();
  const Device device = format->memory.device();
  stored_formats.fetch_add(1, std::memory_order_relaxed);
  return {memory, format.release(), &release_stored_format, device};
}

bool fills_storage(const Tensor& t, const StoredFormat& format) {
  return t.storage_offset() == 0 && t.is_contiguous() && t.sizes() == IntArrayRef(format.sizes) &&
         t.scalar_type() == format.dtype;
}

StorageImpl* storage_of(const Tensor& t) { return t.storage().unsafeGetStorageImpl(); }

}  // namespace

Tensor view_over(const Tensor& view, const Tensor& base) {
  Tensor out(
      c10::make_intrusive<TensorImpl, UndefinedTensorImpl>(Storage(base.storage()), view.key_set(), view.dtype()));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides());
  out.unsafeGetTensorImpl()->set_storage_offset(view.storage_offset());
  return out;
}

Tensor plain_storage(const Tensor& t) {
  const StoredFormat& format = *stored_format(storage_of(t));
  const Tensor base = empty_npu(format.sizes, format.dtype, t.device());
  DimVector seen;
  const DimVector sizes = stored_sizes(named(format.format), format.sizes, format.c0, seen);
  trans_data(format.memory, sizes, format.format, base, seen, natural_format(static_cast<int64_t>(seen.size())));
  return base;
}

void store_back(const Tensor& t, const Tensor& plain_storage) {
  const StoredFormat& format = *stored_format(storage_of(t));
  DimVector seen;
  const DimVector sizes = stored_sizes(named(format.format), format.sizes, format.c0, seen);
  trans_data(plain_storage, seen, natural_format(static_cast<int64_t>(seen.size())), format.memory, sizes,
             format.format);
}

void make_storage_plain(StorageImpl* storage) {
  const StoredFormat* format = stored_format(storage);
  if (format == nullptr) return;
  DeviceOf guard(storage->device());
  Tensor base = format->memory;
  if (format->is_private) {
    base = empty_npu(format->sizes, format->dtype, storage->device());
    DimVector seen;
    const DimVector sizes = stored_sizes(named(format->format), format->sizes, format->c0, seen);
    trans_data(format->memory, sizes, format->format, base, seen, natural_format(static_cast<int64_t>(seen.size())));
  }
  // The new memory changes hands; `base` is left with what there was before.
  DataPtr data = storage_of(base)->set_data_ptr(DataPtr(nullptr, storage->device()));
  storage->set_data_ptr_noswap(std::move(data));
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
  if (!customize_dtype.has_value()) return t.element_size() == 1 ? 2 * kBlock : kBlock;
  constexpr std::array<ScalarType, 8> kDtypes{kByte, kChar, kShort, kInt, kHalf, kFloat, kBool, kBFloat16};
  const auto dtype = static_cast<ScalarType>(*customize_dtype);
  TORCH_CHECK(std::find(kDtypes.begin(), kDtypes.end(), dtype) != kDtypes.end(), "npu_format_cast: customize_dtype ",
              *customize_dtype, " is not the number of a dtype of 1, 2 or 4 bytes, such as 3 (torch.int32)");
  if (dtype == kInt && format == ACL_FORMAT_FRACTAL_NZ) return kBlock / 2;
  return elementSize(dtype) == 1 ? 2 * kBlock : kBlock;
}

bool already_in(const Tensor& t, int64_t format, int64_t c0) {
  if (named(format).is_private && t.dim() < 2) return true;
  if (format_of(t) != format) return false;
  return !in_private_format(t) || stored_format(storage_of(t))->c0 == c0;
}

Tensor in_format(const Tensor& t, int64_t format, int64_t c0) {
  DeviceOf guard(t);
  const FormatName& f = named(format);
  if (already_in(t, format, c0)) return t;
  Tensor source = contiguous(plain(t));
  if (f.format == natural_format(t.dim())) {
    Tensor out = empty_as(source);
    copy_same_dtype(out, source);
    return out;
  }
  const size_t bytes = source.nbytes();
  Tensor out(c10::make_intrusive<TensorImpl, UndefinedTensorImpl>(
      Storage(c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, data_of(stored(source, f, c0)),
                                               storage_of(source)->allocator(), /*resizable=*/true)),
      source.key_set(), source.dtype()));
  out.unsafeGetTensorImpl()->set_sizes_contiguous(source.sizes());
  return out;
}

void change_format(const Tensor& t, int64_t format, int64_t c0) {
  DeviceOf guard(t);
  const FormatName& f = named(format);
  StorageImpl* storage = storage_of(t);
  if (already_in(t, format, c0)) return;
  if (f.format == natural_format(t.dim())) {
    make_storage_plain(storage);
    return;
  }
  TORCH_CHECK(t.is_contiguous() && t.storage_offset() == 0 && t.nbytes() == storage->nbytes(),
              "npu_format_cast_: a tensor of shape ", t.sizes(), ", strides ", t.strides(), " and offset ",
              t.storage_offset(), " is a view of a storage of ", storage->nbytes(),
              " bytes, whose format cannot change for a part of it; use x = x.npu_format_cast(", format, ")");
  DataPtr data = data_of(stored(plain(t), f, c0));
  storage->set_data_ptr_noswap(std::move(data));
}

void follow_format(const Storage& from, const Storage& to) {
  const StoredFormat* format = stored_format(from.unsafeGetStorageImpl());
  if (format == nullptr || from.nbytes() != to.nbytes() || to.device() != from.device()) return;
  const Tensor whole(c10::make_intrusive<TensorImpl, UndefinedTensorImpl>(Storage(to), format->memory.key_set(),
                                                                          scalarTypeToTypeMeta(format->dtype)));
  whole.unsafeGetTensorImpl()->set_sizes_contiguous(format->sizes);
  change_format(whole, format->format, format->c0);
}

namespace {
constexpr std::string_view kSaved = "npu_format:";
}

std::string saved_format(const Tensor& t) {
  const StoredFormat* format = t.has_storage() ? stored_format(storage_of(t)) : nullptr;
  if (format == nullptr || !fills_storage(t, *format)) return {};
  return c10::str(kSaved, static_cast<int64_t>(format->format), ':', format->c0);
}

void restore_format(const Tensor& t, const std::string& saved) {
  if (!saved.starts_with(kSaved)) return;
  int format = 0, c0 = 0;
  TORCH_CHECK(std::sscanf(saved.c_str() + kSaved.size(), "%d:%d", &format, &c0) == 2 && c0 > 0 && c0 <= 2 * kBlock,
              "a saved tensor has the format '", saved, "', which this torch does not know");
  change_format(t, format, c0);
}

}  // namespace at::native::npu
