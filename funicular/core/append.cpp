// Model::append: one model becomes a part of another.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/core/model.h"

namespace funicular {

namespace {

/// A segment's function, called with the names and the pass of its scope.
class Scoped {
 public:
  Scoped(const Scope& scope, const Segment& segment)
      : prefix_(scope.prefix), frozen_(scope.frozen), forward_(segment.forward) {
    for (const Port& port : segment.inputs) inputs_.emplace_back(port.name, outside(scope, port.name));
    for (const Port& port : segment.outputs) outputs_.emplace_back(port.name, outside(scope, port.name));
  }

  static std::string outside(const Scope& scope, const std::string& port) {
    return scope.shared_ports.contains(port) ? port : scope.prefix + port;
  }

  Activations operator()(Activations in, const Pass& pass) const {
    Activations inside;
    for (const auto& [own, host] : inputs_) {
      const auto found = in.find(host);
      if (found == in.end()) continue;
      inside[own] = std::move(found->second);
    }
    in.clear();
    return frozen_ ? use(std::move(inside), pass) : learn(std::move(inside), pass);
  }

 private:
  Activations use(Activations in, const Pass& pass) const {
    const at::NoGradGuard no_gradient;
    MicroBatch batch = pass.batch;
    batch.packing.random.training = false;
    LossSink dropped;
    return named(forward_(std::move(in), {batch, taps(pass), dropped, {}}));
  }

  Activations learn(Activations in, const Pass& pass) const {
    MicroBatch batch = pass.batch;
    RandomState& random = batch.packing.random;
    random.seed = hash_bytes(fmt::format("{} {}", prefix_, random.seed));
    return named(forward_(std::move(in), {batch, taps(pass), pass.loss, pass.options}));
  }

  Taps taps(const Pass& pass) const {
    if (!pass.taps.observe) return {};
    return {[this, &pass](std::string_view name, const at::Tensor& value) {
      pass.taps(prefix_ + std::string(name), value);
    }};
  }

  /// Gives the declared outputs the host's names. Outputs that the segment does not declare stay; the model refuses
  /// them.
  Activations named(Activations out) const {
    Activations outside;
    for (const auto& [own, host] : outputs_) {
      const auto found = out.find(own);
      if (found == out.end()) continue;
      outside[host] = std::move(found->second);
      out.erase(found);
    }
    outside.merge(out);
    return outside;
  }

  std::string prefix_;
  bool frozen_;
  decltype(Segment::forward) forward_;
  std::vector<std::pair<std::string, std::string>> inputs_, outputs_;  ///< the segment's name, the host's
};

void take_value(const Model::Alias& alias) {
  alias.alias->master = alias.of->master;
  alias.alias->compute = alias.of->compute;
}

Parameter* find_shared(const Model& host, const Parameter& own, const std::string& name) {
  Parameter* const found = host.find(name);
  if (!found)
    throw InputError("model", "{} is to be the weight {} of the model that it is appended to; there is none",
                     own.name, name);
  if (found->compute.sizes() != own.compute.sizes())
    throw InputError("model", "{} is to be the weight {}, and has the shape [{}]; expected [{}]", own.name,
                     name, fmt::join(own.compute.sizes(), ", "), fmt::join(found->compute.sizes(), ", "));
  return found;
}

void freeze(Parameter& parameter) {
  parameter.trainable = false;
  parameter.constant = true;
  parameter.compute.mutable_grad().reset();
  parameter.compute.set_requires_grad(false);
  parameter.gradient.reset();
}

void rename(Parameter& parameter, const std::string& prefix) {
  parameter.name = prefix + parameter.name;
  for (Parameter::Slice& slice : parameter.slices) slice.name = prefix + slice.name;
}

Segment scoped(Segment segment, const Scope& scope, const std::map<const Parameter*, Parameter*>& shared) {
  segment.forward = Scoped(scope, segment);
  segment.name = scope.prefix + segment.name;
  for (Port& port : segment.inputs) port.name = Scoped::outside(scope, port.name);
  for (Port& port : segment.outputs) port.name = Scoped::outside(scope, port.name);
  for (Parameter*& parameter : segment.parameters)
    if (const auto found = shared.find(parameter); found != shared.end()) parameter = found->second;
  for (std::string& buffer : segment.buffers) buffer = scope.prefix + buffer;
  segment.frozen |= scope.frozen;
  return segment;
}

/// The matrices of a frozen model keep their type whatever the host's precision. If the model computes in its
/// matrices' type, its outputs have that type.
void fix_types(Model& other) {
  if (!other.low_precision) return;
  const auto matrix =
      std::find_if(other.parameters.begin(), other.parameters.end(), [](const auto& parameter) {
        return parameter->kind == ParameterKind::matrix && parameter->compute.is_floating_point();
      });
  if (matrix == other.parameters.end()) return;
  for (Segment& segment : other.segments)
    for (Port& port : segment.outputs)
      if (!port.type) port.type = (*matrix)->compute.scalar_type();
}

void require_used(const Scope& scope, const Model& other) {
  for (const auto& [own, host] : scope.shared_weights)
    if (!other.find(own))
      throw InputError("model", "{} is to be shared, and the model that is appended has no such weight", own);
}

}  // namespace

void Model::append(Model other, const Scope& scope) {
  require_used(scope, other);
  if (scope.frozen) fix_types(other);
  std::map<const Parameter*, Parameter*> shared;
  for (auto& parameter : other.parameters) {
    const auto name = scope.shared_weights.find(parameter->name);
    if (name != scope.shared_weights.end()) {
      Parameter* const of = find_shared(*this, *parameter, name->second);
      shared[parameter.get()] = of;
      aliases.push_back({std::shared_ptr<Parameter>(std::move(parameter)), of});
      take_value(aliases.back());
      continue;
    }
    rename(*parameter, scope.prefix);
    if (find(parameter->name)) throw InputError("model", "two parameters are named {}", parameter->name);
    if (scope.frozen) freeze(*parameter);
    parameter->exported = scope.exported && parameter->exported;
    parameters.push_back(std::move(parameter));
  }
  for (Alias& alias : other.aliases) {
    if (const auto found = shared.find(alias.of); found != shared.end()) alias.of = found->second;
    take_value(alias);
    aliases.push_back(std::move(alias));
  }
  for (Buffer& buffer : other.buffers)
    buffers.push_back({scope.prefix + buffer.name, std::move(buffer.value)});
  std::vector<Segment> added;
  for (Segment& segment : other.segments) added.push_back(scoped(std::move(segment), scope, shared));
  segments.insert(scope.first ? segments.begin() : segments.end(), std::make_move_iterator(added.begin()),
                  std::make_move_iterator(added.end()));
  owners.insert(owners.end(), other.owners.begin(), other.owners.end());
  low_precision = low_precision && other.low_precision;
  if (!scope.frozen) {
    recomputes_attention = recomputes_attention && other.recomputes_attention;
    makes_row_gradients = makes_row_gradients && other.makes_row_gradients;
  }
  if (!replicate || !other.replicate) {
    replicate = nullptr;
    return;
  }
  replicate = [host = std::move(replicate), more = std::move(other.replicate), scope] {
    Model model = host();
    model.append(more(), scope);
    return model;
  };
}

void Model::refresh_aliases() const {
  for (const Alias& alias : aliases) take_value(alias);
}

size_t Model::first_segments_frozen() const {
  size_t count = 0;
  while (count < segments.size() && segments[count].frozen) ++count;
  return count;
}

}  // namespace funicular
