#include "funicular/objective/masking_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/objective/entity_units.h"
#include "funicular/objective/similar_replacer.h"
#include "funicular/objective/spanbert_selector.h"
#include "funicular/objective/unit_selector.h"
#include "funicular/text/input_tokens.h"

namespace funicular::objective {

namespace {

template <class Value>
Value from_name(const std::vector<std::string>& names, const std::string& name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError("masking", "unknown {} \"{}\"; expected one of {}", what, name, fmt::join(names, ", "));
  return static_cast<Value>(found - names.begin());
}

template <class Value>
const std::string& name_of(const std::vector<std::string>& names, Value value) {
  return names[static_cast<size_t>(value)];
}

bool of_words(const MaskedLmOptions& options) {
  return options.masking != Masking::token;
}

/// Each published program hides these.
bool is_published(Compat compat, Masking masking) {
  if (compat == Compat::spanbert) return masking == Masking::span;
  return masking == Masking::token || masking == Masking::whole_word;
}

void check_files(const MaskedLmOptions& options) {
  const auto together = [](bool file, bool wanted, const char* option, const char* value) {
    if (wanted && !file) throw InputError("masking", "{} needs a file; give {} FILE", value, option);
    if (file && !wanted)
      throw InputError("masking", "{} does nothing without {}; give both, or none", option, value);
  };
  together(!options.lexicon.empty(), options.masking == Masking::entity, "--lexicon", "--masking entity");
  together(!options.similar_words.empty(), options.replacement == Replacement::similar, "--similar-words",
           "--replacement similar");
}

void check_words(const MaskedLmOptions& options) {
  if (of_words(options)) return;
  if (!options.word_weights.empty())
    throw InputError("masking", "--word-weights weighs words; give --masking whole-word, not token");
  if (!options.word_dictionary.empty())
    throw InputError("masking",
                     "--word-dictionary works only with words; give --masking whole-word, not token");
  if (options.replacement == Replacement::similar)
    throw InputError("masking", "--replacement similar replaces words; give --masking whole-word, not token");
}

void check_compat(const MaskedLmOptions& options) {
  if (options.compat == Compat::none) return;
  const std::string& name = name_of(compat_names(), options.compat);
  if (!is_published(options.compat, options.masking))
    throw InputError("masking", "--compat {} knows --masking {}, found {}", name,
                     options.compat == Compat::spanbert ? "span" : "token and whole-word",
                     name_of(masking_names(), options.masking));
  if (options.replacement == Replacement::similar || !options.word_weights.empty())
    throw InputError("masking", "--compat {} knows no {}; leave out one of them", name,
                     options.word_weights.empty() ? "similar words" : "weights of words");
}

RandomTokens random_tokens(const text::Tokenizer& tokenizer, const MaskedLmOptions& options) {
  if (options.compat == Compat::none)
    return std::make_shared<const std::vector<int32_t>>(text::input_tokens(tokenizer));
  std::vector<int32_t> all(static_cast<size_t>(tokenizer.size()));
  std::iota(all.begin(), all.end(), 0);
  if (options.compat == Compat::fairseq) {
    const text::SpecialTokens& special = tokenizer.special();
    std::erase_if(all, [&](int32_t id) {
      return id == special.pad || id == special.unknown || id == special.cls || id == special.sep ||
             id == special.mask;
    });
  }
  return std::make_shared<const std::vector<int32_t>>(std::move(all));
}

std::shared_ptr<const Units> make_units(const text::Tokenizer& tokenizer, const MaskedLmOptions& options) {
  switch (options.masking) {
    case Masking::token:
      return std::make_shared<TokenUnits>();
    case Masking::whole_word:
      return std::make_shared<WordUnits>();
    case Masking::ngram:
      return std::make_shared<NgramUnits>(options.ngram_shares.empty() ? macbert_shares()
                                                                       : options.ngram_shares);
    case Masking::span:
      return std::make_shared<NgramUnits>(span_shares());
    case Masking::entity:
      break;
  }
  int64_t left_out = 0;
  Phrases entities = read_entities(options.lexicon, tokenizer, left_out);
  if (left_out > 0)
    log::warning("{}: {} entities have a token that the vocabulary lacks, and are left out",
                 options.lexicon.string(), left_out);
  if (entities.empty())
    log::warning("{}: the lexicon is empty; whole words are hidden", options.lexicon.string());
  return std::make_shared<EntityUnits>(std::move(entities));
}

/// Rounds halves to even, as Python's round.
int64_t round_half_even(double value) {
  const double below = std::floor(value);
  if (value - below != 0.5) return std::llround(value);
  return static_cast<int64_t>(below) + (static_cast<int64_t>(below) & 1);
}

}  // namespace

const std::vector<std::string>& masking_names() {
  static const std::vector<std::string> names{"token", "whole-word", "ngram", "span", "entity"};
  return names;
}

const std::vector<std::string>& replacement_names() {
  static const std::vector<std::string> names{"bert", "similar"};
  return names;
}

const std::vector<std::string>& compat_names() {
  static const std::vector<std::string> names{"none", "google", "hf", "fairseq", "spanbert"};
  return names;
}

const std::vector<std::string>& pack_names() {
  static const std::vector<std::string> names{"none", "within", "across"};
  return names;
}

PackSentences pack_from(const std::string& name) {
  return from_name<PackSentences>(pack_names(), name, "packing of sentences");
}

Masking masking_from(const std::string& name) {
  return from_name<Masking>(masking_names(), name, "masking");
}

Replacement replacement_from(const std::string& name) {
  return from_name<Replacement>(replacement_names(), name, "replacement");
}

Compat compat_from(const std::string& name) {
  return from_name<Compat>(compat_names(), name, "program");
}

void check_masking(const MaskedLmOptions& options) {
  if (!(options.probability > 0 && options.probability < 1))
    throw InputError("mlm", "expected a masking probability between 0 and 1, found {}", options.probability);
  if (options.static_masks < 0)
    throw InputError("mlm", "expected a number of static masks of at least 0, found {}",
                     options.static_masks);
  if (!options.ngram_shares.empty() && options.masking != Masking::ngram)
    throw InputError("masking", "--ngram-shares does nothing without --masking ngram; give both, or none");
  check_files(options);
  check_words(options);
  check_compat(options);
}

std::shared_ptr<const Selector> make_selector(const text::Tokenizer& tokenizer,
                                              const MaskedLmOptions& options) {
  if (options.selector) return options.selector;
  if (options.compat == Compat::spanbert) return std::make_shared<SpanBertSelector>();
  Fill fill{.share = options.probability};
  if (options.compat == Compat::google) fill.rule = Fill::Rule::fitting;
  if (options.compat == Compat::hf) fill.rule = Fill::Rule::each;
  if (options.compat == Compat::fairseq) fill.rule = Fill::Rule::number;
  std::shared_ptr<const WordWeights> weights;
  if (!options.word_weights.empty()) {
    int64_t left_out = 0;
    weights =
        std::make_shared<const WordWeights>(WordWeights::read(options.word_weights, tokenizer, left_out));
    if (left_out > 0)
      log::warning("{}: {} words have a token that the vocabulary lacks, and are left out",
                   options.word_weights.string(), left_out);
  }
  return std::make_shared<UnitSelector>(make_units(tokenizer, options), fill, std::move(weights));
}

std::shared_ptr<const Replacer> make_replacer(const text::Tokenizer& tokenizer,
                                              const MaskedLmOptions& options) {
  if (options.replacer) return options.replacer;
  ReplacementShares shares{options.mask_share, options.random_share};
  if (options.replacement == Replacement::similar) {
    auto similar = std::make_shared<const SimilarWords>(
        SimilarWords::read(options.similar_words, tokenizer, options.similar));
    log::info("{}: {} words have similar ones of as many pieces, {} have none",
              options.similar_words.string(), similar->words(), similar->words_without());
    return std::make_shared<SimilarReplacer>(std::move(similar), random_tokens(tokenizer, options), shares);
  }
  using Together = BertReplacer::Together;
  Together together = options.masking == Masking::span ? Together::unit : Together::token;
  if (options.compat == Compat::fairseq && options.masking == Masking::whole_word) together = Together::word;
  if (options.compat == Compat::hf && options.masking == Masking::whole_word) shares = {1, 0};
  return std::make_shared<BertReplacer>(tokenizer.special().mask, random_tokens(tokenizer, options), shares,
                                        together);
}

int64_t mask_budget(int64_t tokens, int64_t length, const MaskedLmOptions& options) {
  const double p = options.probability;
  int64_t budget = std::llround(p * static_cast<double>(tokens));
  if (options.compat == Compat::google) budget = round_half_even(p * static_cast<double>(length));
  if (options.compat == Compat::spanbert)
    budget = static_cast<int64_t>(std::ceil(p * static_cast<double>(tokens)));
  return std::max<int64_t>(1, budget);
}

std::string describe_masking(const MaskedLmOptions& options) {
  const auto file = [](const char* what, const fs::path& path) {
    return path.empty() ? "" : fmt::format(", {} {}", what, hash_text(hash_file(path)));
  };
  std::string text =
      fmt::format("probability {}, {}", options.probability, name_of(masking_names(), options.masking));
  if (!options.ngram_shares.empty()) text += fmt::format(" {}", fmt::join(options.ngram_shares, " "));
  if (options.compat == Compat::none)
    text += ", random tokens that texts have";
  else
    text += ", as " + name_of(compat_names(), options.compat);
  if (options.mask_share != 0.8 || options.random_share != 0.1)
    text += fmt::format(", shares {} {}", options.mask_share, options.random_share);
  if (options.replacement == Replacement::similar)
    text += file("similar words", options.similar_words) +
            fmt::format(" {} {}", options.similar.count, options.similar.most_words);
  text += file("dictionary", options.word_dictionary) + file("lexicon", options.lexicon) +
          file("weights", options.word_weights);
  if (!options.rules_name.empty()) text += ", rules " + options.rules_name;
  text += fmt::format(", at most {} tokens", options.sequence.max_length);
  if (options.pack != PackSentences::none)
    text += fmt::format(", whole rows {} documents", name_of(pack_names(), options.pack));
  if (options.static_masks > 0) text += fmt::format(", {} static masks", options.static_masks);
  return text;
}

}  // namespace funicular::objective
