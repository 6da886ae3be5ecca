#include "funicular/parallel/batch_norm_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::string_view kMean = "running_mean", kCalls = "num_batches_tracked";

/// All dimensions except 1, the channels.
std::vector<int64_t> dimensions_of_rows(const at::Tensor& input) {
  std::vector<int64_t> dimensions;
  for (int64_t i = 0; i < input.dim(); ++i)
    if (i != 1) dimensions.push_back(i);
  return dimensions;
}

/// Reshapes one number per channel so that it broadcasts over the input, in the input's type.
at::Tensor beside(const at::Tensor& channels, const at::Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = channels.numel();
  return channels.to(input.scalar_type()).view(shape);
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

struct RanksOfNorm : torch::CustomClassHolder {
  explicit RanksOfNorm(comm::Group ranks) : group(std::move(ranks)) {}
  comm::Group group;
};

/// Normalises with the mean and the variance over the rows of all ranks. Sums over the ranks give these statistics and
/// their gradients.
struct JointNorm : torch::autograd::Function<JointNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given, double epsilon,
                            const c10::intrusive_ptr<RanksOfNorm>& ranks) {
    const at::Tensor input = wide(given);
    const std::vector<int64_t> rows = dimensions_of_rows(input);
    const int64_t channels = input.size(1);
    const at::Tensor sums =
        at::cat({at::full({1}, static_cast<double>(input.numel() / channels), at::kDouble),
                 input.sum(rows, /*keepdim=*/false, at::kDouble)});
    ranks->group.all_reduce(sums);
    const double count = sums[0].item<double>();
    const at::Tensor mean = sums.narrow(0, 1, channels) / count;
    const at::Tensor squares =
        (input - beside(mean, input)).square().sum(rows, /*keepdim=*/false, at::kDouble).contiguous();
    ranks->group.all_reduce(squares);
    const at::Tensor inverse = (squares / count + epsilon).rsqrt();
    context->save_for_backward({given, mean, inverse});
    context->saved_data["ranks"] = c10::IValue::make_capsule(ranks);
    context->saved_data["count"] = count;
    return (input - beside(mean, input)) * beside(inverse, input);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor input = wide(saved[0]), &gradient = gradients[0], &mean = saved[1], &inverse = saved[2];
    const double count = context->saved_data["count"].toDouble();
    const auto ranks =
        c10::static_intrusive_pointer_cast<RanksOfNorm>(context->saved_data["ranks"].toCapsule());
    const std::vector<int64_t> rows = dimensions_of_rows(input);
    const int64_t channels = input.size(1);
    const at::Tensor normal = (input - beside(mean, input)) * beside(inverse, input);
    const at::Tensor all = at::cat({gradient.sum(rows, /*keepdim=*/false, at::kDouble),
                                    (gradient * normal).sum(rows, /*keepdim=*/false, at::kDouble)});
    ranks->group.all_reduce(all);
    const at::Tensor through = gradient - beside(all.narrow(0, 0, channels) / count, input) -
                               normal * beside(all.narrow(0, channels, channels) / count, input);
    return {(through * beside(inverse, input)).to(saved[0].scalar_type()), {}, {}};
  }
};

}  // namespace

BatchNormSums::BatchNormSums(const Model& model, BatchStatistics over, const comm::Group& group,
                             size_t passes)
    : model_(model), over_(over), group_(group) {
  for (size_t i = 0; i < model.buffers.size(); ++i)
    if (model.buffers[i].name.ends_with(kCalls)) calls_[i] = model.buffers[i].value.item<int64_t>();
  if (over != BatchStatistics::ranks || group.size() == 1) return;
  const auto own = static_cast<int64_t>(passes);
  const at::Tensor most = at::tensor({own, -own}, at::kLong);
  group.all_reduce(most, comm::Reduction::maximum);
  if (const int64_t fewest = -most[1].item<int64_t>(), found = most[0].item<int64_t>(); fewest != found)
    throw RunError(
        "strategy",
        "BatchNorm normalises by the rows of all ranks: one rank has {} micro-batches in this step where "
        "another has {}. "
        "Let ranks times micro_batch_size divide batch_size, set drop_last, and leave out "
        "micro_batch_tokens, batch_tokens and the batch warm-up",
        fewest, found);
}

size_t BatchNormSums::number_of(const at::Tensor& buffer) const {
  for (size_t i = 0; i < model_.buffers.size(); ++i)
    if (model_.buffers[i].value.is_same(buffer)) return i;
  throw InputError("strategy",
                   "BatchNorm has running statistics that are no buffers of the model; register its module");
}

void BatchNormSums::count(const BatchNormCall& call) {
  if (!counting_ || !call.running_mean.defined()) return;
  const at::NoGradGuard no_gradient;
  const at::Tensor input = wide(call.input.detach());
  const auto [variance, mean] = at::var_mean(input, dimensions_of_rows(input), /*correction=*/at::Scalar(0));
  const double rows = static_cast<double>(input.numel() / input.size(1));
  const at::Tensor own_mean = mean.to(at::kDouble), own_squares = variance.to(at::kDouble) * rows;
  const size_t number = number_of(call.running_mean);
  std::vector<Sums>& calls = sums_[number];
  const size_t place = calls_in_pass_[number]++;
  if (place == calls.size()) {
    calls.push_back({rows, own_mean, own_squares, call.running_variance, call.momentum});
    return;
  }
  Sums& sums = calls[place];
  // Merges two sets of rows: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
  // Variances", 1979.
  const double total = sums.rows + rows;
  const at::Tensor apart = own_mean - sums.mean;
  sums.squares = sums.squares + own_squares + apart.square() * (sums.rows * rows / total);
  sums.mean = sums.mean + apart * (rows / total);
  sums.rows = total;
}

at::Tensor BatchNormSums::normalise(const BatchNormCall& call) {
  count(call);
  if (over_ != BatchStatistics::ranks || group_.size() == 1) return normalise_rows(call);
  at::Tensor out = JointNorm::apply(call.input, call.epsilon, c10::make_intrusive<RanksOfNorm>(group_));
  if (call.weight.defined()) out = out * beside(call.weight, out);
  if (call.bias.defined()) out = out + beside(call.bias, out);
  return out.to(call.input.scalar_type());
}

void BatchNormSums::move_running_statistics() {
  const at::NoGradGuard no_gradient;
  const auto buffers = static_cast<int64_t>(model_.buffers.size());
  if (buffers == 0) return;
  // Tells a rank without a pass in this step which running statistics to update, how often, and with which momentum.
  const at::Tensor known = at::zeros({buffers, 2}, at::kLong);
  for (const auto& [number, calls] : sums_) {
    const auto row = known[static_cast<int64_t>(number)];
    row[0].fill_(static_cast<int64_t>(number_of(calls.front().variance)));
    row[1].fill_(static_cast<int64_t>(calls.size()));
  }
  group_.all_reduce(known, comm::Reduction::maximum);
  const auto most = known.select(1, 1).max().item<int64_t>();
  if (most == 0) return;
  const at::Tensor momenta = at::zeros({buffers, most}, at::kDouble);
  for (const auto& [number, calls] : sums_)
    for (size_t call = 0; call < calls.size(); ++call)
      momenta[static_cast<int64_t>(number)][static_cast<int64_t>(call)].fill_(calls[call].momentum);
  group_.all_reduce(momenta, comm::Reduction::maximum);
  for (size_t number = 0; number < model_.buffers.size(); ++number) {
    const auto row = static_cast<int64_t>(number), calls = known[row][1].item<int64_t>();
    for (int64_t call = 0; call < calls; ++call)
      move(number, known[row][0].item<int64_t>(), static_cast<size_t>(call),
           momenta[row][call].item<double>());
    if (calls > 0) add_calls(number, calls);
  }
}

void BatchNormSums::move(size_t number, int64_t variance, size_t call, double momentum) {
  const Buffer &mean = model_.buffers[number], &squares = model_.buffers[static_cast<size_t>(variance)];
  const int64_t channels = mean.value.numel();
  const auto found = sums_.find(number);
  const Sums* const own =
      found != sums_.end() && call < found->second.size() ? &found->second[call] : nullptr;
  const at::Tensor sums = at::zeros({channels + 1}, at::kDouble);
  if (own) {
    sums[0].fill_(own->rows);
    sums.narrow(0, 1, channels).copy_(own->mean * own->rows);
  }
  group_.all_reduce(sums);
  const double rows = sums[0].item<double>();
  const at::Tensor joint = sums.narrow(0, 1, channels) / rows;
  const at::Tensor distances = at::zeros({channels}, at::kDouble);
  if (own) distances.copy_(own->squares + (own->mean - joint).square() * own->rows);
  group_.all_reduce(distances);
  const auto follow = [&](const at::Tensor& buffer, const at::Tensor& value) {
    buffer.copy_(buffer.to(at::kDouble) * (1 - momentum) + value * momentum);
  };
  follow(mean.value, joint);
  follow(squares.value, distances / std::max(rows - 1, 1.0));
}

void BatchNormSums::add_calls(size_t number, int64_t calls) {
  const std::string& mean = model_.buffers[number].name;
  const std::string counter = mean.substr(0, mean.size() - kMean.size()) + std::string(kCalls);
  for (const auto& [place, before] : calls_)
    if (model_.buffers[place].name == counter) model_.buffers[place].value.fill_(before + calls);
}

void check_batch_statistics(BatchStatistics over, bool deterministic, const at::Device& device) {
  if (over == BatchStatistics::pass) return;
  const std::string& name = batch_statistics_names()[static_cast<size_t>(over)];
  if (!device.is_cpu())
    throw InputError(
        "strategy",
        "batch_statistics is {} and the model is on {}; expected a model on the CPU, or batch_statistics "
        "pass",
        name, device.str());
  if (deterministic && over == BatchStatistics::ranks)
    throw InputError("strategy",
                     "deterministic and batch_statistics ranks contradict each other: the sums over ranks "
                     "depend on their number. Choose one of the two, or batch_statistics batch");
}

void BatchNormSteps::begin(const Model& model, const comm::Group& group, size_t passes) {
  if (over_ == BatchStatistics::pass) return;
  if (!ranks_) {
    std::vector<int> all(static_cast<size_t>(group.size()));
    std::iota(all.begin(), all.end(), 0);
    ranks_ = group.size() > 1 ? group.subgroup(all) : group;
  }
  sums_.emplace(model, over_, *ranks_, passes);
}

void BatchNormSteps::end() {
  if (sums_) sums_->move_running_statistics();
  sums_.reset();
}

BatchNormSteps::Pass::Pass(BatchNormSteps& steps) : sums_(steps.sums_ ? &*steps.sums_ : nullptr) {
  if (!sums_) return;
  sums_->start_pass();
  scope_.emplace(*sums_);
}

void BatchNormSteps::Pass::end_forward() {
  if (sums_) sums_->stop_counting();
}

}  // namespace funicular::parallel
