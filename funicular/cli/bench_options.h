#pragma once
// The options of funicular bench, and what its modes make of them: the model and the rows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/bench/rank_use.h"
#include "funicular/bench/techniques.h"
#include "funicular/bench/timed_rows.h"
#include "funicular/cli/arguments.h"
#include "funicular/cli/options.h"
#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/model/heads.h"

namespace funicular::cli {

/// The values of an option that takes several in one mode; `fallback` where it is not given.
struct BenchValues {
  const char* option;
  std::vector<std::string> given;

  std::vector<std::string> texts(std::vector<std::string> fallback) const;
  /// Throws InputError where several are given.
  std::string text(const std::string& fallback) const;
  /// Throws InputError for what is no whole number of at least `least`.
  std::vector<int64_t> numbers(std::vector<int64_t> fallback, int64_t least) const;
  int64_t number(int64_t fallback, int64_t least) const;
};

struct BenchOptions {
  std::string model_name, rows = "ragged";
  BenchValues batch_size{"batch-size", {}}, max_length{"max-length", {}}, precision{"precision", {}},
      recompute{"recompute", {}}, accumulation{"gradient-accumulation-steps", {}};
  fs::path batches, trace, data, tokenizer, plot;
  int64_t micro_batch_size = 0, warmup = 3, devices = 2;
  uint64_t seed = 1;
  std::optional<int64_t> steps, ranks;
  std::vector<std::string> strategies;
  bench::TechniquesOptions techniques;
  bool floor = false, profile = false, json = false, cuda_graphs = false;
  DeviceOptions device;

  void declare(Arguments& arguments);
  bool given(const std::string& option) const;
  /// Throws InputError for an option that this mode does not have.
  void refuse(const std::string& mode, const std::vector<std::string>& options) const;

  /// Whether --model is one of the sizes that have a name, without weights.
  bool names_size() const;
  format::ModelConfig configuration() const;
  /// With the weights of --model where it is a folder that has them.
  Model build(const format::ModelConfig& config, at::ScalarType type,
              const model::Head& head = model::Head::masked_lm) const;
  bench::RowsRule rows_rule(const format::ModelConfig& config, int64_t batch_size, int64_t longest) const;
  /// Batches 0 … count - 1 of the rule. Throws InputError for rows that are longer than the model can read.
  std::vector<bench::Rows> make_batches(const format::ModelConfig& config, int64_t batch_size,
                                        int64_t longest, int64_t count) const;

 private:
  void declare_measured(Arguments& arguments);
  void declare_techniques(Arguments& arguments);

  const Arguments* arguments_ = nullptr;
};

}  // namespace funicular::cli
