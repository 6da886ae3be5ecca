#pragma once
// Layouts that tests compare: each runs once, in processes of its own where it has several ranks.

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "../comm/ranks.h"
#include "../train/helpers.h"
#include "funicular/base/log.h"
#include "funicular/format/model_config.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/prove/pairs.h"
#include "funicular/prove/proof.h"

namespace funicular::prove::test {

using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;
using funicular::test::TemporaryFolder;

inline const ProofTask kTask{.steps = 3, .batch_size = 10};

/// kTask in the precision that TEST_PRECISION names.
inline ProofTask usual_task() {
  ProofTask task = kTask;
  if (const char* const name = std::getenv("TEST_PRECISION")) task.precision = parse_precision(name);
  return task;
}

/// Layers, groups of layers or buckets that are not the family's usual ones. `variant` is the part after the slash.
inline void change_layers(format::EncoderSpec& encoder, const std::string& variant) {
  if (variant == "alternating") {  // each of two stages has a layer of either kind
    encoder.set_layers(2);
    encoder.set_layers(4);
  }
  if (variant == "two-groups") {
    encoder.set_layers(4);
    encoder.layer_groups = 2;
  }
  if (variant == "few-buckets") {  // distances of these rows share buckets, and some lie beyond the farthest
    encoder.positions.relative->buckets = 16;
    encoder.positions.relative->farthest = 40;
  }
}

/// The encoder of "family" or "family/variant" in the sizes that a proof without a model has.
inline format::ModelConfig config_of(const std::string& name) {
  const size_t slash = std::min(name.find('/'), name.size());
  const std::string family = name.substr(0, slash);
  format::ModelConfig config = format::default_config(family);
  config.encoder.vocabulary = 997;
  config.encoder.width = 48;
  config.encoder.set_layers(3);
  if (slash < name.size()) change_layers(config.encoder, name.substr(slash + 1));
  config.encoder.heads = 4;
  config.encoder.feed_forward.width = 200;
  config.encoder.positions.rows = 128;
  if (config.encoder.embedding_size) config.encoder.embedding_size = 20;
  config.encoder.activation = "relu";
  config.id2label = {"a", "b", "c"};
  config.num_labels = 3;
  if (family == "albert")  // whose defaults drop nothing
    config.encoder.dropouts = {.hidden = 0.1, .attention = 0.2, .feed_forward_output = 0};
  if (family == "nomic_bert")  // whose defaults drop nothing
    config.encoder.dropouts = {.hidden = 0.1, .attention = 0.2};
  if (family == "gte") config.encoder.dropouts.attention = 0.2;
  if (family == "modernbert") {  // whose defaults drop nothing, and whose windows are longer than these rows
    config.encoder.padding_id = 0;
    config.encoder.dropouts = {.hidden = 0.1,
                               .attention = 0.2,
                               .attention_output = 0.2,
                               .feed_forward_output = 0,
                               .feed_forward = 0.15};
    for (format::LayerAttention& layer : config.encoder.attention)
      if (layer.window) layer.window = 3;
    config.classifies_mean = true;
  }
  return config;
}

inline ProofTask task_of(const std::string& objective) {
  ProofTask task = kTask;
  set_objective(task, objective);
  if (const char* const configuration = std::getenv("TEST_MODEL")) task.model = configuration;
  task.max_grad_norm = 0.5;  // below the norms of these gradients: they are clipped
  return task;
}

inline void run_rank() {
  log::set_level(log::Level::error);
  const Layout layout = Layout::parse(std::getenv("TEST_LAYOUT"));
  const char* const objective = std::getenv("TEST_OBJECTIVE");
  ProofTask task = objective ? task_of(objective) : usual_task();
  if (const char* const name = std::getenv("TEST_OPTIMIZER")) task.optimizer = optim::usual_optimizer(name);
  if (std::getenv("TEST_DEVICE") && !layout.is_reference())
    task.device = at::Device(std::getenv("TEST_DEVICE"));
  run_layout(task, layout, comm::Group::from_environment({.device = task.device}),
             std::getenv("TEST_OUTPUT"));
}

class Proofs : public ::testing::Test {
 protected:
  Proof compare(const std::string& a, const std::string& b) {
    const Layout first = Layout::parse(a), second = Layout::parse(b);
    promise = promise_of(first, second, usual_task());
    return compare_layouts(ran(first), ran(second), kTask.steps, promise);
  }
  Promise promise;

  /// Where the layout's tensors and losses lie; runs it once, in processes of its own where it has several.
  fs::path ran(const Layout& layout) {
    const auto [found, added] = runs_.try_emplace(layout.text, folder_ / std::to_string(runs_.size()));
    const fs::path& output = found->second;
    if (!added) return output;
    fs::create_directories(output);
    ::setenv("TEST_LAYOUT", layout.text.c_str(), 1);
    ::setenv("TEST_OUTPUT", output.c_str(), 1);
    if (layout.ranks > 1) {
      EXPECT_EQ(Ranks(layout.ranks).end(), Endings(static_cast<size_t>(layout.ranks), 0)) << layout.text;
    } else {
      at::set_num_threads(1);  // as ranks have
      run_rank();
    }
    return output;
  }
  fs::path folder(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
  std::map<std::string, fs::path> runs_;
};

}  // namespace funicular::prove::test
