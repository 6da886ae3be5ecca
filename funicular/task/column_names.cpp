#include "funicular/task/column_names.h"

#include <algorithm>
#include <cctype>

namespace funicular::task {

const Names kLabels{"label",     "labels",    "class",     "classes",  "category", "categories", "target",
                    "sentiment", "rating",    "stars",     "score",    "topic",    "intent",     "tag",
                    "tags",      "genre",     "polarity",  "emotion",  "priority", "y",          "gold",
                    "goldlabel", "labelname", "classname", "labeltext"};
const Names kTexts{"text",    "sentence", "review",     "content",   "comment",  "body",
                   "message", "tweet",    "document",   "utterance", "question", "query",
                   "post",    "abstract", "reviewtext", "fulltext"};
const Names kShortTexts{"title", "headline", "subject", "description", "summary"};
const std::vector<std::pair<std::string_view, std::string_view>> kPairs{
    {"sentence1", "sentence2"}, {"text1", "text2"},         {"texta", "textb"},   {"question1", "question2"},
    {"premise", "hypothesis"},  {"sentencea", "sentenceb"}, {"query", "passage"}, {"question", "sentence"},
    {"first", "second"},        {"question", "answer"}};

std::string plain_name(std::string_view name) {
  std::string text;
  for (const unsigned char c : name)
    if (std::isalnum(c) || c >= 0x80) text += static_cast<char>(std::tolower(c));
  return text;
}

bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), plain_name(name)) != names.end();
}

bool is_text_name(std::string_view name) {
  const std::string plain = plain_name(name);
  return is_among(kTexts, name) || std::any_of(kPairs.begin(), kPairs.end(), [&](const auto& pair) {
           return pair.first == plain || pair.second == plain;
         });
}

}  // namespace funicular::task
