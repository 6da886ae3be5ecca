#include "funicular/model/encoder.h"

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/memory.h"
#include "funicular/core/recompute.h"
#include "funicular/model/builder.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/row_subset.h"
#include "funicular/nn/slices.h"
#include "funicular/runtime/dry_run.h"

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

/// Where sequence parallelism divides the rows of a batch.
nn::RowBounds own_tokens(const Packing& packing, const Slicing& slicing) {
  return slice_bounds(packing.tokens(), 1, slicing.group()->size());
}

/// `hidden` between two layers: of all tokens, or of this rank's rows.
Port hidden_between_layers(const Builder& builder) {
  return {kHidden, [hidden = builder.config().encoder.width,
                    slicing = std::shared_ptr<const Slicing>(builder.slicing())](const MicroBatch& batch) {
            int64_t rows = batch.packing.tokens();
            if (slicing->sequence()) {
              const nn::RowBounds bounds = own_tokens(batch.packing, *slicing);
              const auto rank = static_cast<size_t>(slicing->group()->rank());
              rows = bounds[rank + 1] - bounds[rank];
            }
            return std::vector<int64_t>{rows, hidden};
          }};
}

void add_embeddings(Builder& builder) {
  const format::ModelConfig& config = builder.config();
  const format::WeightNames& names = builder.family().names;
  const int64_t width = config.encoder.embedding_width(), longest = config.encoder.longest_sequence();
  const int64_t padding = config.encoder.padding_id;
  const bool skips_padding = config.encoder.positions.after_padding;
  Parameter* const word =
      builder.add_weight(builder.family().word_embeddings(), config.encoder.vocabulary, width);
  const int64_t words = config.encoder.vocabulary, words_together = builder.words_together();
  builder.slicing()->cut(word, {.dimension = 0, .unit = words_together});
  if (padding >= 0 && padding < config.encoder.vocabulary) word->master.detach()[padding].zero_();
  Parameter* const position = builder.add_weight(builder.in_encoder(names.positions) + ".weight",
                                                 config.encoder.positions.rows, width);
  if (skips_padding) position->master.detach()[padding].zero_();
  Parameter* const type = builder.add_weight(builder.in_encoder(names.token_types) + ".weight",
                                             config.encoder.token_types, width);
  const NormParameters norm = builder.add_norm(builder.in_encoder(names.embedding_norm), width);
  LinearWeights project;
  if (config.encoder.projects_embeddings())
    project = builder.add_linear(builder.in_encoder(names.embedding_projection), config.encoder.width, width);
  const nn::DropoutSite site{config.encoder.dropouts.hidden, Purpose::dropout_embedding, 0};
  std::vector<Port> outputs{hidden_between_layers(builder)};
  const bool gives = builder.options().gives.hidden.contains(0);
  if (gives) outputs.push_back({hidden_port(0), hidden_of_tokens(builder.options()).shape});
  builder.add_segment(
      "embeddings", {from_batch("token_ids"), from_batch("token_type_ids")}, std::move(outputs),
      [=, slicing = std::shared_ptr<const Slicing>(builder.slicing())](Activations in, const Pass& pass) {
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
        at::Tensor hidden =
            slicing->group() ? nn::embed(tables, own_words(*slicing, words, words_together),
                                         slicing->shared_group(), ids, types, norm.weights(), packing, site)
                             : nn::embed(tables, ids, types, norm.weights(), packing, site);
        if (project.weight) hidden = apply_linear(hidden, project, nn::Activation::none);
        pass.taps("embeddings", hidden);
        Activations out;
        if (gives) out[hidden_port(0)] = hidden;
        out[kHidden] =
            slicing->sequence() ? nn::own_rows(hidden, *slicing, own_tokens(packing, *slicing)) : hidden;
        return out;
      });
}

/// What a layer computes between its slices, where its weights are whole.
struct Between {
  nn::RowKeys keys;  ///< of this rank's rows
  nn::RowBounds tokens{},
      rows{};  ///< each rank's rows of the batch, and of what the head reads; empty: all have all
};

/// The weights of a layer and what never changes of it.
struct Layer {
  std::string name;
  int64_t heads = 0, head_size = 0;  ///< of the model
  std::shared_ptr<const Slicing> slicing;
  LinearWeights query_key_value, projection, up, down;
  NormParameters attention_norm, output_norm;
  nn::DropoutSite attention_site, projection_site, output_site;
  nn::Activation activation;
  bool repeatable = false, last = false;
  std::function<at::Tensor(const MicroBatch&)> rows;  ///< all that the head reads of its output; empty: all
  std::string gives_hidden, gives_query_key_value;    ///< ports of LayerOutputs; empty: not

  Activations forward(const at::Tensor& x, const Pass& pass) const;
  Between between(const Packing& packing, const std::optional<nn::RowSubset>& wanted) const;
  /// What is added to the attention's output, for own rows.
  at::Tensor residual(const at::Tensor& x, const at::Tensor& trunk,
                      const std::optional<nn::RowSubset>& wanted, const Between& between) const;
  /// Those of which the weights are here.
  nn::HeadSlice own_heads() const {
    return {slicing->first(heads, 1), query_key_value.bias->compute.size(0) / (3 * head_size)};
  }
  /// The bias of a product whose sum over the ranks is complete.
  at::Tensor bias_of_sum(const LinearWeights& weights) const {
    const at::Tensor& bias = weights.bias->compute;
    return slicing->repeats_bias ? bias * slicing->group()->size() : bias;
  }
};

Between Layer::between(const Packing& packing, const std::optional<nn::RowSubset>& wanted) const {
  Between found{wanted ? wanted->keys : nn::RowKeys(packing)};
  if (!slicing->sequence()) return found;
  found.tokens = found.rows = own_tokens(packing, *slicing);
  if (wanted) {
    const int64_t *const first = wanted->rows.const_data_ptr<int64_t>(), *const end = first + wanted->size();
    for (int64_t& bound : found.rows) bound = std::lower_bound(first, end, bound) - first;
  }
  const auto rank = static_cast<size_t>(slicing->group()->rank());
  const int64_t begin = found.rows[rank], count = found.rows[rank + 1] - begin;
  found.keys.positions = found.keys.positions.narrow(0, begin, count);
  found.keys.draws = found.keys.draws.narrow(0, begin, count);
  return found;
}

at::Tensor Layer::residual(const at::Tensor& x, const at::Tensor& trunk,
                           const std::optional<nn::RowSubset>& wanted, const Between& between) const {
  if (between.rows.empty()) {
    const at::Tensor all = nn::once(trunk, *slicing);
    return wanted ? all.index_select(0, wanted->rows) : all;
  }
  if (!wanted) return x;
  const auto rank = static_cast<size_t>(slicing->group()->rank());
  const int64_t begin = between.rows[rank], count = between.rows[rank + 1] - begin;
  return x.index_select(0, wanted->rows.narrow(0, begin, count) - between.tokens[rank]);
}

Activations Layer::forward(const at::Tensor& x, const Pass& pass) const {
  std::optional<nn::RowSubset> wanted;  // none: all rows
  if (rows && !pass.taps.observe && gives_hidden.empty())
    wanted = nn::select_rows(pass.batch.packing, rows(pass.batch));
  // By value: it may run again in the backward pass.
  const auto attend = [layer = *this, packing = pass.batch.packing,
                       wanted](const std::vector<at::Tensor>& in) {
    const nn::Branch projected = nn::linear_branch(in[0], layer.query_key_value.weight->compute);
    const at::Tensor& bias = layer.query_key_value.bias->compute;
    std::vector results{nn::attention_of_heads(projected.output, bias, packing, layer.own_heads(),
                                               layer.attention_site, wanted, layer.repeatable),
                        projected.trunk};
    if (!layer.gives_query_key_value.empty())
      results.push_back(projected.output + bias.to(projected.output.scalar_type()));
    return results;
  };
  const Between between = this->between(pass.batch.packing, wanted);
  const at::Tensor entered = nn::enter_slices(x, *slicing, between.tokens);
  const std::vector<at::Tensor> both =
      pass.options.selective_recompute
          ? recomputed({entered}, {query_key_value.weight->compute, query_key_value.bias->compute}, attend)
          : attend({entered});
  const at::Tensor attended = nn::residual_norm(
      nn::leave_slices(nn::linear(both[0], projection.weight->compute), *slicing, between.rows),
      bias_of_sum(projection), residual(x, both[1], wanted, between), attention_norm.weights(), between.keys,
      projection_site);
  const nn::Branch inner =
      nn::feed_forward_branch(nn::enter_slices(attended, *slicing, between.rows), up.weight->compute,
                              up.bias->compute, down.weight->compute, activation);
  at::Tensor out =
      nn::residual_norm(nn::leave_slices(inner.output, *slicing, between.rows), bias_of_sum(down),
                        between.rows.empty() ? nn::once(inner.trunk, *slicing) : attended,
                        output_norm.weights(), between.keys, output_site);
  const at::Tensor own = out;
  if (!between.rows.empty() && (last || pass.taps.observe || !gives_hidden.empty()))
    out = nn::all_rows(own, *slicing, between.rows);
  pass.taps(name, out);
  Activations given;
  if (!gives_hidden.empty()) given[gives_hidden] = out;
  if (!gives_query_key_value.empty())
    given[gives_query_key_value] = nn::all_columns(both[2], *slicing, heads * head_size, head_size, 3);
  if (rows && !wanted) out = out.index_select(0, rows(pass.batch).to(out.device()));
  given[kHidden] = last ? out : own;
  return given;
}

/// What of a layer may be cut: heads, and channels between the two products of its feed-forward.
void declare_slices(const Layer& layer, Slicing& slicing, int64_t channels) {
  const int64_t together = std::gcd(channels, int64_t{32});  // whole tiles of products
  for (Parameter* const parameter : {layer.query_key_value.weight, layer.query_key_value.bias})
    slicing.cut(parameter, {.dimension = 0, .unit = layer.head_size});
  slicing.cut(layer.projection.weight, {.dimension = 1, .unit = layer.head_size});
  for (Parameter* const parameter : {layer.up.weight, layer.up.bias})
    slicing.cut(parameter, {.dimension = 0, .unit = together});
  slicing.cut(layer.down.weight, {.dimension = 1, .unit = together});
  for (const NormParameters& norm : {layer.attention_norm, layer.output_norm})
    for (Parameter* const parameter : {norm.gamma, norm.beta}) slicing.between(parameter);
  slicing.between(layer.projection.bias);
  slicing.between(layer.down.bias);
}

void add_layer(Builder& builder, int64_t number) {
  const format::ModelConfig& config = builder.config();
  const format::WeightNames& names = builder.family().names;
  const std::string prefix = builder.family().layer(number);
  const int64_t hidden = config.encoder.width;
  const auto index = static_cast<uint32_t>(number);
  const bool last = number + 1 == config.encoder.layers;
  Layer layer;
  layer.name = "layer." + std::to_string(number);
  layer.heads = config.encoder.heads;
  layer.head_size = hidden / layer.heads;
  layer.slicing = builder.slicing();
  layer.query_key_value = builder.add_fused_linear(
      prefix + names.query_key_value, {prefix + names.query, prefix + names.key, prefix + names.value},
      hidden, hidden);
  layer.projection = builder.add_linear(prefix + names.attention_output, hidden, hidden);
  layer.attention_norm = builder.add_norm(prefix + names.attention_norm);
  layer.up = builder.add_linear(prefix + names.up, config.encoder.feed_forward.width, hidden);
  layer.down = builder.add_linear(prefix + names.down, hidden, config.encoder.feed_forward.width);
  layer.output_norm = builder.add_norm(prefix + names.output_norm);
  layer.attention_site = {config.encoder.dropouts.attention, Purpose::dropout_attention, index};
  layer.projection_site = {config.encoder.dropouts.hidden, Purpose::dropout_attention_output, index};
  layer.output_site = {config.encoder.dropouts.hidden, Purpose::dropout_output, index};
  layer.activation = builder.activation();
  layer.repeatable = builder.options().repeatable;
  layer.last = last;
  if (last) layer.rows = builder.options().head.rows;
  std::vector<Port> outputs{last ? hidden_of_head(builder.options()) : hidden_between_layers(builder)};
  const LayerOutputs& gives = builder.options().gives;
  if (gives.hidden.contains(number + 1)) {
    layer.gives_hidden = hidden_port(number + 1);
    outputs.push_back({layer.gives_hidden, hidden_of_tokens(builder.options()).shape});
  }
  if (gives.query_key_value.contains(number + 1)) {
    layer.gives_query_key_value = query_key_value_port(number + 1);
    outputs.push_back({layer.gives_query_key_value, [hidden](const MicroBatch& batch) {
                         return std::vector<int64_t>{batch.packing.tokens(), 3 * hidden};
                       }});
  }
  declare_slices(layer, *builder.slicing(), config.encoder.feed_forward.width);
  builder.add_segment(layer.name, {hidden_of_tokens(builder.options())}, std::move(outputs),
                      [layer](Activations in, const Pass& pass) {
                        const at::Tensor x = std::move(in.at(kHidden));
                        in.clear();
                        return layer.forward(x, pass);
                      });
}

/// Weights of less are not worth asking the system for.
constexpr double kGiB = 1024.0 * 1024 * 1024;

void require_memory(const ModelOptions& options) {
  const format::ModelConfig& config = options.config;
  const int64_t count = count_parameters(config, options.head);
  const double needed = static_cast<double>(count) * static_cast<double>(c10::elementSize(options.dtype));
  if (needed < kGiB || DryRun::is_on()) return;
  const double memory = std::max(0.0, available_memory()), swap = available_swap();
  if (needed > memory + swap)
    throw InputError(
        "memory",
        "the configuration is that of a model of {:.3g} weights (vocab_size {}, hidden_size {}, "
        "intermediate_size {}, {} layers, {} positions), which take {:.1f} GiB, and in training several "
        "times "
        "that; available are {:.1f} GiB of memory and {:.1f} GiB of swap. Is a size mistyped? Else end other "
        "programs, or take a smaller model",
        static_cast<double>(count), config.encoder.vocabulary, config.encoder.width,
        config.encoder.feed_forward.width, config.encoder.layers, config.encoder.positions.rows,
        needed / kGiB, memory / kGiB, swap / kGiB);
}

}  // namespace

std::string hidden_port(int64_t layer) {
  return std::string(kHidden) + "." + std::to_string(layer);
}

std::string query_key_value_port(int64_t layer) {
  return "query_key_value." + std::to_string(layer);
}

int64_t count_parameters(const format::ModelConfig& config, const Head& head) {
  const int64_t hidden = config.encoder.width, inner = config.encoder.feed_forward.width, norm = 2 * hidden;
  const int64_t square = hidden * hidden + hidden;  // a linear layer from hidden to hidden
  const int64_t width = config.encoder.embedding_width();
  const int64_t embeddings =
      (config.encoder.vocabulary + config.encoder.positions.rows + config.encoder.token_types) * width +
      2 * width + (config.encoder.projects_embeddings() ? (width + 1) * hidden : 0);
  const int64_t layer = 4 * square + (hidden * inner + inner) + (inner * hidden + hidden) + 2 * norm;
  return embeddings + config.encoder.layers * layer + head.parameters(config);
}

Model build_model(const ModelOptions& options) {
  const format::ModelConfig& config = options.config;
  format::check_model_config(config, "config.json");
  if (options.dtype != at::kFloat && options.dtype != at::kDouble)
    throw InputError("bert", "expected weights of float32 or float64, found {}",
                     c10::toString(options.dtype));
  if (options.head.check) options.head.check(config);
  require_memory(options);
  Builder builder(options);
  add_embeddings(builder);
  for (int64_t layer = 0; layer < config.encoder.layers; ++layer) add_layer(builder, layer);
  options.head.add(builder);
  Model model = builder.finish();
  model.replicate = [options] { return build_model(options); };
  return model;
}

}  // namespace funicular::model
