// funicular probe: what each layer of an encoder knows of a task.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/number.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/cli/task_options.h"
#include "funicular/optim/adamw.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/probe.h"
#include "funicular/train/saved_model.h"

namespace funicular::cli {

namespace {

constexpr const char* kAllLayers = "all";

class Probe final : public Command {
 public:
  Probe()
      : Command("probe",
                "Shows what each layer of an encoder knows of a task. A linear classifier per layer learns "
                "the rows of "
                "--train from the layer's hidden states, all at once; the encoder does not learn. Prints a "
                "table of the "
                "layers, and how many layers a student needs. The last line of output is one JSON object; "
                "report --input "
                "OUTPUT draws the layers.") {
    arguments.example("see which layers tell the classes apart",
                      "funicular probe --model MODEL --train train.tsv --eval eval.tsv --output runs/probe");
    arguments.example("probe the embeddings and the last layer of a base model",
                      "funicular probe --model MODEL --train train.tsv --eval eval.tsv --layers 0 12 "
                      "--output runs/probe");
    arguments.section("Input and output");
    declare_model(arguments, options_.model, "folder of any encoder");
    task_.declare_name(arguments, task::task_names()).default_text("guessed from the training rows");
    arguments.add("train", "FILE", options_.train_file, Effect::input, "training rows")
        .alias("train-file")
        .required();
    arguments.add("eval", "FILE", options_.eval_file, Effect::input, "rows on which the layers are compared")
        .alias("validation-file")
        .required();
    arguments
        .add("output", "DIR", options_.trainer.output, Effect::output,
             "folder for the run: the probes, curves and evaluation.json")
        .alias("output-dir")
        .required();
    task_.declare_bad_rows(arguments);
    arguments.section("Probes");
    arguments
        .add("layers", "N", layers_, Effect::result,
             "layers to probe, counted from 1, and 0 for the embeddings; or all")
        .common()
        .default_text("all");
    arguments
        .add("pooling", "NAME", pooling_, Effect::result,
             "input of a probe: the mean of a text's tokens, or the first token")
        .choices({"mean", "first"});
    arguments
        .add("margin", "SHARE", options_.margin, Effect::result,
             "a student needs the lowest layer whose accuracy is at most this below the best layer's")
        .range(0, 1);
    declare_max_length(arguments, options_.max_length, "longer rows are truncated")
        .default_text(kDefaultLength);
    task_.declare(arguments);
    declare_training();
  }

  int run() override {
    device_.apply();
    require_folder_name(options_.trainer.output, "--output");
    train::check_saved_model(options_.trainer.output);
    warn_of_other_files(options_.trainer.output);
    const task::ProbeResult found = task::probe(options());
    if (found.run.fit.interrupted) return report_result(found.run.fit, found.run.options, {});
    print_table(found.probe);
    fmt::print("{}\n", json_text(task::with_cut(OrderedJson{{"probe", found.probe}}, found.run.cut)));
    return 0;
  }

 private:
  void declare_training() {
    arguments.section("Training of the probes");
    arguments.add("num-train-epochs", "N", epochs_, Effect::result, "passes over the rows").above(0);
    arguments.add("batch-size", "ROWS", options_.trainer.batch_size, Effect::result, "rows per step")
        .range(1);
    arguments.add("learning-rate", "RATE", rate_, Effect::result, "AdamW's").alias("lr").above(0);
    arguments.section("Machine and randomness");
    declare_micro_batch_tokens(arguments, options_.trainer.micro_batch_tokens, "0: no limit");
    arguments.add("precision", "NAME", precision_, Effect::result, "arithmetic of the encoder")
        .choices({kAutoPrecision, "fp32", "bf16", "fp64"})
        .default_text("auto: the one that fits this machine");
    declare_seed(arguments, options_.trainer.seed, "of the order of rows and of the first weights");
    device_.declare(arguments);
  }

  const task::ProbeOptions& options() {
    if (task_.stride) throw InputError("usage", "--stride: probe reads no windows; leave it out");
    options_.task = task_.task_of_rows(options_.train_file, arguments);
    options_.bad_rows = task_.bad_rows();
    options_.mean = pooling_ == "mean";
    options_.layers = layers();
    options_.device = device_.place();
    options_.trainer.num_train_epochs = epochs_;
    options_.optimizer = optim::AdamW{.learning_rate = rate_};
    const std::string precision = resolve_inference_precision(precision_, device_.place());
    if (precision == "fp64")
      options_.dtype = at::kDouble;
    else
      options_.trainer.precision = parse_precision(precision);
    return options_;
  }

  std::set<int64_t> layers() const {
    std::set<int64_t> found;
    if (layers_.empty() || layers_ == std::vector<std::string>{kAllLayers}) return found;
    for (const std::string& text : layers_) {
      const auto value = read_number(text);
      if (!value || *value < 0 || *value != static_cast<double>(static_cast<int64_t>(*value)))
        throw InputError("usage", "--layers expects numbers of layers from 0, or all, found \"{}\"", text);
      found.insert(static_cast<int64_t>(*value));
    }
    return found;
  }

  static void print_table(const OrderedJson& probe) {
    fmt::print("layer  accuracy  macro F1\n");
    for (const OrderedJson& row : probe["layers"])
      fmt::print("{:>5}  {:>8.4f}  {:>8.4f}\n", row["layer"].get<int64_t>(), row["accuracy"].get<double>(),
                 row["macro_f1"].get<double>());
    fmt::print("the most frequent class alone: {:.4f}\n", probe["most_frequent"].get<double>());
    fmt::print("best: layer {}, {:.4f} (standard error {:.4f})\n", probe["best_layer"].get<int64_t>(),
               probe["best_accuracy"].get<double>(), probe["standard_error"].get<double>());
    fmt::print("a student needs {} layers: the lowest within {:g} of the best\n",
               probe["student_layers"].get<int64_t>(), probe["margin"].get<double>());
  }

  task::ProbeOptions options_ = defaults();
  static task::ProbeOptions defaults() {
    task::ProbeOptions options;
    options.trainer.batch_size = 32;
    options.trainer.micro_batch_tokens = 8192;
    return options;
  }
  TaskOptions task_;
  std::vector<std::string> layers_;
  std::string pooling_ = "mean", precision_ = kAutoPrecision;
  double epochs_ = 5, rate_ = 1e-3;
  DeviceOptions device_;
};

}  // namespace

std::unique_ptr<Command> make_probe() {
  return std::make_unique<Probe>();
}

}  // namespace funicular::cli
