#pragma once
// The result folder of a profiling session, PROF_<number>_<time>_<letters>:
//   info.json             the format's version, the process, devices, switches, and at the end what was left out
//   texts.txt             line n is text n of the records
//   host/records.bin      calls of the ABI, ranges and marks
//   device_<n>/records.bin  the tasks of one device
// Records are aclsimRecord (acl_simulator.h) one after another, as this host lays them out. A thread writes them while
// the program runs: what a process leaves that dies is complete up to its last moments. A folder that cannot be
// written, such as on a full disk, ends the writing and is told at the end; the program is not held up.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl_prof.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct ProfileSwitches {
  std::vector<uint32_t> devices;
  aclprofAicoreMetrics metrics;
  uint64_t data;  // ACL_PROF_*
};

class ProfileFolder {
 public:
  // Makes the folder and begins. Throws Error with ACL's code.
  ProfileFolder(const std::string& parent, ProfileSwitches switches);
  ~ProfileFolder();
  ProfileFolder(const ProfileFolder&) = delete;
  ProfileFolder& operator=(const ProfileFolder&) = delete;

  // Ends and completes the files; returns why something is missing, "" if nothing is.
  std::string finish();
  const std::string& path() const { return path_; }

 private:
  class File;

  void work();
  void drain();
  bool wanted(uint8_t kind, int16_t device, uint32_t text);
  void write_texts();
  void write_info(bool ended);
  File& file_of(int16_t device);

  std::string path_;
  ProfileSwitches switches_;
  uint32_t session_ = 0;
  std::atomic<bool> ending_{false};
  std::string failure_;  // the writing thread's until it has ended
  uint64_t dropped_ = 0, written_ = 0;
  uint32_t texts_written_ = 0;
  int64_t started_ = 0;
  std::vector<char> on_ai_cpu_;               // by text
  std::vector<std::unique_ptr<File>> files_;  // the host's, then each device's
  std::unique_ptr<File> texts_;
  std::thread writer_;
};

}  // namespace acl_sim
