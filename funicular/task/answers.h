#pragma once
// Turns a row of text into a model's samples, and the model's outputs into the row's answer.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/data/cut_rows.h"
#include "funicular/data/sample.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// A row of input: its texts, or the error.
struct InputRow {
  std::vector<std::string> texts;  ///< UTF-8: one per column, or one per word of a row of words
  std::string problem = {};        ///< why the row cannot be read; "": it can
  uint64_t line = 0;               ///< line at which the row begins, from 1; 0: unknown
  /// Members of a JSON object to write before the answer's own: columns kept from the input. "": none.
  std::string kept = {};
  /// As `kept`, per text, for a list whose texts have separate answers; may be empty.
  std::vector<std::string> kept_of_texts = {};
};

/// A row with its tokens, to which the samples refer.
struct TokenisedRow {
  InputRow row;                                      ///< the texts
  std::vector<std::vector<uint32_t>> tokens = {};    ///< token ids of each text, without special tokens
  std::vector<std::vector<uint8_t>> word_bits = {};  ///< as data::WordStarts has them; may be empty
  std::vector<data::Sample> samples = {};            ///< empty: the model is not asked
  int64_t max_length = 0;                            ///< the most tokens of a sequence; set before tokenise
  /// Only where windows read a text: the characters of each of its tokens, and the window of each sample.
  std::vector<text::CharacterRange> places = {};
  /// A part of a text's tokens that one sample reads.
  struct Window {
    int64_t begin;  ///< its first token in the text, from 0
    int64_t end;    ///< behind its last token
    int64_t place;  ///< where its first token stands in the sequence, from 0
    int64_t own_end =
        0;  ///< behind the last token whose answer this window gives (objective::WindowCut); words only
  };
  std::vector<Window> windows = {};  ///< one per sample, if a text is read in windows
  std::vector<uint8_t> subwords =
      {};  ///< 1 per token that continues a word; only where words are made of tokens

  /// Whether a text has at least one token.
  bool has_tokens() const;
};

/// The scores of one sample: rows of `width` numbers.
struct SampleScores {
  int64_t width = 0;               ///< numbers per row
  std::vector<float> values = {};  ///< row by row

  /// The number of rows.
  int64_t rows() const { return width > 0 ? static_cast<int64_t>(values.size()) / width : 0; }
  /// The numbers of row `at`, 0 <= at < rows().
  std::span<const float> row(int64_t at) const {
    return std::span(values).subspan(static_cast<size_t>(at * width), static_cast<size_t>(width));
  }
};

/// The answer to one row.
struct Answer {
  /// The line of `funicular predict`, without a line end. If Answers::record_bytes() is not 0, the bytes of a record.
  std::string json = {};
  /// Numbers of the classes, in 0 .. labels().size() - 1: one for a class, any number for sets of labels, one per word
  /// for tags. Empty for a regression.
  std::vector<int64_t> labels = {};
  /// The probability of each class (0 to 1), the number of a regression, or the probability of each word's tag.
  std::vector<float> scores = {};
};

/// How a task reads rows and answers them. Task::answers makes it for one model. Immutable and safe to share between
/// threads.
class Answers {
 public:
  /// `labels`: names of the classes by number.
  explicit Answers(std::vector<std::string> labels) : labels_(std::move(labels)) {}
  virtual ~Answers() = default;

  /// Names of the classes by number; empty if the answers name no classes.
  const std::vector<std::string>& labels() const { return labels_; }
  /// The output of the model that is read.
  virtual const char* output() const { return "logits"; }
  /// The bytes of an answer, if answers are records of one size without line ends; 0: answers are lines.
  virtual size_t record_bytes() const { return 0; }
  /// The width of the model's output rows.
  virtual int64_t width() const { return static_cast<int64_t>(labels_.size()); }
  /// Fills tokens and samples. Unless overridden, each text is a column of one sample.
  virtual void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const;
  /// Counts how much of the row a sequence with room for `room` tokens leaves out.
  virtual void count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const;
  /// The number of rows of the output "logits" per sample of the batch, in order.
  virtual std::vector<int64_t> rows_of_samples(const MicroBatch& batch) const;
  /// The probabilities or numbers from which answers are read, for the logits of a batch.
  virtual at::Tensor scores(const at::Tensor& logits) const = 0;
  /// `scores`: one entry per sample of the row.
  virtual Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const = 0;
  /// An example answer whose keys are the columns of a table; "": the answers do not fit a table.
  virtual std::string example() const { return ""; }

 private:
  std::vector<std::string> labels_;
};

}  // namespace funicular::task
