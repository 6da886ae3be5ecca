#include "funicular/objective/similar_words.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "funicular/format/word_vectors.h"

namespace funicular::objective {

namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = std::min(text.find_first_not_of(" \t", at), text.size());
    at = std::min(text.find_first_of(" \t", begin), text.size());
    if (at > begin) parts.push_back(text.substr(begin, at - begin));
  }
  return parts;
}

bool same_form(const text::TokenizedText& a, const text::TokenizedText& b) {
  return a.word_starts == b.word_starts && a.ids != b.ids;
}

/// The vectors of words of one form, normalised to length 1.
struct Group {
  std::vector<text::TokenizedText> words;
  std::vector<float> vectors;
};

/// Reads word vectors line by line.
class VectorReader {
 public:
  VectorReader(const fs::path& file, const text::Tokenizer& tokenizer, int64_t most_words)
      : lines_("masking", file), tokenizer_(tokenizer), most_words_(most_words) {}

  void add(std::string_view line, int64_t number) {
    if (lines_.read(line, number)) keep(lines_.word(), lines_.vector());
  }

  size_t size() const { return lines_.size(); }
  const auto& groups() const { return groups_; }

 private:
  void keep(std::string_view word, std::span<const float> vector) {
    if (kept_ >= most_words_) return;
    double squares = 0;
    for (const float value : vector) squares += double{value} * value;
    const auto forms = phrase_forms(tokenizer_, word);
    // If the tokenizer does not distinguish several spellings, the first one counts, which is the most frequent.
    const auto number = static_cast<int32_t>(kept_);
    if (forms.empty() || !(squares > 0) || known_.add(forms[0].ids, number) != number) return;
    ++kept_;
    const double norm = std::sqrt(squares);
    for (size_t form = 0; form < forms.size(); ++form) {
      Group& group = groups_[{form, forms[form].word_starts}];
      group.words.push_back(forms[form]);
      for (const float value : vector) group.vectors.push_back(static_cast<float>(value / norm));
    }
  }

  format::WordVectorLines lines_;
  const text::Tokenizer& tokenizer_;
  int64_t most_words_, kept_ = 0;
  Phrases known_;
  std::map<std::pair<size_t, std::vector<uint8_t>>, Group> groups_;  ///< by form and word starts
};

/// Calls use(word, the concatenated tokens of its nearest words) for each word of a group.
template <class Use>
void nearest_of(Group group, size_t size, int64_t count, Use use) {
  const auto words = static_cast<int64_t>(group.words.size());
  const int64_t kept = std::min(count, words - 1);
  if (kept < 1) return;
  const at::Tensor all = at::from_blob(group.vectors.data(), {words, static_cast<int64_t>(size)}, at::kFloat);
  constexpr int64_t kBlock = 1024;
  for (int64_t begin = 0; begin < words; begin += kBlock) {
    const int64_t rows = std::min(kBlock, words - begin);
    const at::Tensor cosines = at::mm(all.narrow(0, begin, rows), all.t());
    for (int64_t row = 0; row < rows; ++row) cosines.data_ptr<float>()[row * words + begin + row] = -2;
    const at::Tensor best = std::get<1>(at::topk(cosines, kept)).contiguous();
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < kept; ++i) {
        const auto& other = group.words[static_cast<size_t>(best.data_ptr<int64_t>()[row * kept + i])].ids;
        tokens.insert(tokens.end(), other.begin(), other.end());
      }
      use(group.words[static_cast<size_t>(begin + row)].ids, std::move(tokens));
    }
  }
}

}  // namespace

SimilarWords SimilarWords::read(const fs::path& file, const text::Tokenizer& tokenizer,
                                const SimilarWordsOptions& options) {
  SimilarWords similar;
  bool first = true, lexicon = false;
  for_each_line(file, [&](std::string_view line, int64_t) {
    if (std::exchange(first, false)) lexicon = line.find('\t') != std::string_view::npos;
  });
  if (lexicon)
    similar.read_lexicon(file, tokenizer);
  else
    similar.read_vectors(file, tokenizer, options);
  if (similar.lists_.empty())
    throw InputError("masking",
                     "{}: no word has a similar one of as many pieces; expected lines of a word, a tab and "
                     "similar words, or word vectors as text",
                     file.string());
  return similar;
}

void SimilarWords::read_lexicon(const fs::path& file, const text::Tokenizer& tokenizer) {
  for_each_line(file, [&](std::string_view line, int64_t number) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0 || split(line.substr(tab)).empty())
      throw InputError("masking", "{}:{}: expected a word, a tab and similar words, found \"{}\"",
                       file.string(), number, line);
    const auto forms = phrase_forms(tokenizer, line.substr(0, tab));
    for (size_t form = 0; form < forms.size(); ++form) {
      std::vector<int32_t> list;
      for (const std::string_view other : split(line.substr(tab))) {
        const auto others = phrase_forms(tokenizer, other);
        if (form < others.size() && same_form(forms[form], others[form]))
          list.insert(list.end(), others[form].ids.begin(), others[form].ids.end());
      }
      add(forms[form].ids, list);
    }
  });
}

void SimilarWords::add(std::span<const int32_t> word, const std::vector<int32_t>& list) {
  if (list.empty()) {
    ++without_;
    return;
  }
  const int32_t place = words_.add(word, static_cast<int32_t>(lists_.size()));
  if (static_cast<size_t>(place) == lists_.size()) lists_.emplace_back();
  auto& own = lists_[static_cast<size_t>(place)];
  own.insert(own.end(), list.begin(), list.end());
}

void SimilarWords::read_vectors(const fs::path& file, const text::Tokenizer& tokenizer,
                                const SimilarWordsOptions& options) {
  VectorReader reader(file, tokenizer, options.most_words);
  for_each_line(file, [&](std::string_view line, int64_t number) { reader.add(line, number); });
  for (const auto& [form, group] : reader.groups()) {
    if (group.words.size() == 1) ++without_;
    nearest_of(group, reader.size(), options.count,
               [&](const std::vector<int32_t>& word, std::vector<int32_t> tokens) {
                 words_.add(word, static_cast<int32_t>(lists_.size()));
                 lists_.push_back(std::move(tokens));
               });
  }
}

std::span<const int32_t> SimilarWords::of(std::span<const int32_t> word) const {
  const int32_t place = words_.find(word);
  if (place == Phrases::none) return {};
  return lists_[static_cast<size_t>(place)];
}

}  // namespace funicular::objective
