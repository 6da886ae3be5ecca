// Measures what it takes to hide tokens: microseconds a row of at most 128 tokens, of each kind of masking, on one thread, and
// of making a batch of rows without hiding any. A masking may take 2 % of the step that it is for.
//
//   masking_bench [ROWS=4096]

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/token_masker.h"
#include "made_up_text.h"

namespace {

using namespace funicular;
using objective::Compat;
using objective::MaskedLmOptions;
using objective::Masking;
using objective::Replacement;

struct Text {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<const data::TokenStore> store;
  fs::path words, similar, weights, dictionary;  ///< files of its words
};

Text make_text(bool chinese, const fs::path& folder) {
  bench::Subject subject = bench::made_up(chinese);
  Text text;
  std::vector<data::MemorySource::Row> rows;
  for (size_t line = 0; line + 3 <= subject.lines.size(); line += 3)
    rows.push_back({{subject.lines[line] + " " + subject.lines[line + 1] + " " + subject.lines[line + 2]}});
  const std::string name = chinese ? "chinese" : "english";
  const fs::path store = folder / (name + ".tokens");
  data::build_token_store(*subject.tokenizer, data::MemorySource(rows, 1, false), store);
  text.store = data::TokenStore::open(store);
  std::string words, similar, weights, dictionary;
  const auto& vocabulary = subject.tokenizer->vocabulary();
  for (size_t id = 60; id + 1 < vocabulary.size(); ++id) {
    if (id % 3 == 0) words += vocabulary[id] + " " + vocabulary[id + 1] + "\n";
    similar += vocabulary[id] + "\t" + vocabulary[id + 1] + " " + vocabulary[60 + id % 100] + "\n";
    weights += vocabulary[id] + "\t" + std::to_string(1 + id % 7) + "\n";
    dictionary += vocabulary[id] + vocabulary[id + 1] + " " + std::to_string(id) + " n\n";
  }
  for (const auto& [path, what, contents] : {std::tuple(&text.words, "words", &words),
                                             {&text.similar, "similar", &similar},
                                             {&text.weights, "weights", &weights},
                                             {&text.dictionary, "dictionary", &dictionary}}) {
    *path = folder / (name + "." + what);
    write_file_atomically(*path, *contents);
  }
  text.tokenizer = std::move(subject.tokenizer);
  return text;
}

/// Microseconds a row, the best of some rounds.
double measure(const Text& text, int64_t rows,
               const std::function<void(objective::PackedSequences&, size_t, const data::Sample&)>& hide) {
  const objective::SequenceOptions sequence{.max_length = 128};
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    objective::PackedSequences packed;
    for (int64_t row = 0; row < rows; ++row) {
      if (row % 32 == 0) packed = {};
      data::Sample sample = text.store->row(row % text.store->rows());
      sample.draw_id = row;
      const size_t begin = packed.token_ids.size();
      packed.add(sample, text.tokenizer->sequence(), sequence);
      hide(packed, begin, sample);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, 1e6 * took.count() / static_cast<double>(rows));
  }
  return best;
}

void report(const Text& text, int64_t rows, double without, const char* name, MaskedLmOptions options) {
  options.sequence.max_length = 128;
  objective::TokenMasker masker(*text.tokenizer, options);
  MicroBatch ignored;
  int64_t seen = 0;
  const double with = measure(text, rows, [&](auto& packed, size_t begin, const data::Sample& sample) {
    masker.mask(packed, begin, sample, 1);
    if (++seen % 32 == 0) masker.finish(ignored);
  });
  fmt::print("{:<44} {:8.2f}\n", name, with - without);
}

}  // namespace

int main(int count, char** words) {
  try {
    const int64_t rows = count > 1 ? std::atoll(words[1]) : 4096;
    const TemporaryFolder folder;
    for (const bool chinese : {false, true}) {
      const Text text = make_text(chinese, folder.path());
      const double without = measure(text, rows, [](auto&, size_t, const data::Sample&) {});
      fmt::print("{}, microseconds a row of 128 tokens; its sequence without masks: {:.2f}\n",
                 chinese ? "Chinese" : "English", without);
      const auto show = [&](const char* name, const MaskedLmOptions& options) {
        report(text, rows, without, name, options);
      };
      show("token", {});
      show("whole-word", {.masking = Masking::whole_word});
      show("ngram", {.masking = Masking::ngram});
      show("span", {.masking = Masking::span});
      show("entity", {.masking = Masking::entity, .lexicon = text.words});
      show("whole-word, weights", {.masking = Masking::whole_word, .word_weights = text.weights});
      show("ngram, similar words",
           {.masking = Masking::ngram, .replacement = Replacement::similar, .similar_words = text.similar});
      show("ngram, words of a dictionary", {.masking = Masking::ngram, .word_dictionary = text.dictionary});
      show("whole-word as google", {.masking = Masking::whole_word, .compat = Compat::google});
      show("span as spanbert", {.masking = Masking::span, .compat = Compat::spanbert});
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
