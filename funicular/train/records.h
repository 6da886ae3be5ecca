#pragma once
// Records of a run for people and tools: run.json, metrics.jsonl and TensorBoard events.

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::format {
class EventWriter;
}

namespace funicular::train {

struct StepRecord;

/// Appends to folder/metrics.jsonl and to an event file. Each line is one write, so that a killed process
/// leaves at most one torn line, at the end.
class Records {
 public:
  /// Keeps the records of metrics.jsonl up to `step` and its evaluations up to `evaluated_step`. Drops all later
  /// lines, because a resumed run writes them again.
  Records(const fs::path& folder, int64_t step, int64_t evaluated_step);
  ~Records();
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  void add(const StepRecord& record);
  /// The fields are named "eval_" + name.
  void add_evaluation(int64_t step, double epoch, const std::map<std::string, double>& metrics);
  /// Flushes metrics.jsonl to the disk; a checkpoint must not know of steps that it does not hold.
  void sync();

 private:
  void append(const OrderedJson& line);
  fs::path path_;
  int descriptor_ = -1;
  std::unique_ptr<format::EventWriter> events_;
};

/// Lets one process at a time train into a folder.
class RunLock {
 public:
  /// Throws InputError if another process holds it, RunError if the system gives no lock.
  explicit RunLock(const fs::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// Versions, host, processor, threads: what run.json says of where it ran.
OrderedJson describe_environment();

/// Resident memory of this process in bytes, or 0 if the system does not tell.
int64_t resident_memory();

}  // namespace funicular::train
