#pragma once
// Tests that run with the processor's kernels and with those for GPUs, a few threads being the team.

#include <string>

#include "tests/team_kernels.h"

namespace funicular::nn {

enum class KernelKind { processor, team };

inline std::string name_of(KernelKind kernels) {
  return kernels == KernelKind::team ? "Team" : "Processor";
}

/// While it lives, operations use these kernels.
class WithKernels {
 public:
  explicit WithKernels(KernelKind kernels) : team_(kernels == KernelKind::team) {}

  /// Where what the operations read has to lie.
  at::Device place() const { return team_.place(); }

 private:
  TeamKernels team_;
};

}  // namespace funicular::nn
