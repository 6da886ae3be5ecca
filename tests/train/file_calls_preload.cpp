// For whole programs: loaded before them (LD_PRELOAD), this library watches their files as FileCalls does.
// FILE_CALLS_FOLDER: what is watched. FILE_CALLS_KILL_AT: the number of the call before which the process is
// killed. FILE_CALLS_RANK: only the process of that rank. FILE_CALLS_LOG: gets a line a call when a process
// ends.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "file_calls.h"

namespace {

std::optional<funicular::test::FileCalls> calls;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

/// A launcher becomes a rank by fork: what it is shows only later.
bool is_watched() {
  return variable("RANK") == variable("FILE_CALLS_RANK");
}

__attribute__((constructor)) void watch_files() {
  const std::string folder = variable("FILE_CALLS_FOLDER");
  if (folder.empty()) return;
  calls.emplace(folder);
  calls->only_where(is_watched);
  const std::string number = variable("FILE_CALLS_KILL_AT");
  if (!number.empty()) calls->kill_at(std::atoi(number.c_str()));
}

__attribute__((destructor)) void write_log() {
  if (!calls || !is_watched() || variable("FILE_CALLS_LOG").empty()) return;
  const auto seen = calls->seen();
  calls.reset();
  if (std::FILE* const log = std::fopen(variable("FILE_CALLS_LOG").c_str(), "w")) {
    for (const auto& call : seen)
      std::fprintf(log, "%s %s %s\n", call.name.c_str(), call.path.c_str(), call.to.c_str());
    std::fclose(log);
  }
}

}  // namespace

// The program ends by this, without destructors.
extern "C" __attribute__((visibility("default"))) void _Exit(int code) {
  write_log();
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}
