#include "funicular/cli/embedding_options.h"

#include <fmt/format.h>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/cli/sharing_ranks.h"
#include "funicular/comm/together.h"

namespace funicular::cli {

void EmbeddingOptions::declare(Arguments& arguments) {
  arguments_ = &arguments;
  arguments.section("Vectors");
  arguments
      .add("pooling", "NAME", poolings_, Effect::result,
           "how a text's tokens become its vector, in folders without modules.json; several stand side by "
           "side")
      .choices(format::pooling_names())
      .common()
      .default_text("as the folder says, else mean");
  arguments
      .add("role", "NAME", options_.role, task::text_role_names(), Effect::result,
           "takes the model's prompt for a query or a document")
      .common();
  arguments
      .add("prompt-name", "NAME", options_.prompt_name, Effect::result, "the model's prompt of this name")
      .default_text("the model's default prompt");
  arguments.add("prompt", "TEXT", prompt_, Effect::result, "stands before each text, as it is")
      .default_text("as --prompt-name or --role says");
  arguments
      .add("truncate-dim", "N", options_.truncate_dim, Effect::result,
           "keep the first N numbers of each vector")
      .common()
      .range(1, 1 << 20)
      .default_text("all");
  arguments
      .add("normalize", options_.normalise, Effect::result,
           "bring each vector to length 1, after --truncate-dim; models with a Normalize module do so before "
           "it")
      .alias("normalise");
  declare_max_length(arguments, options_.max_length, "longer texts are truncated")
      .default_text("as the model says, else its longest");
}

void EmbeddingOptions::declare_machine(Arguments& arguments) {
  arguments_ = &arguments;
  declare_inference_precision(arguments, options_.precision, {"fp64"});
  declare_micro_batch_tokens(arguments, options_.batch_tokens, "bounds the memory", 1)
      .alias("batch-tokens")
      .default_text(default_by_device(options_.batch_tokens, kTokensOnGpu));
  arguments
      .add("window", "ROWS", options_.window, Effect::rounding,
           "rows that are read ahead and sorted by length for speed")
      .range(1, 1 << 20)
      .default_text(default_by_device(options_.window, kRowsOnGpu));
  device_.declare(arguments);
}

comm::Group EmbeddingOptions::join() {
  if (arguments_->given("prompt") && (!options_.prompt_name.empty() || options_.role != task::TextRole::any))
    throw InputError("usage", "--prompt is the prompt itself; leave out --prompt-name and --role");
  if (!options_.prompt_name.empty() && options_.role != task::TextRole::any)
    throw InputError("usage", "--prompt-name and --role both choose a prompt; leave one out");
  device_.apply();
  comm::Group group = join_sharing_ranks(device_);
  options_.precision = comm::from_first(
      group, [&] { return resolve_inference_precision(options_.precision, device_.place()); });
  return group;
}

task::EmbedderOptions EmbeddingOptions::options() const {
  task::EmbedderOptions all = options_;
  for (const std::string& name : poolings_) all.poolings.push_back(format::parse_pooling(name, "--pooling"));
  if (arguments_->given("prompt")) all.prompt = prompt_;
  all.device = device_.place();
  all.cuda_graphs = device_.cuda_graphs;
  device_.use_gpu_default(*arguments_, "micro-batch-tokens", all.batch_tokens, kTokensOnGpu);
  device_.use_gpu_default(*arguments_, "window", all.window, kRowsOnGpu);
  return all;
}

std::string EmbeddingOptions::prompt_text(const task::Embedder& embedder) {
  if (embedder.prompt().empty()) return "";
  return fmt::format(", with the prompt {}", json_text(Json(embedder.prompt())));
}

}  // namespace funicular::cli
