#pragma once
// How texts become vectors: the options of every command that embeds.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/cli/common_options.h"
#include "funicular/comm/group.h"
#include "funicular/task/embed.h"

namespace funicular::cli {

class EmbeddingOptions {
 public:
  /// --pooling, --prompt, --prompt-name, --role, --truncate-dim, --normalize, --max-length.
  void declare(Arguments& arguments);
  /// --precision, --micro-batch-tokens, --window, --device, --threads.
  void declare_machine(Arguments& arguments);
  /// --share-device, for a command of several ranks.
  void declare_sharing(Arguments& arguments) { device_.declare_sharing(arguments); }
  /// --cuda-graphs.
  void declare_graphs(Arguments& arguments) { device_.declare_graphs(arguments); }
  /// Applies --device and --threads, joins the ranks and chooses the precision.
  comm::Group join();
  task::EmbedderOptions options() const;
  /// ", with the prompt …"; "" without one.
  static std::string prompt_text(const task::Embedder& embedder);

 private:
  const Arguments* arguments_ = nullptr;
  std::vector<std::string> poolings_;
  std::string prompt_;
  task::EmbedderOptions options_{.precision = kAutoPrecision};
  DeviceOptions device_;
};

}  // namespace funicular::cli
