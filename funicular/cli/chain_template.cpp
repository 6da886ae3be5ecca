#include "funicular/cli/chain_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/chain/state.h"
#include "funicular/format/delimited.h"
#include "funicular/format/model_config.h"
#include "funicular/format/row_rules.h"
#include "funicular/format/text_format.h"
#include "funicular/task/abstention_file.h"

namespace funicular::cli {

namespace {

constexpr const char* kLlmLabels = "llm-labels";

std::string quoted(const std::string& text) {
  std::string found = "\"";
  for (const char c : text) found += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  return found + "\"";
}

std::string list_of(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) all.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string path_of(const fs::path& path) {
  return quoted(fs::absolute(path).lexically_normal().string());
}

/// The names of a table's columns, or the first object of JSON lines.
class FirstRow {
 public:
  explicit FirstRow(const fs::path& path) : path_(path) {
    const format::TextFormat format = format::guess_text_format(path);
    const format::TextFile file(path, {.format = format, .header = format::has_columns(format)});
    if (format == format::TextFormat::jsonl) {
      object_ = parse_json_or_null(file.text().substr(0, file.text().find('\n')));
      if (!object_.is_object())
        throw InputError("usage", "{}:1: expected a JSON object per line", path.string());
      for (const auto& [key, value] : object_.items()) names_.push_back(key);
    } else {
      names_ = file.header();
    }
  }

  bool holds_object(const std::string& name) const {
    return object_.is_object() && object_.contains(name) && object_[name].is_object();
  }

  /// Throws InputError unless the file has the column. NAME* is any column that begins so.
  void require(const std::string& column, const char* option) const {
    if (std::holds_alternative<size_t>(format::column_from_text(column))) return;
    const std::string start = column.substr(0, column.size() - column.ends_with('*'));
    const bool found = std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
      return column.ends_with('*') ? name.starts_with(start) : name == column;
    });
    if (!found)
      throw InputError("usage",
                       "{}: there is no column \"{}\"; the columns are {}. Name another one with --{}",
                       path_.string(), column, fmt::join(names_, ", "), option);
  }

 private:
  fs::path path_;
  std::vector<std::string> names_;
  Json object_;
};

bool is_begun(const fs::path& folder) {
  const fs::path file = folder / "chain.state" / "state.json";
  if (!fs::exists(file)) return false;
  const auto state = chain::read_state(file);
  return std::any_of(state.steps.begin(), state.steps.end(),
                     [](const auto& step) { return step.second.done; });
}

}  // namespace

void ChainTemplate::declare(Arguments& arguments) {
  arguments
      .add("template", "NAME", name, Effect::result,
           "instead of FILE: write a chain into --output and run it; llm-labels makes a small calibrated "
           "model "
           "from rows with shares")
      .choices({kLlmLabels})
      .default_text("none");
  arguments.add("model", "DIR", model, Effect::input, "with --template: the pre-trained model")
      .takes_model()
      .default_text("none");
  arguments.add("train", "FILE", rows, Effect::input, "with --template: rows with shares")
      .formerly("rows")
      .default_text("none");
  arguments
      .add("eval", "FILE", eval, Effect::input,
           "with --template: rows with a label, by which models are chosen and the student is calibrated")
      .default_text("none");
  arguments.add("test", "FILE", test, Effect::input, "with --template: rows with a label, for the tests")
      .default_text("none");
  arguments.add("output", "DIR", output, Effect::output, "with --template: folder for all that is made")
      .default_text("none");
  arguments.add("text-column", "COLUMN", text, Effect::result, "with --template: the columns of the text")
      .default_text("text");
  arguments
      .add("soft-columns", "COLUMN", soft_columns, Effect::result,
           "with --template: the columns of the shares, as for finetune")
      .default_text("p_*; in JSON lines the key shares, or --label-column if an object is there");
  arguments.add("label-column", "COLUMN", label, Effect::result,
                "with --template: the label of --eval and --test");
}

std::vector<std::string> ChainTemplate::text_columns() const {
  return text.empty() ? std::vector<std::string>{"text"} : text;
}

std::vector<std::string> ChainTemplate::share_columns() const {
  if (!soft_columns.empty()) return soft_columns;
  if (format::guess_text_format(rows) != format::TextFormat::jsonl) return {"p_*"};
  return {FirstRow(rows).holds_object(label) ? label : "shares"};
}

void ChainTemplate::check_columns() const {
  const FirstRow learnt(rows);
  for (const std::string& column : text_columns()) learnt.require(column, "text-column");
  for (const std::string& column : share_columns()) learnt.require(column, "soft-columns");
  for (const fs::path& file : {eval, test}) {
    const FirstRow labelled(file);
    for (const std::string& column : text_columns()) labelled.require(column, "text-column");
    labelled.require(label, "label-column");
    if (labelled.holds_object(label))
      throw InputError("usage", "{}:1: \"{}\" holds an object; expected one label per row", file.string(),
                       label);
  }
}

fs::path ChainTemplate::write() const {
  const std::string text = chain();
  make_directories(output);
  const fs::path file = output / "chain.toml";
  if (fs::exists(file) && read_file(file) != text) {
    if (is_begun(output))
      throw InputError(
          "usage",
          "{} is there and differs from what --template would write. To run it as it is: funicular "
          "chain {}. To start again, give another --output",
          file.string(), file.string());
    fs::rename(file, output / "chain.toml.old");
    log::info("{} differs and no step is done yet; the earlier file is kept as chain.toml.old",
              file.string());
  }
  write_file_atomically(file, text);
  log::info("{} has the steps; edit it and run it again with funicular chain {}", file.string(),
            file.string());
  return file;
}

std::string ChainTemplate::chain() const {
  const std::pair<const char*, const fs::path*> needed[] = {
      {"model", &model}, {"train", &rows}, {"eval", &eval}, {"test", &test}, {"output", &output}};
  for (const auto& [option, path] : needed)
    if (path->empty()) throw InputError("usage", "--template {} expects --{}", name, option);
  check_columns();
  const int64_t layers = format::read_model_config(model).encoder.layers,
                few = std::max<int64_t>(1, layers / 2);
  const std::vector<std::string> columns = share_columns();
  const bool lines = format::guess_text_format(rows) == format::TextFormat::jsonl;
  const std::string texts = fmt::format("text-column = {}\n", list_of(text_columns()));
  const std::string shares =
      lines ? fmt::format("soft-labels = true\nlabel-column = {}\n", quoted(columns.front()))
            : fmt::format("soft-columns = {}\n", list_of(columns));
  const std::string labels = fmt::format("label-column = {}\n", quoted(label));
  const std::string training = "batch-size = 32\nlearning-rate = 1e-4\nwarmup-ratio = 0.1\nsave-steps = 0\n";
  const std::string eval_file = fmt::format("eval = {}\n", path_of(eval));
  std::string chain = fmt::format(
      "# From rows with shares to a small model: funicular chain --template {}. Edit it as you like.\n\n",
      kLlmLabels);
  chain += fmt::format(
      "# Learns the shares. The best model is chosen by rows that people have labelled.\n"
      "[teacher]\ncommand = \"finetune\"\nmodel = {}\ntask = \"custom\"\ntrain = {}\n{}{}{}"
      "eval-label-column = {}\nnum-train-epochs = 3\n{}output = \"teacher\"\n\n",
      path_of(model), path_of(rows), texts, shares, eval_file, quoted(label), training);
  chain += fmt::format("# Has {} of {} layers. Learns the teacher's answers.\n", few, layers);
  chain +=
      fmt::format("[student]\ncommand = \"distill\"\nstage = \"prediction\"\nteacher = \"teacher/model\"\n");
  chain += fmt::format("student = \"{}-layer{}\"\ninit-layers = \"even\"\n", few, few == 1 ? "" : "s");
  chain += fmt::format("task = \"custom\"\ntrain = {}\n{}{}{}", path_of(rows), texts, labels, eval_file);
  chain += "terms = [\"soft\"]\nsoft-mean = \"rows\"\ntemperature = 2.0\ncache-teacher = \"answers\"\n";
  chain += fmt::format("num-train-epochs = 4\n{}output = \"student\"\n\n", training);
  const auto evaluated = [&](const char* step, const char* of, const fs::path& input,
                             const std::string& more) {
    return fmt::format(
        "[{}]\ncommand = \"evaluate\"\nmodel = \"{}\"\ntask = \"custom\"\ninput = {}\n{}{}{}\n", step, of,
        path_of(input), texts, labels, more);
  };
  chain += "# The student with a temperature that makes its probabilities honest.\n" +
           evaluated("calibrated", "student/model", eval, "calibrate = true\ncalibrated = \"model\"\n");
  chain += "# In 8-bit products, as predict --precision int8 computes.\n" +
           evaluated("test", "model", test, "precision = \"int8\"\noutput = \"tested/student\"\n");
  chain += evaluated("test-teacher", "teacher/model", test, "output = \"tested/teacher\"\n");
  chain +=
      "[page]\ncommand = \"report\"\ninput = [\"tested/student\", \"tested/teacher\", \"student\", "
      "\"teacher\"]\n"
      "output = \"report.html\"\ntitle = \"A small model from soft labels\"\n";
  return chain;
}

void ChainTemplate::show_abstention() const {
  const fs::path file = output / "tested" / "student" / task::kAbstentionFile;
  std::string table = read_file(file);
  while (table.ends_with('\n')) table.pop_back();
  std::replace(table.begin(), table.end(), '\t', ' ');
  log::info("{}", table);
  log::info("{} has this table; predict --abstain THRESHOLD leaves the least certain rows without a label",
            file.string());
  log::info("the model is in {}", (output / "model").string());
}

}  // namespace funicular::cli
