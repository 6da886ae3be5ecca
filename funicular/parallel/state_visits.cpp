#include "funicular/parallel/state_visits.h"

#include <ATen/ops/empty.h>

namespace funicular::parallel {

namespace {

using FlatOf = std::function<at::Tensor(const FlatLayout::Layer&)>;

/// flat_of(layer) is the flat tensor in which a block of that layer lies at `offset`; blocks of a layer lie
/// end to end.
void visit_blocks(StateVisitor& visitor, StateSlice::Kind kind, const std::string& state,
                  const UpdateTarget& target, const FlatOf& flat_of, int64_t UpdateTarget::Block::*offset,
                  const OwnsBlock& owns) {
  auto block = target.blocks.begin();
  const auto end = target.blocks.end();
  for (const FlatLayout::Layer& layer : target.layout->layers()) {
    const at::Tensor flat = flat_of(layer);
    StateSlice slice{kind, layer.name, layer.shape, 0,    at::empty({0}, flat.options()),
                     true, false,      {},          state};
    if (block != end && block->number < layer.blocks.end) {
      const auto first = block;
      int64_t size = 0;
      for (; block != end && block->number < layer.blocks.end; ++block) size += block->size;
      slice.begin = (first->number - layer.blocks.begin) * FlatLayout::kBlock;
      slice.local = flat.narrow(0, (*first).*offset, size);
      slice.owned = owns(*first);
      if (size == layer.elements.size()) slice.local = slice.local.view(layer.shape);
    }
    visitor.visit(slice);
  }
}

}  // namespace

void visit_masters(StateVisitor& visitor, const UpdateTarget& target, const OwnsBlock& owns) {
  visit_blocks(
      visitor, StateSlice::Kind::model, "", target,
      [&](const FlatLayout::Layer& layer) {
        return layer.matrix ? target.matrix_master : target.vector_master;
      },
      &UpdateTarget::Block::master, owns);
}

void visit_gradients(StateVisitor& visitor, const UpdateTarget& target, const OwnsBlock& owns) {
  visit_blocks(
      visitor, StateSlice::Kind::gradient, "", target,
      [&](const FlatLayout::Layer& layer) {
        const at::Tensor& gradient = target.gradient(layer);
        return (gradient.is_sparse() ? gradient.to_dense() : gradient).view({-1});
      },
      &UpdateTarget::Block::gradient, owns);
}

void visit_optimizer_state(StateVisitor& visitor, const UpdateTarget& target, const std::string& name,
                           const at::Tensor& state, const OwnsBlock& owns) {
  visit_blocks(
      visitor, StateSlice::Kind::optimizer, name, target, [&](const FlatLayout::Layer&) { return state; },
      &UpdateTarget::Block::state, owns);
}

void visit_frozen(StateVisitor& visitor, const Model& model, bool owned) {
  for (const auto& parameter : model.parameters) {
    if (parameter->trainable || parameter->constant) continue;
    const at::Tensor value = parameter->master.detach();
    for (const Parameter::Slice& slice : parameter->slices) {
      const at::Tensor local =
          value.dim() == 0 ? value : value.narrow(0, slice.begin, slice.end - slice.begin);
      visitor.visit({StateSlice::Kind::model, slice.name, local.sizes().vec(), 0, local, owned});
    }
  }
}

void visit_buffers(StateVisitor& visitor, const Model& model, const OwnsBuffer& owns) {
  for (const Buffer& buffer : model.buffers)
    visitor.visit(
        {StateSlice::Kind::buffer, buffer.name, buffer.value.sizes().vec(), 0, buffer.value, owns(buffer)});
}

}  // namespace funicular::parallel
