#pragma once
// Single options of several commands. Each declares one with its aliases and limits, and gives it back for
// what is the command's own (a text for the default, another alias).

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"

namespace funicular::cli {

/// --model, required.
Option& declare_model(Arguments& arguments, fs::path& target, std::string help, std::string value = "DIR");

/// The text in --help for a default that model::fit_positions makes shorter.
inline constexpr const char* kDefaultLength = "128, or the model's longest";

/// --max-length; `longer` says what becomes of a longer one. A target without a value: the default is decided
/// later.
Option& declare_max_length(Arguments& arguments, int64_t& target, const std::string& longer,
                           int64_t least = 4);
Option& declare_max_length(Arguments& arguments, std::optional<int64_t>& target, const std::string& longer,
                           int64_t least = 4);

/// --eval-batch-size. 0 and none: not given.
Option& declare_eval_batch_size(Arguments& arguments, int64_t& target);
Option& declare_eval_batch_size(Arguments& arguments, std::optional<int64_t>& target);

/// --micro-batch-tokens, at least `least`; `remark` follows what it is.
Option& declare_micro_batch_tokens(Arguments& arguments, int64_t& target, const std::string& remark,
                                   int64_t least = 0);

/// The names of Recompute, in its order.
const std::vector<std::string>& recompute_names();

/// --seed; `of` says of what.
Option& declare_seed(Arguments& arguments, uint64_t& target, std::string of);

/// --device, --threads.
struct DeviceOptions {
  std::string device = "cpu";
  int64_t threads = 0;       ///< 0: as many as LibTorch takes
  bool share = false;        ///< whether ranks of a host may share a GPU
  bool cuda_graphs = false;  ///< whether a GPU repeats recorded passes

  void declare(Arguments& arguments, Effect of_device = Effect::rounding,
               Effect of_threads = Effect::rounding);
  /// Declares --share-device, for commands of several ranks.
  void declare_sharing(Arguments& arguments);
  /// Declares --cuda-graphs, for commands without a training.
  void declare_graphs(Arguments& arguments);
  /// Declares all of these options.
  void declare_all(Arguments& arguments);
  /// Returns GroupOptions::transport: with --share-device "staged", unless the environment names another; else "".
  std::string transport() const;
  /// Sets the number of threads. Throws InputError for a device that cannot be used.
  void apply() const;
  /// On a host with several ranks: keeps this rank's threads on the processors beside its GPU.
  void stay_near_card(int local_size) const;
  /// Returns the device for weights and batches.
  at::Device place() const { return at::Device(device); }
  /// Sets `size` to `on_gpu` if the device is a GPU and the command line does not have `option`.
  void use_gpu_default(const Arguments& arguments, const std::string& option, int64_t& size,
                       int64_t on_gpu) const;
};

/// Throws InputError for --cuda-graphs on the CPU or on several ranks.
[[noreturn]] void refuse_graphs();

/// Tokens of a forward pass, and rows that are read ahead, without gradients on a GPU. Estimates, not measured yet.
inline constexpr int64_t kTokensOnGpu = 16'384, kRowsOnGpu = 16'384;
/// "4096, on a GPU 16384".
std::string default_by_device(int64_t on_cpu, int64_t on_gpu);

/// The value of --precision that stands for the one that fits this machine (nn/precision_choice.h).
inline constexpr const char* kAutoPrecision = "auto";

/// Declares --precision of a command that uses a model, "auto" by default. `more`: values in addition to
/// model::inference_precisions.
Option& declare_inference_precision(Arguments& arguments, std::string& target,
                                    const std::vector<std::string>& more = {});
/// Logs that fp32 is slow on a GPU with tensor cores.
void note_slow_precision(const std::string& precision, at::Device device);
/// Returns the precision that "auto" stands for, and logs it. Returns any other precision as it is, after
/// note_slow_precision().
std::string resolve_inference_precision(const std::string& precision, at::Device device);

}  // namespace funicular::cli
