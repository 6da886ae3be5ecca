#pragma once
// Users' modules that say which of their weights may be cut (core/slicing.h).

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "funicular/core/slicing.h"

namespace funicular {

/// A module derives from it, too. wrap_module asks each that it finds in a module.
class Sliceable {
 public:
  virtual ~Sliceable() = default;
  /// `parameter_of` gives the Parameter of one of the module's weights. `slicing` is to be held, for forward passes.
  virtual void declare_slices(const std::shared_ptr<Slicing>& slicing,
                              const std::function<Parameter*(const at::Tensor&)>& parameter_of) = 0;
};

}  // namespace funicular
