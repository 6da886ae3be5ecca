// funicular doctor: is this machine, and this model, fit to train?

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/isa.h"
#include "funicular/base/memory.h"
#include "funicular/base/nvidia_driver.h"
#include "funicular/base/processor_limit.h"
#include "funicular/base/progress.h"
#include "funicular/bench/rank_use.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/cli/verify_store.h"
#include "funicular/comm/nccl_library.h"
#include "funicular/core/error_text.h"
#include "funicular/data/token_store.h"
#include "funicular/format/config_keys.h"
#include "funicular/format/family.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/encoder.h"
#include "funicular/model/own_tokenizer.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/weights.h"
#include "funicular/nn/device/attention_choice.h"
#include "funicular/runtime/allocator.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/gpu_cards.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

enum class Verdict { ok, warn, fail };

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string text, remedy;
};

constexpr double kGiB = 1024.0 * 1024 * 1024;

Finding check_processor() {
  const Isa isa = best_isa();
  Finding finding{
      Verdict::ok,
      fmt::format("kernels for {}; LibTorch uses {}", processor_isa_name(), at::get_cpu_capability()), ""};
  if (isa == Isa::baseline) {
    finding.verdict = Verdict::warn;
    finding.remedy = "training is several times slower without AVX2; a processor from 2015 or later has it";
  }
  return finding;
}

Finding check_threads() {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int used = at::get_num_threads();
  const std::optional<double> quota = processor_quota();
  const int allowed = threads_within_quota(static_cast<int>(online), quota);
  Finding finding{Verdict::ok, fmt::format("{} of {} processors", used, online), ""};
  if (quota && *quota < static_cast<double>(online))
    finding.text += fmt::format("; a control group allows {:.3g} of them at a time", *quota);
  if (used == 1 && allowed > 1) {
    finding.verdict = Verdict::warn;
    finding.remedy = "give --threads, or unset OMP_NUM_THREADS";
  } else if (used > allowed) {
    finding.verdict = Verdict::warn;
    finding.remedy = fmt::format("more threads than processors is slow; give --threads {}", allowed);
  }
  return finding;
}

Finding check_memory() {
  const double available = available_memory();
  Finding finding{Verdict::ok, fmt::format("{:.1f} GiB available", available / kGiB), ""};
  if (available < 2 * kGiB) {
    finding.verdict = available < kGiB / 2 ? Verdict::fail : Verdict::warn;
    finding.remedy =
        "fine-tuning BERT-base in fp32 takes about 3 GiB; end other programs, take a smaller model, or lower "
        "--micro-batch-tokens";
  }
  return finding;
}

Finding check_disk(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error)
    return {Verdict::fail, fmt::format("{}: {}", folder.string(), error.message()),
            "give --output a folder that can be made"};
  const double free = static_cast<double>(space.available);
  Finding finding{Verdict::ok,
                  fmt::format("{:.1f} GiB free in {}", free / kGiB, fs::absolute(folder).string()), ""};
  if (free < 5 * kGiB) {
    finding.verdict = free < kGiB / 2 ? Verdict::fail : Verdict::warn;
    finding.remedy = "a checkpoint of BERT-base takes 1.3 GiB; free some space, or lower --save-total-limit";
  }
  return finding;
}

Finding check_writing(const fs::path& folder) {
  const fs::path path = folder / fmt::format(".funicular-doctor-{}", ::getpid());
  const std::string contents(1 << 16, 'x');
  write_file_atomically(path, contents);
  const bool same = read_file(path) == contents;
  fs::remove(path);
  if (!same)
    return {Verdict::fail, "a file reads back with other contents", "check the disk (dmesg, smartctl)"};
  return {Verdict::ok, fmt::format("a file written to {} reads back", fs::absolute(folder).string()), ""};
}

/// Judges a build for CPUs.
Finding check_without_kernels(const std::optional<NvidiaDriver>& driver) {
  if (!driver || driver->cards.empty()) return {Verdict::ok, "CPU; no NVIDIA driver shows a GPU here", ""};
  return {Verdict::warn,
          fmt::format("CPU; {} is here (driver {}), but this funicular was built without kernels for GPUs",
                      fmt::join(driver->cards, ", "), driver->version),
          "run ./run setup and ./run build again (docs/how_to/gpu.md), or use --device cpu"};
}

/// "cuda:0 NVIDIA H200, 139.8 GiB, compute capability 9.0, kernels in machine code, attention of 16 bits on …".
std::string describe(const device::Card& card, device::CardKernels kernels) {
  const char* const how = kernels == device::CardKernels::machine_code ? "kernels in machine code"
                          : kernels == device::CardKernels::portable
                              ? "kernels that the driver compiles at the first use"
                              : "no kernels in this build";
  return fmt::format("cuda:{} {}, {:.1f} GiB, compute capability {}.{}, {}, {}", card.index, card.name,
                     static_cast<double>(card.bytes) / kGiB, card.capability / 10, card.capability % 10, how,
                     nn::device::describe_attention(card.capability));
}

Finding check_device() {
  const std::optional<NvidiaDriver> driver = read_nvidia_driver();
  if (!device::has_cuda_kernels()) return check_without_kernels(driver);
  const std::string of_driver = driver ? "driver " + driver->version : "no driver that tells its version";
  const std::vector<device::Card> cards = device::cards();
  const std::string shortfall = device::driver_shortfall();
  if (!shortfall.empty()) return {Verdict::warn, "CPU; " + shortfall, of_driver + " is here; update it"};
  if (cards.empty())
    return {driver ? Verdict::warn : Verdict::ok, fmt::format("CPU; CUDA shows no GPU, {}", of_driver),
            driver ? "check nvidia-smi and CUDA_VISIBLE_DEVICES" : ""};
  Finding finding{Verdict::ok, "CPU, and by --device cuda", ""};
  for (const device::Card& card : cards) {
    const device::CardKernels kernels = device::kernels_for(card.capability, device::built_architectures());
    finding.text += (card.index > 0 ? "; " : " ") + describe(card, kernels);
    if (kernels != device::CardKernels::none) continue;
    finding.verdict = Verdict::warn;
    finding.remedy = fmt::format("build with -DFUNICULAR_CUDA_ARCHITECTURES={}", card.capability);
  }
  finding.text += "; " + of_driver;
  return finding;
}

/// The library by which several GPUs train, with the variables that it reads.
Finding check_nccl() {
  try {
    return {Verdict::ok, comm::nccl::describe(), ""};
  } catch (const InputError& error) {
    return {Verdict::warn, "ranks on several GPUs cannot use NCCL", error_text(error)};
  }
}

/// A finding that warns of the doubts, if there are any.
Finding finding_of(std::string text, const std::vector<std::string>& doubts) {
  return {doubts.empty() ? Verdict::ok : Verdict::warn, std::move(text),
          fmt::format("{}", fmt::join(doubts, "; "))};
}

/// "109.5 million", or the number itself below a million.
std::string shown_count(int64_t count) {
  return count < 1'000'000 ? std::to_string(count)
                           : fmt::format("{:.1f} million", static_cast<double>(count) / 1e6);
}

Finding check_config(const format::ModelConfig& config) {
  const format::EncoderSpec& encoder = config.encoder;
  return finding_of(
      fmt::format("{}, {} layers, hidden {}, {} heads, vocabulary {}, at most {} tokens; {} parameters "
                  "without a head",
                  format::family_of(config).title, encoder.layers, encoder.width, encoder.heads,
                  encoder.vocabulary, encoder.longest_sequence(),
                  shown_count(model::count_parameters(config, model::Head::none))),
      format::doubtful_keys(config.source));
}

/// `config`: none if config.json cannot be read.
Finding check_weights(const fs::path& model, const std::optional<format::ModelConfig>& config) {
  const format::WeightFiles weights(model);
  std::vector<std::string> doubts;
  if (config) {
    model::check_sizes(*config, model);
    model::refuse_unused_layers(*config, model);
    const std::vector<std::string> missing = model::missing_in_encoder(*config, model);
    model::refuse_other_family(*config, model, missing);
    if (!missing.empty())
      doubts.push_back(fmt::format("{} of the encoder's weights are missing, such as {}", missing.size(),
                                   missing.front()));
    if (const auto left = model::without_a_place(*config, model); !left.empty())
      doubts.push_back(fmt::format("config.json has no place for {}", fmt::join(left, ", ")));
  }
  uint64_t bytes = 0;
  for (const auto* entry : weights.entries()) bytes += entry->data.size();
  return finding_of(
      fmt::format("{} tensors, {:.1f} MB", weights.entries().size(), static_cast<double>(bytes) / 1e6),
      doubts);
}

/// `config`: none if config.json cannot be read.
Finding check_tokenizer(const fs::path& model, const std::optional<format::ModelConfig>& config) {
  const auto tokenizer = format::load_tokenizer(model);
  const auto tokens = tokenizer->tokenize("The quick brown fox jumps over the lazy dog.");
  if (config) model::require_own_tokenizer(*config, *tokenizer, model);
  size_t unknown = 0;
  for (int32_t id : tokens.ids) unknown += id == tokenizer->special().unknown;
  std::vector<std::string> doubts;
  if (config) doubts = model::doubtful_special_tokens(*config, *tokenizer);
  if (doubts.empty() && 2 * unknown > tokens.ids.size())
    doubts.emplace_back(
        "half of the words are unknown; if the text is English, this is the wrong vocabulary");
  return finding_of(fmt::format("{}; an English sentence becomes {} tokens, {} unknown",
                                tokenizer->description(), tokens.ids.size(), unknown),
                    doubts);
}

/// Whether config.json names a class that ends so.
bool has_head(const format::ModelConfig& config, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(config.architectures, [&](const std::string& name) {
    return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
  });
}

/// Lists what can be done with a sound model folder, and the commands for it.
Finding list_uses(const format::ModelConfig& config) {
  const format::Family& family = format::family_of(config);
  std::vector<std::string> uses;
  if (has_head(config, {"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"}))
    uses.push_back(fmt::format("{} (predict, evaluate)", task::type_of(config).gives));
  // The ForPreTraining of an ELECTRA is a discriminator.
  if (has_head(config, {"ForMaskedLM"}) ||
      (has_head(config, {"ForPreTraining"}) && family.replaced_tokens.dense.empty()))
    uses.emplace_back("guesses for masked words (evaluate --task mlm, compare, augment)");
  uses.emplace_back("a vector per text (embed)");
  uses.push_back(fmt::format("training for any task{} (finetune, distill)",
                             family.spans.empty() ? " except spans" : ""));
  uses.emplace_back("training on raw texts (pretrain)");
  uses.emplace_back("token stores (tokenize)");
  return {Verdict::ok, fmt::format("{}", fmt::join(uses, "; ")), ""};
}

std::string shown(double bytes) {
  return bytes < kGiB / 10 ? fmt::format("{:.2f} MiB", bytes * 1024 / kGiB)
                           : fmt::format("{:.2f} GiB", bytes / kGiB);
}

/// Predicts the memory that a training step needs with this strategy on `ranks` ranks of this machine, and compares
/// it with the available memory.
Finding check_layout(const std::string& strategy, int ranks, const bench::RankUseOptions& step) {
  std::vector<double> bytes;
  ProgressOptions counted;
  counted.unit = "ranks";
  Progress progress("doctor " + strategy, static_cast<uint64_t>(ranks), counted);
  for (const bench::StepMemory& memory :
       bench::predict_ranks(strategy, ranks, step, [&](int done) { progress.update(uint64_t(done)); }))
    bytes.push_back(static_cast<double>(memory.peak()));
  const double together = std::accumulate(bytes.begin(), bytes.end(), 0.0), available = available_memory();
  std::string needs = shown(together);
  if (ranks > 1)
    needs = fmt::format("{} ranks need {} each at most, {} together", ranks,
                        shown(*std::max_element(bytes.begin(), bytes.end())), needs);
  else
    needs = "a step needs " + needs;
  Finding finding{Verdict::ok,
                  fmt::format("{}: {} sequences of {} tokens in {}{}", needs, step.rule.batch_size,
                              step.rule.longest, precision_name(step.precision),
                              step.recompute == Recompute::none
                                  ? std::string()
                                  : fmt::format(", {} recomputation", recompute_name(step.recompute))),
                  ""};
  if (together > available) {
    finding.verdict = Verdict::warn;
    finding.remedy = fmt::format(
        "{:.2f} GiB are available; {}--recompute full, bf16 or a smaller batch need less", available / kGiB,
        ranks > 1 ? "ranks on more machines, " : "--ranks tells what several do, ");
  }
  return finding;
}

class Doctor final : public Command {
 public:
  Doctor()
      : Command(
            "doctor",
            "Checks the processor, threads, memory, disk and LibTorch. With a Hugging Face model folder "
            "it also shows the model's family, parameters and tokeniser, and what can be done with the "
            "model. It then says whether a step of masked-language-model training fits into memory. --data "
            "also checks a token store and reads all of it. One line each: ok, warn or FAIL with a remedy. "
            "Exit code 1 if any line is FAIL.") {
    arguments.example("check this machine and a model", "funicular doctor MODEL");
    arguments.example("predict the memory of four processes",
                      "funicular doctor MODEL --ranks 4 --batch-size 64");
    arguments.unnamed({"model"});
    arguments
        .add("model", "DIR", model_, Effect::input, "also check this model folder, or a config.json alone")
        .takes_model();
    arguments.add("data", "STORE", data_, Effect::input,
                  "also verify this token store, and that it was made for the model");
    arguments.add("output", "DIR", output_, Effect::output,
                  "the folder that runs will be written to; it need not be there yet");
    arguments.section("The step whose memory is predicted, with --model");
    arguments
        .add("ranks", "N", ranks_, Effect::result,
             "processes on this machine that train together, by each strategy")
        .range(1, 1024);
    arguments.add("batch-size", "SEQUENCES", batch_size_, Effect::result, "sequences of all ranks together")
        .range(1);
    arguments.add("max-length", "TOKENS", max_length_, Effect::result, "tokens of each sequence")
        .default_text("128, or the model's longest")
        .range(32);
    arguments.add("precision", "NAME", precision_, Effect::result, "arithmetic")
        .choices({"fp32", "fp64", "bf16", "fp16"});
    arguments.add("recompute", "NAME", recompute_, recompute_names(), Effect::result,
                  "activations computed again in the backward pass");
    arguments.section("Machine");
    device_.declare(arguments, Effect::result, Effect::none);
  }

  int run() override {
    if (model_.empty()) refuse_options_of_a_step();
    device_.apply();
    print("libtorch", [] { return Finding{Verdict::ok, TORCH_VERSION, ""}; });
    print("processor", check_processor);
    print("threads", check_threads);
    print("device", check_device);
    if (device::has_cuda_kernels() || std::getenv("FUNICULAR_NCCL")) print("nccl", check_nccl);
    print("memory", check_memory);
    const fs::path folder = existing_part(output_);  // what a run would make it in
    print("disk", [&] { return check_disk(folder); });
    print("writing", [&] { return check_writing(folder); });
    if (!model_.empty()) check_model();
    if (!data_.empty()) check_store();
    return failures_ > 0 ? static_cast<int>(ExitCode::failed) : 0;
  }

 private:
  void refuse_options_of_a_step() const {
    for (const char* option : {"ranks", "batch-size", "max-length", "precision", "recompute"})
      if (arguments.given(option))
        throw InputError("usage",
                         "--{0} only changes the predicted memory of a step, which needs a model; give "
                         "--model DIR, or leave --{0} out",
                         option);
  }

  /// A config.json, as pre-training from random weights takes it.
  bool only_configuration() const { return fs::is_regular_file(model_); }

  void check_model() {
    const bool found = print("model", [&] {
      if (!only_configuration()) model::require_folder(model_, "--model");
      return Finding{Verdict::ok, model_.string() + (only_configuration() ? ", without weights" : ""), ""};
    });
    if (!found) return;
    std::optional<format::ModelConfig> config;
    bool sound = print("config", [&] {
      config = format::read_model_config(model_);
      return check_config(*config);
    });
    if (only_configuration()) {
      if (sound) print_use("training on raw texts from random weights (pretrain)");
    } else {
      sound = print("weights", [&] { return check_weights(model_, config); }) && sound;
      const bool reads_texts = print("tokeniser", [&] { return check_tokenizer(model_, config); });
      if (reads_texts && !sound) print_use("token stores (tokenize) only");
      sound = sound && reads_texts;
      if (sound) print("uses", [&] { return list_uses(*config); });
    }
    if (sound && use_caching_allocator()) check_layouts(*config);
  }

  void print_use(const char* use) {
    print("uses", [&] { return Finding{Verdict::ok, use, ""}; });
  }

  void check_layouts(const format::ModelConfig& config) {
    bench::RankUseOptions step;
    step.config = config;
    step.rule = {
        .ragged = false,
        .longest = max_length_.value_or(std::min<int64_t>(128, step.config.encoder.longest_sequence())),
        .batch_size = batch_size_,
        .vocabulary = step.config.encoder.vocabulary};
    step.precision = parse_precision(precision_);
    step.recompute = recompute_;
    const int ranks = static_cast<int>(ranks_);
    const std::vector<std::string> strategies =
        ranks == 1 ? std::vector<std::string>{"single"}
                   : std::vector<std::string>{"ddp", "zero1", "zero2", "zero3", "pipeline", "tensor"};
    for (const std::string& strategy : strategies)
      print(ranks == 1 ? "step" : strategy, [&] {
        try {
          model::check_positions(step.rule.longest, step.config);
          return check_layout(strategy, ranks, step);
        } catch (
            const InputError& error) {  // of a model that cannot be divided so, or too small for such rows
          return Finding{Verdict::warn, error_text(error), ""};
        }
      });
  }

  void check_store() {
    print("store", [&] { return Finding{Verdict::ok, verify_store(data_), ""}; });
    if (model_.empty() || only_configuration()) return;
    print("store's", [&] {
      const auto store = data::TokenStore::open(data_, {.verify = false});
      store->require_tokenizer(*format::load_tokenizer(model_));
      return Finding{Verdict::ok, "made with the model's tokeniser", ""};
    });
  }

  /// Prints the line of a check. Returns whether the check passed.
  bool print(std::string_view name, const std::function<Finding()>& check) {
    Finding finding;
    try {
      finding = check();
    } catch (const std::exception& error) {
      finding = {Verdict::fail, error_text(error), ""};
    }
    failures_ += finding.verdict == Verdict::fail;
    const char* verdict = finding.verdict == Verdict::ok     ? "ok  "
                          : finding.verdict == Verdict::warn ? "warn"
                                                             : "FAIL";
    fmt::print("{} {:<10} {}{}{}\n", verdict, name, finding.text, finding.remedy.empty() ? "" : "; ",
               finding.remedy);
    return finding.verdict != Verdict::fail;
  }

  fs::path model_, data_, output_ = ".";
  int64_t ranks_ = 1, batch_size_ = 32;
  std::optional<int64_t> max_length_;
  std::string precision_ = "fp32";
  Recompute recompute_ = Recompute::none;
  DeviceOptions device_;
  int failures_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_doctor() {
  return std::make_unique<Doctor>();
}

}  // namespace funicular::cli
