#pragma once
// The types of a forward pass: named tensors, a micro-batch of packed sequences, and what random numbers are keyed by.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace funicular {

/// Tensors by name: `token_ids` [T], `labels`, …
using TensorMap = std::map<std::string, at::Tensor>;

/// How many items each loss term sums over, by the term's name. Depends on the data alone.
using Counts = std::map<std::string, double>;

/// Adds b to a.
void add_counts(Counts& a, const Counts& b);

/// The count that divides the loss term `term`: counts[term], or counts["samples"] for a term without its own
/// (a user's loss over samples). Throws InputError if there is neither.
double count_of(const Counts& counts, const std::string& term);

/// Key of every random choice of a forward pass, besides the draw and the position.
struct RandomState {
  uint64_t seed = 0;      ///< of the run
  bool training = false;  ///< false: no dropout
};

/// Place of each sequence in the packed batch, and the keys of every random choice. All tensors lie on one
/// device.
struct Packing {
  at::Tensor offsets;                  ///< [S+1] int32: sequence s is rows [offsets[s], offsets[s+1])
  std::vector<int32_t> host_offsets;   ///< the same on the host
  at::Tensor sample_ids;               ///< [S] int64, identity in the data set
  at::Tensor draw_ids;                 ///< [S] int64, ordinal of this draw in the run
  std::vector<int64_t> host_draw_ids;  ///< draw_ids on the host
  at::Tensor positions;                ///< [T] int32, position of each token within its sequence
  at::Tensor token_draws;              ///< [T] int64, draw of each token's sequence
  RandomState random;                  ///< what dropout and masks are keyed by

  /// The number of sequences, S.
  int64_t sequences() const {
    return host_offsets.empty() ? 0 : static_cast<int64_t>(host_offsets.size()) - 1;
  }
  /// The number of tokens, T.
  int64_t tokens() const { return host_offsets.empty() ? 0 : host_offsets.back(); }
  /// The tokens of the longest sequence.
  int64_t longest() const;

  /// A copy with its tensors on a device.
  Packing to(const at::Device& device) const;

  /// Fills all fields from lengths [S] and ids; throws InputError unless every length is >= 1.
  static Packing from_lengths(const std::vector<int32_t>& lengths, const std::vector<int64_t>& sample_ids,
                              const std::vector<int64_t>& draw_ids, RandomState random);
};

/// A part of the global batch that one forward pass takes. It may hold no sequences (a rank that has run
/// out).
struct MicroBatch {
  TensorMap tensors;       ///< what the segments and the loss read, by name
  Packing packing;         ///< where the sequences lie
  Counts counts;           ///< what the terms of the loss sum over, in this micro-batch
  TensorMap host_tensors;  ///< the tensors on the CPU where they were moved from there; else empty

  /// tensors[name]; throws InputError naming the batch's tensors if there is none.
  const at::Tensor& operator[](const std::string& name) const;
  /// tensors[name] on the CPU. If the batch was moved from the CPU, this does not wait for a GPU.
  at::Tensor on_host(const std::string& name) const;
  /// The batch with its tensors on a device.
  MicroBatch to(const at::Device& device) const;
};

/// Says what a loss is a sum over, and so whether a batch may be cut into parts that are computed apart.
enum class LossOver {
  undeclared,  ///< the trainer tries two cuts of a few rows before it cuts a batch (train/cut_check.h)
  rows,  ///< a row's part of the loss is the same whatever rows lie beside it: any cut gives the same sum
  batch  ///< the rows of a global batch are compared with each other: no cut is allowed
};

/// Takes the terms of the loss from segments. Each is a sum over items; the global batch's count divides it
/// later.
class LossSink {
 public:
  /// One term of the loss.
  struct Term {
    std::string name;     ///< its key in Counts
    at::Tensor sum;       ///< scalar, with gradient in training
    double weight = 1.0;  ///< multiplies the term in the total
  };
  /// Adds a term. `sum` is a scalar over the items of this micro-batch, never their mean.
  void add(std::string name, at::Tensor sum, double weight = 1.0);
  /// Results of the forward pass that are no loss (logits for metrics). Not kept unless `keep_outputs`.
  void output(const std::string& name, const at::Tensor& value);

  /// The terms in the order in which they were added.
  const std::vector<Term>& terms() const { return terms_; }
  /// The tensors that output() has kept, by name.
  const TensorMap& outputs() const { return outputs_; }
  bool keep_outputs = false;  ///< whether output() keeps what it gets

  /// Sum over terms of weight * sum / counts[name]: the scalar to call backward on. Undefined if there are no
  /// terms. A term whose count is 0 is left out; see count_of.
  at::Tensor total(const Counts& counts) const;

 private:
  std::vector<Term> terms_;
  TensorMap outputs_;
};

/// Observers of intermediate activations ("layer.3.output"), for distillation, tests and probes.
struct Taps {
  std::function<void(std::string_view name, const at::Tensor& value)> observe;  ///< may be empty
  /// Calls `observe`, if there is one.
  void operator()(std::string_view name, const at::Tensor& value) const {
    if (observe) observe(name, value);
  }
};

}  // namespace funicular
