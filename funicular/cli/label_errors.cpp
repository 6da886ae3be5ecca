// funicular label-errors: which labels of a file are probably wrong.

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/command.h"
#include "funicular/cli/judged_file.h"
#include "funicular/cli/output_paths.h"
#include "funicular/task/confident_learning.h"
#include "funicular/task/folds.h"

namespace funicular::cli {

namespace {

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
             "folder of a run in folds, or JSON lines with the keys label (labels: a list) and "
             "probabilities, and "
             "perhaps row and texts")
        .required();
    arguments
        .add("output", "FILE", output_, Effect::output,
             fmt::format("file for the suspects, the most certain one first: {}", answer_endings()))
        .default_text("RUN/suspects.csv, or suspects.csv beside FILE");
    arguments.add("overwrite", overwrite_, Effect::none,
                  "replace the file of --output if there is one; RUN/suspects.csv always is");
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
    const bool is_own = is_run && output_.empty();  // an earlier call has made it
    if (output_.empty()) output_ = file.parent_path() / "suspects.csv";
    std::error_code ignored;
    if (fs::equivalent(output_, file, ignored))
      throw InputError("usage",
                       "--output {} is the file that is read; expected another name for the suspects",
                       output_.string());
    require_new_file(output_, "--output", overwrite_ || is_own);
    const AnswerFormat format = answer_format(output_, "--output");
    const JudgedFile judged(file);
    const std::vector<OrderedJson> suspects =
        judged.has_lists() ? doubtful_rows(judged) : suspects_of(judged);
    write(suspects, format, judged);
    log::info("{} of {} {} are suspected; {} has the most certain ones first", suspects.size(), judged.rows(),
              judged.has_lists() ? "rows" : "labels", output_.string());
    fmt::print("{}\n",
               json_text(OrderedJson{
                   {"rows", judged.rows()}, {"suspects", suspects.size()}, {"wrong", wrong(judged)}}));
    return 0;
  }

 private:
  /// The estimated share of wrong labels: what the joint counts off its diagonal.
  static OrderedJson wrong(const task::JudgedRows& rows) {
    if (rows.rows() == 0) return nullptr;  // no row knows the label
    const auto joint = task::confident_joint(rows);
    int64_t right = 0;
    for (size_t label = 0; label < joint.size(); ++label) right += joint[label][label];
    return 1 - static_cast<double>(right) / static_cast<double>(rows.rows());
  }

  /// With several labels a share for each.
  static OrderedJson wrong(const JudgedFile& judged) {
    if (!judged.has_lists()) return wrong(judged.classes());
    OrderedJson shares = OrderedJson::object();
    for (int64_t label = 0; label < judged.labels().labels; ++label)
      shares[judged.name(label)] = wrong(judged.labels().of(label));
    return shares;
  }

  std::vector<OrderedJson> suspects_of(const JudgedFile& judged) const {
    std::vector<OrderedJson> lines;
    for (const task::Suspect& found : task::find_suspects(judged.classes(), filter_, order_))
      lines.push_back(line_of(judged, found));
    return lines;
  }

  static OrderedJson line_of(const JudgedFile& judged, const task::Suspect& found) {
    const std::span<const double> probabilities = judged.classes().of(found.row);
    const int64_t label = judged.classes().labels[static_cast<size_t>(found.row)];
    OrderedJson line = judged.line(found.row);
    line["label"] = judged.name(label);
    line["suggested"] = judged.name(found.suggested);
    line["certainty"] = found.certainty;
    line["label_probability"] = probabilities[static_cast<size_t>(label)];
    line["suggested_probability"] = probabilities[static_cast<size_t>(found.suggested)];
    return line;
  }

  std::vector<OrderedJson> doubtful_rows(const JudgedFile& judged) const {
    std::vector<OrderedJson> lines;
    for (const task::DoubtfulRow& found : task::find_doubtful(judged.labels(), filter_, order_))
      lines.push_back(line_of(judged, found));
    return lines;
  }

  static OrderedJson line_of(const JudgedFile& judged, const task::DoubtfulRow& found) {
    const task::JudgedLabels& rows = judged.labels();
    std::vector<std::string> given, suggested, doubtful;
    std::vector<double> probabilities;
    for (int64_t label = 0; label < rows.labels; ++label) {
      const bool has = rows.has(found.row, label);
      const bool doubts =
          std::find(found.doubtful.begin(), found.doubtful.end(), label) != found.doubtful.end();
      if (has) given.push_back(judged.name(label));
      if (has != doubts) suggested.push_back(judged.name(label));
      if (!doubts) continue;
      doubtful.push_back(judged.name(label));
      probabilities.push_back(rows.probability(found.row, label));
    }
    OrderedJson line = judged.line(found.row);
    line["labels"] = given;
    line["suggested"] = suggested;
    line["doubtful"] = doubtful;
    line["doubtful_probabilities"] = probabilities;
    line["certainty"] = found.certainty;
    return line;
  }

  /// `judged` gives the columns of a table without suspects.
  void write(const std::vector<OrderedJson>& suspects, AnswerFormat format, const JudgedFile& judged) const {
    std::string lines;
    std::vector<std::string> texts{"row"};  // columns of a table: the number, and the texts of any suspect
    OrderedJson last =
        judged.has_lists() ? line_of(judged, task::DoubtfulRow()) : line_of(judged, task::Suspect());
    for (const OrderedJson& found : suspects) {
      last = found;
      lines += json_text(found) + "\n";
      for (const auto& [key, value] : found.items())
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
  bool overwrite_ = false;
  task::SuspectFilter filter_ = task::SuspectFilter::noise_rate;
  task::SuspectOrder order_ = task::SuspectOrder::self_confidence;
};

}  // namespace

std::unique_ptr<Command> make_label_errors() {
  return std::make_unique<LabelErrors>();
}

}  // namespace funicular::cli
