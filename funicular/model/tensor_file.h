#pragma once
// Files of tensors in fp32.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "funicular/base/file.h"

namespace funicular::model {

/// Writes a safetensors file of these tensors in fp32. Throws RunError if it cannot be written.
void write_tensors(const std::map<std::string, at::Tensor>& tensors, const fs::path& file);

}  // namespace funicular::model
