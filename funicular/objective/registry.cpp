#include "funicular/objective/registry.h"

#include "funicular/objective/classification.h"
#include "funicular/objective/multi_label.h"

namespace funicular::objective {

std::unique_ptr<Objective> make_classifier(const text::WordPiece& tokenizer, const format::BertConfig& config,
                                           const ClassifierOptions& options) {
  if (is_multi_label(config))
    return std::make_unique<MultiLabel>(tokenizer, MultiLabelOptions{.sequence = options.sequence,
                                                                     .num_labels = config.num_labels,
                                                                     .labelled = options.labelled,
                                                                     .thresholds = options.thresholds});
  return std::make_unique<Classification>(tokenizer,
                                          ClassificationOptions{.sequence = options.sequence,
                                                                .num_labels = config.num_labels,
                                                                .regression = model::is_regression(config),
                                                                .labelled = options.labelled,
                                                                .metrics = options.metrics});
}

}  // namespace funicular::objective
