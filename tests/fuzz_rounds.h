#pragma once
// How many rounds a test of random inputs takes.

#include <cstdlib>

namespace funicular {

/// The environment variable FUNICULAR_FUZZ_ROUNDS, or `few`.
inline int fuzz_rounds(int few) {
  const char* const wanted = std::getenv("FUNICULAR_FUZZ_ROUNDS");
  return wanted ? std::atoi(wanted) : few;
}

}  // namespace funicular
