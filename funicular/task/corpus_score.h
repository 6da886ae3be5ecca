#pragma once
// How well a masked language model knows a text, in units that compare across vocabularies.

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
  uint64_t seed = 42;  ///< of the masks, and of what is held out
  int64_t batch_tokens = 8192;
  format::FileStyle style = {};  ///< of the texts
};

struct CorpusScore {
  int64_t documents = 0, tokens = 0;
  TextSize size;          ///< of these documents
  int64_t unknown = 0;    ///< of the tokens
  double loss = 0;        ///< mean over hidden tokens, in nats
  double perplexity = 0;  ///< e to the loss: of one vocabulary only
  double bits_per_word = 0, bits_per_byte = 0;
};

/// Objective that hides whole words, 15 % of the tokens. Then two vocabularies hide the same words, although one may
/// split a word into pieces: pieces that are seen would give away hidden pieces.
objective::MaskedLm scoring_objective(const text::Tokenizer& tokenizer, int64_t max_length);

/// Scores the model on a text file (a line a row, documents separated by blank lines). The loss of a hidden token
/// times the tokens per word estimates the loss per word, and likewise per byte. Both estimate the
/// pseudo-likelihood of the text in units of the text (Salazar et al., "Masked Language Model Scoring", ACL 2020).
/// An unknown token costs little and says nothing, so that scores of texts with many are not to be compared. Throws
/// InputError where the file holds no text, or too few documents to hold some out.
CorpusScore score_corpus(const Model& model, const objective::MaskedLm& objective,
                         const text::Tokenizer& tokenizer, const fs::path& file, const ScoreOptions& options);

}  // namespace funicular::task
