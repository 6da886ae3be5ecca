// funicular plan: what a pipeline schedule will cost.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/number.h"
#include "funicular/cli/command.h"
#include "funicular/cli/output_paths.h"
#include "funicular/format/text_format.h"
#include "funicular/pipeline/drawing.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/recording.h"
#include "funicular/pipeline/timeline.h"
#include "funicular/pipeline/validity.h"

namespace funicular::cli {

namespace {

/// "1.5,2,1"
std::vector<double> numbers_of(const char* option, const std::string& text) {
  std::vector<double> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto value = read_number(std::string_view(text).substr(begin, end - begin));
    if (!value)
      throw InputError("usage", "--{} expects numbers separated by commas, found \"{}\"", option, text);
    numbers.push_back(*value);
    begin = end + 1;
  }
  return numbers;
}

class Plan final : public Command {
 public:
  Plan()
      : Command("plan",
                "Makes a pipeline schedule by name, or reads one from a file. Checks that it runs without a "
                "deadlock, and prints the idle time and the micro-batches held of each rank. The output is "
                "such a file itself, with one row per rank. 2F0 is the forward pass of micro-batch 0 on "
                "stage 2; 2B0 is its backward pass; 2I0 and 2W0 are the two parts of that pass.") {
    arguments.example("show a pipeline schedule",
                      "funicular plan --schedule 1f1b --pipeline-parallel 4 --micro-batches 8");
    arguments.example(
        "see two stages of which the first is slower",
        "funicular plan --schedule gpipe --forward-time 2,1 --pipeline-parallel 2 --micro-batches 6");
    arguments
        .add("schedule", "NAME|FILE", schedule_, Effect::result,
             fmt::format("one of {}; or a file of rows", fmt::join(pipeline::recipe_names(), ", ")))
        .suggests(pipeline::recipe_names())
        .default_text("that of --measured");
    arguments.add("measured", "FILE", measured_, Effect::input,
                  "file that --record-passes of a training wrote: plan its schedule with the measured times "
                  "in milliseconds, and compare the plan with the training");
    arguments.add("pipeline-parallel", "P", ranks_, Effect::result, "ranks that share a model")
        .letter('p')
        .range(1, 4096);
    arguments.add("micro-batches", "M", micro_batches_, Effect::result, "micro-batches of a step")
        .letter('m')
        .range(1, 65535);
    arguments.add("stages-per-rank", "V", chunks_, Effect::result, "stages that each rank has")
        .letter('v')
        .range(1, 64)
        .default_text("the schedule's least");
    arguments
        .add("ranks-per-stage", "R,…", replicas_, Effect::result,
             "ranks of each stage, such as 2,1: a stage on several ranks, which take micro-batches in turn")
        .formerly("replicas")
        .default_text("one each");
    arguments.add("forward-time", "TIMES", forward_, Effect::result,
                  "forward pass of a micro-batch: one value per stage with commas between them, or one for "
                  "all, in any unit");
    arguments.add("input-time", "TIMES", input_, Effect::result, "gradient of a stage's input");
    arguments.add("weight-time", "TIMES", weight_, Effect::result, "gradient of a stage's weights");
    arguments.add("update-time", "TIMES", update_, Effect::result,
                  "update of the weights, in asynchronous schedules");
    arguments.add("message-time", "TIME", message_, Effect::result, "message from rank to rank").range(0);
    arguments.add("activation-memory", "SIZES", activation_memory_, Effect::result,
                  "activations of a micro-batch on a stage, in any unit: one value, or one per stage. With "
                  "it the command prints the peak of each rank");
    arguments.add("weight-memory", "SIZES", weight_memory_, Effect::result,
                  "one version of a stage's weights");
    arguments.add("state-memory", "SIZES", state_memory_, Effect::result,
                  "gradients and optimiser state of a stage");
    arguments.add("messages", messages_, Effect::result, "print sends and receives, too");
    arguments.add("draw", "FILE", drawings_, Effect::output,
                  "draw it: as an image (.svg), or as a trace for Perfetto (.json)");
    arguments.add("json", json_, Effect::result, "print what it costs as JSON, without rows");
  }

  int run() override {
    for (const fs::path& file : drawings_) {
      if (const std::string ending = format::ending_of(file); ending != ".svg" && ending != ".json")
        throw InputError("usage", "--draw {}: expected a name that ends in .svg or .json", file.string());
      require_parent_folder(file, "--draw");
    }
    check_measured();
    std::optional<pipeline::Recording> recording;
    if (!measured_.empty()) recording = pipeline::read_recording(measured_.string());
    const pipeline::Schedule schedule = recording ? recording->schedule : made_or_read();
    pipeline::check(schedule);
    const pipeline::Schedule whole = pipeline::with_messages(schedule);
    pipeline::check(whole);
    const pipeline::Timeline timeline = pipeline::simulate(schedule, costs_of(recording));
    std::optional<pipeline::Timeline> measured;
    if (recording) measured = pipeline::measured_timeline(*recording);
    const pipeline::Timeline* const below = measured ? &*measured : nullptr;
    for (const fs::path& file : drawings_)
      write_file_atomically(file, format::ending_of(file) == ".svg"
                                      ? pipeline::draw_svg(schedule, timeline, below)
                                      : pipeline::draw_trace(schedule, timeline, below));
    if (json_)
      print_json(schedule, timeline, below);
    else
      print_rows(schedule, messages_ ? whole : schedule, timeline, below);
    return 0;
  }

 private:
  void check_measured() const {
    if (measured_.empty() && schedule_.empty())
      throw InputError("usage", "funicular plan needs --schedule NAME|FILE, or --measured FILE");
    if (measured_.empty()) return;
    for (const char* option : {"schedule", "pipeline-parallel", "micro-batches", "stages-per-rank",
                               "ranks-per-stage", "forward-time", "input-time", "weight-time", "update-time"})
      if (arguments.given(option))
        throw InputError("usage", "--{} is told by --measured {}; leave it out", option, measured_.string());
  }

  pipeline::Costs costs_of(const std::optional<pipeline::Recording>& recording) const {
    pipeline::Costs costs =
        recording ? pipeline::mean_costs(*recording)
                  : pipeline::Costs{numbers_of("forward-time", forward_), numbers_of("input-time", input_),
                                    numbers_of("weight-time", weight_)};
    costs.message = message_;
    if (!recording) costs.update = numbers_of("update-time", update_);
    costs.activation_memory = numbers_of("activation-memory", activation_memory_);
    costs.weight_memory = numbers_of("weight-memory", weight_memory_);
    costs.state_memory = numbers_of("state-memory", state_memory_);
    return costs;
  }

  pipeline::Schedule made_or_read() const {
    const bool made = pipeline::find_recipe(schedule_) || !fs::exists(schedule_);
    if (made && !replicas_.empty()) return made_replicated();
    if (made)
      return pipeline::make_schedule(schedule_, static_cast<int>(ranks_), static_cast<int>(micro_batches_),
                                     static_cast<int>(chunks_.value_or(0)));
    for (const char* option : {"pipeline-parallel", "micro-batches", "stages-per-rank", "ranks-per-stage"})
      if (arguments.given(option))
        throw InputError("usage", "--{} is told by the rows of {}; leave it out", option, schedule_);
    return pipeline::read_schedule(schedule_);
  }

  pipeline::Schedule made_replicated() const {
    std::vector<int> replicas;
    for (const double count : numbers_of("ranks-per-stage", replicas_)) {
      if (count != std::floor(count) || count < 1 || count > 4096)
        throw InputError("usage", "--ranks-per-stage expects whole numbers from 1 to 4096, found \"{}\"",
                         replicas_);
      replicas.push_back(static_cast<int>(count));
    }
    const int ranks = std::accumulate(replicas.begin(), replicas.end(), 0);
    if (arguments.given("pipeline-parallel") && ranks != ranks_)
      throw InputError("usage",
                       "--ranks-per-stage {} are {} ranks, and --pipeline-parallel says {}; leave one out",
                       replicas_, ranks, ranks_);
    if (chunks_.value_or(1) != 1)
      throw InputError(
          "usage", "--ranks-per-stage needs a schedule with one stage per rank; leave --stages-per-rank out");
    return pipeline::make_replicated(schedule_, replicas, static_cast<int>(micro_batches_));
  }

  static std::string bubble_text(const pipeline::Timeline& timeline, size_t rank) {
    const double bubble = timeline.ranks[rank].bubble;
    return fmt::format("{:g} ({:.1f} %)", bubble,
                       timeline.makespan > 0 ? 100 * bubble / timeline.makespan : 0);
  }

  static void print_rows(const pipeline::Schedule& schedule, const pipeline::Schedule& rows,
                         const pipeline::Timeline& timeline, const pipeline::Timeline* measured) {
    fmt::print("# {}: {} ranks, {} stages, {} micro-batches; time {:g}{}\n", schedule.name, schedule.ranks(),
               schedule.stages(), schedule.micro_batches(), timeline.makespan,
               measured ? fmt::format(", measured {:g}", measured->makespan) : "");
    if (const pipeline::Recipe* const recipe = pipeline::find_recipe(schedule.name))
      fmt::print("# {}\n", recipe->summary);
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      const pipeline::RankUse& use = timeline.ranks[rank];
      fmt::print("# rank {}: bubble {}{}, peak in flight {}{}{}\n", rank, bubble_text(timeline, rank),
                 measured ? ", measured " + bubble_text(*measured, rank) : "", use.peak_in_flight,
                 use.versions > 1 ? fmt::format(", {} versions of the weights", use.versions) : "",
                 use.peak_memory > 0 ? fmt::format(", memory {:g}", use.peak_memory) : "");
    }
    const std::string text = to_text(rows);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }

  static void print_json(const pipeline::Schedule& schedule, const pipeline::Timeline& timeline,
                         const pipeline::Timeline* measured) {
    OrderedJson ranks = OrderedJson::array();
    for (const pipeline::RankUse& use : timeline.ranks)
      ranks.push_back({{"busy", use.busy},
                       {"bubble", use.bubble},
                       {"peak_in_flight", use.peak_in_flight},
                       {"versions", use.versions},
                       {"peak_memory", use.peak_memory}});
    OrderedJson json = {{"schedule", schedule.name},
                        {"stages", schedule.stages()},
                        {"micro_batches", schedule.micro_batches()},
                        {"time", timeline.makespan},
                        {"ranks", ranks}};
    if (measured) {
      json["measured"] = {{"time", measured->makespan}, {"ranks", OrderedJson::array()}};
      for (const pipeline::RankUse& use : measured->ranks)
        json["measured"]["ranks"].push_back({{"busy", use.busy}, {"bubble", use.bubble}});
    }
    fmt::print("{}\n", json.dump(2));
  }

  std::string schedule_, replicas_, forward_ = "1", input_ = "1", weight_ = "1", update_ = "0",
                                    activation_memory_ = "0", weight_memory_ = "0", state_memory_ = "0";
  int64_t ranks_ = 4, micro_batches_ = 8;
  std::optional<int64_t> chunks_;
  double message_ = 0;
  bool messages_ = false, json_ = false;
  fs::path measured_;
  std::vector<fs::path> drawings_;
};

}  // namespace

std::unique_ptr<Command> make_plan() {
  return std::make_unique<Plan>();
}

}  // namespace funicular::cli
