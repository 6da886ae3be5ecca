#pragma once
// AdamW's settings. Its rule is Adam's (optim/adam.h).

namespace funicular::optim {

struct AdamUpdate;
struct OptimizerKind;
struct StepInput;

/// Decoupled weight decay: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm
/// 2; the decay is multiplied by the learning rate, as in PyTorch.
struct AdamW {
  double learning_rate = 1e-3;  ///< the peak; schedules scale it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;    ///< on weights that decay (Parameter::decays)
  bool bias_correction = true;  ///< false: as BERT was trained at first

  static const OptimizerKind& kind();
  AdamUpdate update(const StepInput& input, bool decays) const;
};

}  // namespace funicular::optim
