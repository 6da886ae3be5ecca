#include "funicular/task/folds.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/core/precision.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/task/evaluate.h"
#include "funicular/task/held_out.h"
#include "funicular/task/registry.h"
#include "funicular/task/teacher_vectors.h"

namespace funicular::task {

namespace {

using Splits = std::vector<std::shared_ptr<const data::RowSplit>>;

/// Throws InputError for a model whose folds could be trained but not evaluated.
void require_measurable(const FinetuneOptions& options) {
  if (options.task->texts_are_sequences() && format::is_sentence_folder(options.model) &&
      format::read_sentence_folder(options.model).is_static)
    throw InputError("usage",
                     "--folds cannot measure tables of static embeddings yet, found --model {}; give "
                     "--eval-fraction or --eval FILE instead",
                     options.model.string());
}

/// Whether a label that stands in one text alone cannot be learnt in each fold. Shares teach each class, and a model of
/// spans learns answers, not whether there is one.
bool needs_two_texts(const Task& task) {
  return !data::has_shares(task.label_kind()) && task.label_kind() != data::LabelKind::none;
}

class Folds {
 public:
  Folds(const FinetuneOptions& options, int64_t count, std::string key) : o_(options), key_(std::move(key)) {
    const Task& whole = *o_.task;
    const auto rows = whole.open_rows(o_.train_file, {.bad_rows = o_.bad_rows});
    splits_ = data::RowSplit::all_folds(
        *rows, {.count = count, .file = o_.train_file.string(), .needs_two_texts = needs_two_texts(whole)},
        o_.trainer.seed, split_labels(whole), whole.split_columns());
    for (const auto& split : splits_)
      if (split->held_out_rows() == 0)
        throw InputError("usage", "{} has too few {} for {} folds; give fewer with --folds",
                         o_.train_file.string(),
                         whole.split_columns() == data::RowSplit::kLastColumn ? "contexts" : "texts", count);
  }

  FoldsResult run() {
    comm::together(o_.group, [&] {
      if (leads()) begin();
    });
    FoldsResult result;
    for (size_t fold = 0; fold < splits_.size(); ++fold) {
      if (!is_done(fold) && !train(fold)) {
        result.interrupted = true;
        return result;
      }
      result.folds.push_back(scores_of(fold));
    }
    if (leads()) {
      write_file_atomically(o_.trainer.output / kFoldAnswers, answers());
      write(result.json());
    }
    return result;
  }

 private:
  bool leads() const { return o_.group.rank() == 0; }
  fs::path folder(size_t fold) const { return o_.trainer.output / fmt::format("fold-{}", fold + 1); }
  fs::path measured(size_t fold) const { return folder(fold) / "evaluation"; }

  /// evaluation.json is written last.
  bool is_done(size_t fold) const {
    return comm::from_first(o_.group, [&] {
             return std::string(fs::exists(measured(fold) / "evaluation.json") ? "yes" : "no");
           }) == "yes";
  }

  void write(OrderedJson json) const {
    json["train_file"] = o_.train_file.string();
    json["key"] = key_;
    write_file_atomically(o_.trainer.output / kFoldsFile, json_text(json, 1) + "\n");
  }

  /// Refuses folds of other options.
  void begin() const {
    const fs::path file = o_.trainer.output / kFoldsFile;
    if (fs::exists(o_.trainer.output / "run.json"))
      throw InputError("usage",
                       "{} holds a run without folds; expected a new folder. Give another one with --output",
                       o_.trainer.output.string());
    make_directories(o_.trainer.output);
    if (!fs::exists(file)) return write({{"folds", splits_.size()}});
    const Json known = read_json(file);
    if (json_get_or<std::string>(known, "key", "", file.string()) != key_)
      throw InputError("usage",
                       "{} holds folds that were trained with other options or other files; give another "
                       "folder with --output, or remove this one",
                       o_.trainer.output.string());
  }

  /// Returns whether the run was completed.
  bool train(size_t fold) const {
    FinetuneOptions options = o_;
    options.trainer.output = folder(fold);
    options.task = on_side(*o_.task, splits_[fold], false);
    if (leads())
      log::info("fold {} of {}: {} rows are held out", fold + 1, splits_.size(),
                splits_[fold]->held_out_rows());
    const RunResult trained = finetune(options);
    if (trained.fit.interrupted) return false;
    EvaluateOptions asked{.model = folder(fold) / "model",
                          .data = o_.train_file,
                          .task = on_side(*o_.task, splits_[fold], true),
                          .bad_rows = o_.bad_rows};
    asked.device = o_.device;
    asked.trained = trained.trained;
    asked.stores = folder(fold) / "data";
    asked.quiet = true;
    asked.precision = o_.dtype == at::kDouble ? "fp64" : precision_name(o_.trainer.precision);
    asked.group = o_.group;
    const Evaluation found = evaluate(asked);
    if (leads()) found.write(measured(fold));
    o_.group.barrier();
    return true;
  }

  FoldScores scores_of(size_t fold) const {
    const fs::path file = measured(fold) / "evaluation.json";
    const Json json = read_json(file);
    FoldScores scores;
    scores.rows = json_get<int64_t>(json, "samples", file.string());
    const auto read = [](const Json& from, std::map<std::string, double>& to) {
      for (const auto& [name, value] : from.items())
        if (value.is_number()) to[name] = value.get<double>();
    };
    read(json.at("metrics"), scores.values);
    if (!json.contains("baseline")) return scores;
    read(json["baseline"], scores.constant);
    scores.answer = json_get<std::string>(json["baseline"], "answer", file.string());
    return scores;
  }

  /// Merges the answers of the folds in the order of the file, with the texts.
  std::string answers() const {
    std::vector<std::vector<std::string>> lines;
    for (size_t fold = 0; fold < splits_.size(); ++fold) {
      const std::string text = read_file(measured(fold) / kFoldAnswers);
      std::vector<std::string>& own = lines.emplace_back();
      for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
        own.push_back(text.substr(begin, end - begin));
    }
    std::vector<size_t> next(splits_.size());
    std::string all;
    EvaluatedRows(*o_.task, o_.train_file, o_.bad_rows)
        .for_each([&](int64_t number, const data::SourceRow& row) {
          for (size_t fold = 0; fold < splits_.size(); ++fold)
            if (splits_[fold]->holds_out(row))
              all += line_of(lines[fold].at(next[fold]++), number, fold, row);
        });
    return all;
  }

  std::string line_of(const std::string& answer, int64_t number, size_t fold,
                      const data::SourceRow& row) const {
    OrderedJson line = parse_json_or_null<OrderedJson>(answer);
    line["row"] = number;
    line["fold"] = fold + 1;
    if (!o_.task->reads_words())  // the answer has the words
      line["texts"] = std::vector<std::string>(row.columns.begin(), row.columns.end());
    return json_text(line) + "\n";
  }

  const FinetuneOptions& o_;
  std::string key_;
  Splits splits_;
};

}  // namespace

std::map<std::string, FoldsResult::Spread> FoldsResult::spreads(Scores scores) const {
  std::map<std::string, Spread> found;
  if (folds.empty()) return found;
  const auto count = static_cast<double>(folds.size());
  for (const auto& [name, first] : folds.front().*scores) {
    double sum = 0, squares = 0;
    bool in_all = true;
    for (const FoldScores& fold : folds) {
      const auto value = (fold.*scores).find(name);
      in_all = in_all && value != (fold.*scores).end();
      if (in_all) sum += value->second;
    }
    if (!in_all) continue;
    for (const FoldScores& fold : folds) squares += std::pow((fold.*scores).at(name) - sum / count, 2);
    found[name] = {sum / count, folds.size() > 1 ? std::sqrt(squares / (count - 1)) : 0};
  }
  return found;
}

void FoldsResult::add_spreads(OrderedJson& json, Scores scores) const {
  for (const auto& [name, spread] : spreads(scores)) {
    std::vector<double> values;
    for (const FoldScores& fold : folds) values.push_back((fold.*scores).at(name));
    json[name] = {{"mean", spread.mean}, {"deviation", spread.deviation}, {"values", values}};
  }
}

OrderedJson FoldsResult::json() const {
  OrderedJson json{{"folds", folds.size()}};
  add_spreads(json, &FoldScores::values);
  if (spreads(&FoldScores::constant).empty()) return json;
  OrderedJson& baseline = json["baseline"];
  for (const FoldScores& fold : folds) baseline["answers"].push_back(fold.answer);
  add_spreads(baseline, &FoldScores::constant);
  return json;
}

FoldsResult train_folds(const FinetuneOptions& options, int64_t count, const std::string& key) {
  require_measurable(options);
  FinetuneOptions taught = options;
  take_teacher(taught);  // once for all folds
  return Folds(taught, count, key).run();
}

}  // namespace funicular::task
