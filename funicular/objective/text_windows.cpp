#include "funicular/objective/text_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/objective/next_sentence.h"

namespace funicular::objective {

WindowCut::WindowCut(int64_t room, int64_t stride) : room_(room), stride_(stride) {
  if (room < 1 || stride < 0 || stride >= room)
    throw InputError("windows", "windows of {} tokens cannot share {}; expected a stride from 0 to {}", room,
                     stride, room - 1);
}

int64_t WindowCut::count(int64_t tokens) const {
  if (tokens <= room_) return 1;
  const int64_t step = room_ - stride_;
  return 1 + (tokens - room_ + step - 1) / step;
}

TokenRange WindowCut::window(int64_t tokens, int64_t index) const {
  const int64_t begin = index * (room_ - stride_);
  return {begin, std::min(begin + room_, tokens)};
}

TokenRange WindowCut::own_part(int64_t tokens, int64_t index) const {
  // Two neighbours share the tokens [b, e). The token t is e - 1 - t from the edge of the first window and t - b from
  // that of the second one.
  const auto begin_of = [&](int64_t number) {
    const int64_t b = window(tokens, number).begin, e = window(tokens, number - 1).end;
    return (e - 1 + b) / 2 + 1;
  };
  return {index == 0 ? 0 : begin_of(index), index + 1 == count(tokens) ? tokens : begin_of(index + 1)};
}

WindowCut window_cut(const text::SequenceTemplate& form, const SequenceOptions& options) {
  const int64_t room = text_length(form, options, 1), stride = options.stride.value();
  if (stride < 0 || stride >= room)
    throw InputError(
        "usage",
        "--stride {}: a window has {} tokens of text with --max-length {}; expected a stride from 0 to {}",
        stride, room, options.max_length, room - 1);
  return {room, stride};
}

TextWindows::TextWindows(std::shared_ptr<const data::Dataset> texts, const WindowCut& cut, bool tags)
    : texts_(std::move(texts)), cut_(cut) {
  for (int64_t index = 0; index < texts_->size(); ++index) {
    const data::Sample text = texts_->get(index);
    if (text.columns.size() != 1)
      throw InputError("windows", "sample {} has {} texts; windows are made of single texts", index,
                       text.columns.size());
    first_windows_.push_back(first_windows_.back() +
                             cut_.count(static_cast<int64_t>(text.columns.front().tokens.size())));
    if (tags) add_words(text);
  }
}

void TextWindows::add_words(const data::Sample& text) {
  const data::Sample::Column& column = text.columns.front();
  const auto tokens = static_cast<int64_t>(column.tokens.size());
  size_t first = 0;
  for (int64_t number = 0; number < cut_.count(tokens); ++number) {
    const TokenRange window = cut_.window(tokens, number), own = cut_.own_part(tokens, number);
    Words words{bits_, first, 0};
    bits_ += static_cast<uint64_t>(window.size());
    word_bits_.resize(bits_ / 8 + 1);
    for (int64_t token = own.begin; token < own.end; ++token) {
      // The first token always begins a word, even if the store does not mark it.
      if (token > 0 && column.word_starts.bits && !column.word_starts[static_cast<size_t>(token)]) continue;
      const uint64_t bit = words.first_bit + static_cast<uint64_t>(token - window.begin);
      word_bits_[bit / 8] = static_cast<uint8_t>(word_bits_[bit / 8] | (1U << (bit % 8)));
      ++words.count;
    }
    first += words.count;
    words_.push_back(words);
  }
  if (first != text.label_set.size())
    throw InputError("windows", "sample {} has {} words and {} tags; expected a tag for each word",
                     text.sample_id, first, text.label_set.size());
}

int64_t TextWindows::text_of(int64_t index) const {
  if (index < 0 || index >= size())
    throw InputError("windows", "expected a window from 0 to {}, found {}", size() - 1, index);
  return std::upper_bound(first_windows_.begin(), first_windows_.end(), index) - first_windows_.begin() - 1;
}

namespace {

int64_t tokens_of(const data::Sample& text) {
  return static_cast<int64_t>(text.columns.front().tokens.size());
}

}  // namespace

TextWindows::Window TextWindows::window(int64_t index) const {
  const int64_t text = text_of(index), tokens = tokens_of(texts_->get(text)),
                number = index - first_windows_[static_cast<size_t>(text)];
  const TokenRange window = cut_.window(tokens, number);
  const int64_t known = number == 0 ? 0 : cut_.window(tokens, number - 1).end;
  return {text, window, window.end - known};
}

int64_t TextWindows::long_texts() const {
  int64_t found = 0;
  for (size_t text = 1; text < first_windows_.size(); ++text)
    found += first_windows_[text] - first_windows_[text - 1] > 1;
  return found;
}

data::Sample TextWindows::get(int64_t index) const {
  const int64_t text = text_of(index);
  data::Sample sample = texts_->get(text);
  const int64_t first = first_windows_[static_cast<size_t>(text)],
                count = first_windows_[static_cast<size_t>(text) + 1] - first;
  const TokenRange window = cut_.window(tokens_of(sample), index - first);
  sample.columns.front() =
      part_of(sample.columns.front(), static_cast<size_t>(window.begin), static_cast<size_t>(window.end));
  sample.sample_id = index;
  sample.weight /= static_cast<double>(count);
  if (words_.empty()) return sample;
  const Words& words = words_[static_cast<size_t>(index)];
  sample.columns.front().word_starts = {word_bits_.data(), words.first_bit};
  sample.label_set = sample.label_set.subspan(words.first, words.count);
  return sample;
}

uint64_t TextWindows::fingerprint() const {
  return hash_bytes(
      fmt::format("{} windows of {} sharing {}", texts_->fingerprint(), cut_.room(), cut_.stride()));
}

}  // namespace funicular::objective
