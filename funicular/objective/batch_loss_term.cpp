#include "funicular/objective/batch_loss_term.h"

#include <torch/types.h>

namespace funicular::objective {

void add_batch_loss(const BatchLoss& loss, const std::string& name, const TensorMap& rows, const Pass& pass) {
  if (pass.loss.keep_outputs) return;
  const at::Tensor& vectors = rows.at(kRowVectors);
  BatchLoss::Result whole;
  const auto given = pass.batch.tensors.find(kVectorGradients);
  if (given != pass.batch.tensors.end()) {
    whole = {pass.batch[kRowLosses], given->second};
  } else {
    whole = loss.compute(rows, 0, vectors.size(0), /*differentiate=*/true);
  }
  const at::Tensor change = (vectors - vectors.detach()) * whole.gradients;  // 0, with the loss's gradient
  pass.loss.add(name, whole.values.sum() + change.sum());
}

}  // namespace funicular::objective
