#pragma once
// Which objective a configuration or a name asks for.

#include <memory>
#include <string>
#include <vector>

#include "funicular/format/model_config.h"
#include "funicular/objective/class_loss.h"
#include "funicular/objective/electra.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"
#include "funicular/objective/token_masker.h"

namespace funicular::objective {

struct ClassifierOptions {
  SequenceOptions sequence;
  bool labelled = true;                          ///< false: for prediction
  std::vector<std::string> metrics{"accuracy"};  ///< of single labels: names of objective/metrics.h
  int64_t positive = 1;                          ///< the class whose F1 the metric f1 is
  std::vector<double> thresholds = {};           ///< of several labels, see MultiLabelOptions
  ClassLoss loss = {};                           ///< of single labels and of tags
};

/// What a classifier of this configuration learns: Tags for a token classifier, otherwise MultiLabel, Regression or Classification
/// by its problem_type. A single label without problem_type is regression, as in transformers.
std::unique_ptr<Objective> make_classifier(const text::Tokenizer& tokenizer,
                                           const format::ModelConfig& config,
                                           const ClassifierOptions& options);

/// The values of `pretrain --objective`.
const std::vector<std::string>& pretraining_names();
/// `electra`: read by the objective of this name alone. Throws InputError for another name.
std::unique_ptr<Objective> make_pretraining(const std::string& name, const text::Tokenizer& tokenizer,
                                            const MaskedLmOptions& options,
                                            const ElectraOptions& electra = {});

}  // namespace funicular::objective
