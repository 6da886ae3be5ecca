#pragma once
// The options by which finetune trains a reranker: what belongs to its --loss.

#include <cstdint>
#include <optional>
#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/task/finetune.h"

namespace funicular::cli {

class RerankerOptions {
 public:
  /// Under a heading of its own.
  void declare(Arguments& arguments);
  /// Gives them to a run whose task is known; `loss`: the value of --loss. Throws InputError for another task.
  void apply(const Arguments& arguments, const std::string& loss, task::FinetuneOptions& run) const;

 private:
  objective::RankingLossOptions loss_;
  std::string activation_;
};

}  // namespace funicular::cli
