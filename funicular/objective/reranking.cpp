#include "funicular/objective/reranking.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/objective/batch_loss_term.h"
#include "funicular/objective/ranking_metrics.h"

namespace funicular::objective {

namespace {

size_t texts_in(const data::Sample& list) {
  return list.columns.size() - 1;
}

/// A query with one of its texts, as a separate sample.
data::Sample pair_of(const data::Sample& list, size_t text) {
  data::Sample pair;
  pair.columns = {list.columns[0], list.columns[text + 1]};
  pair.sample_id = list.sample_id;
  pair.draw_id = list.draw_id * kMostListTexts + static_cast<int64_t>(text);
  pair.epoch = list.epoch;
  return pair;
}

int64_t hash_of_query(const data::Sample& list) {
  std::vector<int32_t> ids(list.columns[0].tokens.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = list.columns[0].tokens[i];
  return static_cast<int64_t>(hash_bytes(ids.data(), ids.size() * sizeof(int32_t)));
}

/// Scores [S] in a table [R, kMostListTexts].
at::Tensor table_of(const at::Tensor& scores, const MicroBatch& batch) {
  const at::Tensor& labels = batch[kListLabels];
  return at::zeros({labels.numel()}, scores.options())
      .index_copy(0, batch["list_places"], scores)
      .view(labels.sizes());
}

void add_ranking_loss(const RankingLossOfLists& loss, format::ScoreActivation activation,
                      const at::Tensor& logits, const Pass& pass) {
  pass.loss.output("queries", pass.batch["queries"]);
  pass.loss.output("scores", activation == format::ScoreActivation::sigmoid ? at::sigmoid(logits) : logits);
  if (!pass.batch.tensors.contains(kListLabels)) return;
  pass.loss.output("labels", pass.batch["labels"]);
  if (pass.batch.tensors.contains("relevance")) pass.loss.output("relevance", pass.batch["relevance"]);
  const RankingLossOptions& options = loss.options();
  const at::Tensor scores = table_of(logits.squeeze(1), pass.batch);
  if (options.compares_lists()) {
    const TensorMap rows{{kRowVectors, scores.unsqueeze(-1)},
                         {kRowDraws, pass.batch[kRowDraws]},
                         {kListLabels, pass.batch[kListLabels]}};
    for (const auto& [name, value] : rows) pass.loss.output(name, value);
    return add_batch_loss(loss, options.name(), rows, pass);
  }
  const at::Tensor labels = pass.batch[kListLabels].to(scores.scalar_type());
  const int64_t longest = pass.batch.on_host("longest_list").item<int64_t>();
  pass.loss.add(options.name(),
                loss.sums({scores.slice(1, 0, longest), labels.slice(1, 0, longest)}).losses.sum());
}

}  // namespace

// ---- samples

ListRows list_rows(const data::TokenStore& store, bool join) {
  ListRows lists;
  std::optional<int64_t> query;  // of the list that the next row may join
  std::unordered_map<int64_t, int64_t> places;
  for (int64_t document = 0; document < store.documents(); ++document) {
    const data::StoreRange rows = store.document_rows(document);
    if (rows.size() == 0) continue;
    std::optional<int64_t> own;
    if (join && rows.size() == 1) own = hash_of_query(store.row(static_cast<int64_t>(rows.begin)));
    if (!own || own != query) {
      lists.begins.push_back(rows.begin);
      if (own && ++places[*own] == 2) ++lists.scattered;
    }
    query = own;
  }
  lists.begins.push_back(static_cast<uint64_t>(store.rows()));
  return lists;
}

TextLists::TextLists(std::shared_ptr<const data::TokenStore> store, bool join)
    : store_(std::move(store)), begins_(list_rows(*store_, join).begins) {
  for (size_t list = 0; list + 1 < begins_.size(); ++list)
    if (const uint64_t texts = begins_[list + 1] - begins_[list]; texts > kMostListTexts)
      throw InputError("reranker", "{}: list {} has {} texts; expected at most {}", store_->folder().string(),
                       list + 1, texts, kMostListTexts);
  if (store_->meta().labels == data::LabelKind::none) return;
  for (int64_t row = 0; row < store_->rows(); ++row) labels_.push_back(store_->row(row).label);
}

data::Sample TextLists::get(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  const uint64_t begin = begins_.at(at), end = begins_.at(at + 1);
  data::Sample list = store_->row(static_cast<int64_t>(begin));
  for (uint64_t row = begin + 1; row < end; ++row)
    list.columns.push_back(store_->row(static_cast<int64_t>(row)).columns.at(1));
  list.sample_id = index;
  if (!labels_.empty()) list.shares = std::span(labels_).subspan(begin, end - begin);
  return list;
}

uint64_t TextLists::fingerprint() const {
  return hash_bytes(fmt::format("{} {} lists of texts", store_->fingerprint(), size()));
}

// ---- the objective

Reranking::Reranking(const text::Tokenizer& tokenizer, const RerankingOptions& options)
    : RowObjective(tokenizer, options.sequence,
                   options.labelled ? std::vector{data::LabelKind::values} : std::vector<data::LabelKind>()),
      options_(options),
      loss_(std::make_shared<RankingLossOfLists>(options.loss)) {}

std::shared_ptr<const data::Dataset> Reranking::samples(std::shared_ptr<const data::TokenStore> store) const {
  RowObjective::samples(store);  // requires tokeniser and labels
  return std::make_shared<TextLists>(std::move(store), options_.loss.reads_lists());
}

int64_t Reranking::length(const data::Sample& sample) const {
  int64_t tokens = 0;
  for (size_t text = 0; text < texts_in(sample); ++text)
    tokens += sequence_length(pair_of(sample, text), form(), sequence());
  return tokens;
}

MicroBatch Reranking::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  std::vector<int64_t> queries;
  for (const data::Sample& sample : samples) {
    for (size_t text = 0; text < texts_in(sample); ++text)
      packed.add(pair_of(sample, text), form(), sequence());
    queries.resize(queries.size() + texts_in(sample), hash_of_query(sample));
  }
  MicroBatch batch = packed.to_batch(random);
  batch.tensors["queries"] = at::tensor(queries, at::kLong);
  if (options_.labelled) add_labels(samples, batch);
  return batch;
}

void Reranking::add_labels(std::span<const data::Sample> samples, MicroBatch& batch) const {
  const auto lists = static_cast<int64_t>(samples.size());
  const at::Tensor table =
      at::full({lists, kMostListTexts}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  std::vector<double> labels, relevance;
  std::vector<int64_t> places, draws;
  double count = 0;
  int64_t longest = 0;
  for (int64_t list = 0; list < lists; ++list) {
    const data::Sample& sample = samples[static_cast<size_t>(list)];
    const std::span<const double> own = sample.shares;
    if (own.size() != texts_in(sample))
      throw InputError("reranker", "list {} has {} labels for {} texts", sample.sample_id, own.size(),
                       texts_in(sample));
    const auto texts = std::ssize(own);
    for (int64_t text = 0; text < texts; ++text) places.push_back(list * kMostListTexts + text);
    labels.insert(labels.end(), own.begin(), own.end());
    relevance.resize(labels.size());
    if (texts > 0) relevance[labels.size() - own.size()] = 1;
    draws.push_back(sample.draw_id);
    count += options_.loss.compares_lists() ? 1 : loss_->count(own);
    longest = std::max(longest, texts);
  }
  batch.tensors["labels"] = at::tensor(labels, at::kDouble);
  if (options_.first_is_relevant) batch.tensors["relevance"] = at::tensor(relevance, at::kDouble);
  batch.tensors["list_places"] = at::tensor(places, at::kLong);
  batch.tensors["longest_list"] = at::tensor(std::vector<int64_t>{longest}, at::kLong);
  batch.tensors[kRowDraws] = at::tensor(draws, at::kLong);
  table.view({-1}).index_copy_(0, batch.tensors["list_places"], batch.tensors["labels"]);
  batch.tensors[kListLabels] = table;
  batch.counts[options_.loss.name()] = count;
}

model::Head Reranking::head() const {
  return model::with_classes(model::classifier([loss = loss_, activation = options_.activation](
                                                   const at::Tensor& logits, const Pass& pass) {
                               add_ranking_loss(*loss, activation, logits, pass);
                             }),
                             1);
}

std::unique_ptr<Metrics> Reranking::metrics() const {
  return std::make_unique<RankingMetrics>(loss_);
}

void Reranking::save_more(const Model& /*model*/, const format::ModelConfig& config,
                          const text::Tokenizer& /*tokenizer*/, const fs::path& folder) const {
  format::ModelConfig saved = config;
  format::set_score_activation(saved, options_.activation);
  saved.source["funicular"][kRankingNote] = options_.loss.note();
  format::write_model_config(folder, saved);
  // CrossEncoder truncates to model_max_length, which else is the encoder's longest.
  const fs::path tokenizer_config = folder / "tokenizer_config.json";
  if (!fs::exists(tokenizer_config)) return;
  auto config_of_tokenizer = parse_json_or_null<OrderedJson>(read_file(tokenizer_config));
  config_of_tokenizer["model_max_length"] = sequence().max_length;
  write_file_atomically(tokenizer_config, config_of_tokenizer.dump(2) + "\n");
}

std::map<std::string, std::string> Reranking::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  all["objective"] = "reranking";
  all["activation"] = format::score_activation_names().at(static_cast<size_t>(options_.activation));
  options_.loss.add_identity(all);
  return all;
}

}  // namespace funicular::objective
