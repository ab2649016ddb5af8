#pragma once
// What a compilation leaves on disk: files for debugging, and the cache that outlives the process.
//
// Note [Kernel files]
// ACL_OP_DEBUG_LEVEL 1 to 4 leaves files in the folder kernel_meta below ACL_DEBUG_DIR, or below the folder in which
// the process runs: the operator (.o, .json), at 1, 2 and 4 its source (.cce), at 1 and 2 where the source comes from
// (_loc.json), at 4 what it computes (_compute.json). There is no binary for this device: the .o is the record that the
// cache keeps, too.
//
// Note [Compile cache on disk]
// ACL_OP_COMPILER_CACHE_MODE=enable keeps one record for each compiled operator below
// ACL_OP_COMPILER_CACHE_DIR/kernel_cache/<chip>. An operator whose record is there counts as found, not as compiled. A
// record holds all that the operator was compiled for and the version of this library: it counts only if it is, byte
// for byte, what would be written now. So a record of another version, one that was cut off, or one of an operator with
// the same hash is written again. Records appear by renaming, whole or not at all: processes share a cache without a
// lock, and one that is killed leaves a .tmp file at most, which a later process removes when it is old. What cannot be
// written (a full disk, a folder that is gone) is one line in the log; the operator is compiled all the same.
// "force" removes the records that are there and writes new ones; with a debug level the cache is left alone, as on
// CANN.

#include <cstdint>
#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct CompiledOp;

struct KernelFiles {
  std::string debug_level, debug_dir, cache_mode, cache_dir;
};
void set_kernel_files(const KernelFiles& wanted);

// Whether files are to be looked for or written at all.
bool keeps_kernel_files();
// Whether the cache on disk has the operator; `text` says what it is compiled for.
bool find_on_disk(const CompiledOp& op, const std::string& text);
// Writes what the options want of an operator that has just been compiled.
void write_kernel_files(const CompiledOp& op, const std::string& text);

// A file, whole or not at all; false with errno.
bool write_whole(const std::string& path, const std::string& content);
// The same in every process and version.
uint64_t lasting_hash(const std::string& text);

}  // namespace acl_sim
