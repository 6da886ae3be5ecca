#include "funicular/model/embeddings.h"

#include <ATen/TensorOperators.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/model/layer.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/slices.h"

namespace funicular::model {

namespace {

/// Returns an input on the CPU. If it is the batch's own tensor, this does not wait for a GPU.
at::Tensor on_host(const MicroBatch& batch, const std::string& name, const at::Tensor& input) {
  return input.is_same(batch[name]) ? batch.on_host(name) : input.cpu();
}

/// Returns rows of the position embeddings [T] int32 for families that number only non-padding tokens. Padding tokens
/// have the row `padding`. All further tokens of a sequence have the rows padding + 1, padding + 2 and so on. One
/// cumulative sum counts for all sequences, as they are consecutive in the packed batch.
at::Tensor positions_without_padding(const at::Tensor& ids, const Packing& packing, int64_t padding) {
  const at::Tensor real = ids.ne(padding).to(at::kLong);
  const at::Tensor up_to = real.cumsum(0), before = up_to - real;
  const at::Tensor first = at::arange(ids.size(0), ids.options()) - packing.positions;
  return ((up_to - before.index_select(0, first)) * real + padding).to(at::kInt);
}

/// Fills a table of positions with sines and cosines (Vaswani et al., section 3.5), in neighbouring channels.
void write_waves(const at::Tensor& table) {
  const int64_t width = table.size(1);
  const at::Tensor pairs =
      at::arange(width, at::kDouble).div(2, "floor").mul(2).div(static_cast<double>(width));
  const at::Tensor angles =
      at::arange(table.size(0), at::kDouble).unsqueeze(1) / at::pow(10000.0, pairs).unsqueeze(0);
  const at::Tensor odd = at::arange(width).remainder(2).to(at::kBool).unsqueeze(0);
  table.copy_(at::where(odd, angles.cos(), angles.sin()));
}

/// The embedding tables and their constants.
struct Embeddings {
  Parameter* word = nullptr;
  Parameter *position = nullptr, *type = nullptr, *task = nullptr;  ///< null: no such table
  NormParameters norm;
  LinearWeights project;
  nn::DropoutSite site;
  int64_t words = 0, words_together = 1, longest = 0, padding = 0;
  bool after_padding = false, gives_hidden = false;
  std::shared_ptr<const Slicing> slicing;

  at::Tensor look_up(const at::Tensor& ids, const at::Tensor& types, const Pass& pass) const;
  Activations forward(const Activations& in, const Pass& pass) const;
};

at::Tensor Embeddings::look_up(const at::Tensor& ids, const at::Tensor& types, const Pass& pass) const {
  const Packing& packing = pass.batch.packing;
  const at::Tensor no_rows = type && position
                                 ? at::Tensor()
                                 : at::zeros({1, word->compute.size(1)}, word->compute.options()).detach();
  nn::EmbeddingTables tables{word->compute, position ? position->compute : no_rows,
                             type ? type->compute : no_rows, padding,
                             pass.options.row_gradients && ids.is_cpu()};
  if (!position) tables.position_rows = at::zeros_like(packing.positions);
  if (task) tables.common = task->compute;
  if (after_padding) {
    tables.position_rows = positions_without_padding(ids, packing, padding);
    tables.position_padding = padding;
  }
  if (!ids.is_cpu())
    nn::check_ids(words, tables.type.size(0), on_host(pass.batch, "token_ids", ids),
                  type ? on_host(pass.batch, "token_type_ids", types) : at::zeros({0}, at::kLong));
  if (slicing->group())
    return nn::embed(tables, own_words(*slicing, words, words_together), slicing->shared_group(), ids, types,
                     norm.weights(), packing, site);
  return nn::embed(tables, ids, types, norm.weights(), packing, site);
}

Activations Embeddings::forward(const Activations& in, const Pass& pass) const {
  const Packing& packing = pass.batch.packing;
  if (packing.longest() > longest)
    throw InputError("model",
                     "a sequence has {} tokens; this model has positions for {}; pass a smaller --max-length",
                     packing.longest(), longest);
  const at::Tensor& ids = in.at("token_ids");
  at::Tensor hidden = look_up(ids, type ? in.at("token_type_ids") : at::zeros_like(ids), pass);
  if (project.weight) hidden = apply_linear(hidden, project, nn::Activation::none);
  pass.taps("embeddings", hidden);
  Activations out;
  if (gives_hidden) out[hidden_port(0)] = hidden;
  out[kHidden] = slicing->sequence() ? nn::own_rows(hidden, *slicing, own_tokens(packing, *slicing)) : hidden;
  return out;
}

}  // namespace

void add_embeddings(Builder& builder) {
  const format::EncoderSpec& encoder = builder.config().encoder;
  const format::Family& family = builder.family();
  const format::WeightNames& names = family.names;
  const int64_t width = encoder.embedding_width(), padding = encoder.padding_id;
  const auto add_table = [&](const std::string& name, int64_t rows) {
    return builder.add_weight(family.in_encoder(name) + ".weight", rows, width);
  };
  Embeddings e;
  e.word = add_table(names.words, encoder.vocabulary);
  e.words = encoder.vocabulary;
  e.words_together = builder.words_together();
  builder.slicing()->cut(e.word, {.dimension = 0, .unit = e.words_together});
  if (padding >= 0 && padding < encoder.vocabulary) e.word->master.detach()[padding].zero_();
  if (encoder.positions.table) e.position = add_table(names.positions, encoder.positions.rows);
  e.after_padding = encoder.positions.after_padding;
  if (encoder.positions.waves) write_waves(e.position->master.detach());
  if (e.after_padding) e.position->master.detach()[padding].zero_();
  if (encoder.token_types > 0) e.type = add_table(names.token_types, encoder.token_types);
  if (encoder.task_types > 0) e.task = add_table(names.task_types, encoder.task_types);
  e.norm = builder.add_norm(family.in_encoder(names.embedding_norm), width);
  if (encoder.projects_embeddings())
    e.project = builder.add_linear(family.in_encoder(names.embedding_projection), encoder.width, width);
  e.site = {encoder.dropouts.hidden, Purpose::dropout_embedding, 0};
  e.longest = encoder.longest_sequence();
  e.padding = padding;
  e.slicing = builder.slicing();
  e.gives_hidden = builder.options().gives.hidden.contains(0);
  std::vector<Port> inputs{from_batch("token_ids")}, outputs{hidden_between_layers(builder)};
  if (e.type) inputs.push_back(from_batch("token_type_ids"));
  if (e.gives_hidden) outputs.push_back({hidden_port(0), hidden_of_tokens(builder.options()).shape});
  builder.add_segment("embeddings", std::move(inputs), std::move(outputs),
                      [e](Activations in, const Pass& pass) { return e.forward(in, pass); });
}

int64_t count_embedding_parameters(const format::EncoderSpec& encoder) {
  const int64_t width = encoder.embedding_width();
  const int64_t positions = encoder.positions.table ? encoder.positions.rows : 0;
  const int64_t rows = encoder.vocabulary + positions + encoder.token_types + encoder.task_types;
  return rows * width + (encoder.norm.bias ? 2 : 1) * width +
         (encoder.projects_embeddings() ? (width + 1) * encoder.width : 0);
}

}  // namespace funicular::model
