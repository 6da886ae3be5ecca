#include "funicular/cli/common_options.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/processor_limit.h"
#include "funicular/core/recompute.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/gpu_cards.h"
#include "funicular/runtime/streams.h"

namespace funicular::cli {

namespace {

template <class Whole>
Option& declare_length(Arguments& arguments, Whole& target, const std::string& longer, int64_t least) {
  return arguments
      .add("max-length", "TOKENS", target, Effect::result,
           "longest sequence, special tokens included; " + longer)
      .common()
      .alias("max-seq-length")
      .range(static_cast<double>(least));
}

template <class Whole>
Option& declare_evaluated_rows(Arguments& arguments, Whole& target) {
  return arguments
      .add("eval-batch-size", "SEQUENCES", target, Effect::rounding,
           "sequences per forward pass in evaluation")
      .alias("per-device-eval-batch-size")
      .range(1);
}

}  // namespace

Option& declare_model(Arguments& arguments, fs::path& target, std::string help, std::string value) {
  return arguments.add("model", std::move(value), target, Effect::input, std::move(help))
      .takes_model()
      .alias("model-name-or-path")
      .required();
}

Option& declare_max_length(Arguments& arguments, int64_t& target, const std::string& longer, int64_t least) {
  return declare_length(arguments, target, longer, least);
}

Option& declare_max_length(Arguments& arguments, std::optional<int64_t>& target, const std::string& longer,
                           int64_t least) {
  return declare_length(arguments, target, longer, least);
}

Option& declare_eval_batch_size(Arguments& arguments, int64_t& target) {
  return declare_evaluated_rows(arguments, target);
}

Option& declare_eval_batch_size(Arguments& arguments, std::optional<int64_t>& target) {
  return declare_evaluated_rows(arguments, target);
}

Option& declare_micro_batch_tokens(Arguments& arguments, int64_t& target, const std::string& remark,
                                   int64_t least) {
  return arguments
      .add("micro-batch-tokens", "TOKENS", target, Effect::rounding,
           "real tokens per forward pass at most; " + remark)
      .range(static_cast<double>(least));
}

std::string default_by_device(int64_t on_cpu, int64_t on_gpu) {
  return fmt::format("{}, on a GPU {}", on_cpu, on_gpu);
}

void DeviceOptions::use_gpu_default(const Arguments& arguments, const std::string& option, int64_t& size,
                                    int64_t on_gpu) const {
  if (!place().is_cpu() && !arguments.given(option)) size = on_gpu;
}

Option& declare_inference_precision(Arguments& arguments, std::string& target,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> names{kAutoPrecision};
  names.insert(names.end(), model::inference_precisions().begin(), model::inference_precisions().end());
  names.insert(names.end(), more.begin(), more.end());
  return arguments
      .add("precision", "NAME", target, Effect::result,
           "arithmetic; auto: bf16 where it is faster, else fp32; tf32 needs a GPU")
      .common()
      .choices(std::move(names));
}

void note_slow_precision(const std::string& precision, at::Device device) {
  if (precision == "fp32" && !device.is_cpu() && device::multiplies_bf16(device))
    log::info(
        "precision: fp32 products are slow on this GPU; --precision tf32 or bf16 uses its tensor cores");
}

std::string resolve_inference_precision(const std::string& precision, at::Device device) {
  note_slow_precision(precision, device);
  if (precision != kAutoPrecision) return precision;
  const nn::PrecisionChoice choice = nn::choose_precision(device);
  log::info("precision: {}, {} (--precision auto)", choice.name, choice.reason);
  return choice.name;
}

const std::vector<std::string>& recompute_names() {
  static const std::vector<std::string> names{
      recompute_name(Recompute::none), recompute_name(Recompute::full), recompute_name(Recompute::selective),
      recompute_name(Recompute::sqrt)};
  return names;
}

Option& declare_seed(Arguments& arguments, uint64_t& target, std::string of) {
  return arguments.add("seed", "N", target, Effect::result, std::move(of)).common().range(0);
}

void refuse_graphs() {
  throw InputError(
      "usage",
      "--cuda-graphs is for one process with a GPU; expected --device cuda and no other ranks, or leave "
      "--cuda-graphs out");
}

namespace {

/// The number in "cuda:1", if there is one. Throws InputError for what names no device.
std::optional<int> number_of_gpu(const std::string& device) {
  if (device == "cpu" || device == "cuda") return std::nullopt;
  int number = 0;
  const std::string_view kPrefix = "cuda:";
  const char* const end = device.data() + device.size();
  const char* const digits = device.data() + std::min(kPrefix.size(), device.size());
  const auto [read, error] = std::from_chars(digits, end, number);
  const bool leading_zero = digits + 1 < end && *digits == '0';  // LibTorch takes none
  if (!device.starts_with(kPrefix) || error != std::errc() || read != end || leading_zero || number < 0 ||
      number > 127)
    throw InputError("usage",
                     "--device expects cpu, cuda, or cuda:N with the number of a GPU, found \"{}\"{}", device,
                     suggestion(device, {"cpu", "cuda"}));
  return number;
}

/// Makes this thread use the GPU of this number, else the first one, or on a host with several ranks the one of this
/// rank. Throws InputError if there is no such card, or this build has no kernels for it.
void use_card(const std::optional<int>& number, bool shared) {
  const std::vector<funicular::device::Card> cards = funicular::device::cards();
  const int count = static_cast<int>(cards.size());
  const auto of_rank = [&] {
    const launch::Environment ranks = launch::read_environment();
    return funicular::device::card_of_rank(ranks.local_rank, ranks.local_size, count, shared);
  };
  const int index = number ? *number : of_rank();
  if (index >= count)
    throw InputError("device", "--device cuda:{}: there is no such GPU; expected cuda:0{}", index,
                     count > 1 ? fmt::format(" to cuda:{}", count - 1) : "");
  const funicular::device::Card& card = cards[static_cast<size_t>(index)];
  const std::vector<int>& built = funicular::device::built_architectures();
  if (funicular::device::kernels_for(card.capability, built) == funicular::device::CardKernels::none)
    throw InputError(
        "device",
        "--device cuda:{}: {} has compute capability {}.{}, and this build has kernels for {} only; "
        "build with -DFUNICULAR_CUDA_ARCHITECTURES={}",
        index, card.name, card.capability / 10, card.capability % 10, fmt::join(built, ", "),
        card.capability);
  funicular::device::use_card(index);
}

}  // namespace

void DeviceOptions::declare(Arguments& arguments, Effect of_device, Effect of_threads) {
  arguments
      .add("device", "NAME", device, of_device,
           "device to compute on: cpu, cuda, or cuda:1 for the second GPU")
      .common()
      .suggests({"cpu", "cuda", "cuda:0"})
      .accept("gpu", "cuda");
  arguments
      .add(
          "use-cpu", [this] { device = "cpu"; }, of_device, "as --device cpu")
      .hidden();
  arguments.rivals({"device", "use-cpu"});
  arguments.add("threads", "N", threads, of_threads, "threads of the computation")
      .default_text("all cores, or what the container may use")
      .range(1, 4096);
}

void DeviceOptions::declare_sharing(Arguments& arguments) {
  arguments.add("share-device", share, Effect::rounding,
                "let ranks of a host share its GPUs, even if there are more ranks than GPUs; tensors travel "
                "through the host's memory");
}

void DeviceOptions::declare_graphs(Arguments& arguments) {
  arguments.add(
      "cuda-graphs", cuda_graphs, Effect::rounding,
      "experimental, not tried on a card yet: repeat recorded passes, for passes of few tokens on one GPU");
}

void DeviceOptions::declare_all(Arguments& arguments) {
  declare(arguments);
  declare_sharing(arguments);
  declare_graphs(arguments);
}

std::string DeviceOptions::transport() const {
  return share ? launch::process_variable("FUNICULAR_TRANSPORT").value_or("staged") : "";
}

void DeviceOptions::apply() const {
  if (cuda_graphs && (device == "cpu" || launch::read_environment().size > 1)) refuse_graphs();
  const std::optional<int> number = number_of_gpu(device);
  const bool gpu = device != "cpu";
  if (gpu && !at::hasCUDA()) {
    if (const std::string shortfall = funicular::device::driver_shortfall(); !shortfall.empty())
      throw InputError("device", "--device cuda: {}", shortfall);
    throw InputError("device",
                     "--device cuda: this LibTorch was built without CUDA, or no CUDA device is visible. Use "
                     "--device cpu, or build with TORCH_DIR set to a CUDA build of LibTorch");
  }
  if (gpu && !funicular::device::has_cuda_kernels())
    throw InputError(
        "device",
        "--device cuda: this funicular was built without nvcc; use --device cpu, or build it again where "
        "NVIDIA's driver is (docs/how_to/gpu.md)");
  if (share && !gpu)
    throw InputError("usage", "--share-device is for GPUs; add --device cuda, or leave it out");
  if (gpu) use_card(number, share);
  if (threads > 0)
    at::set_num_threads(static_cast<int>(threads));
  else if (!std::getenv("OMP_NUM_THREADS"))
    at::set_num_threads(threads_within_quota(at::get_num_threads(), processor_quota()));
}

void DeviceOptions::stay_near_card(int local_size) const {
  if (device == "cpu" || local_size == 1) return;
  const auto index = static_cast<size_t>(funicular::device::with_number(place()).index());
  const std::vector<int> near = funicular::device::processors_near(funicular::device::cards().at(index));
  if (!near.empty())
    log::debug("[device] {} processors beside cuda:{}", funicular::device::stay_on(near), index);
}

}  // namespace funicular::cli
