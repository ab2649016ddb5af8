// Which encoder takes an operator.

#include <ATen/native/npu/frame/command/Encoder.h>

#include <ATen/native/npu/frame/command/PreparedCache.h>
#include <c10/util/Exception.h>

#include <vector>

namespace at::native::npu {

namespace {

// Those beside the first, in the order of their addition. Changed only before anything was prepared.
std::vector<const Encoder*>& further_encoders() {
  static auto* value = new std::vector<const Encoder*>;  // the queue's thread may outlive static destruction
  return *value;
}

}  // namespace

namespace detail {
std::atomic<bool> has_further_encoders{false};

const Encoder& find_encoder(const char* ir) {
  const auto& list = further_encoders();
  for (auto encoder = list.rbegin(); encoder != list.rend(); ++encoder) {
    if ((*encoder)->takes(ir)) return **encoder;
  }
  return aclop_encoder();
}
}  // namespace detail

void add_encoder(const Encoder& encoder) {
  TORCH_CHECK(!PreparedCache::any_prepared(),
              "An encoder is added while libraries load: operators have been prepared with the present ones");
  further_encoders().push_back(&encoder);
  detail::has_further_encoders.store(true);
}

}  // namespace at::native::npu
