// Casts between private formats and plain memory. See Note [Formats].

#include <ATen/native/npu/frame/command/FormatCast.h>

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>

#include <cstdio>
#include <memory>
#include <string_view>

namespace at::native::npu {

namespace {

void trans_data(const Tensor& from, IntArrayRef from_sizes, aclFormat source, const Tensor& to, IntArrayRef to_sizes,
                aclFormat target) {
  if (from.numel() == 0) return;
  OpCommand cmd;
  cmd.Name("TransData").InputAs(from, from_sizes, source).OutputAs(to, to_sizes, target);
  cmd.Attr("src_format", named_format(source).name).Attr("dst_format", named_format(target).name).Run();
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

}  // namespace

Tensor plain_storage(const Tensor& t) {
  const StoredFormat& format = *stored_format(storage_of(t));
  const Tensor base = empty_npu(format.sizes, format.dtype, t.device());
  DimVector seen;
  const DimVector sizes = stored_sizes(named_format(format.format), format.sizes, format.c0, seen);
  trans_data(format.memory, sizes, format.format, base, seen, natural_format(static_cast<int64_t>(seen.size())));
  return base;
}

void store_back(const Tensor& t, const Tensor& plain_storage) {
  const StoredFormat& format = *stored_format(storage_of(t));
  DimVector seen;
  const DimVector sizes = stored_sizes(named_format(format.format), format.sizes, format.c0, seen);
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
    const DimVector sizes = stored_sizes(named_format(format->format), format->sizes, format->c0, seen);
    trans_data(format->memory, sizes, format->format, base, seen, natural_format(static_cast<int64_t>(seen.size())));
  }
  // The new memory changes hands; `base` is left with what there was before.
  DataPtr data = storage_of(base)->set_data_ptr(DataPtr(nullptr, storage->device()));
  storage->set_data_ptr_noswap(std::move(data));
}

Tensor in_format(const Tensor& t, int64_t format, int64_t c0) {
  DeviceOf guard(t);
  const FormatName& f = named_format(format);
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
  const FormatName& f = named_format(format);
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
  TORCH_CHECK(
      std::sscanf(saved.c_str() + kSaved.size(), "%d:%d", &format, &c0) == 2 && c0 > 0 && c0 <= 2 * kFormatBlock,
      "a saved tensor has the format '", saved, "', which this torch does not know");
  change_format(t, format, c0);
}

}  // namespace at::native::npu
