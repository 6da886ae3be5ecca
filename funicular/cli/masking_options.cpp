#include "funicular/cli/masking_options.h"

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/cli/word_options.h"

namespace funicular::cli {

namespace {

std::vector<double> read_shares(const std::vector<std::string>& words) {
  std::vector<double> shares;
  for (const std::string& word : words) {
    const auto share = read_number(word);
    if (!share) throw InputError("usage", "--ngram-shares expects numbers, found \"{}\"", word);
    shares.push_back(*share);
  }
  return shares;
}

}  // namespace

void MaskingOptions::declare(Arguments& arguments) {
  arguments_ = &arguments;
  arguments.section("Masked tokens and their replacements");
  arguments
      .add("mlm-probability", "SHARE", chosen.probability, Effect::result, "share of the tokens to predict")
      .common()
      .above(0);
  arguments.add("masking", "NAME", chosen.masking, objective::masking_names(), Effect::result,
                "unit that is masked as a whole: token, whole-word, ngram (1 to 4 words), span (1 to 10 "
                "words) or entity (see --lexicon). A span is replaced as one");
  arguments.add("whole-words", whole_words, Effect::result, "as --masking whole-word")
      .alias("mlm-whole-word");
  arguments
      .add("ngram-shares", "SHARE", ngram_shares, Effect::result,
           "for ngram: shares of 1, 2, 3 … words; ALBERT's are 6 3 2")
      .default_text("0.4 0.3 0.2 0.1");
  arguments
      .add("lexicon", "FILE", chosen.lexicon, Effect::input,
           "for entity: file of one entity per line; the longest match is masked whole")
      .default_text("none");
  declare_word_dictionary(arguments, chosen.word_dictionary,
                          "each character is a word, unless the store knows words");
  arguments
      .add("word-weights", "FILE", chosen.word_weights, Effect::input,
           "lines of a word, a tab and a weight: how often words are hidden compared with others, which "
           "weigh 1")
      .default_text("none");
  arguments.add(
      "replacement", "NAME", chosen.replacement, objective::replacement_names(), Effect::result,
      "80 % of what is hidden becomes [MASK] (bert) or a similar word (similar), 10 % random tokens");
  arguments
      .add("similar-words", "FILE", chosen.similar_words, Effect::input,
           "for similar: lines of a word, a tab and similar words, or word vectors as text")
      .default_text("none");
  arguments
      .add("similar-count", "N", chosen.similar.count, Effect::result,
           "for word vectors: number of nearest words")
      .range(1);
  arguments
      .add("similar-vocabulary", "WORDS", chosen.similar.most_words, Effect::result,
           "for word vectors: read only this many words of the file")
      .range(2);
  arguments.add("compat", "NAME", chosen.compat, objective::compat_names(), Effect::result,
                "follow another program's rules for the number, the choice and the replacement of masked "
                "tokens. Words are found as usual (docs/explanation/masking.md)");
  arguments.add("pack-sentences", "NAME", chosen.pack, objective::pack_names(), Effect::result,
                "fill sequences with whole rows, within documents or across them (a separator between), as "
                "RoBERTa; "
                "none: cut documents into pieces of nearly equal lengths");
  arguments
      .add("static-masks", "N", chosen.static_masks, Effect::result,
           "mask each sequence in N ways, one per epoch in turn; 0: new masks in every epoch")
      .range(0);
}

objective::MaskedLmOptions MaskingOptions::options(int64_t max_length) const {
  objective::MaskedLmOptions all = chosen;
  if (all.probability >= 1)
    throw InputError("usage", "--mlm-probability must be below 1, found {}", all.probability);
  if (whole_words && arguments_->given("masking") && all.masking != objective::Masking::whole_word)
    throw InputError("usage",
                     "--whole-words is --masking whole-word, found --masking {} too; give one of them",
                     objective::masking_names()[static_cast<size_t>(all.masking)]);
  all.sequence.max_length = static_cast<int32_t>(max_length);
  if (whole_words) all.masking = objective::Masking::whole_word;
  if (!ngram_shares.empty()) all.ngram_shares = objective::normalised(read_shares(ngram_shares));
  objective::check_masking(all);
  return all;
}

}  // namespace funicular::cli
