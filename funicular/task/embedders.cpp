#include "funicular/task/embedders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/core/loss_watch.h"
#include "funicular/format/family.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/objective/vector_metrics.h"
#include "funicular/task/embedder_modules.h"
#include "funicular/task/text_groups.h"
#include "funicular/task/text_report.h"

namespace funicular::task {

namespace {

using objective::VectorLoss;

/// The properties in which the tasks on groups of texts differ.
struct GroupRow {
  const char* name;
  std::vector<std::string> columns;  ///< by default
  size_t most_columns;
  std::vector<VectorLoss> losses;  ///< the first is the default
  const char* reads;
};

const GroupRow& row_of(TextGroup group) {
  static const std::vector<GroupRow> rows{
      {"pairs", {"anchor", "positive"}, 2, {VectorLoss::multiple_negatives}, "two related texts per row"},
      {"triplets",
       {"anchor", "positive", "negative"},
       size_t{data::StoreMeta::kMostColumns},
       {VectorLoss::multiple_negatives, VectorLoss::triplet, VectorLoss::margin_mse},
       "two related texts and others that are not, per row"},
      {"scores",
       {"sentence1", "sentence2"},
       2,
       {VectorLoss::cosent, VectorLoss::angle, VectorLoss::cosine, VectorLoss::contrastive,
        VectorLoss::online_contrastive},
       "two texts and their similarity per row"},
      {"vectors",
       {"text"},
       1,
       {VectorLoss::squared_distance, VectorLoss::cosine_distance},
       "a text per row and a teacher"}};
  return rows[static_cast<size_t>(group)];
}

std::string names_of(const std::vector<VectorLoss>& losses) {
  std::vector<std::string> names;
  for (const VectorLoss loss : losses)
    names.push_back(objective::vector_loss_names()[static_cast<size_t>(loss)]);
  return fmt::format("{}", fmt::join(names, ", "));
}

template <TextGroup group>
std::unique_ptr<Task> make(const TaskType& type, FileOptions files, const data::NamedTask* /*named*/) {
  return std::make_unique<Embedders>(type, std::move(files), group);
}

template <TextGroup group>
bool owns(const format::ModelConfig& config) {
  return model::TaskNote::from(config).task == row_of(group).name;
}

data::TextFileSourceOptions columns_of(const FileOptions& files, TextGroup group) {
  const GroupRow& row = row_of(group);
  data::TextFileSourceOptions columns;
  columns.header = files.header.value_or(true);
  columns.separate_columns = true;
  columns.lists = format::Lists::all;
  if (!files.format.empty()) columns.format = format::text_format_from_name(files.format);
  for (const std::string& name : files.text.empty() ? row.columns : files.text)
    columns.text_columns.push_back(format::column_from_text(name));
  const size_t least = row.columns.size(), found = columns.text_columns.size();
  if (found < least || found > row.most_columns)
    throw InputError("usage", "--task {} reads {}; expected {}{} of --text-column ({}), found {}", row.name,
                     row.reads, row.most_columns > least ? "at least " : "", least,
                     fmt::join(row.columns, ", "), found);
  if (!files.label.empty())
    columns.label_column = format::column_from_text(files.label);
  else if (group == TextGroup::scores)
    columns.label_column = format::Column("score");
  columns.style = files.style;
  return columns;
}

}  // namespace

TaskType Embedders::row(TextGroup group) {
  const GroupRow& own = row_of(group);
  TaskType row{.name = own.name,
               .option = own.name,
               .options = {"text-column", "label-column", "format", "header", "quotes"},
               .gives = std::string("a vector per text, from ") + own.reads,
               .reads = "TSV, CSV or JSON lines",
               .answers = "",
               .make = nullptr};
  switch (group) {
    case TextGroup::pairs:
      row.owns = owns<TextGroup::pairs>;
      row.make = make<TextGroup::pairs>;
      row.foreign = {"embedding", "sentence-similarity", "contrastive"};
      break;
    case TextGroup::triplets:
      row.owns = owns<TextGroup::triplets>;
      row.make = make<TextGroup::triplets>;
      row.aliases = {"triplet"};
      break;
    case TextGroup::scores:
      row.owns = owns<TextGroup::scores>;
      row.make = make<TextGroup::scores>;
      row.foreign = {"sts"};
      break;
    case TextGroup::vectors:
      row.owns = owns<TextGroup::vectors>;
      row.make = make<TextGroup::vectors>;
      row.options = {"text-column", "format", "header", "quotes"};
      row.foreign = {"embedding-distillation", "leaf"};
      break;
  }
  return row;
}

std::string Embedders::losses(std::string_view task) {
  for (const TextGroup group : {TextGroup::pairs, TextGroup::triplets, TextGroup::scores, TextGroup::vectors})
    if (row_of(group).name == task) return names_of(row_of(group).losses);
  return "";
}

Embedders::Embedders(const TaskType& type, FileOptions files, TextGroup group)
    : Task(type, row_of(group).name, std::move(files)),
      group_(group),
      columns_(columns_of(this->files(), group)) {}

std::unique_ptr<data::RowSource> Embedders::open_rows(const fs::path& file,
                                                      const RowsOptions& options) const {
  data::TextFileSourceOptions columns = columns_;
  columns.bad_rows = options.bad_rows;
  if (!options.labelled) columns.label_column.reset();
  std::unique_ptr<data::RowSource> rows =
      std::make_unique<TextGroupSource>(file, std::move(columns), has_margins());
  if (options.labelled && !files().teacher.empty())
    rows = std::make_unique<NumberedRows>(std::move(rows), files().first_vector);
  return own_side(std::move(rows));
}

std::string Embedders::row_key(const std::string& bad_rows, const std::string& style) const {
  const std::string numbers =
      files().teacher.empty() ? "" : fmt::format(" numbered from {}", files().first_vector);
  return " groups of texts" + numbers + (has_margins() ? " with margins" : "") + bad_rows + style;
}

Json Embedders::note() const {
  FileOptions noted = files();
  if (noted.text.empty()) noted.text = row_of(group_).columns;
  if (noted.label.empty() && group_ == TextGroup::scores) noted.label = "score";
  return noted.note();
}

MetricNames Embedders::metrics(const std::vector<std::string>& /*labels*/) const {
  if (group_ == TextGroup::scores) return {objective::scored_pair_metric_names(), "spearmanr"};
  if (group_ == TextGroup::vectors) return {objective::teacher_metric_names(), "cosine"};
  return {objective::positive_metric_names(), "mrr"};
}

objective::VectorLossOptions Embedders::loss_of(const ObjectiveOptions& options) const {
  const std::vector<VectorLoss>& losses = row_of(group_).losses;
  objective::VectorLossOptions loss = options.embedding.loss;
  if (!options.embedding.chosen) {
    loss.loss = losses.front();
  } else if (std::find(losses.begin(), losses.end(), loss.loss) == losses.end()) {
    throw InputError("usage", "--loss {} does not fit --task {}; expected one of {}", loss.name(), name(),
                     names_of(losses));
  }
  if (options.labelled && loss.reads_labels() && !is_labelled())
    throw InputError(
        "usage", "--loss {} reads the teacher's margin of each negative; name the column with --label-column",
        loss.name());
  return loss;
}

std::unique_ptr<objective::Objective> Embedders::objective(const text::Tokenizer& tokenizer,
                                                           const format::ModelConfig& config,
                                                           const ObjectiveOptions& options) const {
  objective::SentenceVectorOptions own{
      .sequence = options.sequence,
      .loss = loss_of(options),
      .labelled = options.labelled && is_labelled(),
      .teacher = open_teacher(files(), options.labelled && group_ == TextGroup::vectors),
      .scored = group_ == TextGroup::scores,
      .folder = options.embedding.folder};
  take_modules(own, tokenizer, options.embedding, config.encoder.width);
  // The whole vector must stay good, too.
  const int64_t width = own.modules.vector_width(config.encoder.width);
  own.loss.check_width(width);
  if (std::vector<int64_t>& sizes = own.loss.matryoshka;
      !sizes.empty() && std::find(sizes.begin(), sizes.end(), width) == sizes.end())
    sizes.insert(sizes.begin(), width);
  return std::make_unique<objective::SentenceVectors>(tokenizer, own);
}

int64_t Embedders::default_length(const fs::path& model) const {
  if (!format::is_sentence_folder(model)) return Task::default_length(model);
  const format::SentenceFolder modules = format::read_sentence_folder(model);
  const int64_t otherwise =
      modules.is_static ? format::EncoderLimits::positions : Task::default_length(model);
  return modules.max_length > 0 ? modules.max_length : otherwise;
}

/// Stores have no line numbers, so the file is read again for the message.
void Embedders::check_labels(const objective::VectorLossOptions& loss, const FileRows& rows) const {
  int64_t wrong = 0;
  const auto label_at = [&](int64_t row) { return rows.store.row(row).label; };
  while (wrong < rows.store.rows() && (label_at(wrong) == 0 || label_at(wrong) == 1)) ++wrong;
  if (wrong == rows.store.rows()) return;
  const std::string text =
      fmt::format("the label {}: --loss {} expects 1 (similar) or 0. For other numbers choose --loss cosent",
                  label_at(wrong), loss.name());
  int64_t row = 0;
  try {
    const auto source = open_rows(rows.file, {});
    for (size_t piece = 0; piece < source->pieces(); ++piece)
      source->read(piece, [&](const data::SourceRow& read) {
        if (!(read.decimal_commas ? read_number_with_comma(read.label) : read_number(read.label)))
          throw data::BadRow("");
        if (row++ == wrong) throw data::BadRow("found " + text);
      });
  } catch (const InputError&) {
    if (row > wrong) throw;  // otherwise a row that was left out
  }
  throw InputError("loss", "{}: row {} of the rows that are read has {}", rows.file.string(), wrong + 1,
                   text);
}

TaskSamples Embedders::samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                               std::shared_ptr<const data::TokenStore> store, const fs::path& file) const {
  const auto& vectors = dynamic_cast<const objective::SentenceVectors&>(objective);
  const objective::VectorLossOptions& loss = vectors.loss()->options();
  if (vectors.is_labelled() && loss.reads_classes()) check_labels(loss, {*store, file});
  return Task::samples(objective, tokenizer, std::move(store), file);
}

double Embedders::diverged_at() const {
  return LossWatch::kGrowthOfSquares;
}

void Embedders::describe_in(format::ModelConfig& config, const std::vector<std::string>& /*labels*/) const {
  config.id2label = {};
  config.num_labels = 2;
  config.problem_type = "";
  config.architectures = {format::family_of(config).class_of(model::Head::none.architecture)};
  config.source["funicular"]["task"] = name();  // an encoder alone does not reveal its task
}

void Embedders::check_training(const FileRows& rows) const {
  require_texts(rows.store, rows.file);
  const bool compares = group_ == TextGroup::pairs || group_ == TextGroup::triplets;
  if (compares && rows.store.rows() < 2)
    throw InputError(
        "task", "{}: found one row; expected at least two, since a row's negatives are other rows' texts",
        rows.file.string());
}

void Embedders::report_training(const FileRows& rows) const {
  if (group_ != TextGroup::scores) return;
  double low = INFINITY, high = -INFINITY;
  for (int64_t row = 0; row < rows.store.rows(); ++row) {
    low = std::min(low, rows.store.row(row).label);
    high = std::max(high, rows.store.row(row).label);
  }
  if (low == high)
    log::warning("{}: every row has the score {}; nothing can be learnt from their order", rows.file.string(),
                 low);
  else if (low < -1 || high > 1)
    log::info("{}: scores go from {} to {}; --loss cosine expects numbers from -1 to 1, cosent and angle any",
              rows.file.string(), low, high);
}

// ---- evaluation

namespace {

class VectorSheet final : public Sheet {
 public:
  using Sheet::Sheet;
  void add_details(OrderedJson& /*found*/) const override {}
  OrderedJson mistakes(const EvaluatedRows& rows) const override {
    OrderedJson found = OrderedJson::array();
    if (vectors().scored() || vectors().taught()) return found;
    const std::vector<double>& ranks = vectors().answers();
    std::vector<size_t> order(ranks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranks[a] > ranks[b]; });
    const std::vector<int64_t> numbers = rows.numbers(std::ssize(ranks));
    for (const size_t i : order)
      if (ranks[i] > 1) found.push_back({{"row", numbers.at(i)}, {"rank", static_cast<int64_t>(ranks[i])}});
    rows.add_texts(found);
    return found;
  }
  std::string lines(const EvaluatedRows& rows) const override {
    std::string text;
    const std::vector<double>& answers = vectors().answers();
    const std::vector<int64_t> numbers = rows.numbers(std::ssize(answers));
    for (size_t i = 0; i < answers.size(); ++i) {
      OrderedJson line = {{"row", numbers.at(i)}};
      if (vectors().scored() || vectors().taught()) {
        if (i < vectors().labels().size() && vectors().scored()) line["label"] = vectors().labels()[i];
        line["cosine"] = std::round(answers[i] * 1e6) / 1e6;
      } else {
        line["rank"] = static_cast<int64_t>(answers[i]);
      }
      text += json_text(line) + "\n";
    }
    return text;
  }

 private:
  const objective::VectorMetrics& vectors() const {
    return dynamic_cast<const objective::VectorMetrics&>(metrics());
  }
};

[[noreturn]] void refuse_predict() {
  throw InputError(
      "usage",
      "the model gives vectors of texts, and predict gives labels, numbers and answers; run funicular embed");
}

}  // namespace

std::unique_ptr<Sheet> Embedders::sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> /*labels*/,
                                        const Json& /*note*/) const {
  return std::make_unique<VectorSheet>(std::move(metrics));
}

std::unique_ptr<Answers> Embedders::answers(std::vector<std::string> /*labels*/, const Json& /*note*/) const {
  refuse_predict();
}

std::unique_ptr<RowInput> Embedders::open_input(const InputOptions& /*options*/) const {
  refuse_predict();
}

}  // namespace funicular::task
