#pragma once
// One operator as a file: what aclGenGraphAndDumpForOp writes, and a tuning pass reads.
//
// Note [Operator graphs]
// The file is JSON: the operator's type; its operands with dtype, format and dims, those on the host with their values;
// its attributes, once for readers and once byte for byte. Operators that are the same have one file, named by what is
// in it, so that a training run leaves as many files as it compiles operators. Device memory is not written: choices do
// not depend on it.

#include <acl/acl.h>

#include <string>
#include <vector>

#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

// Throws Error if the folder is not there or the file cannot be written.
void write_operator_graph(const Description& d, const aclDataBuffer* const* inputs, const std::string& folder);

// The operator of a file. Throws Error for one that is no operator graph.
class OperatorGraph {
 public:
  explicit OperatorGraph(const std::string& file);
  ~OperatorGraph();
  OperatorGraph(const OperatorGraph&) = delete;
  OperatorGraph& operator=(const OperatorGraph&) = delete;

  Description description() const;
  const std::string& value(size_t input) const { return values_[input]; }  // of a host input

 private:
  void release();
  void read(const std::string& file);

  std::string type_;
  std::vector<aclTensorDesc*> inputs_, outputs_;
  std::vector<std::string> values_;
  aclopAttr* attributes_ = nullptr;
};

}  // namespace acl_sim
