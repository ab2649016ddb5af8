#pragma once
// Into the device's own formats and out of them: one TransData each way. See Note [Formats] in layout/Format.h.

#include <ATen/native/npu/frame/layout/Format.h>

#include <string>

namespace at::native::npu {

// The whole storage of a tensor in a private format as a plain tensor.
Tensor plain_storage(const Tensor& t);
// The tensor itself unless its storage is in a private format: then the same view over a plain copy.
inline Tensor plain(const Tensor& t) { return in_private_format(t) ? view_over(t, plain_storage(t)) : t; }
// Puts a plain storage's content back into the private format of the storage of `t`.
void store_back(const Tensor& t, const Tensor& plain_storage);
// Ends the private format of a storage: all its views see plain memory from now on.
void make_storage_plain(StorageImpl* storage);
// A copy in another format; the tensor itself where it is in it. Raises for a format that there is not, or that tensors
// of this shape do not have.
Tensor in_format(const Tensor& t, int64_t format, int64_t c0);
// Changes the format of the tensor's storage.
void change_format(const Tensor& t, int64_t format, int64_t c0);
// Puts a plain storage into the format of another one of the same content; nothing happens if that is plain.
void follow_format(const Storage& from, const Storage& to);

// A private or named format as the text that torch.save keeps, empty if there is none; and the other way.
std::string saved_format(const Tensor& t);
void restore_format(const Tensor& t, const std::string& saved);

}  // namespace at::native::npu
