#pragma once
// The one call of gloo's that c10d's headers need of its Context. LibTorch holds gloo's code, but not its headers.

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
