#pragma once
// The terms that a distillation's loss is a weighted sum of, and which layers learn from which.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/model/encoder.h"

namespace funicular::objective {

/// What a student learns from. Every term is a mean: the sum over the global batch divided by a count that follows
/// from the lengths of its sequences.
enum class DistillationKind {
  /// Squared difference of attention scores before the softmax, mean over heads and pairs of tokens of one sequence,
  /// summed over the map's layers. As many heads in both models.
  attention,
  /// Squared difference of hidden states, the student's through one learned projection (with bias, shared by all
  /// layers), mean over tokens and the teacher's channels, summed over the embeddings and the map's layers.
  hidden,
  /// Cross-entropy of the softmax of both models' logits divided by the temperature; of regression, the squared
  /// difference of both outputs. Mean as DistillationOptions::soft_mean says.
  soft,
  /// Cross-entropy against the row's label; of regression the squared error. Mean over rows.
  hard,
  /// Squared difference of the normalised hidden states of the first tokens, mean over rows, channels and the map's
  /// layers but the student's last (Sun et al., "Patient Knowledge Distillation", 2019, equation 7). One size.
  patient,
  /// Divergence of the relations of queries, keys and values of the student's last layer and one of the teacher's,
  /// mean over relation heads and tokens, summed over the three (MiniLMv2, nn/distances.h).
  relations,
  /// 1 − cosine of both models' last hidden states, mean over tokens (Sanh et al., "DistilBERT", 2019). One size.
  cosine,
  /// KL divergence from the teacher's to the student's distribution of the hidden words, both at the temperature,
  /// times its square, mean over hidden words (DistilBERT).
  tokens,
  /// The same of every token, mean over tokens: what DistilBERT's program does unless it is told otherwise.
  all_tokens,
  /// Cross-entropy of the hidden words, mean over them.
  mlm,
  /// Squared difference of both models' logits, mean over rows and classes (Ba, Caruana, "Do Deep Nets Really Need to
  /// be Deep?", 2014, equation 1).
  logits,
};

/// "attention", …, in the order of DistillationKind.
const std::vector<std::string>& distillation_names();

struct DistillationTerm {
  DistillationKind kind = DistillationKind::soft;
  double weight = 1;  ///< above 0: what is not used is left out
};

/// From "NAME" or "NAME=WEIGHT" each. Throws InputError: an unknown name (suggesting the nearest), one that comes
/// twice, a weight that is not above 0.
std::vector<DistillationTerm> parse_distillation_terms(const std::vector<std::string>& texts);
/// "attention 1, hidden 1"
std::string describe(const std::vector<DistillationTerm>& terms);

/// Student's layer ← teacher's layer, both from 1, ascending in both; the embeddings, 0 ← 0, go without saying.
struct LayerPair {
  int64_t student = 0, teacher = 0;
  bool operator==(const LayerPair&) const = default;
};
using LayerMap = std::vector<LayerPair>;

/// `text`: "uniform" (student's layer i of M from the teacher's i·N/M), "last" (from N − M + i), or pairs such as
/// "1:3,2:6". Throws InputError for a layer that is not there, N that M does not divide (uniform), and more layers
/// in the student than in the teacher.
LayerMap make_layer_map(const std::string& text, int64_t student_layers, int64_t teacher_layers);
std::string describe(const LayerMap& map);

struct DistillationOptions;

/// Which activations the terms read of each model.
model::LayerOutputs student_outputs(const DistillationOptions& options);
model::LayerOutputs teacher_outputs(const DistillationOptions& options);

/// Adds the segments that compute the terms to a model of the student and, in front of it, the teacher, whose
/// activations begin with kTeacher; or whose activations the batch has.
void add_distillation_segments(Model& model, const DistillationOptions& options);

/// Adds the counts of the terms to those of a batch that is packed.
void add_distillation_counts(MicroBatch& batch, const DistillationOptions& options);

/// Begins the names of a teacher's activations and weights.
inline constexpr const char* kTeacher = "teacher.";
/// Begins the names of weights that only the distillation uses.
inline constexpr const char* kDistillation = "distillation.";

}  // namespace funicular::objective
