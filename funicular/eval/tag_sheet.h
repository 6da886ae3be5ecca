#pragma once
// What a tagger answered to each word of an evaluation, beside what is right: for a file that a person looks mistakes up in.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/eval/tasks.h"
#include "funicular/objective/tag_metrics.h"

namespace funicular::eval {

/// Measures as TagMetrics does, and keeps of each word the tag that it was given, with its probability.
class TagSheet final : public Metrics {
 public:
  /// `tags`: their names, by number.
  explicit TagSheet(std::vector<std::string> tags);
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override { return metrics_.finish(loss); }

  /// See TagMetrics::classes.
  OrderedJson classes() const { return metrics_.classes(); }
  /// Words that were given a wrong tag, the one whose own tag is least probable first: {"row": 1, "label": …, "predicted": …,
  /// "score": …, "label_score": …, "texts": [the text, the word]}: the probabilities of the prediction and of the word's own tag.
  /// The texts are read from the file that was evaluated; of a long one the words around the word are given. Rows with ids
  /// (row_ids.h) have them as "ids".
  OrderedJson mistakes(const Task& task, const fs::path& file) const;
  /// One JSON object a text, each on a line, in the order of the file: {"row": 1, "words": […], "labels": […], "predicted": […], "scores": […]};
  /// words that were cut off are predicted null.
  std::string lines(const Task& task, const fs::path& file) const;

 private:
  struct Word {
    int64_t label = 0, predicted = 0;
    double score = 0, label_score = 0;  ///< probability of the prediction, of the word's own tag
  };

  std::vector<std::string> tags_;
  objective::TagMetrics metrics_;
  std::map<int64_t, std::vector<Word>> words_;  ///< of each sample
};

}  // namespace funicular::eval
