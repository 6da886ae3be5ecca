// funicular predict: lines in, JSON lines out.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/command.h"
#include "funicular/cli/cut_texts.h"
#include "funicular/cli/input.h"
#include "funicular/cli/options.h"
#include "funicular/cli/sharing_ranks.h"
#include "funicular/cli/task_options.h"
#include "funicular/cli/word_input.h"
#include "funicular/comm/together.h"
#include "funicular/eval/folder_predictor.h"
#include "funicular/eval/predictor.h"
#include "funicular/eval/tagger.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/token_classifier.h"

namespace funicular::cli {

namespace {

/// Standard output, or a file that gets its name when it is complete.
class Output {
 public:
  explicit Output(const fs::path& path) {
    if (path.empty()) return;
    // A pipe or a device cannot be replaced by a file.
    const bool special = fs::exists(path) && !fs::is_regular_file(path);
    if (!special) temporary_.emplace(path, Temporary::Kind::file);
    writer_.emplace(special ? path : temporary_->path(), special ? Opening::follow : Opening::replace, path);
  }

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
    writer_->close(/*sync=*/temporary_.has_value());
    writer_.reset();
    if (temporary_) temporary_->rename_file();
  }

 private:
  std::optional<Temporary> temporary_;
  std::optional<FileWriter> writer_;
};

class Predict final : public Command {
 public:
  Predict()
      : Command("predict",
                "Reads one text per line (or two, separated by a tab), or the rows of a table. Writes a JSON "
                "object, or a row of a CSV or TSV file, for each text in the same order. A classifier "
                "gives the label, its probability as score, and the probabilities of all labels. A "
                "regression model gives its value. A model of --task tags reads words that blanks "
                "separate, and gives each word's tag and the entities. Under "
                "funicular launch "
                "the ranks share the rows of a file: the same answers, sooner.") {
    arguments.section("Input and output");
    declare_model(arguments, model_, "fine-tuned model folder");
    arguments.add("input", "FILE", input_, "the texts").default_text("standard input");
    arguments
        .add("output", "FILE", output_,
             "file for the answers; appears when it is complete. Its ending sets the form: .jsonl, .json, "
             ".csv, "
             ".tsv")
        .default_text("standard output, as JSON lines");
    arguments.add("overwrite", overwrite_, "replace the file of --output if there is one");
    arguments.add("pairs", pairs_, "a line is two texts separated by a tab")
        .default_text("as in fine-tuning");
    arguments
        .add("format", "NAME", format_,
             "lines: a text a line; tsv, csv, jsonl: rows, of which the columns are read that the model was "
             "fine-tuned on; conll: a word a line, of models of tags")
        .choices({"lines", "tsv", "csv", "jsonl", "conll"})
        .default_text("by the file's name; lines of standard input");
    arguments
        .add("text-column", "COLUMN", columns_.custom.text,
             "of tables: one text column, or two for pairs, or more, which are joined into one text")
        .alias("text-columns")
        .default_text("as in fine-tuning, else text");
    arguments
        .add("header", columns_.custom.header,
             "the first row of TSV and CSV names the columns; --no-header: it is data")
        .default_text("as in fine-tuning, else on");
    columns_.written.declare(arguments);
    arguments.add(
        "skip-bad-rows", skip_bad_rows_,
        "answer a row that cannot be read by {\"error\": …} and go on, instead of stopping at the first");
    declare_max_length(arguments, max_length_, "longer texts are truncated")
        .default_text("as in fine-tuning, else the model's longest");
    arguments.section("Machine");
    declare_inference_precision(arguments, precision_);
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
    refuse_input_of_one_rank();
    group_ = join_sharing_ranks(device_);
    precision_ =
        comm::from_first(group_, [&] { return resolve_inference_precision(precision_, device_.place()); });
    comm::together(group_, [&] {
      if (group_.rank() == 0) require_place(output_, "--output");
    });
    form_ = answer_format(output_, "--output");
    const model::Pretrained pretrained(model_);
    const format::ModelConfig& config = pretrained.config();
    const std::unique_ptr<text::Tokenizer> tokenizer = pretrained.tokenizer();
    const model::TaskNote note = pretrained.note();
    const int64_t batch_tokens = options_.batch_tokens;
    options_ = eval::predictor_options(pretrained, max_length_);
    options_.batch_tokens = batch_tokens;
    if (model::is_token_classifier(config)) {
      tag(pretrained, note, *tokenizer);
      return 0;
    }
    const format::TextOptions layout = layout_of(note);
    const auto columns =
        static_cast<int>(layout.columns.empty() ? texts_of_line(note) : layout.columns.size());
    pretrained.check_columns(format::texts_of_columns(static_cast<size_t>(columns)), tokenizer->sequence());
    const Model model = load(pretrained, *tokenizer);
    require_same_rows(pretrained);
    const eval::Predictor predictor(model, *tokenizer, model::class_names(config), with_window());
    const eval::Prediction none{.probabilities = std::vector<float>(static_cast<size_t>(config.num_labels))};
    if (options_.multi_label) columns_.take_note(note.source, arguments);
    text_.emplace(form_, predictor.to_json(none), skip_bad_rows_, columns_.custom.label_separator);
    answer(predictor, layout, columns);
    return 0;
  }

 private:
  Model load(const model::Pretrained& pretrained, const text::Tokenizer& tokenizer) const {
    return eval::load_classifier(pretrained, tokenizer, options_.sequence, precision_, device_.place());
  }

  /// A tag for each word, text by text.
  void tag(const model::Pretrained& pretrained, const model::TaskNote& note,
           const text::Tokenizer& tokenizer) {
    if (arguments.given("pairs") || format_ == "tsv" || format_ == "csv" || arguments.given("header") ||
        arguments.given("quotes"))
      throw InputError("usage",
                       "{} gives each word of a text a tag. It reads lines of words, CoNLL's formats and "
                       "lists of words in "
                       "JSON lines. Leave out --pairs, --header, --quotes and --format {}",
                       model_.string(), format_.empty() ? "tsv or csv" : format_);
    refuse_table(form_, output_, "--output");
    text_.emplace(form_, "{}", skip_bad_rows_);
    columns_.name = eval::kTagTask;
    columns_.take_note(note.source, arguments);
    const Model model = load(pretrained, tokenizer);
    require_same_rows(pretrained);
    const eval::Tagger tagger(model, tokenizer, model::class_names(pretrained.config()),
                              {options_.sequence, options_.batch_tokens, with_window().window});
    refuse_to_replace_input();
    const auto bad_rows = bad_rows_of_input();
    const InterruptGuard guard;
    std::unique_ptr<WordInput> input;
    std::optional<Output> output;
    comm::together(group_, [&] {
      input = open_words(input_, format_, columns_.columns(), bad_rows);
      open(output);
    });
    const auto done = tagger.stream([&] { return input->next(); }, writer(output), share());
    finish(output, *bad_rows);
    const std::string name = input_.empty() ? "standard input" : input_.string();
    report_cut(done.cut, name, options_.sequence.max_length, "have the tag null");
    report_textless(done.textless, done.texts, name, done.first_textless);
  }

  /// Rank 0 alone has an output.
  void open(std::optional<Output>& output) const {
    if (group_.rank() > 0) return;
    require_new_file(output_, "--output", overwrite_);
    output.emplace(output_);
    output->write(text_->begin());
  }

  std::function<void(std::string_view)> writer(std::optional<Output>& output) {
    return [&](std::string_view lines) {
      if (output) output->write(text_->rows(lines));
    };
  }

  std::shared_ptr<format::BadRows> bad_rows_of_input() const {
    return std::make_shared<format::BadRows>(
        skip_bad_rows_, "--skip-bad-rows answers such rows by {\"error\": …} and goes on");
  }

  void finish(std::optional<Output>& output, const format::BadRows& bad_rows) const {
    comm::together(group_, [&] {
      if (!output) return;
      output->write(text_->end());
      output->finish();
    });
    if (bad_rows.count() > 0) log::warning("{}", bad_rows.summary("gave an error instead of an answer to"));
  }

  static void report_textless(int64_t textless, int64_t rows, const std::string& name, int64_t first_line) {
    if (textless > 0)
      log::warning("{}: {} of {} rows have no text, the first is line {}; the answers to them mean nothing",
                   name, textless, rows, first_line);
  }

  void require_same_rows(const model::Pretrained& pretrained) const {
    require_same_work(group_, "predict", [&] {
      return fmt::format("{:016x} {} {} {} {} {} {} {} {}", hash_file(input_), columns_.written.encoding,
                         columns_.written.quotes, pretrained.weights_hash(), precision_,
                         options_.sequence.max_length, with_window().window, options_.batch_tokens,
                         skip_bad_rows_);
    });
  }

  eval::PredictorOptions with_window() const {
    eval::PredictorOptions options = options_;
    // A person who types waits for the answer to each line.
    options.window = window_.value_or(input_.empty() && ::isatty(STDIN_FILENO) ? 1 : options.window);
    return options;
  }

  size_t texts_of_line(const model::TaskNote& note) const {
    return (arguments.given("pairs") ? pairs_ : note.text_columns == 2) ? 2 : 1;
  }

  format::TextFormat format_of_input() const {
    if (!format_.empty()) return format::text_format_from_name(format_);
    if (input_.empty() || arguments.given("pairs")) return format::TextFormat::lines;
    const format::TextFormat guess = format::guess_text_format(input_);
    return guess == format::TextFormat::text ? format::TextFormat::lines : guess;
  }

  /// How the input's rows lie. Lines have no columns; those of tables are the ones of fine-tuning, unless they are
  /// given.
  format::TextOptions layout_of(const model::TaskNote& note) {
    format::TextOptions layout;
    layout.format = format_of_input();
    layout.style = columns_.written.style();
    if (layout.format == format::TextFormat::lines) {
      for (const char* option : {"text-column", "header"})
        if (arguments.given(option))
          throw InputError(
              "usage", "--{} is of tables; --input is read as lines (--format tsv, csv or jsonl)", option);
      if (texts_of_line(note) == 1 && arguments.given("quotes"))
        throw InputError("usage", "--quotes is for tables; --input is read as lines (--format tsv or csv)");
      if (texts_of_line(note) == 2) {
        layout.format = format::TextFormat::tsv;  // of which each line has an answer
        if (layout.style.quotes == format::Quotes::automatic) layout.style.quotes = format::Quotes::none;
      }
      layout.keep_blank_lines = true;  // one answer a line, also for a blank one
      return layout;
    }
    if (arguments.given("pairs"))
      throw InputError("usage", "--pairs is of lines; give the columns of {} with --text-column", format_);
    if (note.task == "custom") {
      columns_.take_note(note.source, arguments);
    } else if (!note.task.empty()) {
      const eval::Task task = eval::find_task(note.task);
      if (!arguments.given("text-column")) layout.columns = task.layout.text_columns;
      if (!arguments.given("header")) columns_.custom.header = task.layout.header;
    }
    layout.header = columns_.custom.header && layout.format != format::TextFormat::jsonl;
    if (!layout.columns.empty()) return layout;
    if (columns_.custom.text.empty()) columns_.custom.text = {"text"};
    for (const auto& column : columns_.custom.text)
      layout.columns.push_back(format::column_from_text(column));
    if (!note.task.empty() && format::texts_of_columns(layout.columns.size()) != note.text_columns)
      throw InputError("usage", "{} was fine-tuned on {}; give as many with --text-column", model_.string(),
                       note.text_columns == 2 ? "pairs of texts" : "single texts");
    return layout;
  }

  /// What can be read once is for one process.
  void refuse_input_of_one_rank() const {
    std::error_code ignored;
    if (launch::read_environment().size == 1 || fs::is_regular_file(input_, ignored)) return;
    if (input_.empty())
      throw InputError(
          "usage",
          "several ranks share the rows of a file, and standard input is none: give --input FILE, "
          "or leave out funicular launch");
    if (fs::exists(input_, ignored))
      throw InputError(
          "usage",
          "--input {}: several ranks share the rows of a regular file; write its contents to one, or "
          "leave out funicular launch",
          input_.string());
  }

  /// Rank 0 writes what all have answered.
  eval::RowShare share() const {
    if (group_.size() == 1) return {};
    return {group_.rank(), group_.size(), [this](const std::function<std::string()>& make) {
              std::string own;
              comm::together(group_, [&] { own = make(); });
              return group_.gather_texts(own);
            }};
  }

  void refuse_to_replace_input() const {
    std::error_code error;
    if (!input_.empty() && !output_.empty() && fs::equivalent(input_, output_, error))
      throw InputError("usage",
                       "--input and --output are both {}; the answers would take the place of the texts",
                       output_.string());
  }

  void answer(const eval::Predictor& predictor, format::TextOptions layout, int columns) {
    refuse_to_replace_input();
    const InterruptGuard guard;  // from here on, so that no signal leaves an unfinished file behind
    std::optional<Input> opened;
    std::optional<Output> output;
    comm::together(group_, [&] {
      opened.emplace(input_);
      open(output);
    });
    const Input& input = *opened;
    layout.bad_rows = bad_rows_of_input();
    format::StreamRowReader rows(input.descriptor, input.name, layout);
    const auto done = predictor.stream(rows, columns, input.name, writer(output), share());
    finish(output, *layout.bad_rows);
    report_cut(done.cut, input.name, options_.sequence.max_length, "the answers come from the rest");
    report_textless(done.textless, done.rows, input.name, done.first_textless);
    if (layout.format != format::TextFormat::lines) return;
    if (done.objects > 0)
      log::warning(
          "{}: {} of {} lines look like JSON, and each whole line was taken as one text; --format "
          "jsonl "
          "reads the texts in them",
          input.name, done.objects, done.rows);
    if (done.tabs > 0)
      log::warning(
          "{}: {} of {} lines hold a tab, and each whole line was taken as one text; --pairs takes two "
          "texts a line, and of a table give only the column of the text (cut -f)",
          input.name, done.tabs, done.rows);
  }

  fs::path model_, input_, output_;
  std::string precision_ = kAutoPrecision, format_;
  AnswerFormat form_ = AnswerFormat::json_lines;
  std::optional<AnswerText> text_;
  TaskOptions columns_{"custom", {}};
  bool pairs_ = false, overwrite_ = false, skip_bad_rows_ = false;
  std::optional<int64_t> max_length_, window_;
  eval::PredictorOptions options_;
  DeviceOptions device_;
  comm::Group group_;
};

}  // namespace

std::unique_ptr<Command> make_predict() {
  return std::make_unique<Predict>();
}

}  // namespace funicular::cli
