#pragma once
// The evaluation sheet of a tagger: its answer and the true tag of each word.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/task/sheet.h"

namespace funicular::task {

/// Measures as objective::TagMetrics does. Details are TagMetrics::classes: entities by type, otherwise words by tag.
class TagSheet final : public Sheet {
 public:
  /// `tags`: their names, by number.
  explicit TagSheet(std::vector<std::string> tags);
  void start() override;
  void add(const TensorMap& outputs) override;
  void add_details(OrderedJson& found) const override;
  /// {"row": 1, "label": …, "predicted": …, "score": …, "label_score": …, "texts": [the text, the word]}
  /// for each word that got a wrong tag. The scores are the probabilities of the prediction and of the word's own
  /// tag. A long text shows the words around the word.
  OrderedJson mistakes(const EvaluatedRows& rows) const override;
  /// {"row": 1, "words": […], "labels": […], "predicted": […], "scores": […]}; "predicted" is null for words that
  /// were cut off.
  std::string lines(const EvaluatedRows& rows) const override;

 private:
  struct Word {
    int64_t label = 0, predicted = 0;
    double score = 0, label_score = 0;  ///< probability of the prediction, of the word's own tag
  };
  struct Place {
    double label_score = 0;
    int64_t sample = 0;
    size_t word = 0;
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> wrong_words() const;

  std::vector<std::string> tags_;
  std::map<int64_t, std::vector<Word>> words_;  ///< of each sample
};

}  // namespace funicular::task
