#pragma once
// The loss scale of fp16 training. It holds numbers only: the caller multiplies the loss, looks for gradients
// that are not finite, divides the others (StepInput::gradient_scale), and skips the update where there was
// an overflow.

#include <cstdint>
#include <optional>
#include <string_view>

#include "funicular/base/json.h"

namespace funicular::optim {

struct LossScalerOptions {
  double initial_scale = 65536;    ///< 2^16, as torch.amp.GradScaler and DeepSpeed
  double growth_factor = 2;        ///< > 1
  int64_t growth_interval = 2000;  ///< steps without overflow before the scale grows
  double backoff_factor = 0.5;     ///< in (0, 1)
  /// Overflows since the scale last grew that it takes to lower the scale; each further one lowers it again.
  /// DeepSpeed's and Megatron-LM's `hysteresis` (there 2); 1 is the rule of apex and torch.amp.
  int64_t hysteresis = 2;
  double min_scale = 1;                 ///< the floor
  double max_scale = 16777216;          ///< 2^24, apex's max_loss_scale
  std::optional<double> fixed_scale{};  ///< a static scale: none of the above matters
  /// Overflows in a row, at the floor or with a static scale, after which the run cannot continue.
  int64_t patience = 10;
};

/// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2, with the rule for choosing the
/// scale of NVIDIA's apex and Megatron-LM.
class LossScaler {
 public:
  enum class Verdict {
    update,    ///< the gradients are good
    skip,      ///< an overflow: leave the parameters as they are and continue
    exhausted  ///< an overflow that a lower scale cannot cure: the run should end with an error
  };

  /// Throws InputError naming the first option that is out of range.
  explicit LossScaler(LossScalerOptions options = {});

  /// Factor of the loss.
  double scale() const { return state_.scale; }
  /// Tells how a step went; changes scale() for the next one.
  Verdict update(bool overflow);
  /// Tells how `steps` steps with one scale went, of which `overflows` had one: where ranks are steps apart, they learn of
  /// it together. Any number of overflows counts as one towards a lower scale: the steps behind the first could not know.
  Verdict update_after(int64_t steps, int64_t overflows);
  /// After how many steps with this scale to ask, where asking costs time: as many as have gone well, so that a scale that
  /// is too large costs no more steps than those, and not beyond the step at which it grows.
  int64_t steps_to_ask() const;

  int64_t skipped_steps() const { return state_.skipped; }  ///< in the whole run
  int64_t overflows_in_a_row() const { return state_.in_a_row; }
  const LossScalerOptions& options() const { return options_; }

  /// For a checkpoint: {"scale", "good_steps", "hysteresis_left", "skipped_steps", "overflows_in_a_row"}.
  OrderedJson state() const;
  /// Goes on from state(). The options are those of this scaler: a static scale stays, another range holds.
  /// Throws InputError naming `origin` and the key if a value is missing or impossible; then nothing has
  /// changed.
  void restore(const Json& state, std::string_view origin);

 private:
  struct State {
    double scale = 1;
    int64_t good_steps = 0;  ///< since the scale last changed, or the last overflow
    int64_t hysteresis_left = 0;
    int64_t skipped = 0, in_a_row = 0;
  };

  void back_off();
  void grow();

  LossScalerOptions options_;
  State state_;
};

}  // namespace funicular::optim
