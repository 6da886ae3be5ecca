#pragma once
// The options by which finetune trains an embedder: what belongs to its --loss.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/cli/arguments.h"
#include "funicular/task/finetune.h"

namespace funicular::cli {

class EmbedderOptions {
 public:
  /// Under a heading of its own.
  void declare(Arguments& arguments);
  /// Gives them to a run whose task is known; `loss`: the value of --loss. Throws InputError for a task that does not
  /// train an embedder, and for options that contradict each other.
  void apply(const Arguments& arguments, const std::string& loss, task::FinetuneOptions& run) const;
  /// May be empty.
  const fs::path& teacher() const { return teacher_; }

 private:
  objective::VectorLossOptions loss_;
  std::vector<std::string> matryoshka_;
  std::string pooling_;
  fs::path teacher_;
  bool distinct_batches_ = true;
};

}  // namespace funicular::cli
