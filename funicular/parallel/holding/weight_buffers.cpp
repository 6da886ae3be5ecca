#include "funicular/parallel/holding/weight_buffers.h"

#include <ATen/ops/zeros.h>

namespace funicular::parallel {

void WeightBuffers::add(WeightUnit& unit) {
  unit.begin = all_;
  unit.compact = own_;
  all_ += unit.size;
  own_ += unit.own.size;
}

void WeightBuffers::allocate(const at::TensorOptions& masters) {
  weights_ =
      at::zeros({divided_ == Divided::weights ? own_ : all_}, compute_ ? masters.dtype(*compute_) : masters);
  masters_ = is_mixed() && updates_ ? at::zeros({masters_are_compact() ? own_ : all_}, masters) : weights_;
}

void WeightBuffers::take_masters(const WeightUnit& unit) const {
  if (!masters_are_compact() || !is_mixed()) return;
  const at::Tensor masters = at::zeros({unit.size}, masters_.options());
  for (const auto& [parameter, begin] : unit.parameters)
    masters.narrow(0, begin, parameter->master.numel()).copy_(parameter->master.detach().reshape({-1}));
  unit.compact_in(masters_).copy_(unit.piece_of(masters));
}

void WeightBuffers::refresh(const std::vector<const WeightUnit*>& units) const {
  if (!is_mixed()) return;
  if (weights_.numel() == masters_.numel()) {
    weights_.copy_(masters_);
    return;
  }
  for (const WeightUnit* const unit : units) unit->piece_in(weights_).copy_(unit->compact_in(masters_));
}

at::Tensor WeightBuffers::gather_masters(const WeightUnit& unit, const comm::Group& group) const {
  const at::Tensor whole = at::zeros({unit.size}, masters_.options());
  unit.piece_of(whole).copy_(unit.compact_in(masters_));
  group.all_gather(whole, unit.pieces);
  return whole;
}

UpdateTarget::Block WeightBuffers::place_of(const WeightUnit& unit, int64_t in_unit) const {
  const int64_t whole = unit.begin + in_unit, compact = unit.compact + in_unit - unit.own.begin;
  const auto place = [&](bool in_pieces) { return in_pieces ? compact : whole; };
  return {.master = place(masters_are_compact()),
          .gradient = place(divided_ >= Divided::gradients),
          .shadow = place(divided_ == Divided::weights),
          .state = compact};
}

}  // namespace funicular::parallel
