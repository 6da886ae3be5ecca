#pragma once
// Deliberate errors, to check that a comparison detects them: wrappers around a layout's objective and strategy.
// Errors inside the library are planted in tests/mutants.

#include <memory>
#include <string>
#include <vector>

#include "funicular/objective/objective.h"
#include "funicular/parallel/strategy.h"

namespace funicular::prove {

enum class Fault {
  none,
  wrong_count,          ///< each rank divides its loss by the count of its own share
  repeated_mask,        ///< the sequences of all ranks and steps are masked alike
  dropped_micro_batch,  ///< each rank leaves out the last micro-batch of a step
  halved_gradient,      ///< the gradient of one weight is half of what it should be
};
/// "none", "wrong-count", …, in the order of Fault.
const std::vector<std::string>& fault_names();
/// Throws InputError that lists the names.
Fault parse_fault(const std::string& name);

/// Each returns its argument, or a wrapper around it if it is where the fault belongs.
std::unique_ptr<objective::Objective> with_fault(std::unique_ptr<objective::Objective> objective,
                                                 Fault fault);
std::unique_ptr<parallel::Strategy> with_fault(std::unique_ptr<parallel::Strategy> strategy, Fault fault);

}  // namespace funicular::prove
