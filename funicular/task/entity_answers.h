#pragma once
// Entities of a text with their characters, by the strategies of transformers' TokenClassificationPipeline.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/task/answers.h"

namespace funicular::task {

/// The strategy that makes entities of tokens. A word is a token and its following subwords. A token of WordPiece is
/// a subword if it has another length than its characters in the text. Other tokens are subwords if no blank precedes
/// them. The unknown token begins a word.
enum class Aggregation {
  none,     ///< each token whose tag is not O
  simple,   ///< neighbouring tokens of one type, unless the tag of one begins with B-
  first,    ///< as `simple`, for words with the tag of their first token
  average,  ///< words have the tag with the greatest mean probability
  max,      ///< words have the tag of their most confident token
};
/// In the order of Aggregation.
const std::vector<std::string>& aggregation_names();

/// The key in `note` of Task::answers that chooses one of aggregation_names(); it is never in config.json.
inline constexpr const char* kAggregation = "aggregation";

/// Answers {"entities": […]} for rows of one text. An entity is {"entity_group": …, "score": …, "word": …, "start":
/// …, "end": …}. The score is the mean of the probabilities. The word is the characters [start, end) of the text,
/// where transformers joins the tokens. With Aggregation::none an entity has "entity" and "index", the token's place
/// in its sequence, instead of "entity_group". `stride`: of windows, see objective::TextWindows; none: texts that are
/// too long are cut.
std::unique_ptr<Answers> make_entity_answers(std::vector<std::string> labels, Aggregation how,
                                             std::optional<int64_t> stride);

}  // namespace funicular::task
