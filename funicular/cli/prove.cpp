// funicular prove: whether two layouts train alike.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/format/config_keys.h"
#include "funicular/format/model_config.h"
#include "funicular/launch/launcher.h"
#include "funicular/model/pretrained.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/prove/pairs.h"
#include "funicular/prove/proof.h"
#include "funicular/prove/proof_text.h"

namespace funicular::cli {

namespace {

/// A folder that goes when it is not kept.
class Scratch {
 public:
  explicit Scratch(const fs::path& kept) : path_(kept) {
    if (kept.empty())
      path_ = temporary_.emplace().path();
    else
      make_directories(path_);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::optional<TemporaryFolder> temporary_;
};

/// Tells what two layouts share, and which layout finds faults there.
constexpr const char* kBlindSpot =
    "Two layouts share the model and its kernels, dropout, the loss and the optimiser: comparing\n"
    "them cannot find a fault there. `reference` can: a step in float64 that was written a second time,\n"
    "with ordinary LibTorch operations. It shares with them the rows, which tokens are masked, the first "
    "weights and\n"
    "the generator of random numbers. In float64 a layout runs other kernels than in fp32 and bf16.\n";

struct Row {
  std::string objective, a, b;
  bool with_reference = false;
  prove::Proof proof;
  prove::Promise promise;
  bool held() const { return prove::holds(proof, promise); }
};

std::string figures(const Row& row) {
  const prove::Proof& proof = row.proof;
  const std::string promise =
      row.promise.bit_identical ? "bit-identical" : fmt::format("within {:.0e}", row.promise.bound);
  return fmt::format("{:<4} {:<14} {:>9.1e} {:>9.1e} {:>9.1e}   {}  =  {}{}", row.held() ? "ok" : "NO",
                     promise, proof.loss.relative, proof.gradient.relative, proof.weight.relative, row.a,
                     row.b, row.with_reference ? fmt::format("   ({})", row.objective) : "");
}

/// Prints what each layout costs the rank that holds the most.
void print_held_bytes(const Row& row) {
  fmt::print("\n{:<24} {:>9}  {:>9}  {:>9}\n", "held by a rank, MB", "weights", "gradients", "state");
  for (const auto& [name, ranks] : {std::pair(row.a, row.proof.held_a), std::pair(row.b, row.proof.held_b)}) {
    prove::HeldBytes most;
    for (const prove::HeldBytes& rank : ranks)
      if (rank.weights + rank.gradients + rank.state > most.weights + most.gradients + most.state)
        most = rank;
    const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    if (!ranks.empty())
      fmt::print("{:<24} {:>9.3f}  {:>9.3f}  {:>9.3f}\n", name, megabytes(most.weights),
                 megabytes(most.gradients), megabytes(most.state));
  }
  fmt::print("\n");
}

/// Shortens the rows to the model's positions, and refuses options that do not fit the model, before any rank starts.
void fit_model(prove::ProofTask& task, const Arguments& arguments) {
  const format::ModelConfig config = prove::config_of(task);
  model::fit_positions(task.max_length, arguments.given("max-length"), config);
  if (task.model.empty()) return;
  if (arguments.given("layers"))
    throw InputError(
        "usage", "--layers sets the layers of the small BERT; --model takes its layers from its config.json");
  format::warn_of_doubtful_keys(config.source, task.model);
}

class Prove final : public Command {
 public:
  Prove()
      : Command(
            "prove",
            "Trains the same global batches with the same seed under layout A and layout B. Compares every "
            "loss term, gradient, weight and optimiser state in every step. Write a layout in quotes: "
            "\"STRATEGY [-n RANKS] [--threads N] [--micro-batch-size N] [--recompute NAME] [--deterministic] "
            "[--servers N] [--fault NAME]\". All but parameter servers also take \"[--pipeline-parallel P] "
            "[--schedule NAME] [--stages-per-rank V] [--stages 0,4 or 0x2,4] [--devices N]\". They also take "
            "\"[--tensor-parallel T] [--sequence-parallel] [--data-parallel D] [--zero S]\". Compare "
            "schedules that update weights while the pipeline is full with \"reference --schedule NAME "
            "--pipeline-parallel P\". Exit code 1 if a difference is larger than "
            "docs/explanation/numerics.md promises. Without --model and --data: a small BERT with random "
            "weights, and generated rows. Two layouts share the model, its kernels, dropout, the loss and "
            "the optimiser, so comparing them cannot find a fault there. The layout reference finds such "
            "faults: an independent step in float64, of ordinary LibTorch operations.") {
    arguments.example("compare two layouts", "funicular prove single \"ddp -n 2\"");
    arguments.example("check a layout's result", "funicular prove reference \"zero2 -n 2\"");
    arguments.positional("A B", layouts_, "two layouts, each one word in quotes, or reference");
    arguments.add("all", all_, Effect::result,
                  "the reference, and every strategy on 1 to 4 ranks, with accumulation and recomputation, "
                  "against single");
    arguments
        .add("objective", "NAME", objective_, Effect::result,
             "objective to train; --all compares each with the reference")
        .choices(prove::objective_names());
    arguments.add("model", "DIR|config.json", task_.model, Effect::input, "model to train")
        .takes_model()
        .default_text("a small BERT");
    arguments
        .add("layers", "N", task_.layers, Effect::result,
             "layers of the small BERT; a pipeline of many stages needs more")
        .range(1, 64);
    arguments
        .add("data", "STORE", task_.data, Effect::input,
             "token store, of the tokeniser in the folder of --model; for classification with labels")
        .default_text("generated");
    arguments.add("steps", "N", task_.steps, Effect::result, "optimiser steps").range(1);
    arguments
        .add("batch-size", "SEQUENCES", task_.batch_size, Effect::result,
             "global sequences per optimiser step")
        .range(1);
    arguments.add("max-length", "TOKENS", task_.max_length, Effect::result, "longest row")
        .default_text("64, or the model's longest")
        .range(8);
    arguments
        .add("precision", "NAME", precision_, Effect::result,
             "arithmetic; in fp64 a difference is an error of logic; tf32 needs a GPU")
        .choices({"fp64", "fp32", "tf32", "bf16"});
    arguments.add("optim", "NAME", optim_, Effect::result, "optimiser").choices(optim::optimizer_names());
    arguments.add("learning-rate", "RATE", rate_, Effect::result, "constant learning rate").above(0);
    arguments
        .add("max-grad-norm", "NORM", task_.max_grad_norm, Effect::result,
             "clipping by the global norm; 0: none")
        .range(0);
    declare_seed(arguments, task_.seed, "of weights, rows and every random choice");
    declare_machine();
    declare_outcome();
  }

  int run() override {
    task_.precision = parse_precision(precision_);
    task_.optimizer = optimizer();
    set_objective(objective_);
    if (!run_folder_.empty()) return run_as_rank();
    if (all_ ? !layouts_.empty() : layouts_.size() != 2)
      throw InputError(
          "usage",
          "funicular prove expects two layouts in quotes, such as \"ddp -n 2\" single, or --all; found {}",
          layouts_.size());
    fit_model(task_, arguments);
    if (place_.device != "cpu" || place_.share) place_.apply();  // refused before any rank starts
    if (task_.precision == Precision::tf32) nn::require_tf32(at::Device(place_.device));
    const Scratch scratch(keep_);
    folder_ = scratch.path();
    return all_ ? prove_all() : prove_two();
  }

 private:
  void declare_machine() {
    arguments
        .add("device", "NAME", place_.device, Effect::result,
             "device of the layouts: cpu, cuda, or cuda:1 for the second GPU; the reference computes on the "
             "CPU")
        .suggests({"cpu", "cuda", "cuda:0"})
        .accept("gpu", "cuda");
    place_.declare_sharing(arguments);
  }

  void declare_outcome() {
    arguments.add("keep", "DIR", keep_, Effect::output, "keep what the runs leave here")
        .default_text("nothing is kept");
    arguments.add("json", json_, Effect::result, "print the comparison as JSON");
    arguments
        .add("run-layout", "DIR", run_folder_, Effect::output,
             "train the one layout as a rank and leave its tensors in DIR")
        .hidden();
  }

  optim::OptimizerSpec optimizer() const {
    optim::OptimizerSpec spec = optim::usual_optimizer(optim_);
    spec.set("learning_rate", rate_);
    spec.set("weight_decay", 0.01);
    return spec;
  }

  void set_objective(const std::string& name) {
    objective_ = name;
    prove::set_objective(task_, name);
  }

  int run_as_rank() {
    const prove::Layout layout = prove::Layout::parse(layouts_.at(0));
    DeviceOptions device = layout.is_reference() ? DeviceOptions() : place_;
    device.threads = layout.threads;
    device.apply();
    task_.device = device.place();
    const comm::Group group = comm::Group::from_environment(
        {.fixed_order = layout.deterministic, .device = device.place(), .transport = device.transport()});
    prove::run_layout(task_, layout, group, run_folder_);
    return 0;
  }

  /// Returns the folder with the layout's tensors. Trains the layout the first time.
  fs::path ran(const prove::Layout& layout) {
    const auto [found, added] = runs_.try_emplace({objective_, task_.layers, task_.batch_size, layout.text},
                                                  folder_ / fmt::format("run-{}", runs_.size()));
    if (!added) return found->second;
    make_directories(found->second);
    std::error_code error;
    launch::LaunchOptions launch;
    launch.command = {fs::read_symlink("/proc/self/exe", error).string(), "prove", "--run-layout",
                      found->second.string()};
    for (const auto& [option, value] : shared_words()) {
      launch.command.push_back(option);
      launch.command.push_back(value);
    }
    if (place_.share && !layout.is_reference()) launch.command.emplace_back("--share-device");
    launch.command.push_back(layout.text);
    launch.ranks = layout.ranks;
    launch.grace_seconds = 5;
    ::setenv("OMP_NUM_THREADS", std::to_string(layout.threads).c_str(), 1);
    ::setenv("FUNICULAR_LOG", "warning", 0);
    const int code = launch::launch(launch);
    if (code == static_cast<int>(ExitCode::usage))
      throw InputError("prove", "the ranks of \"{}\" refuse it; what they said stands above", layout.text);
    if (code != 0)
      throw RunError("prove", "the run under \"{}\" ended with exit code {}; what it said stands above",
                     layout.text, code);
    return found->second;
  }

  std::vector<std::pair<std::string, std::string>> shared_words() const {
    std::vector<std::pair<std::string, std::string>> words = {
        {"--steps", std::to_string(task_.steps)},
        {"--batch-size", std::to_string(task_.batch_size)},
        {"--max-length", std::to_string(task_.max_length)},
        {"--objective", objective_},
        {"--precision", precision_},
        {"--optim", optim_},
        {"--learning-rate", fmt::format("{}", rate_)},
        {"--max-grad-norm", fmt::format("{}", task_.max_grad_norm)},
        {"--seed", std::to_string(task_.seed)},
        {"--device", place_.device}};
    words.emplace_back(task_.model.empty() ? "--layers" : "--model",
                       task_.model.empty() ? std::to_string(task_.layers) : task_.model.string());
    if (!task_.data.empty()) words.emplace_back("--data", task_.data.string());
    return words;
  }

  Row compare(const std::string& first, const std::string& second) {
    const prove::Layout a = prove::Layout::parse(first), b = prove::Layout::parse(second);
    if (place_.device != "cpu") task_.device = at::kCUDA;
    Row row{
        objective_, a.text, b.text, a.is_reference() || b.is_reference(), {}, prove::promise_of(a, b, task_)};
    row.proof = prove::compare_layouts(ran(a), ran(b), task_.steps, row.promise);
    return row;
  }

  int prove_two() {
    const Row row = compare(layouts_[0], layouts_[1]);
    if (json_) {
      fmt::print("{}\n", prove::to_json(row.proof, row.promise).dump(2));
      return row.held() ? 0 : 1;
    }
    const auto line = [](const char* what, const prove::Difference& value) {
      fmt::print("{:<10} {:.2e}   {:.2e}   {}\n", what, value.relative, value.absolute,
                 value.relative > 0 ? fmt::format("{}, step {}", value.tensor, value.step) : "identical");
    };
    fmt::print("{} tensors over {} steps, {}\n\n{:<10} {:<10} {:<10} {}\n", row.proof.tensors, task_.steps,
               precision_, "largest", "relative", "absolute", "where");
    line("loss", row.proof.loss);
    line("gradient", row.proof.gradient);
    line("weight", row.proof.weight);
    line("state", row.proof.state);
    print_held_bytes(row);
    if (!row.proof.noise.empty())
      fmt::print("left out, since their gradients are rounding noise: {}\n",
                 fmt::join(row.proof.noise, ", "));
    if (!row.proof.first.empty()) fmt::print("first difference above the bound: {}\n", row.proof.first);
    fmt::print("promised: {} ({}); {}\n",
               row.promise.bit_identical ? "bit-identical" : fmt::format("within {:.0e}", row.promise.bound),
               row.promise.why, row.held() ? "holds" : "DOES NOT HOLD");
    if (row.held() && !row.with_reference) fmt::print("\n{}", kBlindSpot);
    return row.held() ? 0 : 1;
  }

  int prove_all() {
    std::vector<Row> rows;
    if (!json_) fmt::print("{:<4} {:<14} {:>9} {:>9} {:>9}\n", "", "promised", "loss", "gradient", "weight");
    for (const prove::Pair& pair : prove::all_pairs(task_, objective_)) {
      set_objective(pair.objective);
      task_.layers = pair.layers;
      task_.batch_size = pair.batch_size;
      rows.push_back(compare(pair.a, pair.b));
      if (!json_) fmt::print("{}\n", figures(rows.back()));
      std::fflush(stdout);
    }
    const std::string refusal = prove::reference_refuses(task_);
    size_t held = 0;
    OrderedJson list = OrderedJson::array();
    for (const Row& row : rows) {
      held += row.held();
      OrderedJson entry = {{"objective", row.objective}, {"a", row.a}, {"b", row.b}};
      entry.update(prove::to_json(row.proof, row.promise));
      list.push_back(entry);
    }
    if (json_)
      fmt::print("{}\n", list.dump(2));
    else
      fmt::print("\n{} of {} pairs hold\n{}\n{}", held, rows.size(),
                 refusal.empty() ? "" : fmt::format("None of them with the reference: {}.\n", refusal),
                 kBlindSpot);
    return held == rows.size() ? 0 : 1;
  }

  std::vector<std::string> layouts_;
  bool all_ = false, json_ = false;
  prove::ProofTask task_;
  std::string objective_ = prove::kMaskedLm, precision_ = "fp64", optim_ = "adamw";
  DeviceOptions place_;  ///< of the layouts
  double rate_ = 1e-3;
  fs::path keep_, run_folder_, folder_;
  /// By objective, layers, rows of a batch, layout.
  std::map<std::tuple<std::string, int64_t, int64_t, std::string>, fs::path> runs_;
};

}  // namespace

std::unique_ptr<Command> make_prove() {
  return std::make_unique<Prove>();
}

}  // namespace funicular::cli
