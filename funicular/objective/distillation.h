#pragma once
// Distillation (Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015; Jiao et al., "TinyBERT",
// 2020): a student learns from what a teacher makes of the same sequences.

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
      teacher;             ///< teacher: num_labels at least, where there is no teacher but a file
  bool documents = false;  ///< samples are pieces of documents; false: the rows of a task
  SequenceOptions sequence;
  MaskedLmOptions masking;  ///< of the terms tokens, all-tokens and mlm; `sequence` of its own is not used
  LayerMap layers;          ///< of attention, hidden and patient
  double temperature = 1;   ///< of soft, tokens and all-tokens
  /// What the term soft is divided by: rows × classes, as TinyBERT's code does; false: rows.
  bool mean_over_classes = true;
  int64_t relation_heads = 12;
  int64_t relation_layer = 0;  ///< the teacher's, from 1; 0: its last
  /// Makes the batches of a task's rows, and measures the answers; null: as the student's configuration asks for
  /// (objective/distilled_answers.h).
  std::function<std::unique_ptr<Objective>(const text::Tokenizer&, const DistillationOptions&)> rows =
      nullptr;

  double weight(DistillationKind kind) const;  ///< 0: there is no such term
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
  /// The teacher's layers that some term reads; its last one where its logits are read.
  int64_t teacher_layers_read() const;
};

/// Throws InputError for terms that do not fit together or to the models, as Distillation's constructor does: before
/// anything is read.
void check_distillation(const DistillationOptions& options);

/// Batch and counts of Classification (rows), or of MaskedLm (terms tokens, all-tokens, mlm), or the sequences alone;
/// counts of the terms by their names. Outputs: `logits`, `labels` where logits are read.
///
/// A term that is not named is not computed, nor what only it would read: no head, no layers of the teacher above
/// the highest that is read, no teacher where nothing is read of it.
class Distillation : public Objective {
 public:
  /// `make_teacher` gives a model with build_teacher's segments, its weights loaded; empty: `rows` has what is read
  /// of it. Throws InputError for terms that do not fit together or to the models.
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

  /// The student alone, with what the terms read of it.
  Model build_student(model::ModelOptions encoder) const;
  /// The teacher alone: the encoder's layers that are read, and the head if its logits are.
  Model build_teacher(model::ModelOptions encoder) const;
  /// What is trained: the teacher frozen and in front, the student, the terms. `teacher` may be empty.
  Model compose(Model student, Model teacher) const;
  /// compose(build_student(encoder), make_teacher())
  Model build(model::ModelOptions encoder) const override;
  /// What the terms read of a teacher, as a cache keeps it.
  std::vector<KeptActivation> teacher_activations() const;
  /// A teacher whose forward pass puts these into `found`, which must outlive it.
  Model collecting(Model teacher, TensorMap& found) const;
  /// Whether a teacher is in the model.
  bool has_teacher() const { return reads_teacher_ && !rows_; }

  const DistillationOptions& options() const { return options_; }

 private:
  DistillationOptions options_;
  std::function<Model()> make_teacher_;
  std::shared_ptr<const TeacherRows> rows_;
  text::SequenceTemplate sequence_;
  OwnStores own_stores_;
  std::unique_ptr<Objective> inner_;  ///< what the batches are without a teacher
  bool reads_teacher_ = false;
};

}  // namespace funicular::objective
