#pragma once
// Chooses the loss scale of fp16 training. The caller multiplies the loss by it and looks for gradients that are not
// finite. The caller then divides finite gradients by it (StepInput::gradient_scale), or skips the update after an
// overflow.

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
  /// The number of overflows since the last growth at which the scale is lowered; each further overflow lowers it
  /// again. DeepSpeed's and Megatron-LM's `hysteresis` (there 2); 1 is the rule of apex and torch.amp.
  int64_t hysteresis = 2;
  double min_scale = 1;                 ///< the floor
  double max_scale = 16777216;          ///< 2^24, apex's max_loss_scale
  std::optional<double> fixed_scale{};  ///< a static scale; all settings above are ignored
  /// The number of overflows in a row, at the floor or with a static scale, at which the run must end.
  int64_t patience = 10;
};

/// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2, with the rule for choosing the
/// scale of NVIDIA's apex and Megatron-LM.
class LossScaler {
 public:
  enum class Verdict {
    update,    ///< the gradients are good
    skip,      ///< an overflow: leave the parameters as they are and continue
    exhausted  ///< an overflow that a lower scale cannot avoid: the run should end with an error
  };

  /// Throws InputError naming the first option that is out of range.
  explicit LossScaler(LossScalerOptions options = {});

  /// Factor of the loss.
  double scale() const { return state_.scale; }
  /// Reports whether a step overflowed, and sets scale() for the next step.
  Verdict update(bool overflow);
  /// Reports `steps` steps with one scale, of which `overflows` overflowed. For ranks that are steps apart and
  /// exchange overflows only now and then. All overflows together count as one towards a lower scale, as the later
  /// steps could not know of the first overflow.
  Verdict update_after(int64_t steps, int64_t overflows);
  /// The number of steps until ranks should next check for overflows, if a check takes time. It is the number of good
  /// steps so far, so that a scale that is too large loses no more steps. It never exceeds the steps until the scale
  /// grows.
  int64_t steps_to_ask() const;

  int64_t skipped_steps() const { return state_.skipped; }  ///< in the whole run
  int64_t overflows_in_a_row() const { return state_.in_a_row; }
  const LossScalerOptions& options() const { return options_; }

  /// For a checkpoint: {"scale", "good_steps", "hysteresis_left", "skipped_steps", "overflows_in_a_row"}.
  OrderedJson state() const;
  /// Restores state(). This scaler's own options apply: a static scale stays, and the scale is clamped to the range.
  /// Throws InputError naming `origin` and the key if a value is missing or impossible; nothing has changed then.
  void restore(const Json& state, std::string_view origin);

 private:
  struct State {
    double scale = 1;
    int64_t good_steps = 0;  ///< since the last overflow or growth
    int64_t hysteresis_left = 0;
    int64_t skipped = 0, in_a_row = 0;
  };

  void back_off();
  void grow();

  LossScalerOptions options_;
  State state_;
};

}  // namespace funicular::optim
