#include "funicular/optim/layers.h"

namespace funicular::optim {

namespace {

// Three buffers of this many floats fit into the last-level cache of most processors; the overhead of
// starting the threads twice a wave stays below a hundredth.
constexpr int64_t kWave = 1 << 20;

}  // namespace

Layers::Layers(const FlatParameters& parameters) {
  for (const FlatParameters::Entry& entry : parameters.entries()) {
    const Parameter& parameter = *entry.parameter;
    const int64_t rows = parameter.slices.back().end;
    const int64_t width = rows == 0 ? 0 : entry.size / rows;
    for (const Parameter::Slice& slice : parameter.slices)
      if (slice.end > slice.begin && width > 0)
        add({slice.name, parameter.group == ParameterGroup::decay, entry.offset + slice.begin * width,
             entry.offset + slice.end * width});
  }
}

void Layers::add(Layer layer) {
  const int64_t size = layer.end - layer.begin, first = static_cast<int64_t>(blocks_.size());
  for (int64_t begin = layer.begin; begin < layer.end; begin += kBlock)
    blocks_.push_back({static_cast<int64_t>(layers_.size()), begin, std::min(layer.end, begin + kBlock)});
  layers_.push_back(std::move(layer));
  if (waves_.empty() || wave_size_ + size > kWave) {
    waves_.push_back({first, first});
    wave_size_ = 0;
  }
  wave_size_ += size;
  waves_.back().last_block = static_cast<int64_t>(blocks_.size());
}

}  // namespace funicular::optim
