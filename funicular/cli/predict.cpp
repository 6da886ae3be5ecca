// funicular predict: lines in, JSON lines out.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/eval/predictor.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"

namespace funicular::cli {

namespace {

/// A file to read, or standard input.
class Input {
 public:
  explicit Input(const fs::path& path) : name(path.empty() ? "standard input" : path.string()) {
    if (path.empty()) return;
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw InputError("predict", "cannot read --input {}: {}", name, errno_text(errno));
  }
  ~Input() {
    if (descriptor > STDIN_FILENO) ::close(descriptor);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::string name;
  int descriptor = STDIN_FILENO;
};

/// Standard output, or a file that gets its name when it is complete.
class Output {
 public:
  explicit Output(const fs::path& path) : path_(path) {
    if (path.empty()) return;
    // A pipe or a device cannot be replaced by a file.
    const bool special = fs::exists(path) && !fs::is_regular_file(path);
    written_ = special ? path : temporary_name(path);
    writer_.emplace(written_, special ? Opening::follow : Opening::fresh, path);
  }
  ~Output() {
    std::error_code ignored;
    if (writer_ && written_ != path_) fs::remove(written_, ignored);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text) {
    if (writer_) return writer_->write(text);
    while (!text.empty()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
      if (count < 0 && errno == EINTR && !interrupt_requested()) continue;
      if (count < 0) throw RunError("predict", "cannot write to standard output: {}", errno_text(errno));
      text.remove_prefix(static_cast<size_t>(count));
    }
  }

  void finish() {
    if (!writer_) return;
    writer_->close(/*sync=*/written_ != path_);
    writer_.reset();
    if (written_ != path_) fs::rename(written_, path_);
  }

 private:
  fs::path path_, written_;
  std::optional<FileWriter> writer_;
};

class Predict final : public Command {
 public:
  Predict()
      : Command(
            "predict", "Classify lines of text",
            "Reads one text a line (or two, separated by a tab; UTF-8) and writes one JSON object a line, in "
            "the same order: the "
            "label, its probability as score, and the probabilities of all labels.") {
    arguments.section("Input and output");
    declare_model(arguments, model_, "fine-tuned model folder");
    arguments.add("input", "FILE", input_, "the texts").default_text("standard input");
    arguments.add("output", "FILE", output_, "where the answers go; the file appears when it is complete")
        .default_text("standard output");
    arguments.add("pairs", pairs_, "a line is two texts separated by a tab")
        .default_text("as in fine-tuning");
    declare_max_length(arguments, max_length_, "longer texts are truncated")
        .default_text("as in fine-tuning, else the model's longest");
    arguments.section("Machine");
    arguments.add("precision", "NAME", precision_, "arithmetic").choices(model::inference_precisions());
    declare_micro_batch_tokens(arguments, options_.batch_tokens, "bounds the memory", 1)
        .alias("batch-tokens");
    arguments
        .add("window", "LINES", window_,
             "lines read before the first answer; they are sorted by length for speed")
        .default_text("1024; 1 at a terminal")
        .range(1, 1 << 20);
    device_.declare(arguments);
  }

  int run() override {
    device_.apply();
    require_place(output_, "--output");
    const model::Pretrained pretrained(model_);
    const format::BertConfig& config = pretrained.config();
    if (model::is_regression(config))
      throw InputError("predict", "{} is a regression model; expected a classifier", model_.string());
    const std::unique_ptr<text::Tokenizer> tokenizer = pretrained.tokenizer();
    const model::TaskNote note = pretrained.note();
    const int64_t length =
        max_length_.value_or(note.max_length > 0 ? note.max_length : config.longest_sequence());
    pretrained.check_max_length(length);
    options_.sequence.max_length = static_cast<int32_t>(length);
    options_.sequence.truncation = note.pair_truncation();
    const int columns = (arguments.given("pairs") ? pairs_ : note.text_columns == 2) ? 2 : 1;
    pretrained.check_columns(columns, tokenizer->sequence());
    options_.multi_label = objective::is_multi_label(config);
    options_.thresholds = objective::thresholds_in(note.source, config.num_labels);
    const auto objective =
        objective::make_classifier(*tokenizer, config, {.sequence = options_.sequence, .labelled = false});
    Model model = objective->build(pretrained.options(at::kFloat, device_.place()));
    pretrained.load_all(model, objective->head());
    model::prepare_inference(model, precision_);
    answer(eval::Predictor(model, *tokenizer, model::class_names(config), with_window()), columns);
    return 0;
  }

 private:
  eval::PredictorOptions with_window() const {
    eval::PredictorOptions options = options_;
    // A person who types waits for the answer to each line.
    options.window = window_.value_or(input_.empty() && ::isatty(STDIN_FILENO) ? 1 : options.window);
    return options;
  }

  void answer(const eval::Predictor& predictor, int columns) const {
    std::error_code error;
    if (!input_.empty() && !output_.empty() && fs::equivalent(input_, output_, error))
      throw InputError("usage",
                       "--input and --output are both {}; the answers would take the place of the texts",
                       output_.string());
    const Input input(input_);
    const InterruptGuard guard;  // from here on, so that no signal leaves an unfinished file behind
    Output output(output_);
    format::TextOptions layout;
    layout.format = columns == 2 ? format::TextFormat::tsv : format::TextFormat::lines;
    layout.keep_blank_lines = true;  // one answer a line, also for a blank one
    format::StreamRowReader rows(input.descriptor, input.name, layout);
    const auto done =
        predictor.stream(rows, columns, input.name, [&](std::string_view lines) { output.write(lines); });
    output.finish();
    report_truncated(done.truncated, done.rows, input.name, options_.sequence.max_length);
    if (done.tabs > 0)
      log::warning(
          "{}: {} of {} lines hold a tab, and each whole line was taken as one text; --pairs takes two "
          "texts a line, and of a table give only the column of the text (cut -f)",
          input.name, done.tabs, done.rows);
  }

  fs::path model_, input_, output_;
  std::string precision_ = "fp32";
  bool pairs_ = false;
  std::optional<int64_t> max_length_, window_;
  eval::PredictorOptions options_;
  DeviceOptions device_;
};

}  // namespace

std::unique_ptr<Command> make_predict() {
  return std::make_unique<Predict>();
}

}  // namespace funicular::cli
