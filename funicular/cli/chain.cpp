// funicular chain: runs commands that build on each other as one command. If it is killed, repeat the command to
// resume.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/chain/chain_file.h"
#include "funicular/chain/process.h"
#include "funicular/chain/runner.h"
#include "funicular/cli/chain_template.h"
#include "funicular/cli/command_list.h"
#include "funicular/cli/foreign_options.h"
#include "funicular/cli/option_effects.h"
#include "funicular/pipeline/generators.h"

namespace funicular::cli {

namespace {

/// The files that a training leaves in its folder, the model first.
const std::vector<std::string> kOfTraining{"model", "run.json", "metrics.jsonl"};

std::unique_ptr<Command> make_step_command(const chain::WrittenStep& written) {
  std::vector<std::string> names;
  for (const std::string& name : command_names()) {
    if (const std::string_view reason = why_no_step(name); name != written.command) {
      if (reason.empty()) names.push_back(name);
    } else if (!reason.empty()) {
      throw InputError("chain", "{}: {} is no step of a chain: {}", written.origin, name, reason);
    } else {
      return make_command(name);
    }
  }
  if (const std::string_view answer = answer_to_foreign_command(written.command); !answer.empty())
    throw InputError("chain", "{}: there is no command \"{}\": {} (the steps of a chain: {})", written.origin,
                     written.command, answer, fmt::join(names, ", "));
  const std::string near = nearest(written.command, names.data(), names.data() + names.size());
  throw InputError("chain", "{}: unknown command \"{}\"{} (the steps of a chain: {})", written.origin,
                   written.command, near.empty() ? "" : "; did you mean " + near + "?",
                   fmt::join(names, ", "));
}

/// One step with its options understood, by the command itself.
class StepReader {
 public:
  explicit StepReader(const chain::WrittenStep& written)
      : written_(written), command_(make_step_command(written)), arguments_(command_->arguments) {}

  chain::Step read() {
    std::vector<ConfigEntry> entries;
    for (const chain::Entry& entry : written_.entries)
      entries.push_back({.key = entry.key, .values = entry.values, .origin = entry.origin});
    arguments_.parse_entries(std::move(entries), written_.origin);
    require_output();
    step_.name = written_.name;
    step_.origin = written_.origin;
    step_.command = written_.command;
    step_.ranks = written_.ranks;
    step_.rounding["ranks"] = {std::to_string(written_.ranks)};
    for (const Arguments::Setting& setting : arguments_.settings()) take(setting);
    take_saves();
    return std::move(step_);
  }

 private:
  bool trains() const {
    return written_.command == "pretrain" || written_.command == "finetune" || written_.command == "distill";
  }

  /// A training without --output derives the folder from other names, so no next step could name it.
  void require_output() const {
    if (trains() && !arguments_.given("output"))
      throw InputError("chain", "{}: a step of a chain names the folder of its run: output = \"RUN\"",
                       written_.origin);
  }

  /// A pipeline that updates weights while it is full empties for each save, so another --save-steps gives other
  /// weights.
  void take_saves() {
    const auto schedule = step_.options.find("schedule");
    if (schedule == step_.options.end() || schedule->second.empty() ||
        !pipeline::updates_while_full(schedule->second.front()))
      return;
    for (const Arguments::Setting& setting : arguments_.settings())
      if (setting.name == "save-steps") step_.options[setting.name] = setting.values;
  }

  /// Returns the line of an option's key; for a key in a file of --config, the line of the step.
  std::string origin_of(const Arguments::Setting& setting) const {
    for (const chain::Entry& entry : written_.entries) {
      std::string key = entry.key;
      std::replace(key.begin(), key.end(), '_', '-');
      if (key == setting.name || std::count(setting.former.begin(), setting.former.end(), key) > 0)
        return entry.origin;
    }
    return written_.origin;
  }

  void take(const Arguments::Setting& setting) {
    if (setting.name == "config") return;
    // An output that exists is this step's own. It is from a call that was killed before it noted the end of the
    // step.
    if (setting.name == "overwrite" && !setting.given) step_.words.push_back("--overwrite=true");
    if (setting.given) {
      for (const std::string& value : setting.values)
        step_.words.push_back(fmt::format("--{}={}", setting.name, value));
      step_.given.push_back(setting.name);
    }
    switch (setting.effect) {
      case Effect::none:
        return;
      case Effect::rounding:
        step_.rounding[setting.name] = setting.values;
        return;
      case Effect::result:
        step_.options[setting.name] = setting.values;
        return;
      case Effect::presence:
        step_.options[setting.name] =
            setting.given ? std::vector<std::string>{"given"} : std::vector<std::string>();
        return;
      case Effect::input:
        return take_inputs(setting, chain::Part::all);
      case Effect::tokenizer:
        return take_inputs(setting, chain::Part::tokenizer);
      case Effect::input_or_name:
        return take_name(setting);
      case Effect::output:
        return take_output(setting);
    }
  }

  void take_inputs(const Arguments::Setting& setting, chain::Part part) {
    if (!setting.given) return;
    for (const std::string& value : setting.values) {
      step_.inputs.push_back({.option = setting.name,
                              .path = value,
                              .origin = origin_of(setting),
                              .part = part,
                              .former = setting.former});
      // Without --tokenizer a config.json stands for the folder that it is in.
      const fs::path folder =
          fs::path(value).has_parent_path() ? fs::path(value).parent_path() : fs::path(".");
      if (setting.name == "model" && fs::is_regular_file(value) && !arguments_.given("tokenizer"))
        step_.inputs.push_back({.option = "tokenizer",
                                .path = folder,
                                .origin = origin_of(setting),
                                .part = chain::Part::tokenizer});
    }
  }

  /// A name has no folder in it.
  void take_name(const Arguments::Setting& setting) {
    const bool is_path = setting.given && (setting.values.front().find('/') != std::string::npos ||
                                           fs::exists(setting.values.front()));
    if (is_path) return take_inputs(setting, chain::Part::all);
    step_.options[setting.name] = setting.values;
  }

  void take_output(const Arguments::Setting& setting) {
    step_.options[setting.name] = setting.values;
    if (!setting.given) return;
    step_.outputs.push_back(
        {.option = setting.name,
         .path = setting.values.front(),
         .origin = origin_of(setting),
         .made = trains() && setting.name == "output" ? kOfTraining : std::vector<std::string>()});
  }

  const chain::WrittenStep& written_;
  std::unique_ptr<Command> command_;
  Arguments& arguments_;
  chain::Step step_;
};

class Chain final : public Command {
 public:
  Chain()
      : Command("chain",
                "Runs the steps of a TOML file, each a table with the key command and the options of that "
                "command. A step runs after the steps that make its inputs. A step that is done runs again "
                "only if its inputs, or options that change its result, have changed. To resume an "
                "interrupted chain, repeat the command. Paths are relative to the folder of the file.") {
    arguments.example("run the steps of a file", "funicular chain chain.toml");
    arguments.example("show what would be run", "funicular chain chain.toml --dry-run");
    arguments.example(
        "make a small model of rows that a language model has labelled",
        "funicular chain --template llm-labels --model M --train r.csv --eval e.csv --test t.csv --output o");
    arguments.positional("FILE", files_, "the chain");
    arguments.add("dry-run", dry_run_, Effect::result, "tell what would be run, and why, and do nothing");
    arguments
        .add("options", "COMMAND", options_of_, Effect::result,
             "instead: tell which options of a command change its result, and which do not")
        .default_text("none");
    template_.declare(arguments);
  }

  int run() override {
    if (!options_of_.empty()) return list_options();
    if (template_.name.empty()) {
      for (const char* option :
           {"model", "train", "eval", "test", "output", "text-column", "soft-columns", "label-column"})
        if (arguments.given(option))
          throw InputError("usage", "--{} works only with --template; options of a step stand in FILE",
                           option);
    } else {
      if (!files_.empty())
        throw InputError("usage", "--template writes the chain; leave out {}", files_.front());
      if (dry_run_) return tell_template();
      files_ = {template_.write().string()};
    }
    if (files_.size() != 1)
      throw InputError("usage", "funicular chain expects one FILE, found {}", files_.size());
    const fs::path file = fs::absolute(files_.front());
    const std::vector<chain::Step> steps = read_steps(files_.front(), file.parent_path());
    const fs::path folder = fs::path(file.filename()).replace_extension(".state");
    if (dry_run_) return tell(steps, folder);
    const InterruptGuard guard;
    make_directories(folder);
    const chain::ChainLock lock(folder);
    const fs::path program = fs::read_symlink("/proc/self/exe");
    const auto start = [&](const std::vector<std::string>& words, const fs::path& output) {
      log::info("$ {}", fmt::join(words, " "));
      return chain::run_process(program, words, output);
    };
    const int code = chain::Chain(steps, folder).run(program, start);
    if (code == 0 && !template_.name.empty()) {
      template_.output = file.parent_path();
      template_.show_abstention();
    }
    return code;
  }

 private:
  /// Reads the steps of `file`. From now on paths are relative to `folder`.
  static std::vector<chain::Step> read_steps(const fs::path& file, const fs::path& folder) {
    std::vector<chain::Step> steps;
    const std::vector<chain::WrittenStep> written = chain::read_chain_file(file);
    fs::current_path(folder);
    for (const chain::WrittenStep& step : written) steps.push_back(StepReader(step).read());
    return chain::in_order(std::move(steps));
  }

  /// Tells what the template's chain would run, and writes nothing that stays.
  int tell_template() const {
    const TemporaryFolder temporary;
    const fs::path file = temporary.path() / "chain.toml";
    write_file_atomically(file, template_.chain());
    const fs::path folder =
        fs::is_directory(template_.output) ? fs::absolute(template_.output) : temporary.path();
    return tell(read_steps(file, folder), "chain.state");
  }

  static int tell(const std::vector<chain::Step>& steps, const fs::path& folder) {
    const std::vector<chain::Decision> decisions = chain::Chain(steps, folder).plan();
    for (size_t at = 0; at < steps.size(); ++at)
      fmt::print("{:<8}{:<20} {}\n", chain::name_of(decisions[at].kind), steps[at].name,
                 fmt::join(decisions[at].reasons, "; "));
    return 0;
  }

  int list_options() const {
    const std::unique_ptr<Command> command = make_step_command(
        {.name = options_of_, .origin = "--options", .command = options_of_, .entries = {}});
    for (const Arguments::Setting& setting : command->arguments.settings())
      fmt::print("--{:<30}{}\n", setting.name, name_of(setting.effect));
    return 0;
  }

  std::vector<std::string> files_;
  ChainTemplate template_;
  std::string options_of_;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_chain() {
  return std::make_unique<Chain>();
}

}  // namespace funicular::cli
