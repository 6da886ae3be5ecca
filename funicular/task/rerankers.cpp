#include "funicular/task/rerankers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/core/loss_watch.h"
#include "funicular/format/column_list.h"
#include "funicular/format/cross_encoder.h"
#include "funicular/format/family.h"
#include "funicular/launch/environment.h"
#include "funicular/model/heads.h"
#include "funicular/objective/ranking_metrics.h"
#include "funicular/objective/reranking.h"
#include "funicular/task/ranked_texts.h"
#include "funicular/task/text_report.h"

namespace funicular::task {

namespace {

constexpr const char* kReranker = "reranker";

/// A model fine-tuned for another task may still have the keys of the CrossEncoder from which it started.
bool owns_reranker(const format::ModelConfig& config) {
  const std::string task = model::TaskNote::from(config).task;
  if (!task.empty()) return task == kReranker;
  return config.num_labels == 1 && format::score_activation(config).has_value();
}

data::TextFileSourceOptions columns_of_reranker(const FileOptions& files) {
  data::TextFileSourceOptions columns;
  columns.header = files.header.value_or(true);
  columns.separate_columns = true;
  columns.lists = format::Lists::all;
  if (!files.format.empty()) columns.format = format::text_format_from_name(files.format);
  const std::vector<std::string> defaults{"query", "text"};
  for (const std::string& name : files.text.empty() ? defaults : files.text)
    columns.text_columns.push_back(format::column_from_text(name));
  if (columns.text_columns.size() < 2)
    throw InputError(
        "usage",
        "--task reranker reads a query and its texts; expected two of --text-column (query and text), "
        "or more (query, positive, negatives), found 1");
  if (!files.label.empty())
    columns.label_column = format::column_from_text(files.label);
  else if (columns.text_columns.size() == 2)
    columns.label_column = format::Column("label");
  columns.style = files.style;
  return columns;
}

objective::RankingLossOptions loss_of_model(const format::ModelConfig& config) {
  const Json note = model::TaskNote::from(config).source;
  if (!note.is_object() || !note.contains(objective::kRankingNote)) return {};
  return objective::RankingLossOptions::from(note[objective::kRankingNote]);
}

}  // namespace

TaskType Rerankers::row() {
  return {
      .name = kReranker,
      .option = kReranker,
      .options = {"text-column", "label-column", "format", "header", "quotes"},
      .gives = "a score per text for a query",
      .reads = "TSV, CSV or JSON lines, which may hold lists",
      .answers =
          "A reranker ranks the texts of neighbouring rows with one query: a line per text, the best first.",
      .example = {"rank texts for queries", "--train ranked.jsonl --output runs/reranker"},
      .owns = owns_reranker,
      .make = [](const TaskType& type, FileOptions files, const data::NamedTask*) -> std::unique_ptr<Task> {
        return std::make_unique<Rerankers>(type, std::move(files));
      },
      .aliases = {"cross-encoder", "rerank", "text-ranking"},
      .foreign = {"ranking", "ms-marco"}};
}

Rerankers::Rerankers(const TaskType& type, FileOptions files)
    : Task(type, kReranker, std::move(files)), columns_(columns_of_reranker(this->files())) {}

std::unique_ptr<data::RowSource> Rerankers::open_rows(const fs::path& file,
                                                      const RowsOptions& options) const {
  data::TextFileSourceOptions columns = columns_;
  columns.bad_rows = options.bad_rows;
  if (!options.labelled) columns.label_column.reset();
  return own_side(std::make_unique<RankedTextSource>(file, std::move(columns), options.labelled));
}

std::string Rerankers::row_key(const std::string& bad_rows, const std::string& style) const {
  return " ranked texts" + bad_rows + style;
}

/// A model answers rows of a query and a text, whatever its training data.
Json Rerankers::note() const {
  FileOptions noted = files();
  if (columns_.text_columns.size() == 2 && !noted.text.empty()) return noted.note();
  noted.text = {"query", "text"};
  noted.label = "label";
  return noted.note();
}

MetricNames Rerankers::metrics(const std::vector<std::string>& /*labels*/) const {
  return {objective::ranking_metric_names(), "ndcg@10"};
}

std::unique_ptr<objective::Objective> Rerankers::objective(const text::Tokenizer& tokenizer,
                                                           const format::ModelConfig& config,
                                                           const ObjectiveOptions& options) const {
  using format::ScoreActivation;
  const objective::RankingLossOptions loss =
      options.ranking.chosen ? options.ranking.loss : loss_of_model(config);
  const bool probabilities = loss.loss == objective::RankingLoss::bce;
  const ScoreActivation otherwise = format::score_activation(config).value_or(
      probabilities ? ScoreActivation::sigmoid : ScoreActivation::identity);
  return std::make_unique<objective::Reranking>(
      tokenizer, objective::RerankingOptions{.sequence = options.sequence,
                                             .loss = loss,
                                             .labelled = options.labelled,
                                             .first_is_relevant = columns_.text_columns.size() > 2,
                                             .activation = options.ranking.activation.value_or(otherwise)});
}

// ---- checks of rows

namespace {

/// Throws InputError "FILE:LINE: found TEXT".
[[noreturn]] void refuse_row(const Task& task, const FileRows& rows, int64_t wrong, const std::string& text) {
  int64_t row = 0;
  try {
    const auto source = task.open_rows(rows.file, {});
    for (size_t piece = 0; piece < source->pieces(); ++piece)
      source->read(piece, [&](const data::SourceRow& /*read*/) {
        if (row++ == wrong) throw data::BadRow("found " + text);
      });
  } catch (const InputError&) {
    if (row > wrong) throw;  // otherwise a row that was left out
  }
  throw InputError("loss", "{}: row {} of the rows that are read has {}", rows.file.string(), wrong + 1,
                   text);
}

void check_labels(const Task& task, const FileRows& rows, const objective::RankingLossOptions& loss) {
  const std::optional<double> most = loss.most_label();
  if (!most) return;
  int64_t wrong = 0;
  const auto label_at = [&](int64_t row) { return rows.store.row(row).label; };
  while (wrong < rows.store.rows() && label_at(wrong) >= 0 && label_at(wrong) <= *most) ++wrong;
  if (wrong == rows.store.rows()) return;
  refuse_row(task, rows, wrong,
             fmt::format("the label {}: --loss {} expects numbers from 0 to {}. For other numbers choose "
                         "--loss mse, list-net{}",
                         label_at(wrong), loss.name(), *most,
                         loss.loss == objective::RankingLoss::bce ? ", rank-net or lambda" : " or rank-net"));
}

void check_lists(const Task& task, const FileRows& rows, const objective::RankingLossOfLists& loss) {
  const objective::ListRows found = objective::list_rows(rows.store, true);
  const std::string file = rows.file.string(), name = loss.options().name();
  const auto lists = std::ssize(found.begins) - 1;
  const std::string scattered = found.scattered == 0
                                    ? ""
                                    : fmt::format(
                                          "The rows of {} queries stand in several places, and only "
                                          "neighbouring rows are compared; sort the rows by query",
                                          found.scattered);
  const std::string remedy = scattered.empty() ? "" : ". " + scattered;
  int64_t learnt = 0;
  for (size_t list = 0; list + 1 < found.begins.size(); ++list) {
    const auto begin = static_cast<int64_t>(found.begins[list]),
               end = static_cast<int64_t>(found.begins[list + 1]);
    if (end - begin > objective::kMostListTexts)
      refuse_row(task, rows, begin + objective::kMostListTexts,
                 fmt::format("text {} of a query; expected at most {}", objective::kMostListTexts + 1,
                             objective::kMostListTexts));
    std::vector<double> labels;
    for (int64_t row = begin; row < end; ++row) labels.push_back(rows.store.row(row).label);
    if (loss.learns_from(labels)) ++learnt;
  }
  if (lists == rows.store.rows())
    throw InputError("loss",
                     "{}: --loss {} compares the texts of a query, and each query has one text. Put the rows "
                     "of a query together, or write lists in JSON lines. funicular mine finds negatives, and "
                     "--loss bce reads such rows{}",
                     file, name, remedy);
  if (learnt == 0)
    throw InputError(
        "loss",
        "{}: --loss {} learns from texts of a query with different labels, and no query has such "
        "texts; correct the labels, or choose --loss mse{}",
        file, name, remedy);
  if (launch::read_environment().rank != 0) return;
  if (learnt < lists)
    log::warning("{}: --loss {} learns nothing from {} of {} queries, which have {}", file, name,
                 lists - learnt, lists,
                 loss.options().reads_pairs() ? "no texts with different labels" : "one text each");
  if (!scattered.empty()) log::warning("{}: {}", file, scattered);
}

/// Margins whose column is not named are easily overlooked; the run would learn 1 and 0 instead.
void warn_of_unread_margins(const data::TextFileSourceOptions& columns, const fs::path& file,
                            const objective::RankingLossOptions& loss) {
  if (loss.loss != objective::RankingLoss::margin_mse || columns.text_columns.size() < 3 ||
      columns.label_column || launch::read_environment().rank != 0)
    return;
  const std::vector<std::string> names = data::TextFileSource({file}, columns).column_names();
  for (const char* name : {"margins", "margin", "scores", "score", "labels", "label"})
    if (std::find(names.begin(), names.end(), name) != names.end())
      return log::warning(
          "{}: the column \"{}\" is not read, and each positive's margin is 1; --label-column {} reads it",
          file.string(), name, name);
}

}  // namespace

TaskSamples Rerankers::samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                               std::shared_ptr<const data::TokenStore> store, const fs::path& file) const {
  const auto& reranking = dynamic_cast<const objective::Reranking&>(objective);
  const objective::RankingLossOptions& loss = reranking.loss()->options();
  check_labels(*this, {*store, file}, loss);
  if (loss.reads_lists()) check_lists(*this, {*store, file}, *reranking.loss());
  warn_of_unread_margins(columns_, file, loss);
  return Task::samples(objective, tokenizer, std::move(store), file);
}

double Rerankers::diverged_at() const {
  return LossWatch::kGrowthOfSquares;
}

void Rerankers::describe_in(format::ModelConfig& config, const std::vector<std::string>& /*labels*/) const {
  config.id2label = {};
  config.num_labels = 1;
  config.problem_type = "";
  config.architectures = {format::family_of(config).class_of(model::Head::classification.architecture)};
  config.source["funicular"]["task"] = name();  // one number per pair does not reveal the task
}

/// nDCG can distinguish models only if some query has texts with different labels, one of them above 0.
bool Rerankers::defines_best_metric(const FileRows& rows) const {
  if (columns_.text_columns.size() > 2) return true;                          // a positive and its negatives
  std::map<std::vector<int32_t>, std::pair<double, double>> labels_of_query;  // the least and the greatest
  for (int64_t row = 0; row < rows.store.rows(); ++row) {
    const data::Sample sample = rows.store.row(row);
    const data::TokenSpan tokens = sample.columns.at(0).tokens;
    std::vector<int32_t> query(tokens.size());
    for (size_t i = 0; i < query.size(); ++i) query[i] = tokens[i];
    auto& [least, greatest] =
        labels_of_query.try_emplace(std::move(query), sample.label, sample.label).first->second;
    least = std::min(least, sample.label);
    greatest = std::max(greatest, sample.label);
    if (greatest > 0 && least < greatest) return true;
  }
  return false;
}

void Rerankers::check_training(const FileRows& rows) const {
  require_texts(rows.store, rows.file);
}

void Rerankers::report_training(const FileRows& rows) const {
  double low = INFINITY, high = -INFINITY;
  for (int64_t row = 0; row < rows.store.rows(); ++row) {
    low = std::min(low, rows.store.row(row).label);
    high = std::max(high, rows.store.row(row).label);
  }
  if (low == high)
    log::warning("{}: every text has the label {}; nothing can be learnt from them", rows.file.string(), low);
}

// ---- evaluation

namespace {

class RankingSheet final : public Sheet {
 public:
  using Sheet::Sheet;
  void start() override {
    scores_.clear();
    Sheet::start();
  }
  void add(const TensorMap& outputs) override {
    Sheet::add(outputs);
    const auto found = outputs.find("scores");
    if (found == outputs.end()) return;
    const at::Tensor scores = found->second.to(at::kCPU, at::kDouble).contiguous();
    scores_.insert(scores_.end(), scores.const_data_ptr<double>(),
                   scores.const_data_ptr<double>() + scores.numel());
  }
  void add_details(OrderedJson& /*found*/) const override {}
  OrderedJson mistakes(const EvaluatedRows& rows) const override;
  std::string lines(const EvaluatedRows& rows) const override {
    std::string text;
    const std::vector<int64_t> numbers = rows.numbers(std::ssize(scores_));
    for (size_t i = 0; i < scores_.size(); ++i) {
      OrderedJson line = {{"row", numbers.at(i)}};
      if (i < ranked().labels().size()) line["label"] = ranked().labels()[i];
      line["score"] = std::round(scores_[i] * 1e6) / 1e6;
      text += json_text(line) + "\n";
    }
    return text;
  }

 private:
  const objective::RankingMetrics& ranked() const {
    return dynamic_cast<const objective::RankingMetrics&>(metrics());
  }
  /// The row of the best relevant text, and its rank, from 1; rank 0: none.
  std::pair<size_t, int64_t> first_relevant(const std::vector<size_t>& list) const;

  std::vector<double> scores_;
};

std::pair<size_t, int64_t> RankingSheet::first_relevant(const std::vector<size_t>& list) const {
  std::vector<double> scores;
  for (const size_t row : list) scores.push_back(ranked().scores()[row]);
  const std::vector<size_t> order = objective::ranking_of(scores);
  for (size_t rank = 0; rank < order.size(); ++rank)
    if (ranked().relevance()[list[order[rank]]] >= objective::kRelevantFrom)
      return {list[order[rank]], static_cast<int64_t>(rank) + 1};
  return {0, 0};
}

OrderedJson RankingSheet::mistakes(const EvaluatedRows& rows) const {
  std::vector<std::pair<int64_t, size_t>> wrong;
  for (const std::vector<size_t>& list : ranked().lists())
    if (const auto [row, rank] = first_relevant(list); rank > 1) wrong.emplace_back(-rank, row);
  std::sort(wrong.begin(), wrong.end());
  OrderedJson found = OrderedJson::array();
  const std::vector<int64_t> numbers = rows.numbers(std::ssize(scores_));
  for (const auto& [rank, row] : wrong) found.push_back({{"row", numbers.at(row)}, {"rank", -rank}});
  rows.add_texts(found);
  return found;
}

}  // namespace

std::unique_ptr<Sheet> Rerankers::sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> /*labels*/,
                                        const Json& /*note*/) const {
  return std::make_unique<RankingSheet>(std::move(metrics));
}

// ---- answers

namespace {

class RankedAnswers final : public Answers {
 public:
  RankedAnswers() : Answers({}) {}
  const char* output() const override { return "scores"; }
  int64_t width() const override { return 1; }
  std::string example() const override {
    return R"({"query": "", "rank": 0, "score": 0, "text": "", "place": 0})";
  }
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override;
  void count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const override {
    for (const data::Sample& pair : row.samples)
      cut.add(static_cast<int64_t>(pair.columns[0].tokens.size() + pair.columns[1].tokens.size()), room);
  }
  at::Tensor scores(const at::Tensor& scores) const override { return scores; }
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;
};

/// A sample per text. The tokens of the texts are concatenated.
void RankedAnswers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  row.tokens.resize(2);
  std::vector<size_t> ends;
  for (size_t i = 0; i < row.row.texts.size(); ++i) {
    text::TokenizedText text;
    tokenizer.tokenize(row.row.texts[i], text);
    std::vector<uint32_t>& into = row.tokens[i == 0 ? 0 : 1];
    into.insert(into.end(), text.ids.begin(), text.ids.end());
    if (i > 0) ends.push_back(into.size());
  }
  const data::TokenSpan query(row.tokens[0].data(), row.tokens[0].size());
  const data::TokenSpan all(row.tokens[1].data(), row.tokens[1].size());
  size_t begin = 0;
  for (const size_t end : ends) {
    data::Sample pair;
    pair.columns = {{query, {}}, {all.subspan(begin, end - begin), {}}};
    row.samples.push_back(std::move(pair));
    begin = end;
  }
}

Answer RankedAnswers::answer(const TokenisedRow& row, std::span<const SampleScores> scores) const {
  Answer answer;
  for (const SampleScores& one : scores) answer.scores.push_back(one.values.at(0));
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return answer.scores[a] > answer.scores[b]; });
  const std::string query = json_text(Json(row.row.texts.at(0)));
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const size_t text = order[rank];
    const std::string line =
        fmt::format("{{\"query\": {}, \"rank\": {}, \"score\": {:.6g}, \"text\": {}, \"place\": {}}}", query,
                    rank + 1, answer.scores[text], json_text(Json(row.row.texts.at(text + 1))), text + 1);
    if (rank > 0) answer.json += format::kListMark;
    answer.json += row.row.kept_of_texts.empty() ? line : with_kept(row.row.kept_of_texts.at(text), line);
  }
  return answer;
}

}  // namespace

std::unique_ptr<Answers> Rerankers::answers(std::vector<std::string> /*labels*/, const Json& /*note*/) const {
  return std::make_unique<RankedAnswers>();
}

namespace {

void check_kept_columns(const std::vector<std::string>& keep) {
  for (const char* key : {"query", "rank", "text", "place"})
    if (std::find(keep.begin(), keep.end(), key) != keep.end())
      throw InputError("usage", "--keep {}: each answer of a reranker has a key \"{}\" already; leave it out",
                       key, key);
}

}  // namespace

std::unique_ptr<RowInput> Rerankers::open_input(const InputOptions& options) const {
  check_kept_columns(options.keep);
  format::TextOptions layout;
  layout.style = options.style;
  layout.bad_rows = options.bad_rows;
  layout.format = !options.format.empty() ? format::text_format_from_name(options.format)
                  : options.path.empty()  ? format::TextFormat::lines
                                          : format::guess_text_format(options.path);
  if (layout.format == format::TextFormat::text || layout.format == format::TextFormat::lines) {
    if (!options.text.empty() || options.header || !options.keep.empty())
      throw InputError("usage",
                       "--text-column, --header and --keep are for tables, and --input is read as lines "
                       "(query, tab, text); give "
                       "--format tsv, csv or jsonl");
    layout.format = format::TextFormat::tsv;
    if (layout.style.quotes == format::Quotes::automatic) layout.style.quotes = format::Quotes::none;
    return std::make_unique<RankedTextInput>(options.path, layout);
  }
  layout.header = options.header.value_or(columns_.header) && layout.format != format::TextFormat::jsonl;
  layout.columns = columns_.text_columns;
  if (!options.text.empty()) layout.columns.clear();
  for (const std::string& column : options.text) layout.columns.push_back(format::column_from_text(column));
  if (layout.columns.size() != 2)
    throw InputError("usage", "expected two of --text-column, the query and the text, found {}",
                     layout.columns.size());
  return std::make_unique<RankedTextInput>(options.path, layout, KeptColumns(options.keep, *this));
}

}  // namespace funicular::task
