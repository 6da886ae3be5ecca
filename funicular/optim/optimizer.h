#pragma once
// The interface of the optimisers (AdamW, LAMB and others), which update flat buffers of weights.

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/core/flat_layout.h"
#include "funicular/optim/registry.h"  // IWYU pragma: export
#include "funicular/optim/setting.h"

namespace funicular::optim {

/// Input of one step besides gradients.
struct StepInput {
  double learning_rate = 0;
  double gradient_scale = 1;  ///< gradients are multiplied by this first: clipping, loss scale
  int64_t step = 1;           ///< 1-based count of updates, for bias correction
  /// Zeroes all gradients that are not freed. It takes less time in the same pass, while they are in the cache.
  bool zero_gradients = false;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Allocates the state for the target's blocks; called once. Throws InputError for parameters that it cannot
  /// update.
  virtual void attach(std::shared_ptr<const UpdateTarget> target) = 0;
  /// Updates parameters in place from their gradients.
  virtual void step(const StepInput& input) = 0;
  /// Whether freed gradients may be sparse tensors of rows (optim/sparse_rows.h).
  virtual bool takes_row_gradients() const { return false; }
  /// Whether an update needs the norms of whole layers, and thus all ranks with parts of them.
  virtual bool needs_layer_norms() const { return false; }
  /// Flat state tensors [UpdateTarget::state_size] by name ("exp_avg", …). To write to them, call state() again each
  /// time and finish before the next step, as a step may remember which elements are zero.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
  /// Makes an optimiser with the same settings, not attached, for a strategy whose ranks are in this process. Null:
  /// not supported.
  virtual std::unique_ptr<Optimizer> another() const { return nullptr; }
};

/// An optimiser with its settings. Make it from the settings of an optimiser in optim/registry.h, or from your own
/// type that has kind().
class OptimizerSpec {
 public:
  template <class Settings>
  requires requires {
    { Settings::kind() } -> std::same_as<const OptimizerKind&>;
  }
  OptimizerSpec(Settings settings)  // implicit: AdamW{} is a specification
      : kind_(&Settings::kind()), settings_(std::make_shared<Settings>(std::move(settings))) {}

  const OptimizerKind& kind() const { return *kind_; }
  /// Returns the settings; null: they belong to another optimiser.
  template <class Settings>
  const Settings* as() const {
    return kind_ == &Settings::kind() ? static_cast<const Settings*>(settings_.get()) : nullptr;
  }
  /// Settings by their names in run.json. Throws std::out_of_range for a name that the optimiser does not have.
  SettingValue get(std::string_view name) const;
  void set(std::string_view name, const SettingValue& value);
  /// Throws InputError naming the first setting that is out of range.
  void check() const;
  /// Names of the optimiser's states; each state is as large as the weights.
  std::vector<std::string> states() const;

 private:
  friend std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);

  const OptimizerKind* kind_;
  std::shared_ptr<void> settings_;  ///< copies of a specification share it until one of them is set
};

/// Throws InputError naming the first setting that is out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);
double peak_learning_rate(const OptimizerSpec& spec);
/// "adamw", "lamb", …
const std::string& optimizer_name(const OptimizerSpec& spec);
/// Name and settings, for run.json.
OrderedJson describe(const OptimizerSpec& spec);

}  // namespace funicular::optim
