#include "funicular/objective/registry.h"

#include <fmt/ranges.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/next_sentence.h"
#include "funicular/objective/sentence_order.h"

namespace funicular::objective {

namespace {

using Make = std::unique_ptr<Objective> (*)(const text::Tokenizer&, const MaskedLmOptions&,
                                            const ElectraOptions&);

template <class T>
std::unique_ptr<Objective> make(const text::Tokenizer& tokenizer, const MaskedLmOptions& options,
                                const ElectraOptions&) {
  return std::make_unique<T>(tokenizer, options);
}

std::unique_ptr<Objective> make_electra(const text::Tokenizer& tokenizer, const MaskedLmOptions& options,
                                        const ElectraOptions& electra) {
  return std::make_unique<Electra>(tokenizer, options, electra);
}

// One row per objective.
const std::vector<std::pair<std::string, Make>> kPretraining = {{"mlm", make<MaskedLm>},
                                                                {"mlm-nsp", make<NextSentence>},
                                                                {"mlm-sop", make<SentenceOrder>},
                                                                {"electra", make_electra}};

}  // namespace

const std::vector<std::string>& pretraining_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, make] : kPretraining) all.push_back(name);
    return all;
  }();
  return names;
}

std::unique_ptr<Objective> make_pretraining(const std::string& name, const text::Tokenizer& tokenizer,
                                            const MaskedLmOptions& options, const ElectraOptions& electra) {
  for (const auto& [known, make] : kPretraining)
    if (name == known) return make(tokenizer, options, electra);
  throw InputError("objective", "unknown objective \"{}\"; expected one of {}", name,
                   fmt::join(pretraining_names(), ", "));
}

}  // namespace funicular::objective
