#pragma once
// The header of a dump file: protobuf's wire format of the message DumpData, written by hand.
//
//   message Shape    { repeated uint64 dim = 1; }
//   message OpOutput { data_type = 1; format = 2; Shape shape = 3; uint64 size = 6; Shape original_shape = 7; }
//   message OpInput  { data_type = 1; format = 2; Shape shape = 3; uint64 size = 5; Shape original_shape = 6; }
//   message DumpData { string version = 1; uint64 dump_time = 2; repeated OpOutput output = 3;
//                      repeated OpInput input = 4; string op_name = 6; }
// Formats have the numbers of aclFormat; data types have numbers of their own.

#include <cstdint>
#include <string>

#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

std::string dump_header(const CompiledOp& op, const std::string& op_name, uint64_t time_us, bool inputs, bool outputs);
// What a type or name becomes in a file name: period, slash, backslash and space are underscores.
std::string dump_name_part(std::string name);

}  // namespace acl_sim
