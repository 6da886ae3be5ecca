// The tensors of a step in the order in which model/bert.cpp, nn/functional.cpp, nn/matmul.cpp and
// core/recompute.cpp make and drop them, as sizes. What a function of nn/functional.cpp saves for its
// backward pass is a member of a struct …Kept here; what only lives while it computes is a local Block. T
// tokens, M of them predicted, H hidden, I inner, V vocabulary; e bytes an activation, s a statistic.
//
// From this follow, without recomputation, activations of
//   embeddings  T (2 H e + 2 s)
//   a layer     T ((8 H + I) e + (heads + 4) s)
//   the last    T 4 H e + M ((5 H + I) e + (heads + 4) s)    of what comes after keys and values M rows
//   the head    M (3 H e + 2 s) + min(M, 512) V e
// Where ELECTRA's embeddings have a width of their own, E, they and the head's transform are E wide, and the
// product between them and the layers keeps T (E + H) e more. What is Tiled has rows up to a multiple of 32.
// selective keeps T 3 H e + T heads s less of each layer (of the last M heads s); full keeps a layer's input
// alone, T H e.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "funicular/nn/functional.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/matmul.h"
#include "funicular/nn/row_operations.h"
#include "funicular/nn/tiled.h"
#include "funicular/nn/workspace.h"
#include "funicular/plan/memory.h"
#include "funicular/runtime/allocator.h"

namespace funicular::plan {

namespace {

using nn::kLogitRows;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// ---- weights

/// The flat layout of core/flat_parameters.h.
struct FlatSizes {
  int64_t matrices = 0, vectors = 0;  // elements, with the gaps

  void add_matrix(int64_t rows, int64_t columns) { matrices += round_up(rows * columns, 64); }
  void add_vector(int64_t size) { vectors += round_up(size, 64); }
  void add_linear(int64_t out, int64_t in) {
    add_matrix(out, in);
    add_vector(out);
  }

  explicit FlatSizes(const format::BertConfig& c) {
    const auto add_norm = [&](int64_t width) {
      add_vector(width);
      add_vector(width);
    };
    for (const int64_t rows : {c.vocab_size, c.max_position_embeddings, c.type_vocab_size})
      add_matrix(rows, c.embedding_width());
    add_norm(c.embedding_width());
    if (c.projects_embeddings()) add_linear(c.hidden_size, c.embedding_width());
    for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
      add_linear(3 * c.hidden_size, c.hidden_size);
      add_linear(c.hidden_size, c.hidden_size);
      add_norm(c.hidden_size);
      add_linear(c.intermediate_size, c.hidden_size);
      add_linear(c.hidden_size, c.intermediate_size);
      add_norm(c.hidden_size);
    }
    add_linear(c.embedding_width(), c.hidden_size);  // the head's; its decoder is the word embeddings
    add_norm(c.embedding_width());
    add_vector(c.vocab_size);
  }
};

// ---- a counter of live bytes

class Counter {
 public:
  void take(int64_t bytes) {
    used_ += bytes;
    peak_ = std::max(peak_, used_);
  }
  void give(int64_t bytes) { used_ -= bytes; }
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t used_ = 0, peak_ = 0;
};

/// What the allocator takes for a tensor; small ones are not counted.
int64_t block_bytes(int64_t bytes) {
  return bytes < kSmallestCached ? 0 : round_up(bytes, static_cast<int64_t>(Arena::kPage));
}

/// A tensor, as far as its size goes.
class Block {
 public:
  Block() = default;
  Block(Counter& counter, int64_t bytes) : counter_(&counter), bytes_(block_bytes(bytes)) {
    counter_->take(bytes_);
  }
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept {
    drop();
    counter_ = std::exchange(other.counter_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Block() { drop(); }
  void drop() {
    if (counter_) counter_->give(bytes_);
    counter_ = nullptr;
    bytes_ = 0;
  }

 private:
  Counter* counter_ = nullptr;
  int64_t bytes_ = 0;
};

// ---- what is saved for the backward pass

struct NormKept {
  Block sum, mean, inverse_deviation;
};
struct AttentionKept {
  Block qkv, log_sum_exp;
};
struct LayerKept {
  Block input;  // by the product that gives query, key and value
  AttentionKept attention;
  Block context;  // by the projection after it
  NormKept attention_norm;
  Block attended, inner;  // by the feed-forward
  NormKept output_norm;
};
struct HeadKept {
  Block rows, transformed;
  NormKept norm;
  Block hidden, logits, hidden_gradient, weight_sum, bias_sum;  // by the cross-entropy
};
struct EmbeddingsKept {
  NormKept norm;
  Block narrow, projected;  // by the product to the layers' width, and by its bias
};
/// Of a run of segments: 0 the embeddings, 1 … L the layers, L + 1 the head.
struct SegmentsKept {
  EmbeddingsKept embeddings;
  std::vector<LayerKept> layers;
  HeadKept head;
};

// ---- the gradients of weights

/// Whether matrices' gradients are made by the backward pass and freed after the update; as
/// parallel::make_single does.
bool frees_gradients(const StepOptions& options) {
  return !compute_type(options.precision) || !options.accumulates;
}

/// Those of a step, where they are freed after it: each is there from its first use on.
class WeightGradients {
 public:
  enum Matrix { kWords, kPositions, kTypes, kProject, kHead, kLayers };            // once
  enum LayerMatrix { kQueryKeyValue, kProjection, kUp, kDown, kMatricesOfLayer };  // from kLayers on

  explicit WeightGradients(bool frees) : frees_(frees) {}
  void use(Counter& counter, int64_t matrix, int64_t bytes) {
    if (!frees_ || held_.contains(matrix)) return;
    const int64_t before = counter.used();
    held_.emplace(matrix, Block(counter, bytes));
    bytes_ += counter.used() - before;
  }
  int64_t bytes() const { return bytes_; }

 private:
  bool frees_;
  std::map<int64_t, Block> held_;
  int64_t bytes_ = 0;
};

// ---- one forward and backward pass

class Pass {
 public:
  Pass(const format::BertConfig& config, const StepOptions& options, const BatchShape& shape, int threads,
       Counter& counter, WeightGradients& gradients)
      : config_(config),
        options_(options),
        shape_(shape),
        threads_(threads),
        type_(compute_type(options.precision).value_or(master_type(options.precision))),
        element_(static_cast<int64_t>(c10::elementSize(type_))),
        statistic_(type_ == at::kDouble ? 8 : 4),
        widens_(nn::products_are_widened(type_)),
        product_type_(widens_ ? at::kFloat : type_),
        own_products_(nn::has_own_products(product_type_)),
        counter_(counter),
        gradients_(gradients) {}

  /// Returns the activations' bytes.
  int64_t run();

 private:
  Block values(int64_t rows, int64_t width) { return {counter_, rows * width * element_}; }
  int64_t embedding() const { return config_.embedding_width(); }
  Block token_rows() { return values(shape_.tokens, config_.hidden_size); }
  Block masked_rows() { return values(shape_.masked, config_.hidden_size); }
  Block statistics(int64_t count) { return {counter_, count * statistic_}; }
  NormKept norm_kept(int64_t rows, int64_t width) {
    return {values(rows, width), statistics(rows), statistics(rows)};
  }
  NormKept norm_kept(int64_t rows) { return norm_kept(rows, config_.hidden_size); }
  /// Sums of `width` columns over each block of rows.
  Block partial_sums(int64_t rows, int64_t width) {
    const int64_t size = nn::rows_of_a_block(rows);
    return statistics((rows + size - 1) / size * width);
  }
  /// What a product into a tensor that is there takes while it lasts.
  void multiply(int64_t rows, int64_t depth, int64_t columns);
  /// nn::times: [rows, depth] times [depth, columns].
  Block times(int64_t rows, int64_t depth, int64_t columns) {
    Block out = values(rows, columns);
    multiply(rows, depth, columns);
    return out;
  }
  Block times_transposed(int64_t rows, int64_t depth, int64_t columns) { return times(rows, depth, columns); }
  /// Whether what lies between the products of a feed-forward layer is Tiled; its values.
  bool tiled() const { return nn::may_be_tiled(type_, config_.hidden_size, config_.intermediate_size); }
  int64_t squares(int64_t rows) const { return (rows + nn::Tiled::kSide - 1) / nn::Tiled::kSide; }
  Block inner_values(int64_t rows) {
    return values(tiled() ? squares(rows) * nn::Tiled::kSide : rows, config_.intermediate_size);
  }
  /// nn::add_weight_gradient to one of [out, in] from `rows` rows; `wide`: 16-bit operands, its type float.
  void add_weight_gradient(int64_t out, int64_t in, int64_t rows, bool wide);
  /// The same to a weight's gradient, which is made if it is not there: `learn` of nn/functional.cpp.
  void learn(int64_t matrix, int64_t out, int64_t in, int64_t rows);
  bool is_narrow() const { return element_ != statistic_; }
  bool drops() const { return config_.hidden_dropout_prob > 0; }
  Block attention_buffers();

  // Forward: the result, what is saved going to `kept`; null: nothing is recorded.
  Block embed(EmbeddingsKept* kept);
  Block attend(AttentionKept* kept, int64_t queries);
  /// After queries, keys and values of all tokens.
  int64_t rows_of_layer(bool last) const { return last ? shape_.masked : shape_.tokens; }
  Block layer(LayerKept* kept, bool last);
  void head(HeadKept& kept, Block rows);
  void cross_entropy(HeadKept& kept);
  /// Of segments [begin, end) without the head. `input` stays the caller's where nothing is recorded.
  Block segments(size_t begin, size_t end, Block input, SegmentsKept* kept);

  // Backward: the gradient of the input.
  struct NormGradients {
    Block input, residual;
  };
  NormGradients norm_backward(NormKept kept, int64_t rows, int64_t width, bool drops, Block gradient);
  Block feed_forward_backward(int64_t first, int64_t rows, Block attended, Block inner, Block gradient);
  Block attend_backward(int64_t first, AttentionKept kept, Block input, Block gradient);
  /// `segment`: 1 … L.
  Block layer_backward(LayerKept kept, int64_t segment, Block gradient);
  void embed_backward(EmbeddingsKept kept, Block gradient);
  Block head_backward(HeadKept kept);
  Block segments_backward(size_t begin, size_t end, SegmentsKept kept, Block gradient);
  /// A group of segments that is run again, its backward pass after it.
  Block again(size_t begin, size_t end, Block input, Block gradient);

  const format::BertConfig& config_;
  const StepOptions& options_;
  const BatchShape& shape_;
  int threads_;
  at::ScalarType type_;
  int64_t element_, statistic_;
  bool widens_;
  at::ScalarType product_type_;
  bool own_products_;  ///< false: LibTorch's, whose buffers are not known
  Counter& counter_;
  WeightGradients& gradients_;
};

void Pass::multiply(int64_t rows, int64_t depth, int64_t columns) {
  if (!own_products_ || rows == 0) return;
  const Block wide =
      widens_ ? Block(counter_, 4 * rows * depth + 4 * depth * columns + 4 * rows * columns) : Block();
  const Block workspace(counter_, nn::product_workspace(product_type_, rows, depth, columns, threads_));
}

void Pass::add_weight_gradient(int64_t out, int64_t in, int64_t rows, bool wide) {
  const Block operands = widens_ || (wide && !own_products_) ? statistics(rows * (out + in)) : Block();
  const Block sum = widens_ && !wide ? statistics(out * in) : Block();
  if (!own_products_ || rows == 0) return;
  const Block workspace(counter_, nn::gradient_workspace(product_type_, out, rows, in, threads_));
}

void Pass::learn(int64_t matrix, int64_t out, int64_t in, int64_t rows) {
  gradients_.use(counter_, matrix, out * in * element_);
  add_weight_gradient(out, in, rows, is_narrow() && options_.accumulates);
}

Block Pass::attention_buffers() {
  const auto bytes = [&](const auto& kernels) {
    return kernels.attention_workspace(shape_.longest, config_.head_size());
  };
  const int64_t each = type_ == at::kDouble     ? bytes(nn::kernels<double>())
                       : type_ == at::kFloat    ? bytes(nn::kernels<float>())
                       : type_ == at::kBFloat16 ? bytes(nn::kernels<BFloat16>())
                                                : bytes(nn::kernels<Half>());
  return {counter_, nn::Workspace::Sizes{0, each, threads_}.total()};
}

// ---- forward

Block Pass::embed(EmbeddingsKept* kept) {
  EmbeddingsKept saved;
  Block output = values(shape_.tokens, embedding());
  saved.norm = norm_kept(shape_.tokens, embedding());
  if (config_.projects_embeddings()) {
    saved.narrow = std::move(output);
    saved.projected = times_transposed(shape_.tokens, embedding(), config_.hidden_size);
    output = token_rows();
  }
  if (kept) *kept = std::move(saved);
  return output;
}

Block Pass::attend(AttentionKept* kept, int64_t queries) {
  AttentionKept saved{times_transposed(shape_.tokens, config_.hidden_size, 3 * config_.hidden_size), {}};
  Block context = values(queries, config_.hidden_size);
  saved.log_sum_exp = statistics(config_.num_attention_heads * queries);
  const Block buffers = attention_buffers();
  if (kept) *kept = std::move(saved);
  return context;
}

Block Pass::layer(LayerKept* kept, bool last) {
  const int64_t rows = rows_of_layer(last);
  const Block residual = last ? masked_rows() : Block();
  Block context =
      attend(kept && options_.recompute != Recompute::selective ? &kept->attention : nullptr, rows);
  Block attended;
  {
    const Block projected = times_transposed(rows, config_.hidden_size, config_.hidden_size);
    attended = values(rows, config_.hidden_size);
    NormKept norm = norm_kept(rows);
    if (kept) kept->attention_norm = std::move(norm);
  }
  Block inner, activated;
  if (tiled()) {
    activated = inner_values(rows);
    if (kept) inner = inner_values(rows);
    multiply(rows, config_.hidden_size, config_.intermediate_size);
  } else {
    inner = times_transposed(rows, config_.hidden_size, config_.intermediate_size);
    activated = inner_values(rows);
  }
  const Block fed = times_transposed(rows, config_.intermediate_size, config_.hidden_size);
  activated.drop();
  if (!kept) inner.drop();
  Block output = values(rows, config_.hidden_size);
  NormKept norm = norm_kept(rows);
  if (kept) {
    kept->context = std::move(context);
    kept->attended = std::move(attended);
    kept->inner = std::move(inner);
    kept->output_norm = std::move(norm);
  }
  return output;
}

void Pass::head(HeadKept& kept, Block rows) {
  kept.rows = std::move(rows);
  kept.transformed = times_transposed(shape_.masked, config_.hidden_size, embedding());
  {
    const Block activated = values(shape_.masked, embedding());
    kept.hidden = values(shape_.masked, embedding());
    kept.norm = norm_kept(shape_.masked, embedding());
  }
  cross_entropy(kept);
}

void Pass::cross_entropy(HeadKept& kept) {
  for (int64_t begin = 0; begin < shape_.masked; begin += kLogitRows) {
    const int64_t rows = std::min(kLogitRows, shape_.masked - begin);
    kept.logits = times_transposed(rows, embedding(), config_.vocab_size);
    if (begin + rows == shape_.masked) break;
    if (begin == 0) {
      kept.hidden_gradient = values(shape_.masked, embedding());
      kept.weight_sum = statistics(config_.vocab_size * embedding());
      kept.bias_sum = statistics(config_.vocab_size);
    }
    multiply(rows, config_.vocab_size, embedding());
    add_weight_gradient(config_.vocab_size, embedding(), rows, is_narrow());
    const Block sums = partial_sums(rows, config_.vocab_size);
  }
}

Block Pass::segments(size_t begin, size_t end, Block input, SegmentsKept* kept) {
  Block current = std::move(input);
  for (size_t s = begin; s < end; ++s) {
    if (s == 0) {
      current = embed(kept ? &kept->embeddings : nullptr);
      continue;
    }
    LayerKept* const saved = kept ? &kept->layers.emplace_back() : nullptr;
    Block output = layer(saved, static_cast<int64_t>(s) == config_.num_hidden_layers);
    if (saved) saved->input = std::move(current);
    current = std::move(output);
  }
  return current;
}

// ---- backward: parameters without a use in it are what a function takes over, and drops when it is done

Pass::NormGradients Pass::norm_backward(NormKept /*kept*/, int64_t rows, int64_t width, bool drops,
                                        Block /*gradient*/) {
  NormGradients gradients;
  gradients.residual = values(rows, width);
  if (drops) gradients.input = values(rows, width);
  const Block sums = partial_sums(rows, 3 * width);
  return gradients;
}

Block Pass::feed_forward_backward(int64_t first, int64_t rows, Block /*attended*/, Block /*inner*/,
                                  Block /*gradient*/) {
  Block inner_gradient;
  {
    Block activated;
    if (tiled()) {
      inner_gradient = inner_values(rows);
      activated = inner_values(rows);
      const Block sums = statistics(squares(rows) * config_.intermediate_size);
      multiply(rows, config_.hidden_size, config_.intermediate_size);
    } else {
      inner_gradient = times(rows, config_.hidden_size, config_.intermediate_size);
      activated = inner_values(rows);
      partial_sums(rows, config_.intermediate_size).drop();
    }
    learn(first + WeightGradients::kDown, config_.hidden_size, config_.intermediate_size, rows);
  }
  learn(first + WeightGradients::kUp, config_.intermediate_size, config_.hidden_size, rows);
  return times(rows, config_.intermediate_size, config_.hidden_size);
}

/// With the product before it.
Block Pass::attend_backward(int64_t first, AttentionKept kept, Block /*input*/, Block gradient) {
  const Block qkv_gradient = values(shape_.tokens, 3 * config_.hidden_size);
  attention_buffers().drop();
  partial_sums(shape_.tokens, 3 * config_.hidden_size).drop();
  gradient.drop();
  kept = {};
  learn(first + WeightGradients::kQueryKeyValue, 3 * config_.hidden_size, config_.hidden_size, shape_.tokens);
  return times(shape_.tokens, 3 * config_.hidden_size, config_.hidden_size);
}

Block Pass::layer_backward(LayerKept kept, int64_t segment, Block gradient) {
  const bool last = segment == config_.num_hidden_layers;
  const int64_t rows = rows_of_layer(last);
  const int64_t first = WeightGradients::kLayers + segment * WeightGradients::kMatricesOfLayer;
  NormGradients output =
      norm_backward(std::move(kept.output_norm), rows, config_.hidden_size, drops(), std::move(gradient));
  // A residual's gradient comes back to the branch beside it, which adds its own in a new matrix.
  Block attended_gradient = feed_forward_backward(first, rows, std::move(kept.attended),
                                                  std::move(kept.inner), std::move(output.input));
  output.residual.drop();
  NormGradients attention = norm_backward(std::move(kept.attention_norm), rows, config_.hidden_size, drops(),
                                          std::move(attended_gradient));
  learn(first + WeightGradients::kProjection, config_.hidden_size, config_.hidden_size, rows);
  Block context_gradient = times(rows, config_.hidden_size, config_.hidden_size);
  attention.input.drop();
  kept.context.drop();
  if (last) {  // the residual's gradient in the rows that it comes from
    Block all = token_rows();
    attention.residual = std::move(all);
  }
  Block input_gradient;
  if (options_.recompute == Recompute::selective) {
    AttentionKept made;
    const Block context = attend(&made, rows);
    input_gradient = attend_backward(first, std::move(made), {}, {});
  } else {
    input_gradient =
        attend_backward(first, std::move(kept.attention), std::move(kept.input), std::move(context_gradient));
  }
  return input_gradient;
}

void Pass::embed_backward(EmbeddingsKept kept, Block gradient) {
  if (config_.projects_embeddings()) {
    {
      Block copy = token_rows();
      partial_sums(shape_.tokens, config_.hidden_size).drop();
      gradient = std::move(copy);
    }
    kept.projected.drop();
    learn(WeightGradients::kProject, config_.hidden_size, embedding(), shape_.tokens);
    gradient = times(shape_.tokens, config_.hidden_size, embedding());
    kept.narrow.drop();
  }
  const NormGradients rows = norm_backward({}, shape_.tokens, embedding(), false, {});
  const auto use = [&](int64_t matrix, int64_t size) {
    gradients_.use(counter_, matrix, size * embedding() * element_);
  };
  use(WeightGradients::kWords, config_.vocab_size);
  use(WeightGradients::kPositions, config_.max_position_embeddings);
  use(WeightGradients::kTypes, config_.type_vocab_size);
  kept = {};
}

Block Pass::head_backward(HeadKept kept) {
  const int64_t last = shape_.masked == 0 ? 0 : (shape_.masked - 1) % kLogitRows + 1;
  {
    const Block scaled = values(last, embedding());
    if (last > 0) learn(WeightGradients::kWords, config_.vocab_size, embedding(), last);
  }
  // Some rows of the gradient and of the sum over tiles, while the one is added to the other's type.
  if (shape_.masked > last && is_narrow() && !options_.accumulates)
    statistics(2 * std::min<int64_t>(kLogitRows, config_.vocab_size) * embedding()).drop();
  {
    const Block bias = statistics(config_.vocab_size);
    partial_sums(last, config_.vocab_size).drop();
  }
  Block gradient =
      shape_.masked > last ? std::move(kept.hidden_gradient) : values(shape_.masked, embedding());
  multiply(last, config_.vocab_size, embedding());
  kept.logits.drop();
  kept.hidden.drop();
  kept.weight_sum.drop();
  gradient =
      norm_backward(std::move(kept.norm), shape_.masked, embedding(), false, std::move(gradient)).residual;
  gradient = values(shape_.masked, embedding());  // the activation's: a copy that becomes it in place
  kept.transformed.drop();
  learn(WeightGradients::kHead, embedding(), config_.hidden_size, shape_.masked);
  gradient = times(shape_.masked, embedding(), config_.hidden_size);
  kept.rows.drop();
  return gradient;
}

Block Pass::segments_backward(size_t begin, size_t end, SegmentsKept kept, Block gradient) {
  for (; !kept.layers.empty(); kept.layers.pop_back())
    gradient =
        layer_backward(std::move(kept.layers.back()), static_cast<int64_t>(--end), std::move(gradient));
  if (begin > 0) return gradient;
  embed_backward(std::move(kept.embeddings), std::move(gradient));
  return {};
}

Block Pass::again(size_t begin, size_t end, Block /*input*/, Block /*gradient*/) {
  SegmentsKept kept;
  const Block output = segments(begin, end, {}, &kept);
  return segments_backward(begin, end, std::move(kept), {});
}

int64_t Pass::run() {
  const auto head_segment = static_cast<size_t>(config_.num_hidden_layers) + 1;
  std::vector<size_t> begins{0};
  if (options_.recompute == Recompute::full || options_.recompute == Recompute::sqrt)
    begins = recompute_groups(head_segment + 1, options_.recompute);
  std::vector<Block> inputs(begins.size());
  Block current;
  for (size_t g = 0; g + 1 < begins.size(); ++g) {
    inputs[g] = std::move(current);
    current = segments(begins[g], begins[g + 1], {}, nullptr);
  }
  SegmentsKept kept;
  current = segments(begins.back(), head_segment, std::move(current), &kept);
  head(kept.head, std::move(current));
  const int64_t activations = counter_.used() - gradients_.bytes();
  Block gradient = head_backward(std::move(kept.head));
  gradient = segments_backward(begins.back(), head_segment, std::move(kept), std::move(gradient));
  for (size_t g = begins.size() - 1; g-- > 0;)
    gradient = again(begins[g], begins[g + 1], std::move(inputs[g]), std::move(gradient));
  return activations;
}

}  // namespace

BatchShape shape_of(const MicroBatch& batch) {
  return {batch.packing.tokens(), batch.packing.longest(), batch["mlm_rows"].numel()};
}

StepMemory predict_memory(const format::BertConfig& config, const StepOptions& options,
                          std::span<const BatchShape> micro_batches, int threads) {
  const FlatSizes sizes(config);
  const auto master = static_cast<int64_t>(c10::elementSize(master_type(options.precision)));
  const int64_t compute = compute_type(options.precision) ? 2 : 0;
  StepMemory memory;
  memory.weights = (sizes.matrices + sizes.vectors) * master + sizes.matrices * compute;
  const bool frees = frees_gradients(options);
  memory.gradients = ((frees ? 0 : sizes.matrices) + sizes.vectors) * master;
  memory.optimizer = 2 * (sizes.matrices + sizes.vectors) * master;
  Counter counter;
  WeightGradients gradients(frees);
  for (const BatchShape& shape : micro_batches)
    memory.activations =
        std::max(memory.activations, Pass(config, options, shape, threads, counter, gradients).run());
  memory.workspace = counter.peak() - memory.activations;
  return memory;
}

}  // namespace funicular::plan
