#include "funicular/chain/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/chain/reasons.h"

namespace funicular::chain {

namespace {

using Kind = Decision::Kind;

/// Returns the path of an earlier output while its successor is made.
fs::path aside(const fs::path& output) {
  return output.string() + ".replaced";
}

/// "teacher (chain.toml:3)"
std::string called(const Step& step) {
  return fmt::format("{} ({})", step.name, step.origin);
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::done:
      return "done";
    case Kind::run:
      return "run";
    case Kind::go_on:
      return "resume";
    case Kind::rerun:
      return "rerun";
    case Kind::perhaps:
      return "perhaps";
  }
  return "";
}

Chain::Chain(std::vector<Step> steps, fs::path folder)
    : steps_(std::move(steps)),
      folder_(std::move(folder)),
      state_(read_state(folder_ / "state.json")),
      contents_(state_.files) {}

/// Finds the records of renamed steps, which stay done because a name does not change a result.
void Chain::adopt_renamed(bool dry) {
  std::set<std::string> names;
  for (const Step& step : steps_) names.insert(step.name);
  // The key holds what must be equal, so that not every step is compared with every record.
  const auto key = [](const std::string& command, const auto& options) {
    const auto output = options.find("output");
    return fmt::format("{} {}", command,
                       fmt::join(output == options.end() ? std::vector<std::string>() : output->second, " "));
  };
  std::multimap<std::string, std::string> left;
  for (const auto& [name, record] : state_.steps)
    if (!names.count(name)) left.emplace(key(record.command, record.options), name);
  if (left.empty()) return;
  for (const Step& step : steps_) {
    if (state_.steps.count(step.name)) continue;
    const StepRecord now = meaning_of(step, contents_);
    const auto [begin, end] = left.equal_range(key(step.command, step.options));
    const auto same = std::find_if(begin, end, [&](const auto& one) {
      return differences(state_.steps.at(one.second), now, step).empty();
    });
    if (same == end) continue;
    const std::string earlier = same->second;
    left.erase(same);
    StepRecord kept = std::move(state_.steps.at(earlier));
    state_.steps.erase(earlier);
    std::error_code ignored;
    const auto out = kept.made.extract(printed(earlier).string());
    if (!dry && out) {
      fs::rename(printed(earlier), printed(step.name), ignored);
      kept.made[printed(step.name).string()] = out.mapped();
    }
    state_.steps[step.name] = std::move(kept);
  }
}

/// Throws InputError if an output would replace something that this chain has not made.
void Chain::require_free(const Step& step) const {
  const auto record = state_.steps.find(step.name);
  const auto is_ours = [&](const Output& output) {
    if (record == state_.steps.end()) return false;
    const auto before = record->second.options.find(output.option);
    return before != record->second.options.end() && before->second == std::vector{output.path.string()};
  };
  for (const Output& output : step.outputs)
    for (const fs::path& path : {output.path, aside(output.path)})
      if (!is_ours(output) && fs::exists(path))
        throw InputError("chain", "{}: --{} {} exists, and this chain has not made it; move it away{}",
                         output.origin, output.option, path.string(),
                         path == output.path ? ", or give another name" : "");
}

Decision Chain::decide(const Step& step, const std::vector<Decision>* decided) {
  require_free(step);
  const auto record = state_.steps.find(step.name);
  if (record == state_.steps.end()) return {Kind::run, {"it was never run"}};
  StepRecord now = meaning_of(step, contents_);
  std::map<std::string, size_t> taken;
  for (const Input& input : step.inputs) {
    StepRecord::Read& read = now.inputs.at(input.option).at(taken[input.option]++);
    if (decided && std::any_of(input.makers.begin(), input.makers.end(),
                               [&](size_t maker) { return (*decided)[maker].kind != Kind::done; }))
      read.hash.clear();
  }
  std::vector<std::string> reasons = differences(record->second, now, step);
  if (!reasons.empty()) return {Kind::rerun, reasons};
  if (!record->second.done) return {Kind::go_on, {"it was interrupted, or has failed"}};
  reasons = lost_products(record->second, contents_);
  if (!reasons.empty()) return {Kind::rerun, reasons};
  return {Kind::done, differences_of_rounding(record->second, step)};
}

std::vector<Decision> Chain::plan() {
  adopt_renamed(/*dry=*/true);
  std::vector<Decision> decisions;
  for (const Step& step : steps_) {
    Decision decision = decide(step, &decisions);
    const auto unsure = std::find_if(step.needs.begin(), step.needs.end(),
                                     [&](size_t need) { return decisions[need].kind != Kind::done; });
    if (decision.kind == Kind::done && unsure != step.needs.end())
      decision = {Kind::perhaps,
                  {fmt::format("{} makes its input again; the step stays done if that input is unchanged",
                               steps_[*unsure].name)}};
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

/// Keeps the earlier results aside until the new ones are there. Deletes the output of an interrupted attempt. If
/// somebody has changed an output since it was made, it stays for good under a name of its own.
void Chain::set_aside(const Step& step) {
  const StepRecord& earlier = state_.steps.at(step.name);
  for (const Output& output : step.outputs) {
    if (!fs::exists(output.path)) continue;
    const auto made = earlier.made.find(output.product().string());
    if (earlier.done && made != earlier.made.end() && contents_.hash(output.product()) != made->second) {
      fs::path kept = output.path.string() + ".changed";
      for (int number = 2; fs::exists(kept); ++number)
        kept = fmt::format("{}.changed-{}", output.path.string(), number);
      fs::rename(output.path, kept);
      log::warning("{} was changed after it was made; it is kept as {}", output.path.string(), kept.string());
      continue;
    }
    if (fs::exists(aside(output.path))) {
      fs::remove_all(output.path);
      continue;
    }
    fs::rename(output.path, aside(output.path));
    log::info("{} stays as {} until the new one is there", output.path.string(), aside(output.path).string());
  }
}

void Chain::save() {
  for (const auto& [name, file] : contents_.known()) state_.files[name] = file;
  for (size_t at = 0; at < steps_.size(); ++at)
    if (const auto record = state_.steps.find(steps_[at].name); record != state_.steps.end())
      record->second.place = static_cast<int64_t>(at);
  write_state(folder_ / "state.json", state_);
}

int Chain::run(const fs::path& program, const Starter& start) {
  adopt_renamed(/*dry=*/false);
  for (const Step& step : steps_) require_free(step);  // before hours of work
  for (size_t at = 0; at < steps_.size(); ++at) {
    const Step& step = steps_[at];
    if (interrupt_requested()) return static_cast<int>(ExitCode::interrupted);
    const Decision decision = decide(step);
    log::info("{} of {}: {}: {}{}{}", at + 1, steps_.size(), step.name, name_of(decision.kind),
              decision.reasons.empty() ? "" : ": ", fmt::join(decision.reasons, "; "));
    if (decision.kind == Kind::done) continue;
    run_step(step, decision, program, start);
    if (!state_.steps.at(step.name).done) return static_cast<int>(ExitCode::interrupted);
  }
  state_.files.clear();  // those of steps that are no longer there
  save();
  return 0;
}

void Chain::run_step(const Step& step, const Decision& decision, const fs::path& program,
                     const Starter& start) {
  StepRecord record = meaning_of(step, contents_);
  for (const Input& input : step.inputs)
    if (!fs::exists(input.path))
      throw InputError("chain", "{}: --{} {} is not there, though the steps before are done", input.origin,
                       input.option, input.path.string());
  if (decision.kind == Kind::rerun) set_aside(step);
  const std::optional<StepRecord> earlier =
      decision.kind == Kind::rerun ? std::optional(state_.steps.at(step.name)) : std::nullopt;
  state_.steps[step.name] = record;
  save();
  for (const Output& output : step.outputs)
    if (output.path.has_parent_path()) make_directories(output.path.parent_path());
  std::vector<std::string> words{"funicular"};
  if (step.ranks > 1)
    words.insert(words.end(), {"launch", "-n", std::to_string(step.ranks), "--", program.string()});
  words.push_back(step.command);
  words.insert(words.end(), step.words.begin(), step.words.end());
  const fs::path output = printed(step.name).string() + ".part";
  const auto begin = std::chrono::steady_clock::now();
  const int code = start(words, output);
  // A command that does not train yet, or saves nothing, ends by the signal itself.
  if (code == static_cast<int>(ExitCode::interrupted) || (code != 0 && interrupt_requested() != 0)) {
    log::info("{} was interrupted; to resume, repeat the command", called(step));
    return;
  }
  if (code == static_cast<int>(ExitCode::usage)) {
    if (earlier) take_back(step, *earlier);
    throw InputError("chain",
                     "{} was refused (exit code {}), for the reason above; correct it and repeat the command",
                     called(step), code);
  }
  if (code != 0)
    throw RunError("chain",
                   "{} has failed (exit code {}), for the reason above; repeat the command to resume",
                   called(step), code);
  record.seconds = seconds_since(begin);
  fs::rename(output, printed(step.name));
  finish(step, record);
  log::info("{}: done in {}", step.name, short_duration(record.seconds));
}

/// Restores the earlier results if a command was refused before it began. If the user then undoes the edit, the
/// step is done.
void Chain::take_back(const Step& step, const StepRecord& earlier) {
  for (const Output& output : step.outputs)
    if (!fs::exists(output.path) && fs::exists(aside(output.path)))
      fs::rename(aside(output.path), output.path);
  for (const Output& output : step.outputs)
    if (fs::exists(aside(output.path))) return;  // it had begun
  state_.steps[step.name] = earlier;
  save();
}

void Chain::finish(const Step& step, StepRecord& record) {
  for (const Output& output : step.outputs) {
    const std::string product = output.product().string(), hash = contents_.hash(product);
    if (hash.empty()) throw RunError("chain", "{} has ended, and there is no {}", called(step), product);
    record.made[product] = hash;
    fs::remove_all(aside(output.path));
  }
  const fs::path out = printed(step.name);
  record.made[out.string()] = contents_.hash(out);
  record.done = true;
  state_.steps[step.name] = record;
  save();
  const std::string text = read_file(out);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw RunError("output", "cannot write to standard output");
}

}  // namespace funicular::chain
