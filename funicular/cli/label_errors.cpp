// funicular label-errors: which labels of a file are probably wrong.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/command.h"
#include "funicular/task/confident_learning.h"
#include "funicular/task/folds.h"

namespace funicular::cli {

namespace {

/// How far from 1 rounding may move the sum of a row's probabilities.
constexpr double kSumTolerance = 0.05;

/// Rows with labels and probabilities, as JSON lines have them.
class JudgedFile {
 public:
  explicit JudgedFile(const fs::path& file) : file_(file) {
    const std::string text = read_text(file, "predictions with labels");
    for (size_t begin = 0, line = 1; begin < text.size(); ++line) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      if (end > begin) add(std::string_view(text).substr(begin, end - begin), line);
      begin = end + 1;
    }
    if (lines_.size() < 2)
      throw InputError("label-errors", "{}: expected two rows or more, one per line; found {}", file.string(),
                       lines_.size());
  }

  const task::JudgedRows& rows() const { return rows_; }
  /// The row's number, label and texts, as far as the file has them.
  OrderedJson line(int64_t row) const {
    const OrderedJson& found = lines_.at(static_cast<size_t>(row));
    OrderedJson line{{"row", found.contains("row") ? found["row"] : OrderedJson(row + 1)}};
    for (const char* key : {"text", "texts"})
      if (found.contains(key) && found[key].is_string())
        line["text"] = found[key];
      else if (found.contains(key) && found[key].is_array())
        for (size_t i = 0; i < found[key].size(); ++i)
          line[i == 0 ? "text" : fmt::format("text_{}", i + 1)] = found[key][i];
    return line;
  }
  const std::string& name(int64_t label) const { return names_.at(static_cast<size_t>(label)); }

 private:
  [[noreturn]] void refuse(size_t line, const std::string& problem) const {
    throw InputError("label-errors", "{}:{}: {}", file_.string(), line, problem);
  }

  void add(std::string_view text, size_t line) {
    const auto object = parse_json_or_null<OrderedJson>(text);
    if (!object.is_object() || !object.contains("label") || !object["label"].is_string() ||
        !object.contains("probabilities") || !object["probabilities"].is_object())
      refuse(line,
             "expected an object with the row's label and probabilities, such as {\"label\": \"pro\", "
             "\"probabilities\": {\"contra\": 0.1, \"pro\": 0.9}}; funicular finetune --folds and evaluate "
             "--predictions write such lines for classes");
    if (names_.empty()) take_names(object["probabilities"], line);
    const auto label = std::find(names_.begin(), names_.end(), object["label"].get<std::string>());
    if (label == names_.end())
      refuse(line, fmt::format("the label {} has no probability", object["label"].dump()));
    if (object["probabilities"].size() != names_.size())
      refuse(line, fmt::format("expected {} probabilities as in the lines before, found {}", names_.size(),
                               object["probabilities"].size()));
    for (const std::string& name : names_) {
      const auto found = object["probabilities"].find(name);
      if (found == object["probabilities"].end() || !found->is_number() || !(found->get<double>() >= 0) ||
          !(found->get<double>() <= 1))
        refuse(line, fmt::format("expected a probability from 0 to 1 of \"{}\"", name));
      rows_.probabilities.push_back(found->get<double>());
    }
    const double sum =
        std::accumulate(rows_.probabilities.end() - std::ssize(names_), rows_.probabilities.end(), 0.0);
    if (std::abs(sum - 1) > kSumTolerance)
      refuse(line, fmt::format("the probabilities sum to {:.4g}; expected 1, or within {} of it", sum,
                               kSumTolerance));
    rows_.labels.push_back(label - names_.begin());
    lines_.push_back(object);
    lines_.back().erase("probabilities");
  }

  void take_names(const OrderedJson& probabilities, size_t line) {
    for (const auto& [name, value] : probabilities.items()) names_.push_back(name);
    if (names_.size() < 2) refuse(line, "expected probabilities of at least two classes");
    rows_.classes = std::ssize(names_);
  }

  fs::path file_;
  std::vector<std::string> names_;
  std::vector<OrderedJson> lines_;
  task::JudgedRows rows_;
};

class LabelErrors final : public Command {
 public:
  LabelErrors()
      : Command(
            "label-errors",
            "Finds labels that are probably wrong, by confident learning, from answers of models that have "
            "not seen the rows.") {
    arguments.example("find wrong labels by a run of finetune --folds", "funicular label-errors runs/folds");
    arguments.example("judge probabilities of another program",
                      "funicular label-errors answers.jsonl --output suspects.csv");
    arguments.unnamed({"predictions"});
    arguments
        .add("predictions", "RUN|FILE", predictions_, Effect::input,
             "folder of a run in folds, or JSON lines with the keys label and probabilities, and perhaps row "
             "and texts")
        .required();
    arguments
        .add("output", "FILE", output_, Effect::output,
             fmt::format("file for the suspects, the most certain one first: {}", answer_endings()))
        .default_text("RUN/suspects.csv, or suspects.csv beside FILE");
    arguments.add("filter", "NAME", filter_, task::suspect_filter_names(), Effect::result,
                  "cleanlab's rule for suspected rows: by the estimated joint of given and probable labels, "
                  "or the rows counted in it");
    arguments.add("rank-by", "NAME", order_, task::suspect_order_names(), Effect::result,
                  "how suspects are put in order: by the label's probability, or by its distance to the best "
                  "other one");
  }

  int run() override {
    const bool is_run = fs::is_directory(predictions_);
    const fs::path file = is_run ? predictions_ / task::kFoldAnswers : predictions_;
    if (is_run && !fs::exists(file))
      throw InputError(
          "label-errors",
          "{} holds no {}: expected the finished run of funicular finetune --folds; to resume it, "
          "repeat its command",
          predictions_.string(), task::kFoldAnswers);
    if (output_.empty()) output_ = file.parent_path() / "suspects.csv";
    std::error_code ignored;
    if (fs::equivalent(output_, file, ignored))
      throw InputError("usage",
                       "--output {} is the file that is read; expected another name for the suspects",
                       output_.string());
    const AnswerFormat format = answer_format(output_, "output");
    const JudgedFile judged(file);
    const std::vector<task::Suspect> suspects = task::find_suspects(judged.rows(), filter_, order_);
    write(judged, suspects, format);
    log::info("{} of {} labels are suspected; {} has the most certain ones first", suspects.size(),
              judged.rows().rows(), output_.string());
    fmt::print("{}\n", json_text(OrderedJson{{"rows", judged.rows().rows()},
                                             {"suspects", suspects.size()},
                                             {"wrong", wrong(judged.rows())}}));
    return 0;
  }

 private:
  /// The estimated share of wrong labels: what the joint counts off its diagonal.
  static double wrong(const task::JudgedRows& rows) {
    const auto joint = task::confident_joint(rows);
    int64_t right = 0;
    for (size_t label = 0; label < joint.size(); ++label) right += joint[label][label];
    return 1 - static_cast<double>(right) / static_cast<double>(rows.rows());
  }

  static OrderedJson suspect(const JudgedFile& judged, const task::Suspect& found) {
    const std::span<const double> probabilities = judged.rows().of(found.row);
    const int64_t label = judged.rows().labels[static_cast<size_t>(found.row)];
    OrderedJson line = judged.line(found.row);
    line["label"] = judged.name(label);
    line["suggested"] = judged.name(found.suggested);
    line["certainty"] = found.certainty;
    line["label_probability"] = probabilities[static_cast<size_t>(label)];
    line["suggested_probability"] = probabilities[static_cast<size_t>(found.suggested)];
    return line;
  }

  void write(const JudgedFile& judged, const std::vector<task::Suspect>& suspects,
             AnswerFormat format) const {
    std::string lines;
    std::vector<std::string> texts{"row"};  // columns of a table: the number, and the texts of any suspect
    OrderedJson last = suspect(judged, {});
    for (const task::Suspect& found : suspects) {
      last = suspect(judged, found);
      lines += json_text(last) + "\n";
      for (const auto& [key, value] : last.items())
        if (key.starts_with("text") && std::find(texts.begin(), texts.end(), key) == texts.end())
          texts.push_back(key);
    }
    OrderedJson example;
    for (const std::string& key : texts) example[key] = "";
    for (const auto& [key, value] : last.items())
      if (suspects.empty() || !key.starts_with("text")) example[key] = value;
    AnswerText text(format, json_text(example), /*errors=*/false);
    write_file_atomically(output_, text.whole(lines));
  }

  fs::path predictions_, output_;
  task::SuspectFilter filter_ = task::SuspectFilter::noise_rate;
  task::SuspectOrder order_ = task::SuspectOrder::self_confidence;
};

}  // namespace

std::unique_ptr<Command> make_label_errors() {
  return std::make_unique<LabelErrors>();
}

}  // namespace funicular::cli
