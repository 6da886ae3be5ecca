#include "funicular/parallel/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

bool whole_numbers(const Port& port) {
  return port.type && !at::isFloatingType(*port.type);
}

std::vector<double> weights_of_segments(const Model& model) {
  std::vector<double> weights;
  std::set<const Parameter*> tables;
  for (const Segment& segment : model.segments) {
    const bool looks_up =
        !segment.inputs.empty() && std::all_of(segment.inputs.begin(), segment.inputs.end(), whole_numbers);
    if (looks_up) tables.insert(segment.parameters.begin(), segment.parameters.end());
    double count = 0;
    for (const Parameter* parameter : segment.parameters)
      if (!tables.contains(parameter)) count += static_cast<double>(parameter->compute.numel());
    weights.push_back(count);
  }
  return weights;
}

/// The tensors that segments before `cut` leave for segments from `cut` on.
std::vector<Crossing> crossings(const Model& model, size_t cut) {
  std::map<std::string, const Port*> newest;
  std::map<std::string, size_t> giver;
  for (size_t s = 0; s < cut; ++s)
    for (const Port& port : model.segments[s].outputs) {
      newest[port.name] = &port;
      giver[port.name] = s;
    }
  bool learns = false;
  for (size_t s = 0; s < cut; ++s)
    for (const Parameter* parameter : model.segments[s].parameters) learns = learns || parameter->trainable;
  std::set<std::string> replaced, read;
  for (size_t s = cut; s < model.segments.size(); ++s) {
    for (const Port& port : model.segments[s].inputs)
      if (!replaced.contains(port.name) && newest.contains(port.name)) read.insert(port.name);
    for (const Port& port : model.segments[s].outputs) replaced.insert(port.name);
  }
  std::vector<Crossing> result;
  for (const std::string& name : read) {
    const Port* port = newest.at(name);
    if (!port->shape)
      throw InputError(
          "pipeline",
          "the model cannot be cut before the segment {}: {} gives {} without saying its shape; expected a "
          "cut elsewhere (--stages), or a port with a shape",
          model.segments[cut].name, model.segments[giver.at(name)].name, name);
    result.push_back({port, learns && !whole_numbers(*port)});
  }
  return result;
}

}  // namespace

void require_segments(const Model& model, size_t stages) {
  if (model.segments.size() < stages)
    throw InputError("pipeline",
                     "the model has {} segment(s), too few for {} stages; expected fewer stages, or a "
                     "torch::nn::Sequential that wrap_sequential makes one segment a module of",
                     model.segments.size(), stages);
}

std::vector<size_t> balanced_begins(const Model& model, int stages) {
  const std::vector<double> weights = weights_of_segments(model);
  const size_t count = weights.size(), parts = static_cast<size_t>(stages);
  require_segments(model, parts);
  std::vector<double> before{0};
  for (const double weight : weights) before.push_back(before.back() + weight);
  // least[k][n]: the smallest possible maximum of k stages over the first n segments. from[k][n]: where the last of
  // these stages begins.
  const std::vector<double> row(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> least(parts + 1, row);
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(count + 1));
  least[0][0] = 0;
  for (size_t k = 1; k <= parts; ++k)
    for (size_t n = k; n <= count; ++n)
      for (size_t begin = n; begin-- > k - 1;) {
        const double largest = std::max(least[k - 1][begin], before[n] - before[begin]);
        if (largest < least[k][n]) {
          least[k][n] = largest;
          from[k][n] = begin;
        }
      }
  std::vector<size_t> begins(parts);
  size_t end = count;
  for (size_t k = parts; k > 0; --k) end = begins[k - 1] = from[k][end];
  return begins;
}

bool can_cut(const Model& model, size_t segment) {
  try {
    crossings(model, segment);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::string note_of_frozen_stages(const Model& model, const std::vector<Stage>& stages) {
  std::set<size_t> learning;  // stages
  std::vector<size_t> segments;
  for (size_t s = 0; s < stages.size(); ++s)
    for (size_t segment = stages[s].begin; segment < stages[s].end; ++segment) {
      const auto& own = model.segments[segment].parameters;
      if (std::none_of(own.begin(), own.end(), [](const Parameter* one) { return one->trainable; })) continue;
      learning.insert(s);
      segments.push_back(segment);
    }
  if (stages.size() < 2 || learning.size() != 1) return {};
  std::string note = fmt::format(
      "stage {} of {} holds all weights that learn, and every other stage is frozen: pipedream then equals "
      "one process",
      *learning.begin() + 1, stages.size());
  if (segments.size() > 1)
    note += fmt::format("; --stages, with a stage that begins with one of the segments {} to {}, cuts them",
                        segments[1], segments.back());
  return note;
}

std::vector<Stage> cut_stages(const Model& model, const std::vector<size_t>& begins) {
  const size_t count = model.segments.size();
  for (size_t i = 0; i < begins.size(); ++i)
    if (begins[0] != 0 || begins[i] >= count || (i > 0 && begins[i] <= begins[i - 1]))
      throw InputError(
          "pipeline",
          "stages that begin at {}: expected numbers of segments that ascend from 0 and are below {}",
          fmt::join(begins, ","), count);
  std::vector<Stage> stages;
  for (size_t i = 0; i < begins.size(); ++i)
    stages.push_back({begins[i], i + 1 < begins.size() ? begins[i + 1] : count, crossings(model, begins[i])});
  return stages;
}

}  // namespace funicular::parallel
