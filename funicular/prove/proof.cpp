#include "funicular/prove/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/safetensors.h"
#include "funicular/parallel/schedule_file.h"
#include "funicular/pipeline/generators.h"

namespace funicular::prove {

namespace {

// ---- a layout's words

int64_t whole_number(const std::string& option, const std::string& text, int64_t least) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > 65536)
    throw InputError("layout", "{} expects a whole number from {} to 65536, found \"{}\"", option, least,
                     text);
  return value;
}

void set_option(Layout& layout, parallel::LayoutOptions& shared, const std::string& option,
                std::istringstream& words) {
  if (option == "--deterministic") {
    layout.deterministic = true;
    return;
  }
  std::string value;
  if (option != "--sequence-parallel") words >> value;
  if (option == "-n")
    layout.ranks = static_cast<int>(whole_number(option, value, 1));
  else if (option == "--threads")
    layout.threads = whole_number(option, value, 1);
  else if (option == "--micro-batch-size")
    layout.micro_batch_size = whole_number(option, value, 1);
  else if (option == "--servers")
    layout.servers = static_cast<int>(whole_number(option, value, 1));
  else if (option == "--recompute")
    layout.recompute = parse_recompute(value);
  else if (option == "--fault")
    layout.fault = parse_fault(value);
  else if (!option.starts_with("--") || !shared.set(option.substr(2), value))
    throw InputError(
        "layout",
        "unknown word \"{}\" in \"{}\"; expected -n, --threads, --micro-batch-size, --recompute, --servers, "
        "--pipeline-parallel, --schedule, --stages-per-rank, --stages, --tensor-parallel, "
        "--sequence-parallel, "
        "--data-parallel, --zero, --devices, --deterministic or --fault",
        option, layout.text);
}

// ---- a comparison

/// Two files of the same tensors, as doubles.
class Pair {
 public:
  Pair(const fs::path& a, const fs::path& b) : a_(a), b_(b) {
    if (a_.entries().size() != b_.entries().size())
      throw InputError("prove", "{} holds {} tensors and {} holds {}; they belong to different models",
                       a.string(), a_.entries().size(), b.string(), b_.entries().size());
    for (const format::TensorEntry& entry : b_.entries()) {
      const std::vector<double> values = widen(entry);
      for (const double value : values) square_sum_ += value * value;
    }
  }

  double norm() const { return std::sqrt(square_sum_); }
  std::span<const format::TensorEntry> entries() const { return b_.entries(); }

  struct Measure {
    double relative = 0, absolute = 0, norm = 0, other_norm = 0;
    bool same_bits = true;
  };
  Measure measure(const format::TensorEntry& entry) const {
    const format::TensorEntry& other = a_.at(entry.name);
    if (other.shape != entry.shape)
      throw InputError("prove", "{} has another shape in {}", entry.name, a_.path().string());
    const std::vector<double> left = widen(other), right = widen(entry);
    Measure result;
    double difference = 0, own = 0, others = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      const double d = left[i] - right[i];
      difference += d * d;
      own += right[i] * right[i];
      others += left[i] * left[i];
      result.absolute = std::fmax(result.absolute, std::fabs(d));
      if (std::isnan(d)) result.absolute = difference = INFINITY;
    }
    result.norm = std::sqrt(own);
    result.other_norm = std::sqrt(others);
    result.relative = difference == 0 ? 0 : std::sqrt(difference) / std::fmax(result.norm, 1e-6 * norm());
    result.same_bits = other.dtype == entry.dtype && result.absolute == 0;  // 0 and -0 are the same
    return result;
  }

 private:
  static std::vector<double> widen(const format::TensorEntry& entry) {
    std::vector<double> values;
    const auto read = [&](auto zero, auto convert) {
      using T = decltype(zero);
      for (size_t i = 0; i + sizeof(T) <= entry.data.size(); i += sizeof(T)) {
        T value;
        std::memcpy(&value, entry.data.data() + i, sizeof value);
        values.push_back(convert(value));
      }
    };
    const auto plain = [](auto value) { return static_cast<double>(value); };
    switch (entry.dtype) {
      case format::DType::F64:
        read(double{}, plain);
        break;
      case format::DType::F32:
        read(float{}, plain);
        break;
      case format::DType::BF16:
        read(uint16_t{}, [](uint16_t bits) {
          return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
        });
        break;
      default:
        throw InputError("prove", "{} has type {}; expected F64, F32 or BF16", entry.name,
                         format::dtype_name(entry.dtype));
    }
    return values;
  }

  format::SafetensorsFile a_, b_;
  double square_sum_ = 0;
};

/// Compares the files of two runs, step by step.
class RunComparison {
 public:
  RunComparison(const fs::path& a, const fs::path& b, const Promise& promise)
      : a_(a), b_(b), promise_(promise) {}

  Proof run(int64_t steps) {
    for (int64_t step = 1; step <= steps; ++step) note_noise(step);
    std::erase_if(noise_, [&](const std::string& name) { return !not_zero_.contains(name); });
    for (int64_t step = 1; step <= steps; ++step) {
      compare_losses(step);
      compare(step, "gradient", proof_.gradient);
      compare(step, "weight", proof_.weight);
      compare(step, "state", proof_.state);
    }
    for (const std::string& name : noise_) proof_.noise.push_back(name);
    return proof_;
  }

 private:
  /// Keeps the weights whose gradient is noise in all steps so far.
  void note_noise(int64_t step) {
    const Pair pair(a_ / step_file("gradient", step), b_ / step_file("gradient", step));
    std::set<std::string> noise;
    for (const format::TensorEntry& entry : pair.entries())
      if (const auto m = pair.measure(entry); std::fmax(m.norm, m.other_norm) < 1e-6 * pair.norm()) {
        noise.insert(entry.name);
        if (std::fmax(m.norm, m.other_norm) > 0) not_zero_.insert(entry.name);
      }
    if (step == 1) {
      noise_ = noise;
    } else {
      std::erase_if(noise_, [&](const std::string& name) { return !noise.contains(name); });
    }
  }

  /// State tensors are named "exp_avg/WEIGHT": the weight's name follows the first slash.
  bool is_noise(const std::string& name) const {
    return noise_.contains(name) || noise_.contains(name.substr(name.find('/') + 1));
  }

  void compare(int64_t step, const char* kind, Difference& largest) {
    const Pair pair(a_ / step_file(kind, step), b_ / step_file(kind, step));
    for (const format::TensorEntry& entry : pair.entries()) {
      const Pair::Measure measure = pair.measure(entry);
      ++proof_.tensors;
      proof_.bit_identical = proof_.bit_identical && measure.same_bits;
      const bool too_large = promise_.bit_identical
                                 ? !measure.same_bits
                                 : !(measure.relative <= promise_.bound) && !is_noise(entry.name);
      if (too_large && proof_.first.empty())
        proof_.first = fmt::format("step {}, {} {}: {:.1e}", step, kind, entry.name, measure.relative);
      if (is_noise(entry.name)) continue;
      largest.absolute = std::fmax(largest.absolute, measure.absolute);
      if (measure.relative > largest.relative) {
        largest.relative = measure.relative;
        largest.tensor = entry.name;
        largest.step = step;
      }
    }
  }

  /// The total and each term of a step, by name.
  static std::map<std::string, double> losses_of(const fs::path& folder, int64_t step) {
    const fs::path path = folder / "losses.json";
    const Json steps = read_json(path);
    const auto at = static_cast<size_t>(step - 1);
    if (!steps.is_array() || at >= steps.size() || !steps[at].is_object())
      throw InputError("prove", "{} does not hold the losses of step {}; expected an array of objects",
                       path.string(), step);
    std::map<std::string, double> losses;
    for (const auto& [name, loss] : steps[at].items())
      losses[name] = loss.is_number() ? loss.get<double>() : NAN;  // JSON has no NaN: null
    return losses;
  }

  void compare_losses(int64_t step) {
    std::map<std::string, double> left = losses_of(a_, step), right = losses_of(b_, step);
    for (const auto& [name, loss] : right) left.try_emplace(name, NAN);
    for (const auto& [name, loss] : left) {
      const auto found = right.find(name);
      compare_loss(step, name, loss, found == right.end() ? NAN : found->second);
    }
  }

  void compare_loss(int64_t step, const std::string& name, double left, double right) {
    const double absolute = std::fabs(left - right);
    double relative = absolute == 0 ? 0 : absolute / std::fabs(right);
    if (std::isnan(relative)) relative = INFINITY;
    if (!(relative <= promise_.loss_bound) && proof_.first.empty())
      proof_.first = fmt::format("step {}, loss {}: {:.1e}", step, name, relative);
    proof_.loss.absolute = std::fmax(proof_.loss.absolute, absolute);
    if (relative <= proof_.loss.relative) return;
    proof_.loss.relative = relative;
    proof_.loss.tensor = name;
    proof_.loss.step = step;
  }

  fs::path a_, b_;
  const Promise& promise_;
  std::set<std::string> noise_;
  std::set<std::string> not_zero_;  ///< noise that is not exactly 0 in all steps
  Proof proof_;
};

bool power_of_two(int64_t value) {
  return std::has_single_bit(static_cast<uint64_t>(value));
}

int64_t workers_of(const Layout& layout) {
  if (layout.shared.kind == parallel::Layout::Kind::devices) return layout.shared.devices;
  if (layout.shared.kind == parallel::Layout::Kind::servers)
    return std::max(1, layout.ranks - layout.servers);
  return std::max(1, layout.shared.data);
}

/// Sequences of a micro-batch.
int64_t micro_batch_of(const Layout& layout, const ProofTask& task) {
  return layout.micro_batch_size > 0 ? layout.micro_batch_size
                                     : (task.batch_size + workers_of(layout) - 1) / workers_of(layout);
}

}  // namespace

std::string step_file(const char* kind, int64_t step) {
  return fmt::format("{}-{}.safetensors", kind, step);
}

Layout Layout::parse(const std::string& text) {
  Layout layout;
  layout.text = text;
  std::istringstream words(text);
  if (!(words >> layout.strategy))
    throw InputError("layout", "a layout is empty; expected \"ddp -n 2\", say");
  const auto& names = parallel::strategy_names();
  if (!layout.is_reference() && std::find(names.begin(), names.end(), layout.strategy) == names.end())
    throw InputError("layout", "\"{}\": unknown strategy \"{}\"; expected one of: {}, reference", text,
                     layout.strategy, fmt::join(names, ", "));
  parallel::LayoutOptions shared;
  if (!layout.is_reference()) shared.strategy = layout.strategy;
  for (std::string option; words >> option;) set_option(layout, shared, option, words);
  layout.shared = shared.layout();
  if (layout.strategy == "ps-async")
    throw InputError(
        "layout",
        "\"{}\": ps-async gives other weights by design; --replay-interleaving brings a run of it "
        "about again",
        text);
  if (layout.is_reference()) {
    Layout plain{.text = text, .strategy = layout.strategy, .threads = layout.threads};
    if (!layout.recurrence().empty())
      plain.shared = {.staged = layout.shared.staged,
                      .pipeline = layout.shared.pipeline,
                      .schedule = layout.shared.schedule};
    if (layout != plain)
      throw InputError(
          "layout",
          "\"{}\": reference is one plain process; expected no option but --threads, and of an asynchronous "
          "schedule --schedule and --pipeline-parallel",
          text);
    if (parallel::is_schedule_file(layout.shared.schedule))
      throw InputError(
          "layout",
          "\"{}\": the reference follows the recurrences of schedules by their names; a file's rows "
          "are compared with other layouts of the same file",
          text);
    return layout;
  }
  if (layout.strategy == "dp" && layout.shared.devices == 0)
    layout.shared.devices = std::exchange(layout.ranks, 1);
  if (layout.fault == Fault::halved_gradient && layout.shared.asynchronous())
    throw InputError("layout", "\"{}\": steps that overlap cannot have that fault", text);
  if (!layout.recurrence().empty() && !layout.shared.stages.replicas.empty())
    throw InputError("layout",
                     "\"{}\": the reference follows such schedules only with each stage on one rank", text);
  if (layout.strategy == "single" && layout.ranks > 1)
    throw InputError("layout", "\"{}\": single is for one rank", text);
  layout.shared = layout.shared.on(layout.ranks);
  const bool has_one_count = layout.strategy == "dp" || workers_of(layout) == 1;
  if (layout.fault == Fault::wrong_count && has_one_count)
    throw InputError("layout",
                     "\"{}\": wrong-count needs several replicas on ranks of their own, whose counts differ; "
                     "expected a layout such as \"ddp -n 2\"",
                     text);
  return layout;
}

std::string Layout::recurrence() const {
  const bool cuts = shared.staged || is_reference();
  return cuts && pipeline::updates_while_full(shared.schedule)
             ? fmt::format("{} with {} stages", shared.schedule, stages())
             : "";
}

bool repeats_attention(const Layout& layout, const format::ModelConfig& config) {
  const auto& relative = config.encoder.positions.relative;
  const bool by_vectors = relative && relative->kind == format::RelativePositions::Kind::disentangled;
  return layout.deterministic || !by_vectors;
}

Promise promise_of(const Layout& a, const Layout& b, const ProofTask& task) {
  if (a.recurrence() != b.recurrence()) {
    const Layout& stale = a.recurrence().empty() ? b : a;
    throw InputError(
        "layout",
        "\"{}\" and \"{}\" give different weights by design; {} is compared with \"reference --schedule {} "
        "--pipeline-parallel {}\"",
        a.text, b.text, stale.recurrence(), stale.shared.schedule, stale.stages());
  }
  const bool same_cut = a.strategy == b.strategy && a.ranks == b.ranks &&
                        a.micro_batch_size == b.micro_batch_size && a.servers == b.servers &&
                        a.shared == b.shared;
  if (a.threads == b.threads && a.deterministic == b.deterministic && same_cut)
    return {true, 0, 0, "the same layout, but for recomputation"};
  const auto is_tree = [](const Layout& layout) {
    const bool ranks_first = layout.shared.zero >= 2;
    return layout.deterministic && (!ranks_first || power_of_two(workers_of(layout)));
  };
  // Tensor parallelism adds up the slices' products, so only equal numbers of slices give equal bits.
  const bool same_slices = a.shared.sliced == b.shared.sliced && a.shared.tensor == b.shared.tensor;
  if (is_tree(a) && is_tree(b) && same_slices && a.threads == b.threads &&
      micro_batch_of(a, task) == micro_batch_of(b, task))
    return {true, 0, 1e-12, "one tree of sums over the same micro-batches; losses in the order of ranks"};
  const std::string why = a.is_reference() || b.is_reference() ? "an independent step in float64, beside "
                                                               : "sums in another order, ";
  switch (task.precision) {
    case Precision::fp64:
      return {false, 1e-10, 1e-10, why + "float64"};
    case Precision::fp32:
      return {false, 1e-3, 1e-3, why + "float32"};
    case Precision::tf32:  // three bits of mantissa more than bfloat16
      return {false, 0.025, 0.025, why + "TF32 products"};
    default:
      return {false, 0.1, 0.1, why + "16-bit products"};
  }
}

Proof compare_layouts(const fs::path& a, const fs::path& b, int64_t steps, const Promise& promise) {
  Proof proof = RunComparison(a, b, promise).run(steps);
  proof.held_a = read_held_bytes(a);
  proof.held_b = read_held_bytes(b);
  return proof;
}

bool holds(const Proof& proof, const Promise& promise) {
  return proof.first.empty() && (proof.bit_identical || !promise.bit_identical);
}

OrderedJson to_json(const Proof& proof, const Promise& promise) {
  const auto difference = [](const Difference& value) {
    return OrderedJson{{"relative", value.relative},
                       {"absolute", value.absolute},
                       {"tensor", value.tensor},
                       {"step", value.step}};
  };
  return {{"holds", holds(proof, promise)},
          {"promise", promise.bit_identical ? OrderedJson("bit-identical") : OrderedJson(promise.bound)},
          {"why", promise.why},
          {"bit_identical", proof.bit_identical},
          {"gradient", difference(proof.gradient)},
          {"weight", difference(proof.weight)},
          {"state", difference(proof.state)},
          {"loss", difference(proof.loss)},
          {"first", proof.first},
          {"tensors", proof.tensors},
          {"noise", proof.noise},
          {"held_bytes", {to_json(proof.held_a), to_json(proof.held_b)}}};
}

}  // namespace funicular::prove
