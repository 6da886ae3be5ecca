#include "funicular/chain/step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <compare>
#include <set>

#include "funicular/base/error.h"

namespace funicular::chain {

namespace {

fs::path place_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path place = fs::weakly_canonical(fs::absolute(path), ignored);
  const fs::path plain = ignored ? fs::absolute(path).lexically_normal() : place;
  return plain.has_filename() ? plain : plain.parent_path();
}

/// Whether `path` is `folder` or lies in it; both from place_of.
bool within(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

/// An output of one of the steps.
struct Maker {
  size_t step = 0, output = 0;
  auto operator<=>(const Maker&) const = default;
};

/// Finds the outputs that are a path, hold it, or lie in it, without looking at each.
class Outputs {
 public:
  explicit Outputs(const std::vector<Step>& steps) {
    for (size_t step = 0; step < steps.size(); ++step)
      for (size_t output = 0; output < steps[step].outputs.size(); ++output)
        makers_[key_of(steps[step].outputs[output].path)].push_back({step, output});
  }

  /// In the order of the steps.
  std::vector<Maker> overlapping(const fs::path& path) const {
    const std::string key = key_of(path);
    std::vector<Maker> found;
    const auto add = [&](const std::vector<Maker>& some) {
      found.insert(found.end(), some.begin(), some.end());
    };
    for (auto next = makers_.lower_bound(key); next != makers_.end() && next->first.starts_with(key); ++next)
      add(next->second);  // the path itself, and what lies in it
    for (size_t slash = key.find('/'); slash + 1 < key.size(); slash = key.find('/', slash + 1))
      if (const auto above = makers_.find(key.substr(0, slash + 1)); above != makers_.end())
        add(above->second);
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  /// With a slash at its end, so that what lies in a folder begins with the folder's key.
  static std::string key_of(const fs::path& path) {
    std::string key = place_of(path).string();
    if (!key.ends_with('/')) key += '/';
    return key;
  }

  std::map<std::string, std::vector<Maker>> makers_;
};

void check_outputs(const std::vector<Step>& steps, const Outputs& outputs) {
  for (size_t i = 0; i < steps.size(); ++i)
    for (size_t own = 0; own < steps[i].outputs.size(); ++own) {
      const Output& a = steps[i].outputs[own];
      const std::vector<Maker> found = outputs.overlapping(a.path);
      const Maker other = found.front();
      if (other == Maker{i, own}) continue;  // a later one that overlaps is told of with that
      const Output& b = steps[other.step].outputs[other.output];
      throw InputError(
          "chain",
          "{}: --{} {} is already an output of {} ({}: --{} {}), or the two paths overlap; give another name",
          a.origin, a.option, a.path.string(), steps[other.step].name, b.origin, b.option, b.path.string());
    }
}

/// A path in a folder that a step makes must be one that the step is known to make there.
void check_made(const Input& input, const Output& output, const Step& maker) {
  const fs::path path = place_of(input.path), folder = place_of(output.path);
  if (output.made.empty() || within(folder, path)) return;
  for (const std::string& name : output.made)
    if (within(path, folder / name)) return;
  throw InputError("chain", "{}: --{} {}: {}, which makes {}, leaves {} there; expected one of these",
                   input.origin, input.option, input.path.string(), maker.name, output.path.string(),
                   fmt::join(output.made, ", "));
}

/// Finds the steps that make what the step reads.
void connect(std::vector<Step>& steps, size_t at, const Outputs& outputs) {
  Step& step = steps[at];
  for (Input& input : step.inputs) {
    for (const Maker& maker : outputs.overlapping(input.path)) {
      const Output& output = steps[maker.step].outputs[maker.output];
      if (maker.step == at)
        throw InputError(
            "chain", "{}: --{} {} overlaps with --{} {}, which the same step makes; give another name",
            input.origin, input.option, input.path.string(), output.option, output.path.string());
      check_made(input, output, steps[maker.step]);
      input.makers.push_back(maker.step);
    }
    if (input.makers.empty() && !fs::exists(input.path))
      throw InputError("chain",
                       "{}: --{} {}: there is no such file or folder, and no step makes it; correct the "
                       "name, or give a step this --output",
                       input.origin, input.option, input.path.string());
    for (const size_t maker : input.makers)
      if (std::find(step.needs.begin(), step.needs.end(), maker) == step.needs.end())
        step.needs.push_back(maker);
  }
}

/// "a (FILE:LINE) reads what b (FILE:LINE) makes, which …": begins with a step that cannot be put in order.
std::string circle(const std::vector<Step>& steps, const std::vector<bool>& placed, size_t from) {
  std::vector<size_t> path{from};
  while (true) {
    const Step& step = steps[path.back()];
    const size_t next =
        *std::find_if(step.needs.begin(), step.needs.end(), [&](size_t need) { return !placed[need]; });
    const auto again = std::find(path.begin(), path.end(), next);
    const bool closed = again != path.end();
    if (closed) path.erase(path.begin(), again);
    path.push_back(next);
    if (closed) break;
  }
  std::vector<std::string> names;
  for (const size_t one : path) names.push_back(fmt::format("{} ({})", steps[one].name, steps[one].origin));
  return fmt::format("{}", fmt::join(names, " needs "));
}

/// The places of the steps: each step stands behind the steps that it needs, otherwise in the order of the list.
std::vector<size_t> order_of(const std::vector<Step>& steps) {
  std::vector<std::vector<size_t>> readers(steps.size());
  std::vector<size_t> missing(steps.size());
  std::set<size_t> ready;
  for (size_t at = 0; at < steps.size(); ++at) {
    for (const size_t need : steps[at].needs) readers[need].push_back(at);
    missing[at] = steps[at].needs.size();
    if (missing[at] == 0) ready.insert(at);
  }
  std::vector<size_t> order;
  std::vector<bool> placed(steps.size());
  while (!ready.empty()) {
    const size_t next = *ready.begin();
    ready.erase(ready.begin());
    placed[next] = true;
    order.push_back(next);
    for (const size_t reader : readers[next])
      if (--missing[reader] == 0) ready.insert(reader);
  }
  if (const auto waiting = std::find(placed.begin(), placed.end(), false); waiting != placed.end()) {
    const auto first = static_cast<size_t>(waiting - placed.begin());
    throw InputError("chain", "{}: the steps go round in a circle: {}; let one of them read something else",
                     steps[first].origin, circle(steps, placed, first));
  }
  return order;
}

}  // namespace

bool lies_in(const fs::path& path, const fs::path& folder) {
  return within(place_of(path), place_of(folder));
}

std::vector<Step> in_order(std::vector<Step> steps) {
  const Outputs outputs(steps);
  check_outputs(steps, outputs);
  for (size_t at = 0; at < steps.size(); ++at) connect(steps, at, outputs);
  const std::vector<size_t> order = order_of(steps);
  std::vector<size_t> place(steps.size());
  for (size_t at = 0; at < order.size(); ++at) place[order[at]] = at;
  std::vector<Step> sorted;
  for (const size_t at : order) {
    for (size_t& need : steps[at].needs) need = place[need];
    for (Input& input : steps[at].inputs)
      for (size_t& maker : input.makers) maker = place[maker];
    sorted.push_back(std::move(steps[at]));
  }
  return sorted;
}

}  // namespace funicular::chain
