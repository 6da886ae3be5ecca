#include "funicular/parallel/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

constexpr int kReplicas = 2;  ///< the default number of replicas of dp

/// The digit at the end of "zero2" or "pipeline-zero2"; 0 if there is none.
int zero_stage(const std::string& name) {
  const size_t at = name.find("zero");
  return at == std::string::npos ? 0 : name[at + 4] - '0';
}

int parse_number(const std::string& option, const std::string& text, int least, int most) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most)
    throw InputError("layout", "--{} expects a whole number from {} to {}, found \"{}\"", option, least, most,
                     text);
  return value;
}

/// Whether the model may be cut into stages. Strategies of replicas alone exclude that.
bool may_be_staged(const std::string& name) {
  return name == "auto" || name == "tensor" || name.starts_with("pipeline");
}

/// Whether the name fixes what replicas divide: "ddp" divides nothing, while "tensor" and "pipeline" leave it open.
bool says_what_is_divided(const std::string& name) {
  return zero_stage(name) > 0 || !may_be_staged(name);
}

[[noreturn]] void refuse_beside(const std::string& name, const std::string& option, int value) {
  throw InputError("usage", "--{} {} and the strategy {} contradict each other; leave one out", option, value,
                   name);
}

/// "--pipeline-parallel 2, --tensor-parallel 2": the axes within a replica.
std::string axes_of(const Layout& layout) {
  std::vector<std::string> axes;
  if (layout.staged) axes.push_back(fmt::format("--pipeline-parallel {}", layout.pipeline));
  if (layout.sliced) axes.push_back(fmt::format("--tensor-parallel {}", layout.tensor));
  return fmt::format("{}", fmt::join(axes, " "));
}

/// "pipelines of 2", "tensor groups of 2", or both.
std::string groups_of(const Layout& layout) {
  std::vector<std::string> groups;
  if (layout.staged) groups.push_back(fmt::format("pipelines of {}", layout.pipeline));
  if (layout.sliced) groups.push_back(fmt::format("tensor groups of {}", layout.tensor));
  return fmt::format("{}", fmt::join(groups, " with "));
}

/// The number of ranks of all stages together; 0 if `replicas` is empty, which means one rank per stage.
int64_t ranks_of_stages(const std::vector<int>& replicas) {
  return std::accumulate(replicas.begin(), replicas.end(), int64_t{0});
}

void require_alone(const Layout& layout, int ranks) {
  const bool alone = layout.kind == Layout::Kind::single || layout.kind == Layout::Kind::devices;
  if (alone && ranks > 1)
    throw InputError(
        "strategy",
        "\"{}\" is for one process, and there are {} ranks; expected one of: ddp, zero1, zero2, "
        "zero3, ps-sync, ps-async, pipeline, pipeline-zero1, pipeline-zero2, pipeline-zero3, tensor",
        layout.strategy(), ranks);
}

/// Throws InputError for axes that the layout's kind does not have, and for values that cannot be combined.
void require_combinable(const Layout& layout) {
  const bool axes = layout.kind == Layout::Kind::ranks;
  if (!axes && layout.sliced)
    throw InputError(
        "strategy",
        "\"{}\" cannot train a model that is cut into slices; expected one of: tensor, ddp, zero1, zero2, "
        "zero3, pipeline, pipeline-zero1, pipeline-zero2, pipeline-zero3",
        layout.strategy());
  if (!axes && (layout.staged || layout.zero > 0))
    throw InputError("strategy",
                     "\"{}\" goes neither with --pipeline-parallel nor with --zero; leave them out",
                     layout.strategy());
  if (layout.sequence && !layout.sliced)
    throw InputError("strategy",
                     "--sequence-parallel divides what lies between slices; expected --tensor-parallel of at "
                     "least 2");
  if (layout.zero < 0 || layout.zero > 3)
    throw InputError("layout", "ZeRO has the stages 1, 2 and 3, found --zero {}", layout.zero);
}

/// Throws InputError unless the layout is one pipeline with its stages on devices of this process.
void require_one_pipeline(const Layout& layout, int ranks) {
  if (ranks > 1)
    throw InputError(
        "strategy",
        "--devices {} puts stages on devices of one process, and there are {} ranks; leave out --devices, or "
        "funicular launch",
        layout.devices, ranks);
  if (!layout.staged || layout.sliced || layout.zero > 0 || layout.asynchronous())
    throw InputError("strategy",
                     "--devices {} goes with dp or with a pipeline that has a flush, without "
                     "--tensor-parallel and --zero; "
                     "expected processes for others: funicular launch -n {} -- funicular …",
                     layout.devices, layout.devices);
  if (layout.pipeline > 0 && layout.pipeline != layout.devices)
    throw InputError("strategy",
                     "--pipeline-parallel {} and --devices {} contradict each other; leave out the first",
                     layout.pipeline, layout.devices);
  if (layout.data > 1)
    throw InputError("strategy",
                     "--data-parallel {} takes processes, each with a pipeline; leave out --devices {}",
                     layout.data, layout.devices);
}

}  // namespace

StageList parse_stages(const std::string& text) {
  constexpr int kMost = 65536;
  StageList stages;
  const auto number = [&](size_t begin, size_t end, int64_t least, int64_t most) {
    int64_t value = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + end, value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + end || value < least || value > most)
      throw InputError(
          "usage",
          "--stages expects the first segment of each stage, such as 0,4,8; found \"{}\". 0x2,4,8 puts the "
          "first stage on two ranks; a training also takes auto, cost and cost-replicated",
          text);
    return value;
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const size_t times = std::min(text.find('x', begin), end);
    stages.begins.push_back(number(begin, times, 0, std::numeric_limits<int64_t>::max()));
    stages.replicas.push_back(times < end ? static_cast<int>(number(times + 1, end, 1, kMost)) : 1);
    begin = end + 1;
  }
  if (std::all_of(stages.replicas.begin(), stages.replicas.end(), [](int count) { return count == 1; }))
    stages.replicas.clear();
  return stages;
}

Layout Layout::of_strategy(const std::string& name) {
  const auto& names = strategy_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw InputError("strategy", "unknown strategy \"{}\"; expected one of: {}", name,
                     fmt::join(names, ", "));
  Layout layout;
  if (name == "single") layout.kind = Kind::single;
  if (name == "dp") layout.kind = Kind::devices;
  if (name == "ps-sync") layout.kind = Kind::servers;
  if (name == "ps-async") layout.kind = Kind::asynchronous_servers;
  layout.zero = zero_stage(name);
  if (name.starts_with("pipeline")) {
    layout.staged = true;
    layout.pipeline = 0;
  }
  if (name == "tensor") {
    layout.sliced = true;
    layout.tensor = 0;
  }
  return layout;
}

Layout Layout::parse(const std::string& text) {
  std::istringstream words(text);
  LayoutOptions options;
  if (!(words >> options.strategy)) options.strategy.clear();
  for (std::string option, value; words >> option;) {
    const bool whole = option.starts_with("--") && (option == "--sequence-parallel" || words >> value);
    if (!whole || !options.set(option.substr(2), value))
      throw InputError("layout",
                       "\"{}\": expected behind {} --pipeline-parallel, --tensor-parallel, --data-parallel, "
                       "--zero, --schedule, --stages-per-rank, --stages or --devices with a value each, or "
                       "--sequence-parallel; found \"{}\"",
                       text, options.strategy, option);
  }
  const Layout layout = options.layout(), without;
  if (!layout.staged &&
      (layout.schedule != without.schedule || layout.stages_per_rank > 0 || layout.stages != without.stages))
    throw InputError("layout", "\"{}\": --schedule, --stages-per-rank and --stages work only with pipelines",
                     text);
  if (layout.kind != Kind::ranks && layout.data > 0)
    throw InputError("layout", "\"{}\": --data-parallel is not of {}", text, options.strategy);
  return layout;
}

bool LayoutOptions::set(const std::string& option, const std::string& text) {
  struct Number {
    const char* name;
    std::optional<int64_t> LayoutOptions::*field;
    int least, most;
  };
  static constexpr Number kNumbers[] = {{"pipeline-parallel", &LayoutOptions::pipeline_parallel, 1, 65536},
                                        {"tensor-parallel", &LayoutOptions::tensor_parallel, 1, 65536},
                                        {"data-parallel", &LayoutOptions::data_parallel, 1, 65536},
                                        {"zero", &LayoutOptions::zero, 0, 3},
                                        {"stages-per-rank", &LayoutOptions::stages_per_rank, 1, 65536},
                                        {"devices", &LayoutOptions::devices, 1, 1024}};
  for (const Number& number : kNumbers)
    if (option == number.name) {
      this->*number.field = parse_number(option, text, number.least, number.most);
      return true;
    }
  if (option == "schedule")
    schedule = text;
  else if (option == "stages")
    stages = parse_stages(text);
  else if (option == "sequence-parallel")
    sequence_parallel = true;
  else
    return false;
  return true;
}

Layout LayoutOptions::layout() const {
  Layout layout = Layout::of_strategy(strategy);
  const auto take = [](const std::optional<int64_t>& from, int& to) {
    if (from) to = static_cast<int>(*from);
  };
  take(pipeline_parallel, layout.pipeline);
  if (layout.pipeline > 1 && !may_be_staged(strategy))
    refuse_beside(strategy, "pipeline-parallel", layout.pipeline);
  layout.staged = layout.staged || layout.pipeline > 1;
  take(tensor_parallel, layout.tensor);
  layout.sliced = layout.sliced || layout.tensor > 1;
  take(data_parallel, layout.data);
  take(zero, layout.zero);
  if (says_what_is_divided(strategy) && layout.zero != zero_stage(strategy))
    refuse_beside(strategy, "zero", layout.zero);
  take(stages_per_rank, layout.stages_per_rank);
  take(devices, layout.devices);
  layout.sequence = sequence_parallel;
  layout.schedule = schedule;
  layout.stages = stages;
  return layout;
}

std::string Layout::strategy() const {
  switch (kind) {
    case Kind::single:
      return "single";
    case Kind::devices:
      return "dp";
    case Kind::servers:
      return "ps-sync";
    case Kind::asynchronous_servers:
      return "ps-async";
    default:
      break;
  }
  if (staged) return zero > 0 ? fmt::format("pipeline-zero{}", zero) : "pipeline";
  if (zero > 0) return fmt::format("zero{}", zero);
  return sliced ? "tensor" : "ddp";
}

Layout Layout::on(int ranks) const {
  require_alone(*this, ranks);
  require_combinable(*this);
  Layout layout = *this;
  if (devices > 0 && kind != Kind::devices) {
    require_one_pipeline(*this, ranks);
    layout.devices = 0;
    layout.data = 1;
    layout = layout.on(devices);
    layout.devices = devices;
    return layout;
  }
  if (kind != Kind::ranks) {
    layout.data = layout.pipeline = layout.tensor = 1;
    if (kind == Kind::devices && devices == 0) layout.devices = kReplicas;
    return layout;
  }
  const int64_t pipelines = std::max(1, data);
  const auto rest = [&](int64_t taken) { return static_cast<int>(std::max<int64_t>(1, ranks / taken)); };
  if (const int64_t each = ranks_of_stages(stages.replicas); staged && each > 0) {
    if (layout.pipeline == 0) layout.pipeline = static_cast<int>(std::min<int64_t>(each, ranks));
    if (layout.pipeline != each)
      throw InputError("usage",
                       "stages on {} ranks (--stages) take {} in a pipeline, and it has {}; expected as many",
                       fmt::join(stages.replicas, ", "), each, layout.pipeline);
  }
  if (layout.pipeline == 0) layout.pipeline = rest(pipelines * std::max(1, tensor));
  if (layout.tensor == 0) layout.tensor = rest(pipelines * layout.pipeline);
  const int64_t each = layout.ranks_of_a_replica();
  if (data > 0 && data * each != ranks)
    throw InputError("usage", "{}{}--data-parallel {} take {} ranks, and there are {}", axes_of(layout),
                     layout.staged || layout.sliced ? " and " : "", data, data * each, ranks);
  if (ranks % each != 0)
    throw InputError("usage",
                     "{}: {} ranks cannot be divided into {}; start a multiple: funicular launch -n {} -- "
                     "funicular …",
                     axes_of(layout), ranks, groups_of(layout), each);
  layout.data = static_cast<int>(ranks / each);
  return layout;
}

}  // namespace funicular::parallel
