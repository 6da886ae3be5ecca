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

/// The number at the end of "zero2" or "pipeline-zero2"; 0: there is none.
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

/// Those of replicas alone say that there are no stages.
bool may_be_staged(const std::string& name) {
  return name == "auto" || name == "tensor" || name.starts_with("pipeline");
}

/// Whether the name says what replicas divide: "ddp" nothing, "tensor" and "pipeline" leave it open.
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

/// 0: one for each.
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

/// What has no axes, or not all of them.
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

/// Of stages on devices of one process.
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
          "--stages expects the numbers of the segments that stages begin with, such as 0,4,8, or "
          "0x2,4,8 for a first stage on two ranks (in training also "
          "auto, cost or cost-replicated); found \"{}\"",
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

std::string to_text(const StageList& stages) {
  std::string text;
  for (size_t s = 0; s < stages.begins.size(); ++s) {
    text += fmt::format("{}{}", s == 0 ? "" : ",", stages.begins[s]);
    if (!stages.replicas.empty() && stages.replicas[s] > 1) text += fmt::format("x{}", stages.replicas[s]);
  }
  return text;
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

Layout Layout::of_strategy(const std::string& name, const StrategyOptions& options) {
  Layout layout = of_strategy(name);
  if (layout.staged) {
    layout.pipeline = options.pipeline.ranks;
    layout.schedule = options.pipeline.schedule;
    layout.stages_per_rank = options.pipeline.chunks;
    layout.begins = options.pipeline.begins;
    layout.replicas = options.pipeline.replicas;
  }
  layout.sliced = layout.sliced || options.tensor.ranks > 1;
  if (layout.sliced) layout.tensor = options.tensor.ranks;
  layout.sequence = options.tensor.sequence;
  return layout;
}

Layout Layout::parse(const std::string& text) {
  std::istringstream words(text);
  std::string name;
  words >> name;
  Layout layout = of_strategy(name);
  for (std::string option, value; words >> option;) {
    if (option == "--sequence-parallel") {
      layout.sequence = true;
      continue;
    }
    const bool known =
        option.starts_with("--") && words >> value && layout.set(option.substr(2), value, name);
    if (!known)
      throw InputError("layout",
                       "\"{}\": expected behind {} --pipeline-parallel, --tensor-parallel, --data-parallel, "
                       "--zero, --schedule, --stages-per-rank, --stages or --devices with a value each, or "
                       "--sequence-parallel; found \"{}\"",
                       text, name, option);
  }
  const Layout without;
  if (!layout.staged &&
      (layout.schedule != without.schedule || layout.stages_per_rank > 0 || !layout.begins.empty()))
    throw InputError("layout", "\"{}\": --schedule, --stages-per-rank and --stages are of pipelines", text);
  if (layout.kind != Kind::ranks && layout.data > 0)
    throw InputError("layout", "\"{}\": --data-parallel is not of {}", text, name);
  return layout;
}

bool Layout::set(const std::string& option, const std::string& value, const std::string& name) {
  constexpr int kMost = 65536, kMostDevices = 1024;
  if (option == "pipeline-parallel") {
    pipeline = parse_number(option, value, 1, kMost);
    if (pipeline > 1 && !may_be_staged(name)) refuse_beside(name, option, pipeline);
    staged = staged || pipeline > 1;
  } else if (option == "tensor-parallel") {
    tensor = parse_number(option, value, 1, kMost);
    sliced = sliced || tensor > 1;
  } else if (option == "data-parallel") {
    data = parse_number(option, value, 1, kMost);
  } else if (option == "zero") {
    zero = parse_number(option, value, 0, 3);
    if (says_what_is_divided(name) && zero != zero_stage(name)) refuse_beside(name, option, zero);
  } else if (option == "schedule") {
    schedule = value;
  } else if (option == "stages-per-rank") {
    stages_per_rank = parse_number(option, value, 1, kMost);
  } else if (option == "stages") {
    StageList list = parse_stages(value);
    begins = std::move(list.begins);
    replicas = std::move(list.replicas);
  } else if (option == "devices") {
    devices = parse_number(option, value, 1, kMostDevices);
  } else {
    return false;
  }
  return true;
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
    return layout;
  }
  const int64_t pipelines = std::max(1, data);
  const auto rest = [&](int64_t taken) { return static_cast<int>(std::max<int64_t>(1, ranks / taken)); };
  if (const int64_t each = ranks_of_stages(replicas); staged && each > 0) {
    if (layout.pipeline == 0) layout.pipeline = static_cast<int>(std::min<int64_t>(each, ranks));
    if (layout.pipeline != each)
      throw InputError("usage",
                       "stages on {} ranks (--stages) take {} in a pipeline, and it has {}; expected as many",
                       fmt::join(replicas, ", "), each, layout.pipeline);
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

PipelineOptions Layout::pipeline_options() const {
  return {.ranks = pipeline,
          .schedule = schedule,
          .chunks = stages_per_rank,
          .begins = begins,
          .replicas = replicas};
}

TensorOptions Layout::tensor_options() const {
  return {.ranks = tensor, .sequence = sequence};
}

}  // namespace funicular::parallel
