#include "funicular/model/bert.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/memory.h"
#include "funicular/core/recompute.h"
#include "funicular/model/builder.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/row_subset.h"

namespace funicular::model {

namespace {

/// An input on the CPU; nothing waits for a GPU where it is the batch's.
at::Tensor on_host(const MicroBatch& batch, const std::string& name, const at::Tensor& input) {
  return input.is_same(batch[name]) ? batch.on_host(name) : input.cpu();
}

/// Rows of the position embeddings [T] int32 where tokens of padding stand at none: those have the row
/// `padding`, the others padding + 1, padding + 2, … within their sequence. Sequences of the packed batch
/// follow each other, so that both counts come from one cumulative sum.
at::Tensor positions_without_padding(const at::Tensor& ids, const Packing& packing, int64_t padding) {
  const at::Tensor real = ids.ne(padding).to(at::kLong);
  const at::Tensor up_to = real.cumsum(0), before = up_to - real;
  const at::Tensor first = at::arange(ids.size(0), ids.options()) - packing.positions;
  return ((up_to - before.index_select(0, first)) * real + padding).to(at::kInt);
}

void add_embeddings(Builder& builder) {
  const format::BertConfig& config = builder.config();
  const std::string prefix = builder.in_encoder("embeddings.");
  const int64_t width = config.embedding_width(), longest = config.longest_sequence();
  const int64_t padding = config.pad_token_id;
  const bool skips_padding = builder.family().skips_padding;
  Parameter* const word = builder.add_weight(builder.in_encoder(kWordEmbeddings), config.vocab_size, width);
  if (padding >= 0 && padding < config.vocab_size) word->master.detach()[padding].zero_();
  Parameter* const position =
      builder.add_weight(prefix + "position_embeddings.weight", config.max_position_embeddings, width);
  if (skips_padding) position->master.detach()[padding].zero_();
  Parameter* const type =
      builder.add_weight(prefix + "token_type_embeddings.weight", config.type_vocab_size, width);
  const NormParameters norm = builder.add_norm(prefix + "LayerNorm", width);
  LinearWeights project;
  if (config.projects_embeddings())
    project = builder.add_linear(builder.in_encoder("embeddings_project"), config.hidden_size, width);
  const nn::DropoutSite site{config.hidden_dropout_prob, Purpose::dropout_embedding, 0};
  builder.add_segment(
      "embeddings", {from_batch("token_ids"), from_batch("token_type_ids")},
      {hidden_of_tokens(builder.options())}, [=](Activations in, const Pass& pass) {
        const Packing& packing = pass.batch.packing;
        const at::Tensor &ids = in.at("token_ids"), &types = in.at("token_type_ids");
        if (packing.longest() > longest)
          throw InputError(
              "bert",
              "a sequence has {} tokens; this model has positions for {}; pass a smaller --max-length",
              packing.longest(), longest);
        nn::EmbeddingTables tables{word->compute, position->compute, type->compute, padding,
                                   pass.options.row_gradients && ids.is_cpu()};
        if (skips_padding) {
          tables.position_rows = positions_without_padding(ids, packing, padding);
          tables.position_padding = padding;
        }
        if (!ids.is_cpu())
          nn::check_ids(tables, on_host(pass.batch, "token_ids", ids),
                        on_host(pass.batch, "token_type_ids", types));
        at::Tensor hidden = nn::embed(tables, ids, types, norm.weights(), packing, site);
        if (project.weight) hidden = apply_linear(hidden, project, nn::Activation::none);
        pass.taps("embeddings", hidden);
        return Activations{{kHidden, hidden}};
      });
}

/// The weights of a layer and what never changes of it.
struct Layer {
  std::string name;
  int64_t heads = 0;
  LinearWeights query_key_value, projection, up, down;
  NormParameters attention_norm, output_norm;
  nn::DropoutSite attention_site, projection_site, output_site;
  nn::Activation activation;
  bool repeatable = false;
  std::function<at::Tensor(const MicroBatch&)> rows;  ///< all that anybody reads of its output; empty: all

  Activations forward(const at::Tensor& x, const Pass& pass) const;
};

Activations Layer::forward(const at::Tensor& x, const Pass& pass) const {
  std::optional<nn::RowSubset> wanted;  // none: all rows
  if (rows && !pass.taps.observe) wanted = nn::select_rows(pass.batch.packing, rows(pass.batch));
  const nn::RowKeys keys = wanted ? wanted->keys : pass.batch.packing;
  // By value: it may run again in the backward pass.
  const auto attend = [layer = *this, packing = pass.batch.packing,
                       wanted](const std::vector<at::Tensor>& in) {
    const nn::Branch projected = nn::linear_branch(in[0], layer.query_key_value.weight->compute);
    return std::vector{nn::attention(projected.output, layer.query_key_value.bias->compute, packing,
                                     layer.heads, layer.attention_site, wanted, layer.repeatable),
                       projected.trunk};
  };
  const std::vector<at::Tensor> both =
      pass.options.selective_recompute
          ? recomputed({x}, {query_key_value.weight->compute, query_key_value.bias->compute}, attend)
          : attend({x});
  const at::Tensor &context = both[0], residual = wanted ? both[1].index_select(0, wanted->rows) : both[1];
  const at::Tensor attended =
      nn::residual_norm(nn::linear(context, projection.weight->compute), projection.bias->compute, residual,
                        attention_norm.weights(), keys, projection_site);
  const nn::Branch inner = nn::feed_forward_branch(attended, up.weight->compute, up.bias->compute,
                                                   down.weight->compute, activation);
  at::Tensor out = nn::residual_norm(inner.output, down.bias->compute, inner.trunk, output_norm.weights(),
                                     keys, output_site);
  pass.taps(name, out);
  if (rows && !wanted) out = out.index_select(0, rows(pass.batch).to(out.device()));
  return {{kHidden, out}};
}

void add_layer(Builder& builder, int64_t number) {
  const format::BertConfig& config = builder.config();
  const std::string prefix = builder.in_encoder("encoder.layer." + std::to_string(number) + ".");
  const int64_t hidden = config.hidden_size;
  const auto index = static_cast<uint32_t>(number);
  const bool last = number + 1 == config.num_hidden_layers;
  Layer layer;
  layer.name = "layer." + std::to_string(number);
  layer.heads = config.num_attention_heads;
  layer.query_key_value = builder.add_fused_linear(prefix + "attention.self", "query_key_value",
                                                   {"query", "key", "value"}, hidden, hidden);
  layer.projection = builder.add_linear(prefix + "attention.output.dense", hidden, hidden);
  layer.attention_norm = builder.add_norm(prefix + "attention.output.LayerNorm");
  layer.up = builder.add_linear(prefix + "intermediate.dense", config.intermediate_size, hidden);
  layer.down = builder.add_linear(prefix + "output.dense", hidden, config.intermediate_size);
  layer.output_norm = builder.add_norm(prefix + "output.LayerNorm");
  layer.attention_site = {config.attention_probs_dropout_prob, Purpose::dropout_attention, index};
  layer.projection_site = {config.hidden_dropout_prob, Purpose::dropout_attention_output, index};
  layer.output_site = {config.hidden_dropout_prob, Purpose::dropout_output, index};
  layer.activation = builder.activation();
  layer.repeatable = builder.options().repeatable;
  if (last) layer.rows = builder.options().head.rows;
  const Port out = last ? hidden_of_head(builder.options()) : hidden_of_tokens(builder.options());
  builder.add_segment(layer.name, {hidden_of_tokens(builder.options())}, {out},
                      [layer](Activations in, const Pass& pass) {
                        const at::Tensor x = std::move(in.at(kHidden));
                        in.clear();
                        return layer.forward(x, pass);
                      });
}

/// Weights of less are not worth asking the system for.
constexpr double kGiB = 1024.0 * 1024 * 1024;

void require_memory(const BertOptions& options) {
  const format::BertConfig& config = options.config;
  const int64_t count = count_parameters(config, options.head);
  const double needed = static_cast<double>(count) * static_cast<double>(c10::elementSize(options.dtype));
  if (needed < kGiB) return;
  const double memory = std::max(0.0, available_memory()), swap = available_swap();
  if (needed > memory + swap)
    throw InputError(
        "memory",
        "the configuration is that of a model of {:.3g} weights (vocab_size {}, hidden_size {}, "
        "intermediate_size {}, {} layers, {} positions), which take {:.1f} GiB, and in training several "
        "times "
        "that; available are {:.1f} GiB of memory and {:.1f} GiB of swap. Is a size mistyped? Else end other "
        "programs, or take a smaller model",
        static_cast<double>(count), config.vocab_size, config.hidden_size, config.intermediate_size,
        config.num_hidden_layers, config.max_position_embeddings, needed / kGiB, memory / kGiB, swap / kGiB);
}

}  // namespace

Family bert_family() {
  return {.model_type = "bert",
          .title = "BERT",
          .prefix = "bert.",
          .classes = "Bert",
          .masked_lm = {.dense = "cls.predictions.transform.dense",
                        .norm = "cls.predictions.transform.LayerNorm",
                        .bias = "cls.predictions.bias",
                        .decoder_weight = "cls.predictions.decoder.weight",
                        .decoder_bias = "cls.predictions.decoder.bias"},
          .classifier = {.dense = "pooler.dense",
                         .output = "classifier",
                         .pools = true,
                         .activation = nn::Activation::tanh}};
}

int64_t count_parameters(const format::BertConfig& config, const Head& head) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size, norm = 2 * hidden;
  const int64_t square = hidden * hidden + hidden;  // a linear layer from hidden to hidden
  const int64_t width = config.embedding_width();
  const int64_t embeddings =
      (config.vocab_size + config.max_position_embeddings + config.type_vocab_size) * width + 2 * width +
      (config.projects_embeddings() ? (width + 1) * hidden : 0);
  const int64_t layer = 4 * square + (hidden * inner + inner) + (inner * hidden + hidden) + 2 * norm;
  return embeddings + config.num_hidden_layers * layer + head.parameters(config);
}

Model build_bert(const BertOptions& options) {
  const format::BertConfig& config = options.config;
  format::check_bert_config(config, "config.json");
  if (options.dtype != at::kFloat && options.dtype != at::kDouble)
    throw InputError("bert", "expected weights of float32 or float64, found {}",
                     c10::toString(options.dtype));
  if (options.head.check) options.head.check(config);
  require_memory(options);
  Builder builder(options);
  add_embeddings(builder);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) add_layer(builder, layer);
  options.head.add(builder);
  Model model = builder.finish();
  model.replicate = [options] { return build_bert(options); };
  return model;
}

}  // namespace funicular::model
