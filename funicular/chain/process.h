#pragma once
// Runs a step of a chain as a process of its own and waits for its end.

#include <string>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::chain {

/// Runs `program` with `words` (the first is its name) to its end. Its standard output goes into `output`; its
/// standard input is empty. It leads a process group of its own. A signal that asks this process to stop is passed
/// on once (base/interrupt.h; a guard must live). If this process ends without such a signal, the program gets
/// SIGTERM. Returns its exit code, or 128 + signal if a signal ended it. Throws RunError.
int run_process(const fs::path& program, const std::vector<std::string>& words, const fs::path& output);

/// Lets one chain at a time work with a folder, until this process and its children have ended.
class ChainLock {
 public:
  /// Waits a while for the processes of a chain that was killed; then throws InputError.
  explicit ChainLock(const fs::path& folder);
  ~ChainLock();
  ChainLock(const ChainLock&) = delete;
  ChainLock& operator=(const ChainLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace funicular::chain
