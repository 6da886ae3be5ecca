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
  /// At most `most` words that were given a wrong tag, the surest first: {"row": 1, "label": …, "predicted": …, "score": …,
  /// "texts": [the whole text, the word]}. The texts are read from the file that was evaluated.
  OrderedJson mistakes(const Task& task, const fs::path& file, size_t most) const;
  /// One JSON object a text, in the order of the file: {"row": 1, "words": […], "labels": […], "predicted": […], "scores": […]};
  /// words that were cut off are predicted null. Throws RunError (disk).
  void write(const fs::path& path, const Task& task, const fs::path& file) const;

 private:
  struct Word {
    int64_t label = 0, predicted = 0;
    double score = 0;
  };

  std::vector<std::string> tags_;
  objective::TagMetrics metrics_;
  std::map<int64_t, std::vector<Word>> words_;  ///< of each sample
};

}  // namespace funicular::eval
