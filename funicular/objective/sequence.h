#pragma once
// Makes sequences of a sample's columns by the tokenizer's template: BERT's is [CLS] a [SEP], or [CLS] a [SEP] b
// [SEP] with token types 0 and 1.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/truncation.h"

namespace funicular::objective {

/// How a row becomes a sequence.
struct SequenceOptions {
  int32_t max_length = 512;                                       ///< special tokens included
  text::Truncation truncation = text::Truncation::longest_first;  ///< how to cut texts that are too long
  /// Tokens that two neighbouring windows of a single text share, see objective/text_windows.h; none: a text that is
  /// too long is cut.
  std::optional<int64_t> stride = {};
};

/// The properties that an objective expects of the token stores that it reads.
class OwnStores {
 public:
  /// Requires stores made with this tokeniser. `labels`: the accepted kinds of labels; empty: labels are not read.
  OwnStores(const text::Tokenizer& tokenizer, std::vector<data::LabelKind> labels);
  /// Throws InputError for a store without these properties.
  void require(const data::TokenStore& store) const;

 private:
  uint64_t fingerprint_;
  std::string description_;
  std::vector<data::LabelKind> labels_;
};

/// The number of text tokens that fit a sequence of this number of columns.
int64_t text_length(const text::SequenceTemplate& form, const SequenceOptions& options, int columns);

/// Length of the sample's sequence after truncation, special tokens included.
int64_t sequence_length(const data::Sample& sample, const text::SequenceTemplate& form,
                        const SequenceOptions& options);

/// Whether the sample's texts are too long and are cut.
bool is_truncated(const data::Sample& sample, const text::SequenceTemplate& form,
                  const SequenceOptions& options);

/// The concatenated sequences of a micro-batch, on the host.
struct PackedSequences {
  std::vector<int64_t> token_ids;       ///< [T]
  std::vector<int64_t> token_type_ids;  ///< [T]
  std::vector<uint8_t> maskable;        ///< [T]; 0 for special tokens
  std::vector<uint8_t> word_starts;     ///< [T]
  std::vector<uint8_t> row_starts;      ///< [T]; 1 where a row of the store begins within a column
  std::vector<int32_t> lengths;         ///< [S]
  std::vector<int64_t> sample_ids;      ///< [S]
  std::vector<int64_t> draw_ids;        ///< [S]

  /// Appends the sample's sequence.
  void add(const data::Sample& sample, const text::SequenceTemplate& form, const SequenceOptions& options);
  /// Makes the tensors token_ids and token_type_ids, and the packing.
  MicroBatch to_batch(const RandomState& random) const;
};

/// Throws InputError unless the vocabulary has the template's special tokens ([CLS] and [SEP]) and the maximum
/// length leaves room for text.
void check_sequence_options(const text::SequenceTemplate& form, const SequenceOptions& options);

}  // namespace funicular::objective
