#include <ATen/native/npu/frame/command/OperatorGraphs.h>

#include <ATen/native/npu/frame/command/Launcher.h>
#include <acl_loader.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <unordered_set>

namespace at::native::npu {

namespace {

class GraphObserver final : public LaunchObserver {
 public:
  explicit GraphObserver(std::string folder) : folder_(std::move(folder)) {}

  aclError execute(const Command& command, aclrtStream /*stream*/, c10::function_ref<aclError()> next) override {
    const c10::IntArrayRef key = command.prepared->key();
    const std::string words(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t));
    {
      const std::lock_guard lock(mutex_);
      if (seen_.insert(words).second) {
        const aclError code = write_operator_graph(command, folder_.c_str());
        if (code != ACL_SUCCESS) return code;
      }
    }
    return next();
  }

 private:
  const std::string folder_;
  std::mutex mutex_;
  std::unordered_set<std::string> seen_;  // keys of commands
};

struct Current {
  std::mutex mutex;
  std::shared_ptr<GraphObserver> observer;
};

Current& current() {
  static auto* value = new Current;  // the queue's thread may outlive static destruction
  return *value;
}

}  // namespace

void write_operator_graphs(const std::string& folder) {
  TORCH_CHECK(c10::npu::acl::has_function("aclGenGraphAndDumpForOp"),
              "torch.npu.set_aoe needs aclGenGraphAndDumpForOp, which this release of CANN lacks");
  Current& c = current();
  const std::lock_guard lock(c.mutex);
  if (c.observer != nullptr) remove_launch_observer(c.observer.get());
  c.observer = std::make_shared<GraphObserver>(folder);
  add_launch_observer(c.observer, LaunchPlace::kOverflowCheck);
}

}  // namespace at::native::npu
