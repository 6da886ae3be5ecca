#include "funicular/parallel/clipped_update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/record_function.h>

#include "funicular/core/device_copy.h"
#include "funicular/optim/clipping.h"
#include "funicular/optim/scale_on_device.h"
#include "funicular/parallel/replicated.h"

namespace funicular::parallel {

void clip_and_update(optim::Optimizer& optimizer, const StepResult& result, const StepSettings& settings) {
  RECORD_FUNCTION("funicular::optimizer", c10::ArrayRef<const c10::IValue>{});
  const double clip = optim::clip_factor(result.gradient_norm, settings.max_gradient_norm);
  optimizer.step({.learning_rate = settings.learning_rate,
                  .gradient_scale = clip / settings.loss_scale,
                  .step = settings.update,
                  .zero_gradients = true});
}

bool takes_queued_updates(const optim::Optimizer& optimizer) {
  const auto* const scaled = dynamic_cast<const optim::ScaleOnDevice*>(&optimizer);
  return scaled && scaled->takes_scale();
}

StepResult queue_update(const UpdateTarget& target, optim::Optimizer& optimizer, const TermSums& sums,
                        const comm::Group& group, const Counts& global, const StepSettings& settings) {
  const TermSums terms = sums.over_ranks(group, target.matrix_master.device()).counted(global);
  at::Tensor norm, numbers;
  {
    RECORD_FUNCTION("funicular::gradient_norm", c10::ArrayRef<const c10::IValue>{});
    norm = optim::device_norm(target).reshape({1}) / settings.loss_scale;
    // Cards of different kinds may sum in different orders, but replicas must not differ in the last bit.
    if (group.size() > 1) group.broadcast(norm, 0);
    const at::Tensor losses = terms.values();
    numbers = losses.defined() ? at::cat({to_device(losses, norm.device()), norm}) : norm;
  }
  const Arriving arriving(numbers);
  if (settings.inspect) settings.inspect();
  {
    RECORD_FUNCTION("funicular::optimizer", c10::ArrayRef<const c10::IValue>{});
    // `numbers * 0` is zero, or NaN if a number is not finite; with NaN the GPU makes no update.
    const at::Tensor clip = optim::device_clip_factor(norm, settings.max_gradient_norm) + (numbers * 0).sum();
    dynamic_cast<optim::ScaleOnDevice&>(optimizer).step_scaled({.learning_rate = settings.learning_rate,
                                                                .gradient_scale = 1 / settings.loss_scale,
                                                                .step = settings.update,
                                                                .zero_gradients = true},
                                                               clip);
  }
  at::Tensor here;
  {
    RECORD_FUNCTION("funicular::wait", c10::ArrayRef<const c10::IValue>{});
    here = arriving.wait();
  }
  StepResult result;
  add_losses(result, terms.totals(here), global);
  result.gradient_norm = here[-1].item<double>();
  return result;
}

}  // namespace funicular::parallel
