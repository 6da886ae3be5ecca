#pragma once
// Windows of long texts: a text that does not fit a sequence becomes several overlapping sequences.

#include <cstdint>
#include <memory>
#include <vector>

#include "funicular/data/sample.h"
#include "funicular/objective/sequence.h"

namespace funicular::objective {

/// Tokens [begin, end) of a text.
struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

/// Computes the windows of a text as Hugging Face's return_overflowing_tokens does. Each window begins `room -
/// stride` tokens after the previous one, until a window reaches the text's end.
class WindowCut {
 public:
  /// `room`: tokens of a window, at least 1. `stride`: tokens that two neighbouring windows share, 0 .. room - 1.
  /// Throws InputError for other values.
  WindowCut(int64_t room, int64_t stride);
  /// The number of windows of a text with `tokens` tokens: at least 1, also for a text without tokens.
  int64_t count(int64_t tokens) const;
  /// Window `index` of such a text, 0 <= index < count(tokens).
  TokenRange window(int64_t tokens, int64_t index) const;
  /// The part of window `index` that no other window shows with more context. A token belongs to the window whose
  /// nearer edge is farthest from it; ties go to the earlier window. Together the parts of all windows are the text.
  TokenRange own_part(int64_t tokens, int64_t index) const;

  int64_t room() const { return room_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t room_, stride_;
};

/// The windows of single texts in sequences of these options, which have a stride. Throws InputError for a stride as
/// long as a window.
WindowCut window_cut(const text::SequenceTemplate& form, const SequenceOptions& options);

/// The windows of texts, text by text. A window is a sample with its text's label and shares; its weight is the text's,
/// divided by the number of the text's windows.
///
/// With `tags` a word is read in one window only, see WindowCut::own_part: Sample::word_starts marks the words that the
/// window reads, and Sample::label_set has their tags.
class TextWindows final : public data::Dataset {
 public:
  /// `texts`: samples of one column.
  TextWindows(std::shared_ptr<const data::Dataset> texts, const WindowCut& cut, bool tags);

  struct Window {
    int64_t text = 0;        ///< the sample of `texts`
    TokenRange tokens;       ///< range within the text
    int64_t new_tokens = 0;  ///< the number of tokens that no earlier window has
  };
  Window window(int64_t index) const;
  int64_t texts() const { return texts_->size(); }
  /// The number of texts with several windows.
  int64_t long_texts() const;

  int64_t size() const override { return first_windows_.back(); }
  data::Sample get(int64_t index) const override;
  int64_t document_of(int64_t index) const override { return texts_->document_of(text_of(index)); }
  uint64_t fingerprint() const override;
  bool found_damaged() const override { return texts_->found_damaged(); }
  void require_sound() const override { texts_->require_sound(); }

 private:
  struct Words {
    uint64_t first_bit = 0;       ///< first bit of the window in word_bits_
    size_t first = 0, count = 0;  ///< of the window's words in its text
  };
  int64_t text_of(int64_t index) const;
  void add_words(const data::Sample& text);

  std::shared_ptr<const data::Dataset> texts_;
  WindowCut cut_;
  std::vector<int64_t> first_windows_{0};  ///< first window of each text, and the number of windows
  std::vector<Words> words_;               ///< of each window, with tags
  std::vector<uint8_t> word_bits_;
  uint64_t bits_ = 0;
};

}  // namespace funicular::objective
