#pragma once
// Results of evaluation as bytes, to be sent from rank to rank.

#include <map>
#include <string>
#include <string_view>

#include "funicular/parallel/strategy.h"

namespace funicular::train {

/// Exact: of numbers and tensors every bit comes back. Outputs become contiguous tensors on the CPU.
std::string encode(const parallel::EvalResult& result);
parallel::EvalResult decode(std::string_view bytes);

std::string encode_metrics(const std::map<std::string, double>& metrics);
std::map<std::string, double> decode_metrics(std::string_view bytes);

}  // namespace funicular::train
