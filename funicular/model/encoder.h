#pragma once
// Encoders on packed batches, with the weights, names and arithmetic of transformers' models. The configuration says
// what is computed (format/encoder_spec.h) and what the weights are called (format/family.h).

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/model/heads.h"

namespace funicular::model {

/// Activations that an encoder outputs besides `hidden`, for later segments. Layers count from 1.
struct LayerOutputs {
  std::set<int64_t> hidden;  ///< `hidden.N` [T, H]: output of layer N for all tokens; 0: the embeddings
  std::set<int64_t>
      query_key_value;  ///< `query_key_value.N` [T, 3H] of layer N, side by side, with their bias
};
/// The activation "hidden.N".
std::string hidden_port(int64_t layer);
/// The activation "query_key_value.N".
std::string query_key_value_port(int64_t layer);

/// The options of build_model().
struct ModelOptions {
  format::ModelConfig config = {};    ///< sizes and family, from config.json
  Head head = Head::masked_lm;        ///< the head behind the encoder
  at::ScalarType dtype = at::kFloat;  ///< kFloat or kDouble
  uint64_t seed = 42;                 ///< for the random weights only
  /// Whether a matrix of this name will be loaded (model/weights.h, weights_in). Its values are undefined until then,
  /// as random numbers take longer than loading. Null: none.
  std::function<bool(const std::string& name)> loaded = nullptr;
  at::Device device = at::kCPU;  ///< device of the weights
  bool repeatable =
      false;  ///< on a GPU: uses only bit-reproducible operations, see nn/functional.h, attention
  LayerOutputs gives = {};  ///< activations for later segments
};

/// The number of weights that build_model makes.
int64_t count_parameters(const format::ModelConfig& config, const Head& head);

/// Builds a model of the family of config.model_type with random weights: normal(0, initializer_range), biases 0,
/// norms 1 and 0. The embeddings of the padding token and of its position, if it has one, are 0. Each element is
/// keyed by the seed and its logical tensor's name, and depends on nothing else.
///
/// Segments: `embeddings`, `layer.0` …, then the head's. Parameters have Hugging Face's names as slices;
/// query, key and value of a layer are one Parameter of three slices, multiplied in one product.
///
/// Reads `token_ids` [T] and `token_type_ids` [T], both int64, and the head's inputs. Taps: `embeddings`, `layer.N`
/// [T, H], and the head's.
///
/// The last layer computes queries, keys and values for all tokens, and then only the rows that the head reads
/// (Head::rows), which must ascend (InputError). All other rows have zero gradients. With an observer it computes all
/// rows, and drops the unread ones afterwards.
///
/// Throws InputError for a head that does not fit the configuration. Also throws it, before any weight is made, if
/// the weights exceed the memory.
Model build_model(const ModelOptions& options);

}  // namespace funicular::model
