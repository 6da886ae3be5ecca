#include "funicular/prove/proof_rows.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "funicular/objective/reranking.h"

namespace funicular::prove {

namespace {

class LabelledText final : public data::Dataset {
 public:
  LabelledText(std::shared_ptr<const data::Dataset> text, const format::ModelConfig& config)
      : text_(std::move(text)), labels_(config.num_labels), pairs_(config.encoder.token_types > 1) {}
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    // A regression's label has real values.
    sample.label = labels_ == 1 ? static_cast<double>(index % 7) / 4 : static_cast<double>(index % labels_);
    if (!pairs_ || index % 2 == 0) return sample;
    const data::TokenSpan whole = sample.columns[0].tokens;
    const size_t first = whole.size() / 3;
    sample.columns[0].tokens = whole.first(first);
    sample.columns.push_back({whole.subspan(first, whole.size() - first), {}});
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 1; }

 private:
  std::shared_ptr<const data::Dataset> text_;
  int64_t labels_;
  bool pairs_;
};

class GroupedText final : public data::Dataset {
 public:
  GroupedText(Rows text, int64_t texts) : text_(std::move(text)), texts_(static_cast<size_t>(texts)) {}
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    const data::TokenSpan whole = sample.columns[0].tokens;
    sample.columns.clear();
    for (size_t i = 0; i < texts_; ++i) {
      const size_t begin = whole.size() * i / texts_, end = whole.size() * (i + 1) / texts_;
      sample.columns.push_back({whole.subspan(begin, end - begin), {}});
    }
    sample.label = static_cast<double>(index % 7) / 4;
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 4; }

 private:
  Rows text_;
  size_t texts_;
};

class RankedText final : public data::Dataset {
 public:
  explicit RankedText(Rows text) : text_(std::move(text)) {
    for (int64_t number = 0; number < kNumbers; ++number)
      labels_.push_back(static_cast<double>(number * number % 4));
  }
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    const data::TokenSpan whole = sample.columns[0].tokens;
    const size_t texts = 2 + static_cast<size_t>(index) % 3;
    sample.columns.clear();
    for (size_t i = 0; i <= texts; ++i) {
      const size_t begin = whole.size() * i / (texts + 1), end = whole.size() * (i + 1) / (texts + 1);
      sample.columns.push_back({whole.subspan(begin, end - begin), {}});
    }
    sample.shares = std::span(labels_).subspan(static_cast<size_t>(index) % (kNumbers - texts), texts);
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 5; }

 private:
  static constexpr int64_t kNumbers = 17;
  Rows text_;
  std::vector<double> labels_;
};

/// Generated rows with words: most tokens begin one.
class WordedText final : public data::Dataset {
 public:
  explicit WordedText(std::shared_ptr<const data::Dataset> text) : text_(std::move(text)) {
    for (int64_t row = 0; row < text_->size(); ++row) {
      const data::TokenSpan tokens = text_->get(row).columns[0].tokens;
      bounds_.push_back(words_.size());
      for (size_t i = 0; i < tokens.size(); ++i) words_.push_back(i == 0 || tokens[i] % 4 != 0);
    }
    bits_.resize((words_.size() + 7) / 8);
    for (size_t i = 0; i < words_.size(); ++i) bits_[i / 8] |= static_cast<uint8_t>(words_[i] << (i % 8));
  }
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    sample.columns[0].word_starts = {.bits = bits_.data(), .begin = bounds_.at(static_cast<size_t>(index))};
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 2; }

 private:
  std::shared_ptr<const data::Dataset> text_;
  std::vector<uint8_t> words_, bits_;  ///< 1 where a token begins a word; the same as bits
  std::vector<uint64_t> bounds_;
};

/// Generated rows with a list of classes each: of labels, or of tags.
class ListedText final : public data::Dataset {
 public:
  ListedText(Rows text, const std::function<std::vector<int32_t>(int64_t row, const data::Sample&)>& list)
      : text_(std::move(text)) {
    for (int64_t row = 0; row < text_->size(); ++row) lists_.push_back(list(row, text_->get(row)));
  }
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    sample.label_set = lists_.at(static_cast<size_t>(index));
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 3; }

 private:
  Rows text_;
  std::vector<std::vector<int32_t>> lists_;
};

class SharedText final : public data::Dataset {
 public:
  SharedText(Rows text, int64_t labels, bool independent)
      : text_(std::move(text)), labels_(static_cast<size_t>(labels)) {
    for (int64_t row = 0; row < text_->size(); ++row) {
      double sum = 0;
      const size_t begin = shares_.size();
      for (int64_t label = 0; label < labels; ++label) {
        const bool known = !independent || (row + label) % 4 != 3;
        shares_.push_back(!independent ? static_cast<double>(1 + (row * 7 + label * 3) % 5)
                          : known      ? static_cast<double>((row * 5 + label * 3) % 11) / 10
                                       : std::numeric_limits<double>::quiet_NaN());
        sum += shares_.back();
      }
      if (!independent)
        for (size_t i = begin; i < shares_.size(); ++i) shares_[i] /= sum;
    }
  }
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    sample.shares = std::span(shares_).subspan(static_cast<size_t>(index) * labels_, labels_);
    sample.weight = 0.5 + 0.75 * static_cast<double>(index % 5);
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 5; }

 private:
  Rows text_;
  size_t labels_;
  std::vector<double> shares_;
};

}  // namespace

Rows with_shares(Rows text, int64_t labels, bool independent) {
  return std::make_shared<SharedText>(std::move(text), labels, independent);
}

Rows with_labels(Rows text, const format::ModelConfig& config) {
  return std::make_shared<LabelledText>(std::move(text), config);
}

Rows with_groups(Rows text, int64_t texts) {
  return std::make_shared<GroupedText>(std::move(text), texts);
}

Rows with_ranked_texts(Rows text) {
  return std::make_shared<RankedText>(std::move(text));
}

Rows with_words(Rows text) {
  return std::make_shared<WordedText>(std::move(text));
}

Rows with_label_sets(Rows text, int64_t labels) {
  return std::make_shared<ListedText>(std::move(text), [=](int64_t row, const data::Sample&) {
    std::vector<int32_t> list;
    for (int64_t label = 0; label < labels; ++label)
      if ((row >> (label % 8)) % 2 == 1) list.push_back(static_cast<int32_t>(label));
    return list;
  });
}

Rows with_tags(Rows worded, int64_t tags) {
  return std::make_shared<ListedText>(std::move(worded), [=](int64_t row, const data::Sample& sample) {
    const data::Sample::Column& column = sample.columns[0];
    std::vector<int32_t> list;
    for (size_t i = 0; i < column.tokens.size(); ++i)
      if (column.word_starts[i])
        list.push_back(static_cast<int32_t>((row + static_cast<int64_t>(list.size())) % tags));
    return list;
  });
}

}  // namespace funicular::prove
