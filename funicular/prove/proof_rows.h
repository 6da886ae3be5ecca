#pragma once
// Generated rows with the labels, words or tags that an objective needs. All are random.

#include <memory>

#include "funicular/data/sample.h"
#include "funicular/format/model_config.h"

namespace funicular::prove {

using Rows = std::shared_ptr<const data::Dataset>;

/// With a class each, or the values of a regression. If the encoder has segments, every second row is a pair of
/// texts.
Rows with_labels(Rows text, const format::ModelConfig& config);
/// With any number of labels each, some rows with none.
Rows with_label_sets(Rows text, int64_t labels);
/// With a share of each label, and a weight. `independent`: shares do not sum to 1, and some are unknown.
Rows with_shares(Rows text, int64_t labels, bool independent);
/// With words: most tokens begin one.
Rows with_words(Rows text);
/// Cut into `texts` texts each, with a score.
Rows with_groups(Rows text, int64_t texts);
/// Cut into a query and two to four texts, each with a number from 0 to 3.
Rows with_ranked_texts(Rows text);
/// With a tag for each of a row's words, which `worded` has.
Rows with_tags(Rows worded, int64_t tags);

}  // namespace funicular::prove
