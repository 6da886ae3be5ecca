#pragma once
// Recomputes activations in the backward pass instead of keeping them: saves memory, costs time.
//
// Source: T. Chen, B. Xu, C. Zhang, C. Guestrin: "Training Deep Nets with Sublinear Memory Cost", 2016
// (arXiv:1604.06174). Only the inputs of a group of segments are kept. When the backward pass reaches the group, it
// runs a second time, now recorded. The group's part of the backward pass follows at once, so only one group's
// activations are alive at a time. Costs at most one more forward pass: a third of the step's arithmetic.
//
// Gradients are bit-identical to gradients without recomputation. Keyed dropout draws the same units again, and the
// state of LibTorch's global generators is restored for the second run. One exception: several groups may use an
// activation or a weight of a user's own module. Its gradients are then added up in another order.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/core/model.h"

namespace funicular {

enum class Recompute {
  none,
  full,       ///< every segment from its input
  selective,  ///< the attention alone, its query, key and value from the layer's input
  sqrt        ///< groups of about sqrt(n) of the n segments
};
/// "none", …; throws InputError that lists the names.
Recompute parse_recompute(const std::string& name);
std::string recompute_name(Recompute mode);

/// model.forward, with what `mode` names recomputed in the backward pass. The model must live, and its
/// weights must not change, until then; the batch is kept (its tensors are shared, not copied).
///
/// The last group is not recomputed: its backward pass comes first, so nothing would be saved. Without gradients
/// nothing is recomputed. An observer in `taps` sees each value once, in the forward pass; values of segments that
/// are recomputed have no gradients. Loss terms may arise in any segment. Model::buffers keep what the first run
/// wrote (BatchNorm counts a batch once). Throws InputError for `selective` where the model has no attention to
/// recompute.
Activations forward_recomputed(const Model& model, Recompute mode, Activations input, const MicroBatch& batch,
                               const Taps& taps, LossSink& loss, PassOptions options = {});

/// As forward_recomputed for segments [begin, end), on the `activations` of the segments before them, as
/// Model::run_segments. It is for a part of a model whose backward pass comes later. So the last group is recomputed,
/// too, unless the part ends the model. The batch lies on the model's device. Only the loss of `pass` must outlive
/// the call.
void run_recomputed(const Model& model, Recompute mode, size_t begin, size_t end, Activations& activations,
                    const Pass& pass);

/// The first segment of each group that `mode` (full or sqrt) makes of `segments` segments; increasing from
/// 0. Larger groups come first: the last is the one that is not recomputed.
std::vector<size_t> recompute_groups(size_t segments, Recompute mode);
/// The groups of a model. Frozen segments at its beginning have no backward pass and are in no group. Frozen
/// segments behind others are computed once more with their group.
std::vector<size_t> recompute_groups(const Model& model, Recompute mode);

/// Computes function(inputs). Only `inputs` is kept of its graph; the rest is computed again in the backward pass.
/// `weights` are the leaves that the function reads besides its inputs: they get their gradients in .grad. For use
/// inside a segment or a user's module:
///
///   x = recomputed({x}, block->parameters(),
///                  [block](const auto& in) { return std::vector{block->forward(in[0])}; })[0];
///
/// The function must do the same when it is called again and outlive this call; it must not write to its
/// inputs. Buffers that it writes (BatchNorm's running statistics) are written twice. Without gradients, or
/// where neither an input nor a weight wants one, it is simply called. Only backward() reaches through;
/// torch::autograd::grad and second derivatives throw an InputError.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
std::vector<at::Tensor> recomputed(const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& weights, TensorFunction function);

/// How many functions (groups of segments among them) this process has called so far that will run again. LibTorch runs
/// the backward pass of a GPU in a thread of its own, which asks, too.
int64_t recomputed_runs();

}  // namespace funicular
