#pragma once
// Options for masked tokens, by name, and the selectors and replacers that they make.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/sample.h"
#include "funicular/objective/bert_replacer.h"
#include "funicular/objective/ngram_units.h"
#include "funicular/objective/sequence.h"
#include "funicular/objective/similar_words.h"

namespace funicular::objective {

/// Unit that is masked as a whole.
enum class Masking { token, whole_word, ngram, span, entity };
/// Kind of replacement.
enum class Replacement { bert, similar };
/// Program whose rules are followed to the letter; none: ours.
enum class Compat { none, google, hf, fairseq, spanbert };

/// Whether sequences are filled with whole rows (data::SentencesDataset): no, documents are cut into pieces of nearly
/// equal lengths; within documents; across them, with a separator between.
enum class PackSentences { none, within, across };

// The names of the values on the command line, in their order.
const std::vector<std::string>& masking_names();
const std::vector<std::string>& replacement_names();
const std::vector<std::string>& compat_names();
const std::vector<std::string>& pack_names();
// Throw InputError for another name.
Masking masking_from(const std::string& name);
Replacement replacement_from(const std::string& name);
Compat compat_from(const std::string& name);
PackSentences pack_from(const std::string& name);

/// A sequence that was masked, as an observer sees it. All views are valid during the call.
struct MaskedSequence {
  const data::Sample& sample;
  MaskView view;                   ///< what stood there
  std::span<const size_t> places;  ///< of the view's tokens, in the packed batch
  std::span<const Unit> units;     ///< what is hidden, ascending
  std::span<const int32_t> input;  ///< what is shown instead, at the view's places
  const ReplacementReport& report;
};

struct MaskedLmOptions {
  SequenceOptions sequence;
  double probability =
      0.15;  ///< share of the tokens of a sequence to predict, special tokens not counted; at least one
  double mask_share = 0.8;           ///< of these become [MASK], or a similar word
  double random_share = 0.1;         ///< of these become a random token; the rest stay
  Masking masking = Masking::token;  ///< the budget stays in tokens
  LengthShares ngram_shares = {};    ///< of Masking::ngram; empty: MacBERT's
  Replacement replacement = Replacement::bert;
  Compat compat = Compat::none;
  PackSentences pack = PackSentences::none;  ///< of objectives of single texts
  fs::path similar_words = {};               ///< of Replacement::similar, see SimilarWords::read
  SimilarWordsOptions similar = {};
  fs::path lexicon = {};          ///< of Masking::entity, see read_entities
  fs::path word_dictionary = {};  ///< of Chinese words, see ChineseWords; empty: each ideograph is a word
  fs::path word_weights = {};     ///< of words, see WordWeights::read; empty: all alike
  /// 0: new masks whenever a sample is met. N: in N ways, which come again every N epochs, as in the data of
  /// the first BERT (Devlin et al. 2019; 10 there).
  int64_t static_masks = 0;
  // Rules of one's own take the place of what the options above make.
  std::shared_ptr<const Selector> selector = nullptr;
  std::shared_ptr<const Replacer> replacer = nullptr;
  std::string rules_name = {};  ///< name of these rules, which a resumed run must share
  /// Told of each sequence, on the thread that makes its batch.
  std::function<void(const MaskedSequence&)> observer = nullptr;
};

/// Throws InputError for numbers out of range and for options that do not go together.
void check_masking(const MaskedLmOptions& options);

/// Makes the selector of the options. Reads the files that they name.
std::shared_ptr<const Selector> make_selector(const text::Tokenizer& tokenizer,
                                              const MaskedLmOptions& options);
std::shared_ptr<const Replacer> make_replacer(const text::Tokenizer& tokenizer,
                                              const MaskedLmOptions& options);

/// How many of `tokens` tokens to predict, in a sequence of `length` with its special tokens: at least one.
int64_t mask_budget(int64_t tokens, int64_t length, const MaskedLmOptions& options);

/// Describes the masking in words, with the hash of each file; a resumed run must share it.
std::string describe_masking(const MaskedLmOptions& options);

}  // namespace funicular::objective
