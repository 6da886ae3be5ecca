#include "funicular/plan/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "funicular/base/error.h"
#include "funicular/comm/environment.h"
#include "funicular/data/datasets.h"
#include "funicular/data/token_store.h"
#include "funicular/format/bert_config.h"
#include "funicular/format/safetensors.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/nn/bert.h"
#include "funicular/nn/pretrained.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/plan/generated_text.h"
#include "funicular/train/checkpoint.h"

namespace funicular::plan {

namespace {

constexpr int64_t kVocabulary = 997;  // a prime: no piece of it divides evenly

std::string step_file(const char* kind, int64_t step) {
  return fmt::format("{}-{}.safetensors", kind, step);
}

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

void set_option(Layout& layout, const std::string& option, std::istringstream& words) {
  if (option == "--deterministic") {
    layout.deterministic = true;
    return;
  }
  std::string value;
  words >> value;
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
    layout.fault = parallel::parse_fault(value);
  else
    throw InputError(
        "layout",
        "unknown word \"{}\" in \"{}\"; expected -n, --threads, --micro-batch-size, --recompute, --servers, "
        "--deterministic or --fault",
        option, layout.text);
}

// ---- a run

format::BertConfig small_config() {
  format::BertConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 48;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.intermediate_size = 200;
  config.max_position_embeddings = 128;
  return config;
}

/// Where the rows come from; keeps alive what the objective refers to.
struct Text {
  std::unique_ptr<text::WordPiece> tokenizer;
  std::shared_ptr<const data::Dataset> rows;
};

Text open_text(const ProofTask& task, int64_t vocabulary) {
  Text text;
  if (task.data.empty()) {
    const RowsRule rule{.longest = task.max_length,
                        .batch_size = task.batch_size,
                        .vocabulary = vocabulary,
                        .seed = task.seed};
    text.tokenizer = std::make_unique<text::WordPiece>(generated_tokenizer(vocabulary));
    text.rows = std::make_shared<GeneratedText>(rule, task.steps);
    return text;
  }
  if (fs::is_regular_file(task.model) || task.model.empty())
    throw InputError("prove",
                     "rows of a token store need the tokeniser of a model folder; give one with --model");
  text.tokenizer = std::make_unique<text::WordPiece>(format::load_tokenizer(task.model));
  const comm::Environment place = comm::read_environment();  // of a host's ranks each verifies its blocks
  const auto store = data::TokenStore::open(task.data, {.part = place.local_rank, .parts = place.local_size});
  store->require_tokenizer(*text.tokenizer);
  text.rows = std::make_shared<data::ChunkDataset>(store, task.max_length - 2);
  return text;
}

train::TrainerOptions options_of(const ProofTask& task, const Layout& layout) {
  train::TrainerOptions options;
  options.max_steps = task.steps;
  options.batch_size = task.batch_size;
  options.micro_batch_size = std::min(layout.micro_batch_size, task.batch_size);
  options.precision = task.precision;
  options.recompute = layout.recompute;
  options.max_grad_norm = task.max_grad_norm;
  options.seed = task.seed;
  options.schedule = {.kind = optim::ScheduleKind::constant};
  options.progress = false;
  return options;
}

// ---- a comparison

/// Two files of the same tensors, as doubles.
class Pair {
 public:
  Pair(const fs::path& a, const fs::path& b) : a_(a), b_(b) {
    if (a_.entries().size() != b_.entries().size())
      throw InputError("prove", "{} holds {} tensors and {} holds {}; they are of different models",
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
        throw InputError("prove", "{} is of type {}; expected F64, F32 or BF16", entry.name,
                         format::dtype_name(entry.dtype));
    }
    return values;
  }

  format::SafetensorsFile a_, b_;
  double square_sum_ = 0;
};

/// Compares what two runs left, step by step.
class RunComparison {
 public:
  RunComparison(const fs::path& a, const fs::path& b, const Promise& promise)
      : a_(a), b_(b), promise_(promise) {}

  Proof run(int64_t steps) {
    for (int64_t step = 1; step <= steps; ++step) note_noise(step);
    for (int64_t step = 1; step <= steps; ++step) {
      compare(step, "gradient", proof_.gradient);
      compare(step, "weight", proof_.weight);
      compare(step, "state", proof_.state);
    }
    compare_losses();
    for (const std::string& name : noise_) proof_.noise.push_back(name);
    return proof_;
  }

 private:
  /// Those that are noise in all steps.
  void note_noise(int64_t step) {
    const Pair pair(a_ / step_file("gradient", step), b_ / step_file("gradient", step));
    std::set<std::string> noise;
    for (const format::TensorEntry& entry : pair.entries())
      if (const auto m = pair.measure(entry);
          m.norm > 0 && std::fmax(m.norm, m.other_norm) < 1e-6 * pair.norm())
        noise.insert(entry.name);
    if (step == 1) {
      noise_ = noise;
    } else {
      std::erase_if(noise_, [&](const std::string& name) { return !noise.contains(name); });
    }
  }

  /// State tensors are named "exp_avg/…": what follows the first slash is the weight's name.
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

  void compare_losses() {
    const Json a = read_json(a_ / "losses.json"), b = read_json(b_ / "losses.json");
    if (!a.is_array() || !b.is_array() || a.size() != b.size())
      throw InputError("prove", "{} and {} do not hold the losses of as many steps",
                       (a_ / "losses.json").string(), (b_ / "losses.json").string());
    for (size_t i = 0; i < b.size(); ++i) {
      const double left = a[i].is_number() ? a[i].get<double>() : NAN;  // JSON has no NaN: null
      const double right = b[i].is_number() ? b[i].get<double>() : NAN;
      const double difference = left == right ? 0 : std::fabs(left - right) / std::fabs(right);
      proof_.loss = std::isnan(difference) ? INFINITY : std::fmax(proof_.loss, difference);
    }
  }

  fs::path a_, b_;
  const Promise& promise_;
  std::set<std::string> noise_;
  Proof proof_;
};

bool power_of_two(int64_t value) {
  return std::has_single_bit(static_cast<uint64_t>(value));
}

int64_t workers_of(const Layout& layout) {
  if (layout.strategy == "dp") return layout.devices;
  return layout.strategy == "ps-sync" ? std::max(1, layout.ranks - layout.servers) : layout.ranks;
}

/// Sequences of a micro-batch.
int64_t micro_batch_of(const Layout& layout, const ProofTask& task) {
  return layout.micro_batch_size > 0 ? layout.micro_batch_size
                                     : (task.batch_size + workers_of(layout) - 1) / workers_of(layout);
}

}  // namespace

Layout Layout::parse(const std::string& text) {
  Layout layout;
  layout.text = text;
  std::istringstream words(text);
  if (!(words >> layout.strategy))
    throw InputError("layout", "a layout is empty; expected \"ddp -n 2\", say");
  for (std::string option; words >> option;) set_option(layout, option, words);
  const auto& names = parallel::strategy_names();
  if (std::find(names.begin(), names.end(), layout.strategy) == names.end())
    throw InputError("layout", "\"{}\": unknown strategy \"{}\"; expected one of: {}", text, layout.strategy,
                     fmt::join(names, ", "));
  if (layout.strategy == "ps-async")
    throw InputError(
        "layout",
        "\"{}\": ps-async gives other weights by design; --replay-interleaving brings a run of it "
        "about again",
        text);
  if (layout.strategy == "dp") std::swap(layout.devices, layout.ranks);
  if (layout.strategy == "single" && layout.ranks > 1)
    throw InputError("layout", "\"{}\": single is for one rank", text);
  return layout;
}

void run_layout(const ProofTask& task, const Layout& layout, const comm::Group& group,
                const fs::path& folder) {
  const format::BertConfig config =
      task.model.empty() ? small_config() : format::read_bert_config(task.model);
  const bool loads = fs::is_directory(task.model);
  if (loads) nn::check_sizes(config, task.model);
  Model model = nn::build_bert({.config = config,
                                .head = nn::Head::masked_lm,
                                .dtype = task.precision == train::Precision::fp64 ? at::kDouble : at::kFloat,
                                .seed = task.seed,
                                .loaded = loads ? nn::weights_in(task.model) : nullptr});
  if (loads) nn::load_pretrained(model, task.model);
  const Text text = open_text(task, config.vocab_size);
  objective::MaskedLmOptions masking;
  masking.sequence.max_length = static_cast<int32_t>(task.max_length);
  const objective::MaskedLm objective(*text.tokenizer, masking);
  train::Trainer trainer(
      options_of(task, layout),
      [&] {
        return parallel::make_strategy(layout.strategy, group,
                                       {.deterministic = layout.deterministic,
                                        .compare_every = 0,
                                        .bucket_bytes = 1,  // one for each segment
                                        .fault = layout.fault,
                                        .servers = layout.servers,
                                        .devices = layout.devices});
      },
      task.optimizer);
  OrderedJson losses = OrderedJson::array();
  trainer.callbacks.on_step = [&](int64_t, const parallel::StepResult& result) {
    losses.push_back(result.loss);
  };
  trainer.callbacks.inspect = [&](int64_t step, bool updated, parallel::Strategy& strategy) {
    const auto keep = [&](const char* kind, const std::function<void(parallel::StateVisitor&)>& visit) {
      train::write_slices(group, folder / step_file(kind, step), visit);
    };
    const auto part = [&](bool optimizer) {
      return [&strategy, optimizer](parallel::StateVisitor& visitor) {
        struct Filter final : parallel::StateVisitor {
          Filter(parallel::StateVisitor& to, bool keeps) : next(to), optimizer(keeps) {}
          void visit(const parallel::StateSlice& slice) override {
            if (slice.kind.starts_with("optimizer.") == optimizer) next.visit(slice);
          }
          parallel::StateVisitor& next;
          bool optimizer;
        } filter(visitor, optimizer);
        strategy.visit_state(filter);
      };
    };
    if (!updated)
      return keep("gradient", [&](parallel::StateVisitor& visitor) { strategy.visit_gradients(visitor); });
    keep("weight", part(false));
    keep("state", part(true));
  };
  trainer.fit(model, objective, *text.rows);
  if (group.rank() == 0) write_file_atomically(folder / "losses.json", losses.dump() + "\n");
  group.barrier();
}

Promise promise_of(const Layout& a, const Layout& b, const ProofTask& task) {
  const bool same_cut = a.strategy == b.strategy && a.ranks == b.ranks && a.devices == b.devices &&
                        a.micro_batch_size == b.micro_batch_size;
  if (a.threads == b.threads && a.deterministic == b.deterministic && same_cut)
    return {true, 0, "the same layout, but for recomputation"};
  const auto is_tree = [](const Layout& layout) {
    const bool ranks_first = layout.strategy == "zero2" || layout.strategy == "zero3";
    return layout.deterministic && (!ranks_first || power_of_two(layout.ranks));
  };
  if (is_tree(a) && is_tree(b) && a.threads == b.threads &&
      micro_batch_of(a, task) == micro_batch_of(b, task))
    return {true, 0, "one tree of sums over the same micro-batches"};
  switch (task.precision) {
    case train::Precision::fp64:
      return {false, 1e-10, "sums in another order, float64"};
    case train::Precision::fp32:
      return {false, 1e-3, "sums in another order, float32"};
    default:
      return {false, 0.1, "sums in another order, 16-bit products"};
  }
}

Proof compare_layouts(const fs::path& a, const fs::path& b, int64_t steps, const Promise& promise) {
  return RunComparison(a, b, promise).run(steps);
}

bool holds(const Proof& proof, const Promise& promise) {
  if (!proof.first.empty()) return false;
  return promise.bit_identical ? proof.bit_identical : proof.loss <= promise.bound;
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
          {"loss", proof.loss},
          {"first", proof.first},
          {"tensors", proof.tensors},
          {"noise", proof.noise}};
}

}  // namespace funicular::plan
