#pragma once
// Scores a masked language model on a text, in units that are comparable across vocabularies.

#include <cstdint>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/data/row_source.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

struct TextSize {
  int64_t bytes = 0;
  int64_t words = 0;       ///< see text::count_words
  int64_t characters = 0;  ///< the words that are characters of scripts without blanks
};

/// Returns the size of each document of a source, in order.
std::vector<TextSize> document_sizes(const data::RowSource& source);

struct ScoreOptions {
  double eval_fraction =
      0;               ///< above 0: only of the documents that data::split_dataset holds out with this seed
  uint64_t seed = 42;  ///< seed of the masks and of the held-out documents
  int64_t batch_tokens = 8192;
  format::FileStyle style = {};  ///< of the texts
};

struct CorpusScore {
  int64_t documents = 0, tokens = 0;
  TextSize size;          ///< of these documents
  int64_t unknown = 0;    ///< of the tokens
  double loss = 0;        ///< mean over masked tokens, in nats
  double perplexity = 0;  ///< e to the loss: of one vocabulary only
  double bits_per_word = 0, bits_per_byte = 0;
};

/// An objective that masks whole words, 15 % of the tokens. Thus two vocabularies mask the same words, even if one
/// splits a word into more pieces. With single tokens, visible pieces would give away masked pieces.
objective::MaskedLm scoring_objective(const text::Tokenizer& tokenizer, int64_t max_length);

/// Scores the model on a text file (one row per line, documents separated by blank lines). The loss per masked token
/// times the tokens per word estimates the loss per word, and likewise per byte. Both estimate the pseudo-likelihood
/// of the text in units of the text (Salazar et al., "Masked Language Model Scoring", ACL 2020). An unknown token has
/// a small loss but no information, so scores of texts with many unknown tokens are not comparable. Throws InputError
/// for a file without text, or with too few documents to hold some out.
CorpusScore score_corpus(const Model& model, const objective::MaskedLm& objective,
                         const text::Tokenizer& tokenizer, const fs::path& file, const ScoreOptions& options);

}  // namespace funicular::task
