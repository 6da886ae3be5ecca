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

/// Activations that an encoder gives besides `hidden`, for segments behind its own. Layers count from 1.
struct LayerOutputs {
  std::set<int64_t> hidden;  ///< `hidden.N` [T, H], of all tokens: what layer N gives; 0: the embeddings
  std::set<int64_t>
      query_key_value;  ///< `query_key_value.N` [T, 3H] of layer N, side by side, with their bias
};
/// The activation "hidden.N".
std::string hidden_port(int64_t layer);
/// The activation "query_key_value.N".
std::string query_key_value_port(int64_t layer);

/// The options of build_model().
struct ModelOptions {
  format::ModelConfig config = {};    ///< sizes and family, as config.json has them
  Head head = Head::masked_lm;        ///< what stands behind the encoder
  at::ScalarType dtype = at::kFloat;  ///< kFloat or kDouble
  uint64_t seed = 42;                 ///< of the random weights, and of nothing else
  /// Whether a matrix of this name will be loaded (model/weights.h, weights_in): its values are undefined until then,
  /// since random numbers take longer than loading. Null: none.
  std::function<bool(const std::string& name)> loaded = nullptr;
  at::Device device = at::kCPU;  ///< where the weights lie
  bool repeatable = false;       ///< on a GPU: only what repeats bit for bit, see nn/functional.h, attention
  LayerOutputs gives = {};       ///< activations for segments behind
};

/// How many weights build_model makes.
int64_t count_parameters(const format::ModelConfig& config, const Head& head);

/// A model of the family of config.model_type, with random weights: normal(0, initializer_range), biases 0,
/// normalisation 1 and 0. The embeddings of the padding token and of its position, if it has one, are 0. Each
/// element is keyed by the seed and its logical tensor's name, so that it depends on nothing else.
///
/// Segments: `embeddings`, `layer.0` …, then the head's. Parameters have Hugging Face's names as slices;
/// query, key and value of a layer are one Parameter of three slices, multiplied in one product.
///
/// Reads `token_ids` [T] and `token_type_ids` [T], both int64, and what the head reads. Taps: `embeddings`,
/// `layer.N` [T, H], and the head's.
///
/// The last layer gives queries, keys and values for all tokens. After that it computes only the rows that
/// the head reads (Head::rows), which must ascend (InputError). All other rows have zero gradients. With an
/// observer it computes all, and leaves them out afterwards.
///
/// Throws InputError for a head that the configuration does not fit and, before anything is made, if the
/// weights take more memory than there is.
Model build_model(const ModelOptions& options);

}  // namespace funicular::model
