#include "funicular/objective/next_sentence.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/core/device_copy.h"
#include "funicular/data/datasets.h"
#include "funicular/format/family.h"
#include "funicular/model/builder.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

/// Returns the place in 1 … size - 1 at which a piece is cut: the beginning of a row nearest to `wanted`. If no row
/// begins in the piece, it is the first word start from `wanted` on, or the last one before it. Without word starts
/// it is `wanted`.
size_t cut_near(const data::Sample& sample, size_t wanted) {
  const auto& [rows, first] = sample.columns[0].row_starts;
  if (!rows.empty()) {
    const auto after = std::lower_bound(rows.begin(), rows.end(), first + wanted);
    if (after == rows.begin()) return static_cast<size_t>(*after - first);
    const uint64_t before = *(after - 1) - first;
    if (after == rows.end() || wanted - before < *after - first - wanted) return static_cast<size_t>(before);
    return static_cast<size_t>(*after - first);
  }
  const data::Sample::Column& column = sample.columns[0];
  if (!column.word_starts.bits) return wanted;
  for (size_t place = wanted; place < column.tokens.size(); ++place)
    if (column.word_starts[place]) return place;
  for (size_t place = wanted; place > 0; --place)
    if (column.word_starts[place]) return place;
  return wanted;
}

// ---- the head

/// Rows of the masked tokens and of the sequences' first tokens, which are never masked; ascending.
at::Tensor rows_of_both(const MicroBatch& batch) {
  return std::get<0>(at::sort(at::cat({batch.on_host("mlm_rows"), model::first_tokens(batch)})));
}

/// Returns the index of each of `wanted` in `rows`; both ascend.
at::Tensor places_in(const at::Tensor& rows, const at::Tensor& wanted, const at::Device& device) {
  return to_device(at::searchsorted(rows, wanted), device);
}

void add_pretraining_head(model::Builder& builder, const std::string& name) {
  const int64_t hidden = builder.config().encoder.width;
  const model::MaskedLmWeights decoder = model::add_masked_lm_weights(builder);
  const model::LinearWeights pooler =
      builder.add_linear(builder.in_encoder(builder.family().names.pooler), hidden, hidden);
  const model::LinearWeights relation = builder.add_linear(builder.family().pair_relation, 2, hidden);
  builder.add_segment(
      "pretraining", {model::hidden_of_head(builder.options())}, {},
      [=](Activations in, const Pass& pass) {
        const at::Tensor& x = in.at(model::kHidden);
        const at::Tensor rows = rows_of_both(pass.batch);
        const at::Tensor masked = places_in(rows, pass.batch.on_host("mlm_rows"), x.device());
        const at::Tensor first = places_in(rows, model::first_tokens(pass.batch), x.device());
        model::add_masked_lm_loss(x.index_select(0, masked), decoder, pass);
        const at::Tensor pooled = model::apply_linear(x.index_select(0, first), pooler, nn::Activation::tanh);
        const at::Tensor logits =
            nn::linear(pooled, relation.weight->compute).to(relation.bias->compute.scalar_type()) +
            relation.bias->compute;
        pass.taps(name + "_logits", logits);
        pass.loss.output(name + "_logits", logits);
        const auto labels = pass.batch.tensors.find(name + "_labels");
        if (labels == pass.batch.tensors.end()) return Activations{};
        pass.loss.output(name + "_labels", labels->second);
        pass.loss.add(name, at::cross_entropy_loss(logits, labels->second, {}, at::Reduction::Sum));
        return Activations{};
      },
      {decoder.decoder});
}

int64_t head_parameters(const format::ModelConfig& config) {
  const int64_t hidden = config.encoder.width;
  return model::Head::masked_lm.parameters(config) + (hidden + 1) * hidden + (hidden + 1) * 2;
}

// ---- metrics

class PretrainingMetrics final : public Metrics {
 public:
  explicit PretrainingMetrics(const std::string& relation) : relation_(relation) {}
  void start() override { sequences_ = right_ = mlm_ = 0; }
  void add(const TensorMap& outputs) override {
    const at::Tensor best = outputs.at(relation_ + "_logits").argmax(-1).to(at::kCPU);
    const at::Tensor truth = outputs.at(relation_ + "_labels").to(at::kCPU);
    right_ += static_cast<double>(best.eq(truth).sum().item<int64_t>());
    sequences_ += static_cast<double>(truth.ge(0).sum().item<int64_t>());
  }
  void losses(const std::map<std::string, double>& terms) override { mlm_ = terms.at("mlm"); }
  std::map<std::string, double> finish(double) override {
    return {{"perplexity", perplexity(mlm_)}, {relation_ + "_accuracy", right_ / sequences_}};
  }

 private:
  std::string relation_;
  double sequences_ = 0, right_ = 0, mlm_ = 0;
};

}  // namespace

data::Sample::Column part_of(const data::Sample::Column& column, size_t begin, size_t end) {
  return {column.tokens.subspan(begin, end - begin),
          {column.word_starts.bits, column.word_starts.begin + begin},
          column.row_starts.subspan(begin, end - begin)};
}

Cut cut_in_two(const data::Sample& sample, uint64_t key, uint64_t seed) {
  const RandomBlock block = philox(make_key(seed, Purpose::next_sentence), make_counter(0, 0, key));
  const size_t size = sample.columns[0].tokens.size();
  const bool coin = (block[2] & 1) != 0;
  if (size < 2) return {size, coin};
  const uint64_t wanted = 1 + uniform_below((uint64_t{block[0]} << 32) | block[1], size - 1);
  return {cut_near(sample, static_cast<size_t>(wanted)), coin};
}

void require_pairs(const MaskedLmOptions& options) {
  if (options.pack != PackSentences::none)
    throw InputError("objective",
                     "--pack-sentences fills sequences of one text; give --objective mlm, or leave it out");
}

model::Head pretraining_head(const std::string& relation) {
  model::Head head = model::Head::masked_lm;
  head.name = "pretraining";
  head.architecture = "BertForPreTraining";
  head.rows = rows_of_both;
  head.add = [relation](model::Builder& builder) { add_pretraining_head(builder, relation); };
  head.parameters = head_parameters;
  head.check = [](const format::ModelConfig& config) {
    if (const format::Family& family = format::family_of(config); family.pair_relation.empty())
      throw InputError("objective", "pairs of sentences are BERT's; a {} is trained with --objective mlm",
                       family.title);
  };
  return head;
}

std::unique_ptr<Metrics> pretraining_metrics(const std::string& relation) {
  return std::make_unique<PretrainingMetrics>(relation);
}

NextSentence::NextSentence(const text::Tokenizer& tokenizer, const MaskedLmOptions& options)
    : options_(options),
      sequence_(tokenizer.sequence()),
      own_stores_(tokenizer, {}),
      masker_(tokenizer, options) {
  check_sequence_options(sequence_, options.sequence);
  require_pairs(options);
}

std::shared_ptr<const data::Dataset> NextSentence::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  own_stores_.require(*store);
  return std::make_shared<data::ChunkDataset>(std::move(store), text_length(sequence_, options_.sequence, 2));
}

int64_t NextSentence::length(const data::Sample& sample) const {
  // A piece of one token may be paired with a piece of another document.
  const int64_t tokens = std::max<int64_t>(static_cast<int64_t>(sample.columns[0].tokens.size()), 2);
  return std::min<int64_t>(tokens + sequence_.special_count(2), options_.sequence.max_length);
}

std::optional<uint64_t> NextSentence::other_document_key(const data::Sample& sample) const {
  return TokenMasker::key_of(sample, options_);
}

NextSentence::Pair NextSentence::cut(const data::Sample& sample, uint64_t seed) const {
  const data::Sample::Column& whole = sample.columns[0];
  const size_t size = whole.tokens.size();
  const auto [place, coin] = cut_in_two(sample, TokenMasker::key_of(sample, options_), seed);
  Pair pair{sample, !coin || sample.other.tokens.size() == 0};
  const size_t most = std::max<size_t>(size - place, 1);
  pair.sample.columns = {part_of(whole, 0, place),
                         pair.follows ? part_of(whole, place, size)
                                      : part_of(sample.other, 0, std::min(most, sample.other.tokens.size()))};
  return pair;
}

MicroBatch NextSentence::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  TokenMasker masker = masker_;
  std::vector<int64_t> labels;
  for (const data::Sample& sample : samples) {
    const size_t begin = packed.token_ids.size();
    const Pair pair = cut(sample, random.seed);
    packed.add(pair.sample, sequence_, options_.sequence);
    masker.mask(packed, begin, sample, random.seed);
    labels.push_back(pair.follows ? 0 : 1);
  }
  MicroBatch batch = packed.to_batch(random);
  masker.finish(batch);
  batch.tensors["next_sentence_labels"] = at::tensor(labels, at::kLong);
  batch.counts["next_sentence"] = static_cast<double>(labels.size());
  return batch;
}

model::Head NextSentence::head_of_both() {
  return pretraining_head("next_sentence");
}

std::unique_ptr<Metrics> NextSentence::metrics() const {
  return pretraining_metrics("next_sentence");
}

std::map<std::string, std::string> NextSentence::identity() const {
  return {{"objective", "mlm and next sentence, " + TokenMasker::describe(options_)}};
}

}  // namespace funicular::objective
