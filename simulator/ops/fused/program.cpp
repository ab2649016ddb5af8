#include "ops/fused/program.h"

#include <charconv>
#include <cstdlib>

namespace acl_sim::fused {
namespace {

// Reads a text from front to back; whatever is not as expected is an error that shows the place.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("'") + c + "' is expected");
  }
  int64_t integer() {
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number is expected");
    at_ += static_cast<size_t>(end - begin);
    return value;
  }
  std::string_view until(std::string_view stops) {
    const size_t end = text_.find_first_of(stops, at_);
    if (end == std::string_view::npos) fail("it ends too early");
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }
  [[noreturn]] void fail(const std::string& reason) const {
    throw OpError(ACL_ERROR_INVALID_PARAM,
                  "the program of a fused operator is wrong at character " + std::to_string(at_) + ": " + reason);
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

StepAttrs::Value read_value(Reader& reader) {
  const std::string kind(reader.until(":"));
  reader.expect(':');
  const std::string word(reader.until("|}"));
  if (kind == "b") return word == "1";
  if (kind == "i") return static_cast<int64_t>(std::strtoll(word.c_str(), nullptr, 10));
  if (kind == "f") return std::strtod(word.c_str(), nullptr);
  if (kind == "s") return word;
  reader.fail("an attribute is b, i, f or s, not " + kind);
}

Step read_step(Reader& reader, int slots) {
  Step step;
  const std::string type(reader.until(" >"));
  step.def = find_op(type);
  if (step.def == nullptr) reader.fail("there is no operator " + type);
  if (step.def->run_fn == nullptr) reader.fail(type + " cannot be a step");
  while (reader.take(' ')) {
    const int64_t slot = reader.take('-') ? -1 : reader.integer();
    if (slot >= slots) reader.fail("slot " + std::to_string(slot) + " has no value yet");
    step.operands.push_back(static_cast<int>(slot));
  }
  const auto count = static_cast<int>(step.operands.size());
  if (count < step.def->min_inputs || count > step.def->max_inputs)
    reader.fail(type + " does not take " + std::to_string(count) + " operands");
  reader.expect('>');
  step.result = static_cast<int>(reader.integer());
  if (step.result != slots) reader.fail("the next slot is " + std::to_string(slots));
  reader.expect(':');
  step.dtype = static_cast<aclDataType>(reader.integer());
  if (reader.take('{')) {
    do {
      std::string name(reader.until("="));
      reader.expect('=');
      step.attrs.add(std::move(name), read_value(reader));
    } while (reader.take('|'));
    reader.expect('}');
  }
  return step;
}

}  // namespace

std::unique_ptr<const Program> parse(std::string_view text, size_t inputs, size_t outputs) {
  auto program = std::make_unique<Program>();
  program->inputs = program->slots = static_cast<int>(inputs);
  program->single.assign(inputs, false);
  Reader reader(text);
  const auto input = [&] {
    const int64_t i = reader.integer();
    if (i < 0 || i >= program->inputs) reader.fail("there are " + std::to_string(inputs) + " inputs");
    return static_cast<int>(i);
  };
  while (!reader.take('^')) {
    if (reader.take('#')) {
      program->single[static_cast<size_t>(input())] = true;
    } else if (reader.take('@')) {
      Broadcast broadcast;
      broadcast.input = input();
      reader.expect('=');
      do {
        broadcast.dims.push_back(reader.integer());
      } while (reader.take(','));
      program->broadcasts.push_back(std::move(broadcast));
    } else {
      program->steps.push_back(read_step(reader, program->slots++));
    }
    reader.expect(';');
  }
  do {
    program->outputs.push_back(static_cast<int>(reader.integer()));
    const int slot = program->outputs.back();
    if (slot < program->inputs || slot >= program->slots) reader.fail("an output is a step's result");
  } while (reader.take(','));
  reader.expect(';');
  if (!reader.at_end()) reader.fail("the outputs come last");
  if (program->outputs.size() != outputs || program->steps.empty())
    reader.fail("there are " + std::to_string(outputs) + " outputs");
  program->last_use.assign(static_cast<size_t>(program->slots), -1);
  for (size_t i = 0; i < program->steps.size(); ++i) {
    for (const int slot : program->steps[i].operands) {
      if (slot >= 0) program->last_use[static_cast<size_t>(slot)] = static_cast<int>(i);
    }
  }
  return program;
}

}  // namespace acl_sim::fused
