#pragma once
// Any torch::nn::Module as a Model: one segment for the module, or one for each module of a torch::nn::Sequential. A
// weight is there once, however often it is used.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "funicular/core/model.h"

namespace torch::nn {
class Module;
class Sequential;
}  // namespace torch::nn

namespace funicular {

/// Makes a model with one segment, which calls `forward`. The model has the module's parameters under their dotted
/// names (tied weights under the first one) and its buffers (BatchNorm's running statistics). Parameters with at most
/// one dimension (biases, norms) get no weight decay; parameters that do not require a gradient are frozen. In
/// training, the batch's seed and first draw seed the global generator before each forward, so that
/// torch::nn::Dropout repeats after a resume. `forward` may call backward() itself; its gradients are added to the
/// step's. The ddp strategy does not support an autograd function whose own backward calls backward() on weights.
///
/// The forms that take a function of the module can be replicated (Model::replicate) if torch can clone the
/// module (torch::nn::Cloneable) and it holds no torch::nn::Dropout. Dropout and other drawing modules would
/// share a generator between threads, so no run could be repeated. clone() unties shared weights; for them
/// set replicate yourself. The function is copied for each replica, and several threads call the copies at
/// once.
///
/// `over`: what the loss is a sum over. Choose LossOver::batch if rows of a batch are compared with each other.
Model wrap_module(std::shared_ptr<torch::nn::Module> module,
                  std::function<void(const MicroBatch&, LossSink&)> forward,
                  LossOver over = LossOver::undeclared);

/// Throws InputError for a module that cannot be replicated.
std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module);

/// wrap_module() with the module handed to the function: loss(net, batch, sink).
template <class Net, class Loss>
Model wrap_module(std::shared_ptr<Net> net, Loss loss, LossOver over = LossOver::undeclared) {
  Net* raw = net.get();
  const auto clone = [raw, loss, over] {
    return wrap_module(std::static_pointer_cast<Net>(clone_module(*raw)), loss, over);
  };
  Model model = wrap_module(std::shared_ptr<torch::nn::Module>(std::move(net)),
                            std::function<void(const MicroBatch&, LossSink&)>(
                                [raw, loss = std::move(loss)](const MicroBatch& batch, LossSink& sink) {
                                  loss(*raw, batch, sink);
                                }),
                            over);
  model.replicate = clone;
  return model;
}

/// For the holders that TORCH_MODULE declares.
template <class Holder, class Loss>
requires requires(const Holder& holder) {
  holder.ptr();
}
Model wrap_module(const Holder& net, Loss loss, LossOver over = LossOver::undeclared) {
  return wrap_module(net.ptr(), std::move(loss), over);
}

/// Gets what the last module gives, and adds sums over its rows to the sink.
using SequentialLoss = std::function<void(const at::Tensor& output, const MicroBatch&, LossSink&)>;

/// A segment for each module of `net`, by its name there. Pipelines cut between any two of them;
/// recomputation and ZeRO take them one by one. The first module gets the batch's tensor `input`; `loss` gets
/// the output of the last one. `example` holds rows like that tensor's, of its type. One row goes through the
/// modules once, in evaluation mode, to find the shapes between them.
///
/// Each module takes a tensor and gives one with as many rows; its other sizes and its type depend only on
/// its input's. A module that works in place on its input (torch::nn::ReLU(true)) gets a copy. Parameters,
/// buffers and torch::nn::Dropout are as in wrap_module. Each module draws from a generator of its own, so
/// the cut does not change its dropout. Throws InputError for an empty `net` or `example`, and for a module
/// that does not take the output of the one before. In training it also throws for a module that works in
/// place only in training (Dropout).
Model wrap_sequential(torch::nn::Sequential net, const std::string& input, const at::Tensor& example,
                      SequentialLoss loss, LossOver over = LossOver::undeclared);

}  // namespace funicular
