#pragma once
// A description of what an encoder computes. No name in it is a key of a family's config.json (format/family.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace funicular::format {

/// The largest sizes that are taken. They are far above every published encoder. No product of them overflows, and no
/// count of them runs for minutes.
struct EncoderLimits {
  static constexpr int64_t vocabulary = 1 << 24;
  static constexpr int64_t width = 1 << 14;  ///< the kernels keep one row of multipliers on the stack
  static constexpr int64_t layers = 1 << 10;
  static constexpr int64_t feed_forward = 1 << 17;
  static constexpr int64_t positions = 1 << 20;
  static constexpr int64_t token_types = 1 << 16;
  static constexpr double initializer_range = 10;
  static constexpr double smallest_cutoff = 0.5;  ///< below it too many draws are rejected
};

/// How layers are normalised.
struct Norm {
  /// Before attention and before the feed-forward part, and once after the last layer. The first layer's attention
  /// reads the embeddings, which are normalised in any case. False: after each part, of the sum of its input and
  /// output.
  bool first = false;
  bool bias = true;
  double epsilon = 1e-12;
  bool operator==(const Norm&) const = default;
};

/// How the distance of two tokens enters attention's scores in every layer. Distances have buckets, see
/// nn/attention_pattern.h.
struct RelativePositions {
  enum class Kind {
    bias,         ///< a learnt number for each bucket and head is added to the scaled score (T5, MPNet)
    disentangled  ///< a learnt vector for each bucket gives a query and a key, see nn/disentangled.h (DeBERTa)
  };
  Kind kind = Kind::bias;
  int64_t buckets = 32;    ///< rows of the table of weights that all layers share
  int64_t farthest = 128;  ///< tokens at least so far apart are in the last buckets
  bool operator==(const RelativePositions&) const = default;
};

/// How a token's position enters where the embeddings are made. Rotary positions enter in attention (LayerAttention).
struct Positions {
  int64_t rows =
      512;  ///< of a table whose rows the embeddings add; without a table, the most tokens of a sequence
  bool table = true;
  /// The first token has the row after the padding token's id, and padding tokens have that id's row, which does not
  /// learn. False: the first token has row 0.
  bool after_padding = false;
  bool waves = false;                              ///< a new table holds sines and cosines
  std::optional<RelativePositions> relative = {};  ///< besides the table
  bool operator==(const Positions&) const = default;
};

/// How the tokens of one layer see each other.
struct LayerAttention {
  std::optional<int64_t> window;  ///< a token sees the tokens at most so far away from it; none: all
  double rotary_base =
      0;  ///< queries and keys are turned by position * base^(-2i / head size); 0: they are not
  bool operator==(const LayerAttention&) const = default;
};

/// down(activation(up(x))), or, gated, down(activation(gate(x)) * up(x)).
struct FeedForward {
  int64_t width = 3072;  ///< between `up` and `down`
  bool gated = false;
  bool operator==(const FeedForward&) const = default;
};

/// Which linear layers have a bias. A gate has one if `up` has.
struct Biases {
  bool query_key_value = true, attention_output = true, up = true, down = true;
  bool head = true;  ///< the dense layer of a head, before the decoder or the classifier
  bool operator==(const Biases&) const = default;
};

/// Probabilities in [0, 1) of dropping a unit in training.
struct Dropouts {
  double hidden = 0.1;     ///< of the embeddings, and of what attention and feed-forward add
  double attention = 0.1;  ///< of the probabilities of attention
  std::optional<double> attention_output = {};     ///< of what attention adds; none: `hidden`
  std::optional<double> feed_forward_output = {};  ///< of what feed-forward adds; none: `hidden`
  double feed_forward = 0;                         ///< of what `down` reads
  double of_attention_output() const { return attention_output.value_or(hidden); }
  double of_feed_forward_output() const { return feed_forward_output.value_or(hidden); }
  bool operator==(const Dropouts&) const = default;
};

/// An encoder. A default one is BERT-base, uncased.
struct EncoderSpec {
  int64_t vocabulary = 30522;
  int64_t width = 768;  ///< of the hidden states
  int64_t layers = 12;
  /// How many layers have weights of their own, see weights_of(). None: all layers.
  std::optional<int64_t> layer_groups;
  int64_t heads = 12;  ///< divides the width
  FeedForward feed_forward;
  Positions positions;
  int64_t token_types = 2;  ///< 0: the embeddings do not tell the texts of a pair apart
  int64_t task_types =
      0;  ///< rows of a table whose first one the embeddings add to every token; 0: there is none
  /// The width of the embeddings if a linear layer brings them to the encoder's width. None: the encoder's width.
  std::optional<int64_t> embedding_size;
  bool always_projects = false;  ///< the linear layer is there even if both widths are equal
  Norm norm;
  std::vector<LayerAttention>
      attention;  ///< one for each layer; empty: all tokens see all, and nothing is turned
  Biases biases;
  std::string activation = "gelu";  ///< one of supported_activations()
  Dropouts dropouts;
  double initializer_range = 0.02;  ///< standard deviation of new weights
  /// New weights beyond so many standard deviations are drawn again; 0: none are. With it, what a part adds to the
  /// residual sum begins at initializer_range / √(2 · layers), and a classifier at 1 / √width.
  double initializer_cutoff = 0;
  int padding_id = 0;  ///< the token whose embedding does not learn

  int64_t head_size() const { return width / heads; }
  /// Returns how the tokens of layer `number`, from 0, see each other.
  LayerAttention attention_of(int64_t number) const {
    return attention.empty() ? LayerAttention() : attention.at(static_cast<size_t>(number));
  }
  /// Returns how many layers have weights of their own.
  int64_t distinct_layers() const { return layer_groups.value_or(layers); }
  /// Returns which of the distinct layers' weights layer `number` has. Groups of neighbours share them.
  int64_t weights_of(int64_t number) const { return number * distinct_layers() / layers; }
  /// Sets the number of layers. New layers continue the shortest period of the known layers' attention.
  void set_layers(int64_t count);
  int64_t embedding_width() const { return embedding_size.value_or(width); }
  bool projects_embeddings() const { return always_projects || embedding_width() != width; }
  /// The row of the position embeddings that a sequence's first token gets.
  int64_t first_position() const { return positions.after_padding ? padding_id + 1 : 0; }
  /// Tokens of the longest sequence that there are positions for.
  int64_t longest_sequence() const { return positions.rows - first_position(); }

  bool operator==(const EncoderSpec&) const = default;
};

/// Names of the activations, as transformers spells them.
const std::vector<std::string>& supported_activations();

}  // namespace funicular::format
