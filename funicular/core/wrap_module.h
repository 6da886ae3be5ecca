#pragma once
// Any torch::nn::Module as a Model: one segment, each weight once however often it is used.

#include <functional>
#include <memory>
#include <utility>

#include "funicular/core/model.h"

namespace torch::nn {
class Module;
}

namespace funicular {

/// The module's parameters under their dotted names (of tied weights the first), its buffers (BatchNorm's
/// running statistics), and one segment that calls `forward`. Parameters with at most one dimension (biases,
/// norms) get no weight decay; parameters that do not require a gradient are frozen. In training the global
/// generator is seeded anew before each forward from the batch's seed and first draw, so that
/// torch::nn::Dropout repeats after a resume.
Model wrap_module(std::shared_ptr<torch::nn::Module> module,
                  std::function<void(const MicroBatch&, LossSink&)> forward);

/// The same with the module handed to the function: loss(net, batch, sink).
template <class Net, class Loss>
Model wrap_module(std::shared_ptr<Net> net, Loss loss) {
  Net* raw = net.get();
  return wrap_module(std::shared_ptr<torch::nn::Module>(std::move(net)),
                     std::function<void(const MicroBatch&, LossSink&)>(
                         [raw, loss = std::move(loss)](const MicroBatch& batch, LossSink& sink) {
                           loss(*raw, batch, sink);
                         }));
}

/// For the holders that TORCH_MODULE declares.
template <class Holder, class Loss>
requires requires(const Holder& holder) {
  holder.ptr();
}
Model wrap_module(const Holder& net, Loss loss) {
  return wrap_module(net.ptr(), std::move(loss));
}

}  // namespace funicular
