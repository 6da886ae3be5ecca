#include "funicular/chain/step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

void check_outputs(const std::vector<Step>& steps) {
  for (size_t i = 0; i < steps.size(); ++i)
    for (size_t j = 0; j <= i; ++j)
      for (const Output& a : steps[i].outputs)
        for (const Output& b : steps[j].outputs)
          if (&a != &b && overlap(a.path, b.path))
            throw InputError("chain",
                             "{}: --{} {} is already what {} makes ({}: --{} {}), or one lies in the other; "
                             "give another name",
                             a.origin, a.option, a.path.string(), steps[j].name, b.origin, b.option,
                             b.path.string());
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

/// Finds the steps that make what `step` reads.
void connect(std::vector<Step>& steps, size_t at) {
  Step& step = steps[at];
  for (const Input& input : step.inputs) {
    bool is_made = false;
    for (size_t other = 0; other < steps.size(); ++other)
      for (const Output& output : steps[other].outputs) {
        if (!overlap(input.path, output.path)) continue;
        if (other == at)
          throw InputError(
              "chain", "{}: --{} {} overlaps with --{} {}, which the same step makes; give another name",
              input.origin, input.option, input.path.string(), output.option, output.path.string());
        check_made(input, output, steps[other]);
        is_made = true;
        if (std::find(step.needs.begin(), step.needs.end(), other) == step.needs.end())
          step.needs.push_back(other);
      }
    if (!is_made && !fs::exists(input.path))
      throw InputError("chain",
                       "{}: --{} {}: there is no such file or folder, and no step makes it; correct the "
                       "name, or give a step this --output",
                       input.origin, input.option, input.path.string());
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

}  // namespace

bool lies_in(const fs::path& path, const fs::path& folder) {
  return within(place_of(path), place_of(folder));
}

bool overlap(const fs::path& a, const fs::path& b) {
  const fs::path first = place_of(a), second = place_of(b);
  return within(first, second) || within(second, first);
}

std::vector<Step> in_order(std::vector<Step> steps) {
  check_outputs(steps);
  for (size_t at = 0; at < steps.size(); ++at) connect(steps, at);
  std::vector<size_t> order;
  std::vector<bool> placed(steps.size());
  while (order.size() < steps.size()) {
    const auto ready = [&](size_t at) {
      return !placed[at] && std::all_of(steps[at].needs.begin(), steps[at].needs.end(),
                                        [&](size_t need) { return placed[need]; });
    };
    size_t next = 0, waiting = steps.size();
    for (; next < steps.size() && !ready(next); ++next)
      if (!placed[next] && waiting == steps.size()) waiting = next;
    if (next == steps.size())
      throw InputError("chain", "{}: the steps go round in a circle: {}; let one of them read something else",
                       steps[waiting].origin, circle(steps, placed, waiting));
    placed[next] = true;
    order.push_back(next);
  }
  std::vector<size_t> place(steps.size());
  for (size_t at = 0; at < order.size(); ++at) place[order[at]] = at;
  std::vector<Step> sorted;
  for (const size_t at : order) {
    for (size_t& need : steps[at].needs) need = place[need];
    sorted.push_back(std::move(steps[at]));
  }
  return sorted;
}

}  // namespace funicular::chain
