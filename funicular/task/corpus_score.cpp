#include "funicular/task/corpus_score.h"

#include <cmath>
#include <memory>
#include <numbers>
#include <set>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/data/datasets.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/text/scripts.h"
#include "funicular/train/evaluation.h"

namespace funicular::task {

namespace {

constexpr int64_t kMostRowsAtOnce = 512;

void count_tokens(const data::Sample& sample, int32_t unknown, CorpusScore& score) {
  const data::TokenSpan& tokens = sample.columns[0].tokens;
  score.tokens += static_cast<int64_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) score.unknown += tokens[i] == unknown;
}

}  // namespace

std::vector<TextSize> document_sizes(const data::RowSource& source) {
  std::vector<TextSize> sizes;
  for (size_t piece = 0; piece < source.pieces(); ++piece)
    source.read(piece, [&](const data::SourceRow& row) {
      if (row.new_document || sizes.empty()) sizes.emplace_back();
      for (const std::string_view column : row.columns) {
        sizes.back().bytes += static_cast<int64_t>(column.size());
        const text::WordCount counted = text::count_words(column);
        sizes.back().words += counted.words;
        sizes.back().characters += counted.characters;
      }
    });
  return sizes;
}

objective::MaskedLm scoring_objective(const text::Tokenizer& tokenizer, int64_t max_length) {
  objective::MaskedLmOptions options;
  options.sequence.max_length = static_cast<int32_t>(max_length);
  options.masking = objective::Masking::whole_word;
  return {tokenizer, options};
}

CorpusScore score_corpus(const Model& model, const objective::MaskedLm& objective,
                         const text::Tokenizer& tokenizer, const fs::path& file,
                         const ScoreOptions& options) {
  const TemporaryFolder folder;
  const data::TextFileSource source({file}, {.format = format::TextFormat::text, .style = options.style});
  const std::vector<TextSize> sizes = document_sizes(source);
  if (sizes.empty()) throw InputError("compare", "{}: the file holds no text", file.string());
  data::build_token_store(tokenizer, source, folder.path() / "corpus.tokens");
  std::shared_ptr<const data::Dataset> samples =
      objective.samples(data::TokenStore::open(folder.path() / "corpus.tokens"));
  if (options.eval_fraction > 0)
    samples = data::split_dataset(samples, options.eval_fraction, options.seed).held_out;
  CorpusScore score;
  std::set<int64_t> documents;
  for (int64_t i = 0; i < samples->size(); ++i) {
    count_tokens(samples->get(i), tokenizer.special().unknown, score);
    documents.insert(samples->document_of(i));
  }
  if (score.tokens == 0) throw InputError("compare", "{}: no document has a token", file.string());
  for (const int64_t document : documents) {
    score.size.bytes += sizes.at(static_cast<size_t>(document)).bytes;
    score.size.words += sizes.at(static_cast<size_t>(document)).words;
    score.size.characters += sizes.at(static_cast<size_t>(document)).characters;
  }
  score.documents = static_cast<int64_t>(documents.size());
  const train::DatasetSource seen(objective, *samples);
  score.loss =
      train::evaluate(model, seen, nullptr, kMostRowsAtOnce, options.batch_tokens, options.seed).at("loss");
  score.perplexity = std::exp(score.loss);
  const double bits = score.loss / std::numbers::ln2 * static_cast<double>(score.tokens);
  score.bits_per_word = bits / static_cast<double>(score.size.words);
  score.bits_per_byte = bits / static_cast<double>(score.size.bytes);
  return score;
}

}  // namespace funicular::task
