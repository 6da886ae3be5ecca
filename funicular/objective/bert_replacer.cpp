#include "funicular/objective/bert_replacer.h"

#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

int32_t random_token(const std::vector<int32_t>& tokens, const RandomBlock& block) {
  return tokens[uniform_below((uint64_t{block[2]} << 32) | block[3], tokens.size())];
}

void check_shares(const ReplacementShares& shares) {
  if (!(shares.mask >= 0 && shares.random >= 0 && shares.mask + shares.random <= 1 + 1e-12))
    throw InputError("masking",
                     "expected shares of masked and random tokens with a sum of at most 1, found {} and {}",
                     shares.mask, shares.random);
}

BertReplacer::BertReplacer(int32_t mask_token, RandomTokens random_tokens, ReplacementShares shares,
                           Together together)
    : mask_token_(mask_token),
      random_tokens_(std::move(random_tokens)),
      shares_(shares),
      together_(together) {
  check_shares(shares);
  if (mask_token < 0)
    throw InputError("masking", "the vocabulary has no [MASK] token; masked language modelling needs one");
  if (shares.random > 0 && (!random_tokens_ || random_tokens_->empty()))
    throw InputError("masking", "the vocabulary has no token that a text can hold; none can be shown");
}

void BertReplacer::replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
                           std::span<int32_t> input, ReplacementReport* report) const {
  const RandomKey random = make_key(key.seed, Purpose::mask_replace);
  for (const Unit& unit : chosen) {
    double u = 0;
    for (int32_t i = unit.begin; i < unit.end; ++i) {
      const auto place = static_cast<size_t>(i);
      const RandomBlock block = philox(random, make_counter(0, static_cast<uint32_t>(i), key.draw));
      if (i == unit.begin || together_ == Together::token ||
          (together_ == Together::word && view.word_starts[place]))
        u = uniform(block);
      Shown shown = Shown::kept;
      if (u < shares_.mask) {
        input[place] = mask_token_;
        shown = Shown::mask;
      } else if (u < shares_.mask + shares_.random) {
        input[place] = random_token(*random_tokens_, block);
        shown = Shown::random;
      }
      if (report) report->shown.push_back(shown);
    }
  }
}

}  // namespace funicular::objective
