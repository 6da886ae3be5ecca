#pragma once
// A model as the strategies see it: parameters and segments, whatever module they came from.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "funicular/core/batch.h"

namespace funicular {

/// How a weight is stored and divided. Matrices are multiplied with: mixed precision and int8 make copies of them, and ZeRO cuts
/// them into pieces. Vectors (biases, normalisation) keep the masters' type.
enum class ParameterKind : int { matrix = 0, vector = 1 };

/// One weight, however often it is used: tied weights are one Parameter.
struct Parameter {
  /// A logical tensor: rows [begin, end) of dimension 0. Fused weights (query, key and value in one) have
  /// several; checkpoints and Hugging Face directories know only these names.
  struct Slice {
    std::string name;   ///< the name in checkpoints and folders
    int64_t begin = 0;  ///< its first row of the parameter
    int64_t end = 0;    ///< behind its last one
  };

  std::string name;    ///< one per model
  at::Tensor master;   ///< what the optimiser updates
  at::Tensor compute;  ///< what the forward pass reads: a leaf that requires grad; `master` itself without
                       ///< mixed precision
  /// Same shape as `compute`; the leaf's .grad; sparse where PassOptions::row_gradients says so. Where
  /// gradients are freed after each update, undefined until they are collected (parallel/holding/freed_gradients.h).
  at::Tensor gradient;
  ParameterKind kind = ParameterKind::matrix;  ///< how it is stored and divided
  /// Whether weight decay acts on it; none: on matrices alone. To be set before training begins.
  std::optional<bool> weight_decay{};
  /// Whether LAMB and LARS multiply its learning rate by a trust ratio; none: as their convention says
  /// (optim/trust_ratio.h). To be set before training begins.
  std::optional<bool> trust_ratio{};
  std::vector<Slice> slices;  ///< at least one; together they cover dimension 0 in order
  bool trainable = true;      ///< false: frozen, has no gradient and no optimiser state
  /// Of a model that was appended frozen: whoever builds the model brings its value and its type, so that it is
  /// in no checkpoint and no precision changes it.
  bool constant = false;
  bool exported = true;  ///< false: left out of the folders that a run leaves (model/weights.h)

  /// Whether weight decay acts on it, by `weight_decay` or by its kind.
  bool decays() const { return weight_decay.value_or(kind == ParameterKind::matrix); }
};

/// State that is saved but not trained (BatchNorm's running statistics).
struct Buffer {
  std::string name;  ///< one per model
  at::Tensor value;  ///< written in training by the segments that name it
};

/// What the caller of a forward pass chooses.
struct PassOptions {
  bool training = false;  ///< the mode of users' modules (BatchNorm, torch::nn::Dropout)
  /// Segments that can (Model::recomputes_attention) recompute their attention in the backward pass.
  bool selective_recompute = false;
  /// The first gradient that a backward pass makes of a table of embeddings may be a sparse tensor (coalesced,
  /// rows in its first dimension) of the rows that were looked up, where nothing else has made one before.
  bool row_gradients = false;
};

/// One forward pass as every segment sees it. Refers to what its caller holds.
struct Pass {
  const MicroBatch& batch;   ///< on the model's device
  const Taps& taps;          ///< who observes activations
  LossSink& loss;            ///< takes the terms of the loss
  PassOptions options = {};  ///< the mode of this pass
};

using Activations = TensorMap;

/// A tensor that goes into a segment or comes out of it. Its shape and type follow from the batch's packing
/// and tensors alone, so that every rank knows what it will be sent.
struct Port {
  std::string name;                                                   ///< the tensor's name
  std::function<std::vector<int64_t>(const MicroBatch&)> shape = {};  ///< empty: whatever it is
  /// None: the type that the model's matrices compute in.
  std::optional<at::ScalarType> type = {};
};

/// The unit of recomputation, sharding, placement, pipelining and offload.
///
/// An input is the newest output of that name of an earlier segment, else the batch's tensor of that name: token
/// ids are an input like any other, and a segment before may replace them. `forward` gets the inputs that are
/// declared, leaves them as they are (nothing works in place on them: recomputation and sharding read them again), and
/// gives the outputs that are declared. The loss's own terms go to Pass::loss, labels come from
/// Pass::batch.
struct Segment {
  std::string name;                         ///< one per model: "layer.3"
  std::vector<Parameter*> parameters = {};  ///< what `forward` reads of the model's parameters
  std::vector<Port> inputs = {};            ///< what `forward` reads
  std::vector<Port> outputs = {};           ///< what it gives
  /// Computes the outputs from the inputs.
  std::function<Activations(Activations, const Pass&)> forward = {};
  bool frozen = false;  ///< of a model that was appended frozen: nothing of it is recomputed
  std::vector<std::string> buffers = {};  ///< of Model::buffers, those that `forward` writes in training
  /// Says what its loss terms are sums over, and whether its outputs for a row depend on the rows beside it.
  LossOver loss = LossOver::undeclared;
};

/// How another model becomes a part of one (Model::append).
struct Scope {
  /// Stands before the names of the other's parameters (their slices, too), buffers, segments, ports and taps.
  /// Loss terms and outputs of the sink keep theirs, by which the batch counts.
  std::string prefix;
  /// Of its ports those that keep their names: it reads what the host's segments before it give or the batch has,
  /// and what it gives under such a name the segments after it read.
  std::set<std::string> shared_ports = {"token_ids", "token_type_ids"};
  /// Of its parameters those that are the host's: the other's name → the host's.
  std::map<std::string, std::string> shared_weights = {};
  /// It is only used: evaluated without dropout, modes of training, gradients or a graph; its loss terms and
  /// outputs are dropped. Its own parameters become Parameter::constant.
  bool frozen = false;
  bool exported = true;  ///< Parameter::exported of its own parameters
  bool first = false;    ///< its segments run before the host's; false: after them
};

/// Owns the parameters; segments refer to them. Move-only.
struct Model {
  std::vector<std::unique_ptr<Parameter>> parameters;  ///< all weights, in the order of the segments
  std::vector<Buffer> buffers;                         ///< all buffers
  std::vector<Segment> segments;                       ///< in the order in which they run
  std::vector<std::shared_ptr<void>> owners;           ///< what must live as long as the segments' functions

  /// What segments of an appended model know a parameter of the host by.
  struct Alias {
    std::shared_ptr<Parameter> alias;  ///< what the appended segments read
    Parameter* of = nullptr;           ///< the host's parameter
  };
  std::vector<Alias> aliases;  ///< of the models that were appended

  // What the segments can do.
  bool low_precision = false;         ///< compute in the type of the matrices' `compute`; false: autocast
  bool recomputes_attention = false;  ///< heed PassOptions::selective_recompute
  bool makes_row_gradients = false;   ///< heed PassOptions::row_gradients

  /// Another model of the same structure, with weights and buffers of its own, whatever their values. Empty,
  /// or throws InputError: there can be none.
  std::function<Model()> replicate;

  Model() = default;
  /// Moves the weights; pointers to them stay valid.
  Model(Model&&) = default;
  /// Moves the weights; pointers to them stay valid.
  Model& operator=(Model&&) = default;

  /// Makes `other` a part of this model. Its dropout is keyed apart from the host's (by the prefix), so that equal
  /// layers of both do not drop the same units. What the two can do is what both can; a frozen one must only
  /// compute in its matrices' type if the host does. Can be replicated where both can. Throws InputError for a
  /// name that is there already, and for shared weights that are missing or of another shape.
  void append(Model other, const Scope& scope);

  /// After Parameter::compute has become another tensor object: the aliases follow.
  void refresh_aliases() const;
  /// How many segments at the beginning are frozen.
  size_t first_segments_frozen() const;

  /// Adds a parameter with master = compute = value (made a leaf that requires grad) and one slice of its own
  /// name.
  Parameter* add_parameter(std::string name, at::Tensor value, ParameterKind kind);
  /// Sets Segment::loss of the segments that do not declare it.
  void declare_loss(LossOver over);
  /// nullptr if there is none.
  Parameter* find(const std::string& name) const;
  /// The number of weights' elements, frozen ones included.
  int64_t parameter_count() const;
  /// Where the parameters lie; the CPU if there are none.
  at::Device device() const;

  /// Runs all segments in order, on a batch that may lie on the CPU, and returns the outputs of the last. An
  /// activation lives until its last reader has run. Throws InputError for an input that nothing gives, and for
  /// an output that is not there.
  Activations forward(Activations input, const MicroBatch& batch, const Taps& taps, LossSink& loss,
                      PassOptions options = {}) const;

  /// Runs segments [begin, end) on what the segments before them left in `activations`, and leaves there what
  /// those after them will read (after the last: its outputs). The batch lies on the model's device.
  void run_segments(size_t begin, size_t end, Activations& activations, const Pass& pass) const;
};

}  // namespace funicular
