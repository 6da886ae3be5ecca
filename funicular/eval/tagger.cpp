#include "funicular/eval/tagger.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/eval/length_batches.h"
#include "funicular/objective/tag_metrics.h"
#include "funicular/text/given_words.h"

namespace funicular::eval {

/// A text's tokens, and where its words begin among them.
struct Tagger::Tokens {
  std::vector<uint32_t> ids;
  std::vector<uint8_t> word_bits;

  Tokens(const text::Tokenizer& tokenizer, const Words& words) {
    text::TokenizedText text;
    text::tokenize_words(tokenizer, std::vector<std::string_view>(words.begin(), words.end()), text);
    ids.assign(text.ids.begin(), text.ids.end());
    word_bits.assign(ids.size() / 8 + 1, 0);
    for (size_t i = 0; i < ids.size(); ++i)
      word_bits[i / 8] = static_cast<uint8_t>(word_bits[i / 8] | (text.word_starts[i] << (i % 8)));
  }
};

Tagger::Tagger(const Model& model, const text::Tokenizer& tokenizer, std::vector<std::string> tags,
               TaggerOptions options)
    : model_(model),
      tokenizer_(tokenizer),
      tags_(std::move(tags)),
      scheme_(objective::tag_scheme(tags_)),
      options_(options),
      objective_(tokenizer, {.sequence = options.sequence, .tags = tags_, .labelled = false}) {
  if (options.window < 1 || options.batch_tokens < 1)
    throw InputError("predict", "expected a window and a batch of at least 1, found {} texts and {} tokens",
                     options.window, options.batch_tokens);
}

std::vector<TaggedWords> Tagger::tag(std::span<const Words> texts) const {
  std::vector<Tokens> tokens;
  for (const Words& words : texts) tokens.emplace_back(tokenizer_, words);
  std::vector<size_t> numbers;  // of the texts with words
  std::vector<data::Sample> samples;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    data::Sample& sample = samples.emplace_back();
    sample.sample_id = static_cast<int64_t>(i);
    sample.columns = {{data::TokenSpan(tokens[i].ids.data(), tokens[i].ids.size()),
                       data::WordStarts{tokens[i].word_bits.data(), 0}}};
    lengths.push_back(objective_.length(sample));
    numbers.push_back(i);
  }
  std::vector<TaggedWords> result(texts.size());
  for_length_batches(lengths, options_.batch_tokens, [&](std::span<const size_t> rows) {
    stop_if_interrupted();
    std::vector<data::Sample> batch;
    std::vector<size_t> of;
    for (const size_t row : rows) {
      batch.push_back(samples[row]);
      of.push_back(numbers[row]);
    }
    forward(batch, of, result);
  });
  return result;
}

void Tagger::forward(std::span<const data::Sample> samples, std::span<const size_t> texts,
                     std::vector<TaggedWords>& result) const {
  const at::NoGradGuard no_gradient;
  const MicroBatch batch = objective_.collate(samples, RandomState{});
  LossSink sink;
  sink.keep_outputs = true;
  model_.forward({}, batch, Taps{}, sink);
  const auto logits = sink.outputs().find("logits");
  if (logits == sink.outputs().end() || logits->second.size(1) != static_cast<int64_t>(tags_.size()))
    throw InputError("predict", "expected a model that gives each word one of {} tags", tags_.size());
  const auto [scores, best] = at::softmax(logits->second.to(at::kFloat), -1).to(at::kCPU).max(1);
  const at::Tensor sequences = batch.on_host("tag_sequences");
  for (int64_t row = 0; row < best.size(0); ++row) {
    TaggedWords& tagged = result[texts[static_cast<size_t>(sequences.const_data_ptr<int64_t>()[row])]];
    const float score = scores.const_data_ptr<float>()[row];
    if (!std::isfinite(score))
      throw RunError("predict", "the model answers {}; its weights are damaged, or became so in training",
                     score);
    tagged.tags.push_back(best.const_data_ptr<int64_t>()[row]);
    tagged.scores.push_back(score);
  }
}

std::string Tagger::to_json(const Words& words, const TaggedWords& tagged) const {
  OrderedJson tags = OrderedJson::array(), entities = OrderedJson::array();
  std::vector<std::string_view> names;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i < tagged.tags.size()) names.push_back(tags_.at(static_cast<size_t>(tagged.tags[i])));
    tags.push_back(i < tagged.tags.size() ? OrderedJson(names.back()) : OrderedJson());
  }
  if (scheme_ != objective::TagScheme::none)
    for (const objective::Entity& entity : objective::entities_of(names, scheme_)) {
      const auto begin = static_cast<size_t>(entity.begin), end = static_cast<size_t>(entity.end);
      double score = 0;
      for (size_t i = begin; i < end; ++i) score += tagged.scores[i];
      score /= static_cast<double>(end - begin);
      entities.push_back({{"type", entity.type},
                          {"text", fmt::format("{}", fmt::join(words.begin() + entity.begin,
                                                               words.begin() + entity.end, " "))},
                          {"begin", begin},
                          {"end", end},
                          {"score", std::round(score * 1e6) / 1e6}});
    }
  OrderedJson answer{{"words", words}, {"tags", tags}};
  if (scheme_ != objective::TagScheme::none) answer["entities"] = entities;
  return answer.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string Tagger::answer(std::span<const Row> rows, Streamed& done) const {
  std::vector<Words> texts;
  for (const Row& row : rows) {
    if (!row.problem.empty()) continue;
    texts.push_back(row.words);
    if (row.words.empty() && done.textless++ == 0) done.first_textless = static_cast<int64_t>(row.line);
  }
  const std::vector<TaggedWords> tagged = tag(texts);
  std::string lines;
  size_t next = 0;
  for (const Row& row : rows) {
    if (row.problem.empty()) {
      const auto left_out = static_cast<int64_t>(row.words.size() - tagged[next].tags.size());
      done.cut.cut += left_out > 0;
      done.cut.words_left_out += left_out;
      done.cut.words += static_cast<int64_t>(row.words.size());
      lines += to_json(row.words, tagged[next++]);
    } else {
      lines += error_json(row.problem);
    }
    lines += '\n';
  }
  return lines;
}

Tagger::Streamed Tagger::stream(const std::function<std::optional<Row>()>& next,
                                const std::function<void(std::string_view)>& write,
                                const RowShare& share) const {
  Streamed done;
  for (bool last = false; !last;) {
    const std::string lines = share.in_turn([&] {
      std::vector<Row> own;
      for (int64_t row = 0; row < options_.window * share.ranks && !last; ++row) {
        std::optional<Row> read = next();
        last = !read;
        done.texts += !last;
        if (!last && share.has(row)) own.push_back(std::move(*read));
      }
      stop_if_interrupted();  // a reader of a stream ends at an interrupt, too
      return answer(own, done);
    });
    if (!lines.empty()) write(lines);
  }
  done.cut.rows = done.texts;
  for (int64_t* count : {&done.cut.cut, &done.cut.words, &done.cut.words_left_out})
    *count = share.sum(*count);
  done.textless = share.sum(done.textless);
  done.first_textless = share.least(done.first_textless);
  return done;
}

}  // namespace funicular::eval
