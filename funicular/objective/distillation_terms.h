#pragma once
// The terms of the distillation loss, which is their weighted sum, and the map of student layers to teacher layers.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/model/encoder.h"

namespace funicular::objective {

/// The terms of the distillation loss. Every term is a mean: the sum over the global batch divided by a count, which
/// depends on no weights.
enum class DistillationKind {
  /// Squared difference of attention scores before the softmax: mean over heads and pairs of tokens of one sequence,
  /// summed over the map's layers. Both models need the same number of heads.
  attention,
  /// Squared difference of hidden states: mean over tokens and the teacher's channels, summed over the embeddings and
  /// the map's layers. One learned projection with bias, shared by all layers, maps the student's states to the
  /// teacher's width.
  hidden,
  /// Cross-entropy of the softmax of both models' logits divided by the temperature. For regression: the squared
  /// difference of both outputs. DistillationOptions::mean_over_classes selects the mean.
  soft,
  /// Cross-entropy against the row's label; for regression, the squared error. Mean over rows.
  hard,
  /// Squared difference of the normalised hidden states of the first tokens: mean over rows, channels and the map's
  /// layers, except the student's last layer. Both models need the same width. Source: Sun et al., "Patient Knowledge
  /// Distillation", 2019, equation 7.
  patient,
  /// KL divergence of the relations of the student's last layer and one layer of the teacher (MiniLMv2,
  /// nn/distances.h). Mean over relation heads and tokens, summed over the relations of queries, keys and values.
  relations,
  /// 1 − cosine of both models' last hidden states, mean over tokens (Sanh et al., "DistilBERT", 2019). Both models
  /// need the same width.
  cosine,
  /// temperature² KL(teacher || student) of the distributions of words at the masked tokens, both at the temperature.
  /// Mean over masked tokens (DistilBERT).
  tokens,
  /// As `tokens`, but at all tokens, and the mean over them: the default of DistilBERT's program.
  all_tokens,
  /// Cross-entropy of the masked tokens, mean over them.
  mlm,
  /// Squared difference of both models' logits, mean over rows and classes (Ba, Caruana, "Do Deep Nets Really Need to
  /// be Deep?", 2014, equation 1).
  logits,
};

/// Whether an encoder has what the term compares. `attention` and `relations` read queries and keys, which rotary
/// positions turn. `attention` also needs scores that are products of them alone, without what a distance adds.
bool can_compare(const format::EncoderSpec& encoder, DistillationKind kind);

/// "attention", …, in the order of DistillationKind.
const std::vector<std::string>& distillation_names();

struct DistillationTerm {
  DistillationKind kind = DistillationKind::soft;
  double weight = 1;  ///< above 0; unused terms are left out
};

/// Parses texts "NAME" or "NAME=WEIGHT". Throws InputError for an unknown name (and suggests the nearest), a repeated
/// name, and a weight that is not above 0 or is above 1e9.
std::vector<DistillationTerm> parse_distillation_terms(const std::vector<std::string>& texts);
/// "attention 1, hidden 1"
std::string describe(const std::vector<DistillationTerm>& terms);

/// A student layer and the teacher layer that it learns from, both numbered from 1. A map ascends in both. The
/// embeddings (0 from 0) are always paired, without an entry.
struct LayerPair {
  int64_t student = 0, teacher = 0;
  bool operator==(const LayerPair&) const = default;
};
using LayerMap = std::vector<LayerPair>;

/// `text`: "uniform" (student's layer i of M from the teacher's i·N/M), "last" (from N − M + i), or pairs such as
/// "1:3,2:6". Throws InputError for a layer that does not exist and pairs that do not ascend. "uniform" and "last"
/// also throw it for a student with more layers than the teacher; "uniform" throws it if M does not divide N.
LayerMap make_layer_map(const std::string& text, int64_t student_layers, int64_t teacher_layers);
std::string describe(const LayerMap& map);

struct DistillationOptions;

/// The activations of each model that the terms read.
model::LayerOutputs student_outputs(const DistillationOptions& options);
model::LayerOutputs teacher_outputs(const DistillationOptions& options);

/// Adds the segments that compute the terms. `model` is the teacher, whose activations begin with kTeacher, then the
/// student. Without a teacher, the batch has its activations.
void add_distillation_segments(Model& model, const DistillationOptions& options);

/// Adds the counts of the terms to the batch, which must be packed.
void add_distillation_counts(MicroBatch& batch, const DistillationOptions& options);

/// Prefix of the names of a teacher's activations and weights.
inline constexpr const char* kTeacher = "teacher.";
/// Prefix of the names of weights that only the distillation uses.
inline constexpr const char* kDistillation = "distillation.";

}  // namespace funicular::objective
