#include "funicular/objective/tags.h"

#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/model/token_classifier.h"
#include "funicular/objective/tag_metrics.h"

namespace funicular::objective {

Tags::Tags(const text::Tokenizer& tokenizer, const TagOptions& options)
    : RowObjective(tokenizer, options.sequence,
                   options.labelled ? std::vector{data::LabelKind::tags} : std::vector<data::LabelKind>()),
      options_(options) {
  options.loss.check("tags", options.tags.size());
}

model::Head Tags::head() const {
  const auto tags = static_cast<int64_t>(options_.tags.size());
  if (options_.loss.is_plain()) return model::with_classes(model::token_classifier(), tags);
  return model::with_classes(
      model::token_classifier(
          [loss = options_.loss](const at::Tensor& logits, const at::Tensor& labels, bool training) {
            return loss.sum(logits, labels, training);
          }),
      tags);
}

Model Tags::build(model::ModelOptions encoder) const {
  model::require_classes(encoder.config, static_cast<int64_t>(options_.tags.size()));
  return Objective::build(std::move(encoder));
}

std::unique_ptr<Metrics> Tags::metrics() const {
  return std::make_unique<TagMetrics>(options_.tags);
}

std::map<std::string, std::string> Tags::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  all["objective"] = "tags";
  options_.loss.add_identity(all);
  return all;
}

namespace {

/// The tags of the sample's first words.
std::span<const int32_t> first_tags(const data::Sample& sample, size_t words, size_t tags, bool truncated) {
  const std::span<const int32_t> all = sample.label_set;
  if (truncated ? words > all.size() : words != all.size())
    throw InputError("tags", "sample {} has {} words and {} tags; expected a tag for each word",
                     sample.sample_id, words, all.size());
  for (const int32_t tag : all.first(words))
    if (tag < 0 || static_cast<size_t>(tag) >= tags)
      throw InputError("tags", "sample {} has the tag {}; expected numbers from 0 to {}", sample.sample_id,
                       tag, static_cast<int64_t>(tags) - 1);
  return all.first(words);
}

/// The rows in the batch of the first tokens of the words to read. `begin`: the first token of the sample's sequence.
/// `as_marked`: words begin only at the sample's word starts; otherwise a text's first token begins a word, too.
std::vector<size_t> words_of(const PackedSequences& packed, size_t begin, const data::Sample& sample,
                             bool as_marked) {
  const data::WordStarts& marks = sample.columns.front().word_starts;
  std::vector<size_t> words;
  size_t place = 0;  // in the text
  for (size_t t = begin; t < packed.token_ids.size(); ++t) {
    if (!packed.maskable[t]) continue;
    if (as_marked && marks.bits ? marks[place] : packed.word_starts[t] != 0) words.push_back(t);
    ++place;
  }
  return words;
}

}  // namespace

MicroBatch Tags::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  std::vector<int64_t> rows, sequences, labels;
  for (size_t s = 0; s < samples.size(); ++s) {
    const size_t begin = packed.token_ids.size(), before = rows.size();
    packed.add(samples[s], form(), sequence());
    for (const size_t t : words_of(packed, begin, samples[s], sequence().stride || !options_.labelled))
      rows.push_back(static_cast<int64_t>(t));
    sequences.resize(rows.size(), static_cast<int64_t>(s));
    if (!options_.labelled) continue;
    const auto tags = first_tags(samples[s], rows.size() - before, options_.tags.size(),
                                 is_truncated(samples[s], form(), sequence()));
    labels.insert(labels.end(), tags.begin(), tags.end());
  }
  MicroBatch batch = packed.to_batch(random);
  batch.tensors["tag_rows"] = at::tensor(rows, at::kLong);
  batch.tensors["tag_sequences"] = at::tensor(sequences, at::kLong);
  if (options_.labelled) {
    batch.tensors["labels"] = at::tensor(labels, at::kLong);
    batch.counts["tags"] = options_.loss.count(labels, random.training);
  }
  return batch;
}

std::vector<int64_t> words_of_samples(const MicroBatch& batch) {
  std::vector<int64_t> words(static_cast<size_t>(batch.packing.sequences()));
  const at::Tensor sequences = batch.on_host("tag_sequences");
  for (int64_t row = 0; row < sequences.numel(); ++row)
    ++words[static_cast<size_t>(sequences.const_data_ptr<int64_t>()[row])];
  return words;
}

}  // namespace funicular::objective
