#pragma once
// Options of masking, and the selectors and replacers that they make.

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

/// The unit that is masked as a whole.
enum class Masking { token, whole_word, ngram, span, entity };
/// The kind of replacement.
enum class Replacement { bert, similar };
/// The program whose rules are followed exactly; none: our own rules.
enum class Compat { none, google, hf, fairseq, spanbert };

/// Whether sequences are filled with whole rows (data::SentencesDataset). `none`: documents are cut into pieces of
/// nearly equal lengths. `within`: a sequence has rows of one document. `across`: it may have rows of several
/// documents, with a separator between them.
enum class PackSentences { none, within, across };

// The names of the values on the command line, in their order.
const std::vector<std::string>& masking_names();
const std::vector<std::string>& replacement_names();
const std::vector<std::string>& compat_names();
const std::vector<std::string>& pack_names();
// Each throws InputError for an unknown name.
Masking masking_from(const std::string& name);
Replacement replacement_from(const std::string& name);
Compat compat_from(const std::string& name);
PackSentences pack_from(const std::string& name);

/// A masked sequence, for an observer. All views are valid only during the call.
struct MaskedSequence {
  const data::Sample& sample;
  MaskView view;                   ///< the original tokens
  std::span<const size_t> places;  ///< rows of the view's tokens in the packed batch
  std::span<const Unit> units;     ///< the masked units, ascending
  std::span<const int32_t> input;  ///< the tokens shown instead, at the view's places
  const ReplacementReport& report;
};

struct MaskedLmOptions {
  SequenceOptions sequence;
  double probability =
      0.15;  ///< share of a sequence's tokens to predict, without special tokens; at least one token
  double mask_share = 0.8;    ///< share of the predicted tokens that become [MASK], or a similar word
  double random_share = 0.1;  ///< share of the predicted tokens that become a random token; the rest stays
  Masking masking = Masking::token;  ///< the budget always counts tokens
  LengthShares ngram_shares = {};    ///< for Masking::ngram; empty: MacBERT's
  Replacement replacement = Replacement::bert;
  Compat compat = Compat::none;
  PackSentences pack = PackSentences::none;  ///< for objectives of single texts
  fs::path similar_words = {};               ///< for Replacement::similar, see SimilarWords::read
  SimilarWordsOptions similar = {};
  fs::path lexicon = {};          ///< for Masking::entity, see read_entities
  fs::path word_dictionary = {};  ///< for Chinese, see ChineseWords; empty: each ideograph is a word
  fs::path word_weights = {};     ///< see WordWeights::read; empty: all words weigh the same
  /// 0: each draw of a sample has new masks. N: a sample has N masks, which repeat every N epochs, as in the data of
  /// the first BERT (Devlin et al. 2019; 10 there).
  int64_t static_masks = 0;
  // Custom rules, which replace the ones that the options above make.
  std::shared_ptr<const Selector> selector = nullptr;
  std::shared_ptr<const Replacer> replacer = nullptr;
  std::string rules_name = {};  ///< name of the custom rules, which a resumed run must share
  /// Called for each masked sequence, on the thread that makes its batch.
  std::function<void(const MaskedSequence&)> observer = nullptr;
};

/// Throws InputError for numbers out of range and for options that exclude each other.
void check_masking(const MaskedLmOptions& options);

/// Makes the selector of the options and reads the files that they name.
std::shared_ptr<const Selector> make_selector(const text::Tokenizer& tokenizer,
                                              const MaskedLmOptions& options);
std::shared_ptr<const Replacer> make_replacer(const text::Tokenizer& tokenizer,
                                              const MaskedLmOptions& options);

/// How many of `tokens` maskable tokens to predict, at least one. `length`: the sequence's tokens with special ones.
int64_t mask_budget(int64_t tokens, int64_t length, const MaskedLmOptions& options);

/// Describes the masking in words, with the hash of each file; a resumed run must share it.
std::string describe_masking(const MaskedLmOptions& options);

}  // namespace funicular::objective
