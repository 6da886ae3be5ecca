#pragma once
// Distillation (Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015; Jiao et al., "TinyBERT",
// 2020): a student learns to give the outputs of a teacher for the same sequences.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funicular/objective/distillation_terms.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/teacher_rows.h"
#include "funicular/objective/token_masker.h"

namespace funicular::objective {

struct DistillationOptions {
  std::vector<DistillationTerm> terms;
  format::ModelConfig student,
      teacher;             ///< if only a file has its answers, num_labels suffices
  bool documents = false;  ///< samples are pieces of documents; false: the rows of a task
  SequenceOptions sequence;
  MaskedLmOptions masking;  ///< for the terms tokens, all-tokens and mlm; its own `sequence` is not used
  LayerMap layers;          ///< for attention, hidden and patient
  double temperature = 1;   ///< for soft, tokens and all-tokens
  /// Divides the term soft by rows × classes, as TinyBERT's code does; false: by rows.
  bool mean_over_classes = true;
  int64_t relation_heads = 12;
  int64_t relation_layer = 0;  ///< the teacher's layer, from 1; 0: its last
  /// Makes the objective that collates a task's rows and measures the answers. Null: the one that fits the student's
  /// configuration (objective/distilled_answers.h).
  std::function<std::unique_ptr<Objective>(const text::Tokenizer&, const DistillationOptions&)> rows =
      nullptr;

  double weight(DistillationKind kind) const;  ///< 0 without this term
  bool has(DistillationKind kind) const { return weight(kind) > 0; }
  /// Whether some term reads the teacher's logits of rows.
  bool reads_teacher_logits() const { return has(DistillationKind::soft) || has(DistillationKind::logits); }
  bool reads_logits() const { return reads_teacher_logits() || has(DistillationKind::hard); }
  /// Whether both models' distributions of words are compared.
  bool compares_words() const { return has(DistillationKind::tokens) || has(DistillationKind::all_tokens); }
  bool reads_hidden_words() const { return compares_words() || has(DistillationKind::mlm); }
  int64_t teacher_relation_layer() const {
    return relation_layer > 0 ? relation_layer : teacher.encoder.layers;
  }
  /// The highest layer of the teacher that a term reads: the last one if a term reads its logits.
  int64_t teacher_layers_read() const;
};

/// Throws InputError for terms that exclude each other or do not fit the models. Distillation's constructor checks
/// this too; this function does it before any file is read.
void check_distillation(const DistillationOptions& options);

/// Batch and counts: as Classification's (rows of a task), as MaskedLm's (terms tokens, all-tokens, mlm), or only the
/// sequences. Each term adds a count of its name. Outputs, if a term reads logits of rows: `logits`, `labels`.
///
/// Only the named terms and their inputs are computed. Thus there is no head that no term reads, and no teacher layer
/// above the highest one read. If no term reads the teacher, the model has no teacher.
class Distillation : public Objective {
 public:
  /// `make_teacher` returns a model with build_teacher's segments and loaded weights. If it is empty, `rows` has the
  /// teacher's outputs. Throws InputError for terms that exclude each other or do not fit the models.
  Distillation(const text::Tokenizer& tokenizer, DistillationOptions options,
               std::function<Model()> make_teacher = nullptr,
               std::shared_ptr<const TeacherRows> rows = nullptr);

  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override { return inner_->length(sample); }
  model::Head head() const override;
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Distillation>(); }
  std::map<std::string, std::string> identity() const override;

  /// The student alone, with the outputs that the terms read.
  Model build_student(model::ModelOptions encoder) const;
  /// The teacher alone: the encoder up to the highest layer that the terms read, and the head if they read its
  /// logits.
  Model build_teacher(model::ModelOptions encoder) const;
  /// Joins the model that is trained: the frozen teacher first, then the student and the terms. `teacher` may be
  /// empty.
  Model compose(Model student, Model teacher) const;
  /// compose(build_student(encoder), make_teacher())
  Model build(model::ModelOptions encoder) const override;
  /// The teacher's activations that the terms read, as a cache stores them.
  std::vector<KeptActivation> teacher_activations() const;
  /// Returns a teacher whose forward pass puts these activations into `found`, which must outlive it.
  Model collecting(Model teacher, TensorMap& found) const;
  /// Whether the model contains a teacher.
  bool has_teacher() const { return reads_teacher_ && !rows_; }

  const DistillationOptions& options() const { return options_; }

 private:
  DistillationOptions options_;
  std::function<Model()> make_teacher_;
  std::shared_ptr<const TeacherRows> rows_;
  text::SequenceTemplate sequence_;
  OwnStores own_stores_;
  std::unique_ptr<Objective> inner_;  ///< makes the batches, without the teacher's part
  bool reads_teacher_ = false;
};

}  // namespace funicular::objective
