#pragma once
// How commands are told to ACL: the interface between the launcher and what calls ACL's execution.
//
// Note [Encoders]
// An encoder makes of a command's key what all its executions share (Prepared), and that executes it on memory. Today
// there is one, for operators named by an IR type (AclopEncoder.cpp): contiguous operands, aclopCompileAndExecute.
// CANN's newer interface has a function for each operator and two phases: the first is given tensors with strides, and
// tells how much scratch memory the second needs. An encoder for it stands beside the first and changes no kernel:
//   - takes() the operators whose functions the library has;
//   - takes_strides(), so that OpCommand leaves views where they are;
//   - prepare() makes the tensors and an executor that can be repeated, and sets the scratch memory's size;
//   - execute() sets the addresses and runs the second phase.
// The launcher gives the scratch memory, since only it knows stream and lifetime.

#include <acl/acl.h>

#include <ATen/native/npu/frame/command/CommandKey.h>
#include <c10/macros/Macros.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace at::native::npu {

class Prepared;

// The memory of an operand: on the device, or on the host if the key says so; null for an absent one.
struct Memory {
  void* data = nullptr;
  size_t bytes = 0;
};

// An operator with everything settled but the stream: what the launcher executes, and observers see.
struct Command {
  const char* ir;  // a literal
  const Prepared* prepared;
  const Memory* operands;  // inputs, then outputs
  void* scratch;           // Prepared::scratch_bytes() of device memory
  uint64_t correlation;    // counts commands in the order of the calls from 1; 0 while nobody observes
};

// What all executions of a key share. Immutable once made, shared by a thread's cache and by tasks in the queue.
class Prepared : public c10::intrusive_ptr_target {
 public:
  Prepared(uint64_t hash, c10::IntArrayRef key) : hash_(hash), key_(key.begin(), key.end()) {}
  ~Prepared() override = default;

  bool is(uint64_t hash, c10::IntArrayRef key) const {
    if (hash_ != hash || key_.size() != key.size()) return false;
    for (size_t i = 0; i < key.size(); ++i) {
      if (key_[i] != key[i]) return false;
    }
    return true;
  }
  c10::IntArrayRef key() const { return key_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

  // Puts the command on the stream of the active device. Host values are read before it returns.
  virtual aclError execute(const Command& command, aclrtStream stream) const = 0;

 protected:
  size_t scratch_bytes_ = 0;  // device memory that an execution needs for itself

 private:
  uint64_t hash_;
  c10::SmallVector<int64_t, 8> key_;
};

class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual bool takes(const char* ir) const = 0;
  // Whether operands may be views as they are; otherwise OpCommand makes them contiguous.
  virtual bool takes_strides() const = 0;
  // Throws what ACL refuses.
  virtual c10::intrusive_ptr<Prepared> prepare(uint64_t hash, c10::IntArrayRef key) const = 0;
};

// For operators that no other encoder takes.
const Encoder& aclop_encoder();
// Adds an encoder, which must live as long as the process; asked before those added earlier. For initialisers of
// libraries: throws once a command has been prepared.
void add_encoder(const Encoder& encoder);

namespace detail {
extern std::atomic<bool> has_further_encoders;
const Encoder& find_encoder(const char* ir);
}  // namespace detail

inline const Encoder& encoder_of(const char* ir) {
  if (C10_LIKELY(!detail::has_further_encoders.load(std::memory_order_relaxed))) return aclop_encoder();
  return detail::find_encoder(ir);
}
inline bool takes_strides(const char* ir) {
  return C10_UNLIKELY(detail::has_further_encoders.load(std::memory_order_relaxed)) &&
         detail::find_encoder(ir).takes_strides();
}

}  // namespace at::native::npu
