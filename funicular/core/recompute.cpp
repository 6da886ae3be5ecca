#include "funicular/core/recompute.h"

#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "funicular/base/error.h"

namespace funicular {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::vector<std::string> kModes = {"none", "full", "selective", "sqrt"};  // in the order of Recompute

// ---- what the second run must find as the first did

/// The global generators of the devices that some tensors lie on, and of the CPU.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Tensor>& tensors) {
    add(at::kCPU);
    for (const at::Tensor& tensor : tensors)
      if (std::none_of(states_.begin(), states_.end(),
                       [&](const State& state) { return state.device == tensor.device(); }))
        add(tensor.device());
  }
  void restore() const {
    for (State state : states_) {
      const std::lock_guard lock(state.generator.mutex());
      state.generator.set_state(state.value);
    }
  }

 private:
  struct State {
    at::Device device;
    at::Generator generator;
    at::Tensor value;
  };
  void add(at::Device device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    states_.push_back({device, generator, generator.get_state()});
  }
  std::vector<State> states_;
};

/// Autocast keeps casts of weights. One made without a graph must not be found by code that records, nor the
/// reverse.
class NoAutocastCache {
 public:
  NoAutocastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  bool before_;
};

struct Replay : torch::CustomClassHolder {
  Replay(TensorFunction f, const std::vector<at::Tensor>& inputs)
      : function(std::move(f)), generators(inputs) {}

  /// Runs the function and sorts its results. Results that are inputs themselves have no graph of their own.
  variable_list run(const std::vector<at::Tensor>& inputs);

  TensorFunction function;
  GeneratorStates generators;
  at::ThreadLocalState thread_state;  // autocast's settings above all

  struct Place {
    bool is_input = false;
    size_t index = 0;  // among the inputs or the fresh results
  };
  std::vector<Place> places;  // of each result of the function
};

variable_list Replay::run(const std::vector<at::Tensor>& inputs) {
  const NoAutocastCache no_cache;
  variable_list fresh;
  places.clear();
  for (const at::Tensor& result : function(inputs)) {
    if (!result.defined())
      throw InputError("recompute", "the function gave an undefined tensor; expected defined ones");
    const auto same = [&](const at::Tensor& other) { return result.is_same(other); };
    if (const auto input = std::find_if(inputs.begin(), inputs.end(), same); input != inputs.end()) {
      places.push_back({true, static_cast<size_t>(input - inputs.begin())});
      continue;
    }
    const auto known = std::find_if(fresh.begin(), fresh.end(), same);
    places.push_back({false, static_cast<size_t>(known - fresh.begin())});
    if (known == fresh.end()) fresh.push_back(result);
  }
  return fresh;
}

// ---- the node of the graph

/// Inputs of the second run: the same values, as leaves that gather the gradients.
variable_list as_leaves(AutogradContext* context, const variable_list& saved) {
  variable_list leaves;
  for (size_t i = 0; i < saved.size(); ++i) {
    leaves.push_back(saved[i].detach());
    leaves.back().set_requires_grad(saved[i].requires_grad() && context->needs_input_grad(i));
  }
  return leaves;
}

void check_backward_allowed() {
  if (at::GradMode::is_enabled())
    throw InputError("recompute",
                     "second derivatives do not pass through recomputed segments; recompute nothing, or call "
                     "backward() without create_graph");
  if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid())
    throw InputError(
        "recompute",
        "torch::autograd::grad does not pass through recomputed segments, since weights get their "
        "gradients in .grad; recompute nothing, or use backward() without a list of inputs");
}

std::atomic<int64_t> runs{0};

struct RecomputedFunction : torch::autograd::Function<RecomputedFunction> {
  /// `inputs` ends with a leaf of no elements that wants a gradient: the results need a graph even if only
  /// weights do.
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Replay>& replay) {
    const std::vector<at::Tensor> own(inputs.begin(), inputs.end() - 1);
    context->save_for_backward(own);
    context->saved_data["replay"] = c10::IValue::make_capsule(replay);
    context->set_materialize_grads(false);
    const variable_list fresh = replay->run(own);
    ++runs;
    variable_list constants;
    for (const at::Tensor& result : fresh)
      if (!torch::autograd::isDifferentiableType(result.scalar_type())) constants.push_back(result);
    context->mark_non_differentiable(constants);
    return fresh;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    check_backward_allowed();
    auto& replay = static_cast<Replay&>(*context->saved_data["replay"].toCapsule());
    const variable_list leaves = as_leaves(context, context->get_saved_variables());
    const variable_list results = run_again(replay, leaves);
    if (results.size() != gradients.size())
      throw InputError("recompute",
                       "the function gave {} tensors and, run again, {}; it must do the same each time",
                       gradients.size(), results.size());
    variable_list roots, root_gradients;
    for (size_t i = 0; i < results.size(); ++i)
      if (gradients[i].defined() && results[i].requires_grad()) {
        roots.push_back(results[i]);
        root_gradients.push_back(gradients[i]);
      }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    variable_list input_gradients;
    for (const at::Tensor& leaf : leaves) input_gradients.push_back(leaf.grad());
    input_gradients.resize(leaves.size() + 2);  // none for the last leaf and the replay
    return input_gradients;
  }

 private:
  /// Runs with the settings and generators of the first run, and then restores the present ones.
  static variable_list run_again(Replay& replay, const variable_list& leaves) {
    const GeneratorStates now(leaves);
    const at::ThreadLocalStateGuard state(replay.thread_state);
    const at::AutoGradMode record(true);
    replay.generators.restore();
    variable_list results = replay.run(leaves);
    now.restore();
    return results;
  }
};

// ---- segments

/// A run of segments as a function of tensors: activations in the order of their names, then the loss terms'
/// sums.
class Group {
 public:
  Group(const Model& model, size_t begin, size_t end, std::shared_ptr<const MicroBatch> batch, Taps taps,
        PassOptions options)
      : model_(&model),
        begin_(begin),
        end_(end),
        batch_(std::move(batch)),
        taps_(std::move(taps)),
        options_(options) {}

  /// The results of the first run besides tensors.
  struct Outcome {
    std::vector<std::string> names;     // of the activations
    std::vector<LossSink::Term> terms;  // without their sums
    TensorMap outputs;
  };

  std::vector<at::Tensor> first(std::vector<std::string> input_names, const std::vector<at::Tensor>& inputs,
                                bool keep_outputs) {
    input_names_ = std::move(input_names);
    LossSink sink;
    sink.keep_outputs = keep_outputs;
    std::vector<at::Tensor> results = run(inputs, sink);
    // The second run repeats this one, and the observer has already seen it.
    if (taps_.observe) taps_.observe = [](std::string_view, const at::Tensor&) {};
    for (const LossSink::Term& term : sink.terms()) outcome.terms.push_back({term.name, {}, term.weight});
    outcome.outputs = sink.outputs();
    ran_ = true;
    return results;
  }

  std::vector<at::Tensor> again(const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> before;
    for (const Buffer& buffer : model_->buffers) before.push_back(buffer.value.clone());
    LossSink sink;
    std::vector<at::Tensor> results = run(inputs, sink);
    // variable_data: backward nodes of this run may hold the buffer, and refuse one that was changed since.
    for (size_t i = 0; i < before.size(); ++i) model_->buffers[i].value.variable_data().copy_(before[i]);
    return results;
  }

  bool ran() const { return ran_; }
  std::vector<at::Tensor> weights() const;

  Outcome outcome;

 private:
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, LossSink& sink);

  const Model* model_;
  size_t begin_, end_;
  std::shared_ptr<const MicroBatch> batch_;
  Taps taps_;
  PassOptions options_;
  std::vector<std::string> input_names_;
  bool ran_ = false;
};

std::vector<at::Tensor> Group::run(const std::vector<at::Tensor>& inputs, LossSink& sink) {
  Activations activations;
  for (size_t i = 0; i < inputs.size(); ++i) activations[input_names_[i]] = inputs[i];
  model_->run_segments(begin_, end_, activations, {*batch_, taps_, sink, options_});
  std::vector<at::Tensor> results;
  outcome.names.clear();
  for (auto& [name, value] : activations) {
    outcome.names.push_back(name);
    results.push_back(std::move(value));
  }
  for (const LossSink::Term& term : sink.terms()) results.push_back(term.sum);
  return results;
}

std::vector<at::Tensor> Group::weights() const {
  std::vector<at::Tensor> weights;
  for (size_t s = begin_; s < end_; ++s)
    for (const Parameter* parameter : model_->segments[s].parameters) weights.push_back(parameter->compute);
  return weights;
}

Activations forward_group(const std::shared_ptr<Group>& group, const Activations& input, LossSink& loss) {
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : input) {
    names.push_back(name);
    values.push_back(value);
  }
  const bool keep_outputs = loss.keep_outputs;
  std::vector<at::Tensor> results =
      recomputed(values, group->weights(), [=](const std::vector<at::Tensor>& inputs) {
        return group->ran() ? group->again(inputs) : group->first(names, inputs, keep_outputs);
      });
  Activations output;
  const Group::Outcome& outcome = group->outcome;
  for (size_t i = 0; i < outcome.names.size(); ++i) output[outcome.names[i]] = std::move(results[i]);
  for (size_t i = 0; i < outcome.terms.size(); ++i)
    loss.add(outcome.terms[i].name, std::move(results[outcome.names.size() + i]), outcome.terms[i].weight);
  for (const auto& [name, value] : outcome.outputs) loss.output(name, value);
  return output;
}

}  // namespace

Recompute parse_recompute(const std::string& name) {
  const auto found = std::find(kModes.begin(), kModes.end(), name);
  if (found == kModes.end())
    throw InputError("recompute",
                     "unknown recomputation \"{}\"; expected one of: none, full, selective, sqrt", name);
  return static_cast<Recompute>(found - kModes.begin());
}

std::string recompute_name(Recompute mode) {
  return kModes[static_cast<size_t>(mode)];
}

std::vector<at::Tensor> recomputed(const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& weights, TensorFunction function) {
  const auto learns = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  if (!at::GradMode::is_enabled() || (std::none_of(inputs.begin(), inputs.end(), learns) &&
                                      std::none_of(weights.begin(), weights.end(), learns)))
    return function(inputs);
  for (const at::Tensor& input : inputs)
    if (!input.defined()) throw InputError("recompute", "an input is undefined; expected defined tensors");
  variable_list arguments = inputs;
  arguments.push_back(at::empty({0}).set_requires_grad(true));
  const auto replay = c10::make_intrusive<Replay>(std::move(function), inputs);
  const variable_list fresh = RecomputedFunction::apply(at::TensorList(arguments), replay);
  std::vector<at::Tensor> results;
  for (const Replay::Place& place : replay->places)
    results.push_back(place.is_input ? inputs[place.index] : fresh[place.index]);
  return results;
}

std::vector<size_t> recompute_groups(const Model& model, Recompute mode) {
  const size_t first = model.first_segments_frozen();
  std::vector<size_t> begins = recompute_groups(model.segments.size() - first, mode);
  for (size_t& begin : begins) begin += first;
  return begins;
}

std::vector<size_t> recompute_groups(size_t segments, Recompute mode) {
  const size_t groups = mode == Recompute::full
                            ? segments
                            : static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(segments))));
  std::vector<size_t> begins;
  for (size_t g = 0; g < groups; ++g) begins.push_back((g * segments + groups - 1) / groups);
  return begins;
}

Activations forward_recomputed(const Model& model, Recompute mode, Activations input, const MicroBatch& batch,
                               const Taps& taps, LossSink& loss, PassOptions options) {
  if (mode == Recompute::selective && !model.recomputes_attention)
    throw InputError(
        "recompute",
        "selective: this model has no attention that it could recompute by itself; use full or sqrt");
  options.selective_recompute = mode == Recompute::selective;
  const bool grouped = mode == Recompute::full || mode == Recompute::sqrt;
  if (!grouped || model.segments.size() < 2 || !at::GradMode::is_enabled())
    return model.forward(std::move(input), batch, taps, loss, options);
  const auto kept =
      std::make_shared<const MicroBatch>(model.device().is_cpu() ? batch : batch.to(model.device()));
  const std::vector<size_t> begins = recompute_groups(model, mode);
  if (begins.empty()) return model.forward(std::move(input), batch, taps, loss, options);
  model.run_segments(0, begins.front(), input, {*kept, taps, loss, options});
  for (size_t g = 0; g + 1 < begins.size(); ++g)
    input = forward_group(std::make_shared<Group>(model, begins[g], begins[g + 1], kept, taps, options),
                          input, loss);
  model.run_segments(begins.back(), model.segments.size(), input, {*kept, taps, loss, options});
  return input;
}

void run_recomputed(const Model& model, Recompute mode, size_t begin, size_t end, Activations& activations,
                    const Pass& pass) {
  PassOptions options = pass.options;
  options.selective_recompute = mode == Recompute::selective;
  if (mode == Recompute::selective && !model.recomputes_attention)
    throw InputError(
        "recompute",
        "selective: this model has no attention that it could recompute by itself; use full or sqrt");
  const bool grouped = mode == Recompute::full || mode == Recompute::sqrt;
  if (!grouped || !at::GradMode::is_enabled())
    return model.run_segments(begin, end, activations, {pass.batch, pass.taps, pass.loss, options});
  const auto kept = std::make_shared<const MicroBatch>(pass.batch);
  std::vector<size_t> begins = recompute_groups(end - begin, mode);
  begins.push_back(end - begin);
  for (size_t g = 0; g + 1 < begins.size(); ++g) {
    const size_t first = begin + begins[g], last = begin + begins[g + 1];
    if (last == model.segments.size())
      model.run_segments(first, last, activations, {pass.batch, pass.taps, pass.loss, options});
    else
      activations = forward_group(std::make_shared<Group>(model, first, last, kept, pass.taps, options),
                                  activations, pass.loss);
  }
}

int64_t recomputed_runs() {
  return runs;
}

}  // namespace funicular
