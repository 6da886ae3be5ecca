#pragma once
// The options of finetune for tasks that have several losses: embedders and rerankers.

#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/cli/embedder_options.h"
#include "funicular/cli/reranker_options.h"
#include "funicular/task/finetune.h"

namespace funicular::cli {

class LossOptions {
 public:
  /// --loss, and what belongs to it.
  void declare(Arguments& arguments);
  /// Gives them to a run whose task is known. Throws InputError for a task that has one loss.
  void apply(const Arguments& arguments, task::FinetuneOptions& run) const;
  /// The teacher of an embedder; may be empty.
  const fs::path& teacher() const { return embedding_.teacher(); }

 private:
  std::string loss_;
  EmbedderOptions embedding_;
  RerankerOptions reranking_;
};

}  // namespace funicular::cli
