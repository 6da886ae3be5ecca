#pragma once
// The head's part of a loss that compares the rows of a global batch (core/batch_loss.h).

#include <string>

#include "funicular/core/batch_loss.h"
#include "funicular/core/model.h"

namespace funicular::objective {

/// Adds the loss of a micro-batch as the term `name`. `rows`: kRowVectors, kRowDraws and the tensors that the loss
/// reads. Either the trainer has provided the gradients of the whole batch, or the micro-batch is the whole batch. In
/// an evaluation nothing is added, as metrics compare the rows.
void add_batch_loss(const BatchLoss& loss, const std::string& name, const TensorMap& rows, const Pass& pass);

}  // namespace funicular::objective
