#pragma once
// Chooses the stand-in of NCCL (nccl_stand_in.cpp) for this process and the ranks that it starts.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace funicular::comm::test {

/// The library, which lies beside the test programs.
inline std::string stand_in_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libnccl_stand_in.so";
}

/// `words` are those of FUNICULAR_STAND_IN: "delay=5", "fail=3".
inline void use_stand_in(const std::string& words = "") {
  ::setenv("FUNICULAR_NCCL", stand_in_path().c_str(), 1);
  ::setenv("FUNICULAR_STAND_IN", words.c_str(), 1);
}

}  // namespace funicular::comm::test
