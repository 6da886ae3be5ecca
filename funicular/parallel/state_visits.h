#pragma once
// Shows a rank's part of a model's state: the blocks of an update target, frozen weights and buffers, as slices of
// logical tensors.

#include <functional>
#include <string>

#include "funicular/core/flat_layout.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Whether this rank writes a block of a weight, or a buffer, to checkpoints.
using OwnsBlock = std::function<bool(const UpdateTarget::Block&)>;
using OwnsBuffer = std::function<bool(const Buffer&)>;

/// The visits of blocks show every layer in the layout's order. A layer without a block here is an empty slice.
void visit_masters(StateVisitor& visitor, const UpdateTarget& target, const OwnsBlock& owns);
void visit_gradients(StateVisitor& visitor, const UpdateTarget& target, const OwnsBlock& owns);
/// `state`: a state tensor of the optimiser, flat, and its name.
void visit_optimizer_state(StateVisitor& visitor, const UpdateTarget& target, const std::string& name,
                           const at::Tensor& state, const OwnsBlock& owns);
/// Shows weights that do not train but are saved. `owned`: by this rank.
void visit_frozen(StateVisitor& visitor, const Model& model, bool owned);
void visit_buffers(StateVisitor& visitor, const Model& model, const OwnsBuffer& owns);

}  // namespace funicular::parallel
