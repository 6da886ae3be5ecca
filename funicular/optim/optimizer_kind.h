#pragma once
// The row of an optimiser: all that the rest of the program asks of it by its name.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/optim/optimizer.h"
#include "funicular/optim/setting.h"

namespace funicular::optim {

/// A row as it is written, for its own type of settings.
template <class Settings>
struct OptimizerRow {
  std::string name;
  std::vector<std::string> spellings{};  ///< other names that --optim accepts
  bool adaptive = false;     ///< an update changes a weight by about the learning rate, whatever the gradient
  bool layer_norms = false;  ///< an update needs the norms of whole layers
  bool row_gradients = false;       ///< gradients may be sparse tensors of rows (optim/sparse_rows.h)
  std::vector<Setting> settings{};  ///< in the order of run.json
  /// Names of the flat state tensors, in the order of Optimizer::state().
  std::vector<std::string> (*states)(const Settings&) = nullptr;
  /// Throws InputError for settings that exclude each other; null: ranges say all.
  void (*check)(const Settings&) = nullptr;
  std::unique_ptr<Optimizer> (*make)(const Settings&) = nullptr;
};

/// A row for settings of any type.
struct OptimizerKind {
  std::string name;
  std::vector<std::string> spellings;
  bool adaptive, layer_norms, row_gradients;
  std::vector<Setting> settings;
  std::function<std::vector<std::string>(const void*)> states;
  std::function<void(const void*)> check;
  std::function<std::unique_ptr<Optimizer>(const void*)> make;
  std::function<std::shared_ptr<void>(const void*)> copy;  ///< of settings
  std::function<OptimizerSpec()> defaults;

  template <class Settings>
  explicit OptimizerKind(OptimizerRow<Settings> row)
      : name(std::move(row.name)),
        spellings(std::move(row.spellings)),
        adaptive(row.adaptive),
        layer_norms(row.layer_norms),
        row_gradients(row.row_gradients),
        settings(std::move(row.settings)),
        states([call = row.states](const void* own) { return call(*static_cast<const Settings*>(own)); }),
        check([call = row.check](const void* own) {
          if (call) call(*static_cast<const Settings*>(own));
        }),
        make([call = row.make](const void* own) { return call(*static_cast<const Settings*>(own)); }),
        copy([](const void* own) { return std::make_shared<Settings>(*static_cast<const Settings*>(own)); }),
        defaults([] { return OptimizerSpec(Settings{}); }) {}

  /// Throws std::out_of_range for a name that no setting has.
  const Setting& setting(std::string_view wanted) const;
};

/// The rows of all optimisers, in the order of --help.
const std::vector<const OptimizerKind*>& optimizer_kinds();
/// Throws InputError that lists the names.
const OptimizerKind& optimizer_kind(std::string_view name);
std::vector<std::string> optimizer_names();
/// With the defaults of commands.
OptimizerSpec usual_optimizer(std::string_view name);

}  // namespace funicular::optim
