#include "funicular/model/encoder.h"

#include <algorithm>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/memory.h"
#include "funicular/model/builder.h"
#include "funicular/model/embeddings.h"
#include "funicular/model/layer.h"
#include "funicular/model/relative.h"
#include "funicular/runtime/dry_run.h"

namespace funicular::model {

namespace {

/// For smaller weights, the memory check is not worth a system call.
constexpr double kGiB = 1024.0 * 1024 * 1024;

void require_memory(const ModelOptions& options) {
  const format::ModelConfig& config = options.config;
  const int64_t count = count_parameters(config, options.head);
  const double needed = static_cast<double>(count) * static_cast<double>(c10::elementSize(options.dtype));
  if (needed < kGiB || DryRun::is_on()) return;
  const double memory = std::max(0.0, available_memory()), swap = available_swap();
  if (needed > memory + swap)
    throw InputError(
        "memory",
        "the configuration describes a model of {:.3g} weights (vocab_size {}, hidden_size {}, "
        "intermediate_size {}, {} layers, {} positions). They take {:.1f} GiB, and several times that in "
        "training; {:.1f} GiB of memory and {:.1f} GiB of swap are available. Check the sizes for typing "
        "errors. If they are right, end other programs or take a smaller model",
        static_cast<double>(count), config.encoder.vocabulary, config.encoder.width,
        config.encoder.feed_forward.width, config.encoder.layers, config.encoder.positions.rows,
        needed / kGiB, memory / kGiB, swap / kGiB);
}

}  // namespace

std::string hidden_port(int64_t layer) {
  return std::string(kHidden) + "." + std::to_string(layer);
}

std::string query_key_value_port(int64_t layer) {
  return "query_key_value." + std::to_string(layer);
}

int64_t count_parameters(const format::ModelConfig& config, const Head& head) {
  int64_t count = count_embedding_parameters(config.encoder) + count_relative_parameters(config.encoder) +
                  head.parameters(config);
  for (int64_t layer = 0; layer < config.encoder.distinct_layers(); ++layer)
    count += count_layer_parameters(config.encoder, layer);
  return count;
}

Model build_model(const ModelOptions& given) {
  ModelOptions options = given;
  if (options.head.reads_texts && options.config.classifies_mean) options.head.rows = nullptr;
  const format::ModelConfig& config = options.config;
  format::check_model_config(config, "config.json");
  if (options.dtype != at::kFloat && options.dtype != at::kDouble)
    throw InputError("model", "expected weights of float32 or float64, found {}",
                     c10::toString(options.dtype));
  if (options.head.check) options.head.check(config);
  require_memory(options);
  Builder builder(options);
  const auto add_behind = [&](int64_t layer) {
    if (options.head.behind_layer) options.head.behind_layer(builder, layer);
  };
  add_embeddings(builder);
  add_behind(0);
  const RelativeWeights relative = add_relative_weights(builder);
  LayerWeights weights;
  for (int64_t layer = 0; layer < config.encoder.layers; ++layer) {
    if (layer == 0 || config.encoder.weights_of(layer) != config.encoder.weights_of(layer - 1))
      weights = add_layer_weights(builder, layer);
    add_layer(builder, layer, weights, relative);
    add_behind(layer + 1);
  }
  options.head.add(builder);
  Model model = builder.finish();
  model.replicate = [given] { return build_model(given); };
  return model;
}

}  // namespace funicular::model
