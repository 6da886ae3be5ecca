#include "funicular/objective/sentence_vectors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/objective/batch_loss_term.h"
#include "funicular/objective/vector_metrics.h"

namespace funicular::objective {

namespace {

/// Adds the loss of a micro-batch. A loss of single rows reads only the micro-batch's rows.
void add_vector_loss(const VectorLossOfRows& loss, const at::Tensor& sequences, const Pass& pass) {
  const at::Tensor& draws = pass.batch[kRowDraws];
  const at::Tensor vectors = sequences.view({draws.numel(), -1, sequences.size(1)});
  TensorMap rows{{kRowVectors, vectors}, {kRowDraws, draws}};
  for (const std::string& name : loss.reads())
    if (const auto found = pass.batch.tensors.find(name); found != pass.batch.tensors.end())
      rows[name] = found->second;
  for (const auto& [name, value] : rows) pass.loss.output(name, value);
  const VectorLossOptions& options = loss.options();
  if (options.reads_labels() && !rows.contains(kRowLabels)) return;
  if (options.reads_teacher() && !rows.contains(kTeacherVectors)) return;
  if (!options.compares_rows()) return pass.loss.add(options.name(), loss.of_rows(rows).sum());
  add_batch_loss(loss, options.name(), rows, pass);
}

std::string describe_modules(const format::SentenceFolder& modules) {
  std::vector<std::string> parts;
  if (modules.is_static) parts.emplace_back("static embeddings");
  for (const format::Pooling pooling : modules.poolings) parts.push_back(format::pooling_name(pooling));
  for (const format::SentenceStep& step : modules.steps)
    parts.push_back(step.kind == format::SentenceStep::Kind::dense
                        ? fmt::format("dense {} {}", step.outputs, step.activation)
                        : "normalise");
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// The labels that collate reads: a number per row, or a margin per negative. A row with a teacher's vector has the
/// vector's number as its label.
std::vector<data::LabelKind> labels_read(const SentenceVectorOptions& options) {
  const bool read = options.loss.reads_labels() || options.loss.reads_teacher();
  if (!options.labelled || !read) return {};
  return {options.loss.loss == VectorLoss::margin_mse ? data::LabelKind::numbers : data::LabelKind::values};
}

bool gives_unit_vectors(const format::SentenceFolder& modules) {
  return !modules.steps.empty() && modules.steps.back().kind == format::SentenceStep::Kind::normalise;
}

}  // namespace

SentenceVectors::SentenceVectors(const text::Tokenizer& tokenizer, const SentenceVectorOptions& options)
    : RowObjective(tokenizer, options.sequence, labels_read(options),
                   options.modules.is_static ? text::SequenceTemplate() : tokenizer.sequence()),
      options_(options),
      loss_(std::make_shared<VectorLossOfRows>(options.loss)) {}

/// A text of a row as a separate sample.
data::Sample SentenceVectors::sample_of_text(const data::Sample& row, size_t column) const {
  data::Sample sample;
  sample.columns = {row.columns[column]};
  if (options_.modules.is_static && row.columns[column].tokens.size() == 0)
    sample.columns[0] = {data::TokenSpan(&options_.no_token, 1), {}};
  sample.sample_id = row.sample_id;
  sample.draw_id = row.draw_id * std::ssize(row.columns) + static_cast<int64_t>(column);
  sample.epoch = row.epoch;
  return sample;
}

int64_t SentenceVectors::length(const data::Sample& sample) const {
  int64_t tokens = 0;
  for (size_t column = 0; column < sample.columns.size(); ++column)
    tokens += sequence_length(sample_of_text(sample, column), form(), sequence());
  return tokens;
}

MicroBatch SentenceVectors::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  std::vector<int64_t> draws;
  std::vector<double> labels, present;
  const size_t columns = samples.empty() ? 0 : samples.front().columns.size();
  for (const data::Sample& sample : samples) {
    for (size_t column = 0; column < columns; ++column) {
      packed.add(sample_of_text(sample, column), form(), sequence());
      present.push_back(column < 2 || sample.columns[column].tokens.size() > 0);
    }
    draws.push_back(sample.draw_id);
    if (sample.shares.empty()) labels.push_back(sample.label);
    labels.insert(labels.end(), sample.shares.begin(), sample.shares.end());
  }
  MicroBatch batch = packed.to_batch(random);
  const auto rows = static_cast<int64_t>(samples.size());
  batch.tensors[kRowDraws] = at::tensor(draws, at::kLong);
  if (options_.labelled && options_.loss.reads_labels()) {
    const int64_t numbers = samples.empty() ? 1 : std::max<int64_t>(1, std::ssize(samples.front().shares));
    batch.tensors[kRowLabels] = at::tensor(labels, at::kDouble).view({rows, numbers}).squeeze(1);
  }
  if (options_.teacher) batch.tensors[kTeacherVectors] = teacher_vectors(samples);
  if (columns > 3)
    batch.tensors[kPresentTexts] =
        at::tensor(present, at::kDouble).view({rows, static_cast<int64_t>(columns)});
  batch.counts[options_.loss.name()] = static_cast<double>(rows);
  return batch;
}

at::Tensor SentenceVectors::teacher_vectors(std::span<const data::Sample> samples) const {
  const format::NpyFile& table = *options_.teacher;
  const at::Tensor vectors = at::empty({std::ssize(samples), table.columns()}, at::kFloat);
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::span<const std::byte> row = table.row(static_cast<int64_t>(samples[i].label));
    std::memcpy(vectors.data_ptr<float>() + static_cast<int64_t>(i) * table.columns(), row.data(),
                row.size());
  }
  return gives_unit_vectors(options_.modules) ? model::normalise_rows(vectors) : vectors;
}

model::VectorUse SentenceVectors::loss_of_vectors() const {
  return
      [loss = loss_](const at::Tensor& vectors, const Pass& pass) { add_vector_loss(*loss, vectors, pass); };
}

model::Head SentenceVectors::head() const {
  return model::sentence_head(
      options_.modules, {.pooler = options_.pooler, .folder = options_.folder, .use = loss_of_vectors()});
}

Model SentenceVectors::build(model::ModelOptions encoder) const {
  options_.loss.check_width(options_.modules.vector_width(encoder.config.encoder.width));
  Model model;
  if (options_.modules.is_static) {
    model = model::build_table(options_.modules, encoder, loss_of_vectors());
    model.declare_loss(loss_over());
    model::load_table(model, options_.folder / options_.modules.encoder);
  } else {
    model = Objective::build(std::move(encoder));
  }
  model::load_sentence_steps(model, options_.modules, options_.folder);
  return model;
}

std::unique_ptr<Metrics> SentenceVectors::metrics() const {
  return std::make_unique<VectorMetrics>(loss_, options_.scored);
}

std::vector<uint64_t> SentenceVectors::texts_of(const data::Sample& sample) const {
  std::vector<uint64_t> texts;
  std::vector<int32_t> ids;
  for (const data::Sample::Column& column : sample.columns) {
    if (column.tokens.size() == 0) continue;
    ids.resize(column.tokens.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = column.tokens[i];
    texts.push_back(hash_bytes(ids.data(), ids.size() * sizeof(int32_t)));
  }
  return texts;
}

void SentenceVectors::save_more(const Model& model, const format::ModelConfig& config,
                                const text::Tokenizer& tokenizer, const fs::path& folder) const {
  format::SentenceFolder modules = options_.modules;
  const bool is_limited = sequence().max_length < format::EncoderLimits::positions;
  modules.max_length = !modules.is_static || is_limited ? sequence().max_length : 0;
  modules.encoder = "";
  for (format::SentenceStep& step : modules.steps) step.folder.clear();
  model::save_sentence_encoder(model, config, tokenizer, modules, folder);
}

std::map<std::string, std::string> SentenceVectors::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  all["objective"] = "sentence vectors";
  all["modules"] = describe_modules(options_.modules);
  if (const std::string dense = model::hash_sentence_steps(options_.modules, options_.folder); !dense.empty())
    all["dense_weights"] = hash_text(hash_bytes(dense));
  options_.loss.add_identity(all);
  if (options_.teacher) all["teacher"] = hash_text(hash_file(options_.teacher->path()));
  return all;
}

}  // namespace funicular::objective
