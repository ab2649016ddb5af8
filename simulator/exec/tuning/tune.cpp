#include "exec/tuning/tune.h"

#include "core/context.h"
#include "core/device.h"
#include "core/error.h"
#include "core/json.h"
#include "exec/compilation/choice.h"
#include "exec/compilation/compile_cache.h"
#include "exec/layout/layout.h"
#include "exec/running/context.h"
#include "exec/running/launch.h"
#include "exec/tuning/graph_file.h"
#include "sim_api.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace acl_sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTurn = 0.0005;  // seconds that one measurement takes at least
constexpr size_t kLeast = 7, kMost = 200;
constexpr double kWorthIt = 0.95;

// Note [Tuned layouts]
// In a network images come from other operators and go to others, which keep them channels-last or not (Note [Stored
// layouts]). A kernel that is the fastest for plain images, but reads or leaves another layout than the rule's, makes
// its neighbours slower than it gains. So each way is measured with the images in either layout, and has to gain in
// both and to leave its results as the rule leaves them.
std::vector<size_t> image_inputs(const CompiledOp& op, const std::string& type) {
  std::vector<size_t> images;
  if (type == "Conv2D" || type == "Conv2DBackpropFilter") images.push_back(0);
  if (type == "Conv2DBackpropInput" || type == "Conv2DBackpropFilter") images.push_back(2);
  const auto is_none = [&](size_t i) {
    return i >= op.inputs.size() || op.inputs[i].absent || op.inputs[i].host || op.inputs[i].dims.size() != 4;
  };
  images.erase(std::remove_if(images.begin(), images.end(), is_none), images.end());
  return images;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check(aclError code, const char* what) {
  if (code != ACL_SUCCESS) throw Error(code, std::string("tuning: ") + what + " failed");
}

// Operands in device memory, with values as networks have them, and a stream.
class Bench {
 public:
  Bench(const OperatorGraph& graph, const CompiledOp& op) : d_(graph.description()), op_(op) {
    const auto generator = at::detail::createCPUGenerator(7);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Operand& operand = op.inputs[i];
      if (operand.absent || operand.host) {
        const std::string& value = graph.value(i);
        inputs_.push_back(api::aclCreateDataBuffer(const_cast<char*>(value.data()), value.size()));
        continue;
      }
      inputs_.push_back(buffer(operand));
      const at::Tensor values = at::randn(operand.dims, generator, at::kFloat).to(scalar_type(operand.dtype));
      if (operand.bytes > 0)
        check(api::aclrtMemcpy(memory_.back(), operand.bytes, values.const_data_ptr(), operand.bytes,
                               ACL_MEMCPY_HOST_TO_DEVICE),
              "a copy");
    }
    for (const Operand& operand : op.outputs) outputs_.push_back(buffer(operand));
    check(api::aclrtCreateStream(&stream_), "a stream");
  }
  ~Bench() {
    if (stream_) api::aclrtDestroyStream(stream_);
    for (auto* list : {&inputs_, &outputs_}) {
      for (auto* one : *list) api::aclDestroyDataBuffer(one);
    }
    for (void* one : memory_) api::aclrtFree(one);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  double run(size_t times) {
    const auto start = Clock::now();
    for (size_t i = 0; i < times; ++i) check(launch(d_, inputs_.data(), outputs_.data(), stream_, false), "a launch");
    check(api::aclrtSynchronizeStream(stream_), op_.describe().c_str());
    return seconds_since(start);
  }
  // Takes these inputs as channels-last from now on, or as plain. What they hold is random either way.
  void store(const std::vector<size_t>& images, bool channels_last) {
    for (const size_t i : images) {
      const Operand& operand = op_.inputs[i];
      map().make_plain(place(inputs_[i]), operand.bytes);
      if (channels_last) map().mark(place(inputs_[i]), operand.dims, at::elementSize(scalar_type(operand.dtype)));
    }
  }
  // In which order the elements of each output lie.
  std::vector<uint64_t> orders() const {
    std::vector<uint64_t> all;
    for (size_t i = 0; i < outputs_.size(); ++i)
      all.push_back(op_.outputs[i].absent ? 0 : map().order(place(outputs_[i]), op_.outputs[i].bytes));
    return all;
  }
  std::vector<at::Tensor> results() const {
    std::vector<at::Tensor> all;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Operand& operand = op_.outputs[i];
      if (operand.absent) continue;
      at::Tensor one = at::empty(operand.dims, at::TensorOptions(scalar_type(operand.dtype)));
      check(api::aclrtMemcpy(one.mutable_data_ptr(), operand.bytes, outputs_[i]->data, operand.bytes,
                             ACL_MEMCPY_DEVICE_TO_HOST),
            "a copy");
      all.push_back(one);
    }
    return all;
  }

 private:
  // Where the device itself finds a buffer, by which the map knows it.
  static char* place(const aclDataBuffer* buffer) { return current_context().device->alias(buffer->data); }
  static LayoutMap& map() { return layout_of(*current_context().device); }
  aclDataBuffer* buffer(const Operand& operand) {
    if (operand.absent) return api::aclCreateDataBuffer(nullptr, 0);
    void* block = nullptr;
    check(api::aclrtMalloc(&block, std::max<size_t>(operand.bytes, 1), ACL_MEM_MALLOC_HUGE_FIRST), "an allocation");
    memory_.push_back(block);
    return api::aclCreateDataBuffer(block, operand.bytes);
  }

  Description d_;
  const CompiledOp& op_;
  std::vector<aclDataBuffer*> inputs_, outputs_;
  std::vector<void*> memory_;
  aclrtStream stream_ = nullptr;
};

// How far results of one operator may be apart, of their largest number.
double tolerance(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return 4e-3;
    case at::kBFloat16:
      return 3e-2;
    case at::kDouble:
      return 1e-11;
    default:
      return 1e-4;
  }
}

bool agree(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].numel() == 0) continue;
    const at::Tensor x = a[i].to(at::kDouble), y = b[i].to(at::kDouble);
    const double apart = (x - y).abs().max().item<double>(), largest = x.abs().max().item<double>();
    if (!(apart <= tolerance(a[i].scalar_type()) * std::max(largest, 1e-30))) return false;
  }
  return true;
}

struct Way {
  std::string choice;
  size_t repeats = 1;
  std::vector<double> seconds;              // of one execution, of the last measurement
  std::vector<std::vector<double>> before;  // of earlier ones

  static double best(const std::vector<double>& seconds) { return *std::min_element(seconds.begin(), seconds.end()); }
  // The mean of the measurements.
  double best() const {
    double sum = best(seconds);
    for (const auto& one : before) sum += best(one);
    return sum / static_cast<double>(before.size() + 1);
  }
};

// The median of how much longer one way took than the other in turns beside each other: what slows the machine down for
// a while slows both.
double usual_ratio(const std::vector<double>& way, const std::vector<double>& other) {
  std::vector<double> ratios;
  ratios.reserve(way.size());
  for (size_t i = 0; i < way.size(); ++i) ratios.push_back(way[i] / other[i]);
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

// Whether a way is worth it in each measurement. One lucky turn is not enough.
bool gains(const Way& way, const Way& rule) {
  const auto in_one = [](const std::vector<double>& way, const std::vector<double>& rule) {
    return Way::best(way) <= kWorthIt * Way::best(rule) && usual_ratio(way, rule) <= kWorthIt;
  };
  bool all = in_one(way.seconds, rule.seconds);
  for (size_t i = 0; i < way.before.size(); ++i) all = all && in_one(way.before[i], rule.before[i]);
  return all;
}

// Operators are compiled as they would be without tuning, whatever happens.
struct Unforced {
  ~Unforced() { force_choice({}); }
};

void measure(Bench& bench, std::vector<Way>& ways, double seconds) {
  for (Way& way : ways) {
    if (!way.seconds.empty()) way.before.push_back(std::move(way.seconds));
    way.seconds.clear();
    force_choice(way.choice);
    bench.run(1);
    way.repeats = std::clamp<size_t>(static_cast<size_t>(kTurn / std::max(bench.run(1), 1e-7)), 1, 64);
  }
  const auto start = Clock::now();
  for (size_t round = 0; round < kMost && (round < kLeast || seconds_since(start) < seconds); ++round) {
    for (Way& way : ways) {
      force_choice(way.choice);
      bench.run(1);  // found again, and in the caches
      way.seconds.push_back(bench.run(way.repeats) / static_cast<double>(way.repeats));
    }
  }
}

}  // namespace

std::string tune_graph(const std::string& file, int milliseconds) {
  const OperatorGraph graph(file);
  const Unforced unforced;
  force_choice(kDefaultChoice);
  bool fresh = false;
  const CompiledOp& op = LaunchScope().find_and_keep(graph.description(), &fresh);
  std::string text = "{\"identity\": " + json_text(identity_of(op)) + ", \"operator\": " + json_text(op.describe());
  const std::vector<std::string> choices = choices_of(op);
  text += format(", \"choices\": %zu", choices.size());
  if (choices.size() < 2 || milliseconds <= 0) return text + "}";

  Bench bench(graph, op);
  const std::vector<size_t> images = image_inputs(op, graph.description().type);
  std::vector<bool> storings{false};
  if (!images.empty()) storings.push_back(true);
  std::string differs;
  std::vector<std::string> fitting = choices;
  for (const bool channels_last : storings) {
    bench.store(images, channels_last);
    force_choice(kDefaultChoice);
    bench.run(1);
    const std::vector<uint64_t> orders = bench.orders();
    const std::vector<at::Tensor> wanted = bench.results();
    const auto unfit = [&](const std::string& choice) {
      force_choice(choice);
      bench.run(1);
      const bool same = bench.orders() == orders;
      if (agree(wanted, bench.results())) return !same;
      differs += (differs.empty() ? "" : ", ") + json_text(choice);
      return true;
    };
    fitting.erase(std::remove_if(fitting.begin(), fitting.end(), unfit), fitting.end());
  }
  std::vector<Way> ways;
  for (const auto& choice : fitting) ways.push_back({choice, 1, {}, {}});
  for (const bool channels_last : storings) {
    bench.store(images, channels_last);
    measure(bench, ways, milliseconds * 1e-3 / static_cast<double>(storings.size()));
  }
  const Way& rule = ways.front();
  const Way* fastest = &rule;
  for (const Way& way : ways) {
    if (gains(way, rule) && way.best() < fastest->best()) fastest = &way;
  }
  text += ", \"differs\": [" + differs + "], \"ways\": {";
  for (const Way& way : ways)
    text += (&way == &ways.front() ? "" : ", ") + json_text(way.choice) + format(": %.3f", way.best() * 1e6);
  return text + "}, \"choice\": " + json_text(fastest->choice) + "}";
}

}  // namespace acl_sim
