#pragma once
// How much memory of one device the processes of this host use together.
//
// Note [Shared bound]
// A card's memory is one, whoever uses it. Each process keeps its own file for what it allocates (Note [Two mappings]),
// and all that use the same device count in one table, a small memfd. Nothing of it has a name in a file system: who
// opens the device looks for the table among the open files of the running processes, and makes one if there is none; a
// name in the abstract socket space lets one at a time do so. Table and name end with the processes, however they end.
// A line of the table counts as long as its process has the table open, so what was killed, or executes another
// program, counts no more. Processes see one table when they describe the same device: of the same user, namespaces
// (network and processes), ASCEND_SIM_HOST, number and ASCEND_SIM_MEMORY.

#include <cstddef>
#include <cstdint>
#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

class Ledger {
 public:
  // Throws Error(ACL_ERROR_RT_DEV_SETUP_ERROR).
  Ledger(int physical_device, size_t bound);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Counts `size` more bytes of this process, unless all would be more than the bound.
  bool take(size_t size);
  void give(size_t size);
  // Bytes of all processes.
  size_t used();
  // "; of the others, process 12 uses 4096 bytes" and so on, for those that use some, at most eight.
  std::string others();

 private:
  struct Table;
  class Lock;
  void open_table(const std::string& name);
  void join();
  // Not if this process has closed all its files, the table among them: then its line is gone.
  bool has_line() const;
  size_t sum() const;
  void drop_ended();

  const size_t bound_;
  std::string link_;  // what /proc shows for the table's descriptor
  int file_ = -1;
  Table* table_ = nullptr;
  size_t line_ = 0;
};

}  // namespace acl_sim
