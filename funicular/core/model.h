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

/// How a weight is stored and divided. Matrices are multiplied with: mixed precision and int8 make copies of them,
/// and ZeRO cuts them into pieces. Vectors (biases, normalisation) keep the masters' type.
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
  /// Same shape as `compute`; the leaf's .grad; sparse if PassOptions::row_gradients says so. If gradients
  /// are freed after each update, it is undefined until they are collected
  /// (parallel/holding/freed_gradients.h).
  at::Tensor gradient;
  ParameterKind kind = ParameterKind::matrix;  ///< how it is stored and divided
  /// Whether weight decay acts on it; none: on matrices alone. To be set before training begins.
  std::optional<bool> weight_decay{};
  /// Whether LAMB and LARS multiply its learning rate by a trust ratio; none: as their convention says
  /// (optim/trust_ratio.h). To be set before training begins.
  std::optional<bool> trust_ratio{};
  std::vector<Slice> slices;  ///< at least one; together they cover dimension 0 in order
  bool trainable = true;      ///< false: frozen, has no gradient and no optimiser state
  /// Belongs to a model that was appended frozen. The builder of the model sets its value and type; it is in
  /// no checkpoint, and no precision changes it.
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

/// Choices of the caller of a forward pass.
struct PassOptions {
  bool training = false;  ///< the mode of users' modules (BatchNorm, torch::nn::Dropout)
  /// Segments that can (Model::recomputes_attention) recompute their attention in the backward pass.
  bool selective_recompute = false;
  /// Allows a backward pass to make the first gradient of an embedding table sparse: coalesced, with the looked-up
  /// rows in its first dimension.
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
/// An input is the newest output of that name of an earlier segment, else the batch's tensor of that name.
/// Token ids are an input like any other, and an earlier segment may replace them. `forward` gets the
/// declared inputs and gives the declared outputs. It must not work in place on its inputs, because
/// recomputation and sharding read them again. The terms of the loss go to Pass::loss; labels come from
/// Pass::batch.
struct Segment {
  std::string name;                         ///< one per model: "layer.3"
  std::vector<Parameter*> parameters = {};  ///< what `forward` reads of the model's parameters
  std::vector<Port> inputs = {};            ///< what `forward` reads
  std::vector<Port> outputs = {};           ///< what it gives
  /// Computes the outputs from the inputs.
  std::function<Activations(Activations, const Pass&)> forward = {};
  bool frozen = false;  ///< of a model that was appended frozen: nothing of it is recomputed
  std::vector<std::string> buffers = {};  ///< names of the Model::buffers that `forward` writes in training
  /// Says what its loss terms are sums over, and whether its outputs for a row depend on the rows beside it.
  LossOver loss = LossOver::undeclared;
};

/// How another model becomes a part of one (Model::append).
struct Scope {
  /// Prefix of the names of the appended model's parameters (and slices), buffers, segments, ports and taps.
  /// Loss terms and outputs of the sink keep their names, because the batch counts by them.
  std::string prefix;
  /// Ports of the appended model that keep their names. It reads them from earlier segments of the host or
  /// from the batch, and later segments read its outputs of these names.
  std::set<std::string> shared_ports = {"token_ids", "token_type_ids"};
  /// Parameters that the appended model shares with the host: its name → the host's name.
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

  /// A parameter of the host as segments of an appended model see it.
  struct Alias {
    std::shared_ptr<Parameter> alias;  ///< what the appended segments read
    Parameter* of = nullptr;           ///< the host's parameter
  };
  std::vector<Alias> aliases;  ///< of the models that were appended

  // Abilities of the segments.
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

  /// Makes `other` a part of this model. Its dropout is keyed apart from the host's (by the prefix), so that
  /// equal layers of both do not drop the same units. The result has the abilities that both have; a frozen
  /// model needs none but low_precision. Can be replicated where both can. Throws InputError for a name that
  /// is there already, and for shared weights that are missing or of another shape.
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
  /// Device of the parameters; the CPU if there are none.
  at::Device device() const;

  /// Runs all segments in order, on a batch that may lie on the CPU, and returns the outputs of the last. An
  /// activation lives until its last reader has run. Throws InputError for an input that nothing gives, and for
  /// an output that is not there.
  Activations forward(Activations input, const MicroBatch& batch, const Taps& taps, LossSink& loss,
                      PassOptions options = {}) const;

  /// Runs segments [begin, end) on the `activations` of earlier segments, and leaves there what later
  /// segments read (after the last segment: its outputs). The batch lies on the model's device.
  void run_segments(size_t begin, size_t end, Activations& activations, const Pass& pass) const;
};

}  // namespace funicular
