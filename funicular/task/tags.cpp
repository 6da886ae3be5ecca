#include "funicular/task/tags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/data/conll_source.h"
#include "funicular/format/family.h"
#include "funicular/format/text_format.h"
#include "funicular/model/token_classifier.h"
#include "funicular/objective/tag_metrics.h"
#include "funicular/objective/tags.h"
#include "funicular/task/entity_answers.h"
#include "funicular/task/label_report.h"
#include "funicular/task/missing_values.h"
#include "funicular/task/registry.h"
#include "funicular/task/tag_sheet.h"
#include "funicular/task/text_report.h"
#include "funicular/task/window_scores.h"
#include "funicular/task/word_input.h"
#include "funicular/text/given_words.h"

namespace funicular::task {

namespace {

using format::Column;

constexpr const char* kConll = "conll";

std::optional<size_t> numbered(const std::optional<Column>& column, const fs::path& file) {
  if (!column) return {};
  if (const auto* const number = std::get_if<size_t>(&*column)) return *number;
  throw InputError("task",
                   "{}: the columns of CoNLL's formats have no names, found \"{}\"; expected a number from 1",
                   file.string(), std::get<std::string>(*column));
}

/// Logs that words are scored if the tags name no entities.
void report_words_scored(const std::vector<std::string>& labels) {
  if (objective::are_entity_tags(labels)) return;
  const std::vector<std::string> strangers = objective::strangers_among_entity_tags(labels);
  if (strangers.empty())
    return log::info("the tags name no entities, as B-PER, I-PER and O do: words are scored");
  log::warning(
      "words are scored, and not entities: {} of {} tags, such as \"{}\", are no letter and type (B-PER) and "
      "not O; rename them to have entities scored",
      strangers.size(), labels.size(), strangers.front());
}

}  // namespace

TaskType Tags::row() {
  return {
      .name = "tags",
      .option = "tags",
      .options = {"text-column", "label-column", "format", "stride"},
      .gives = "a tag for each word",
      .reads = "CoNLL files or JSON lines",
      .answers =
          "A model of tags reads words that blanks separate, and gives each word's tag and the entities.",
      .example = {"tag words", "--train train.conll --output runs/tags"},
      .owns = model::is_token_classifier,
      .make = [](const TaskType& type, FileOptions files, const data::NamedTask*) -> std::unique_ptr<Task> {
        return std::make_unique<Tags>(type, std::move(files));
      },
      .foreign = {"ner", "pos", "chunk", "chunking", "tagging", "token-classification", "sequence-labeling",
                  "named-entity-recognition", "conll", "conll2003", "conll-2003", "wnut", "wnut-17",
                  "multiconer", "ontonotes", "panx"},
      .reads_file =
          [](const fs::path& file) {
            const std::string ending = format::text_ending_of(file);
            return ending == ".conll" || ending == ".conllu" || ending == ".bio" || ending == ".iob";
          }};
}

Tags::Tags(const TaskType& type, FileOptions files) : Task(type, "tags", std::move(files)) {
  const FileOptions& said = this->files();
  if (said.text.size() > 1)
    throw InputError("task", "words with tags are one column, found {} of --text-column", said.text.size());
  if (!said.format.empty() && said.format != kConll &&
      format::text_format_from_name(said.format) != format::TextFormat::jsonl)
    throw InputError("task", "files of words with tags need the format conll or jsonl; found {}",
                     said.format);
}

data::TextFileSourceOptions Tags::columns() const {
  data::TextFileSourceOptions columns;
  if (!files().format.empty() && files().format != kConll)
    columns.format = format::text_format_from_name(files().format);
  for (const std::string& column : files().text)
    columns.text_columns.push_back(format::column_from_text(column));
  if (!files().label.empty()) columns.label_column = format::column_from_text(files().label);
  columns.style = files().style;
  return columns;
}

std::optional<data::TextFileSourceOptions> Tags::table(const fs::path& file) const {
  if (files().format == kConll) return std::nullopt;
  data::TextFileSourceOptions columns = this->columns();
  const std::string ending = format::text_ending_of(file);
  if (!columns.format && ending != ".jsonl" && ending != ".ndjson") return std::nullopt;
  columns.format = format::TextFormat::jsonl;
  columns.lists = format::Lists::all;
  if (columns.text_columns.empty()) columns.text_columns = {"tokens"};
  if (!columns.label_column) columns.label_column = "tags";
  return columns;
}

std::unique_ptr<data::RowSource> Tags::open_rows(const fs::path& file, const RowsOptions& options) const {
  if (auto table = this->table(file)) {
    table->bad_rows = options.bad_rows;
    if (!options.labelled) table->label_column.reset();
    return own_side(std::make_unique<data::TextFileSource>(std::vector<fs::path>{file}, std::move(*table)));
  }
  const data::TextFileSourceOptions columns = this->columns();
  const std::optional<Column> word =
      columns.text_columns.empty() ? std::nullopt : std::optional(columns.text_columns.front());
  return own_side(std::make_unique<data::ConllSource>(
      file, data::ConllOptions{.word_column = numbered(word, file),
                               .tag_column = numbered(columns.label_column, file),
                               .tagged = options.labelled,
                               .conll_u = data::is_conll_u(file),
                               .encoding = columns.style.encoding,
                               .bad_rows = options.bad_rows,
                               .on_bad = options.on_bad}));
}

std::string Tags::row_key(const std::string& bad_rows, const std::string& style) const {
  return (files().format == kConll ? " tags in columns, 2" : " tags, 2") + bad_rows + style;
}

MetricNames Tags::metrics(const std::vector<std::string>& labels) const {
  if (labels.empty()) return {};
  const std::vector<std::string> names = objective::tag_metric_names(labels);
  return {names, names.front()};
}

std::unique_ptr<objective::Objective> Tags::objective(const text::Tokenizer& tokenizer,
                                                      const format::ModelConfig& /*config*/,
                                                      const ObjectiveOptions& options) const {
  objective::SequenceOptions sequence = options.sequence;
  sequence.stride = files().stride;
  return std::make_unique<objective::Tags>(
      tokenizer,
      objective::TagOptions{
          .sequence = sequence, .tags = options.labels, .labelled = options.labelled, .loss = options.loss});
}

void Tags::describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const {
  config.id2label = labels;
  config.num_labels = static_cast<int>(labels.size());
  config.problem_type = "";
  config.architectures = {format::family_of(config).class_of(model::token_classifier().architecture)};
}

void Tags::check_training(const FileRows& rows) const {
  require_classes(rows, 2);
  require_texts(rows.store, rows.file);
  refuse_measurements(rows);
}

void Tags::report_training(const FileRows& rows) const {
  warn_of_measurements(rows);
  report_classes(rows.store, rows.file);
  report_words_scored(rows.store.meta().label_names);
  warn_of_missing_labels(rows.store.meta().label_names, rows.file);
}

void Tags::report_evaluation(const std::vector<std::string>& labels,
                             const model::Pretrained& /*model*/) const {
  report_words_scored(labels);
}

std::unique_ptr<Sheet> Tags::sheet(std::unique_ptr<Metrics> /*metrics*/, std::vector<std::string> labels,
                                   const Json& /*note*/) const {
  return std::make_unique<TagSheet>(std::move(labels));
}

std::unique_ptr<Metrics> Tags::over_windows(const data::Dataset& samples, Metrics& of_texts,
                                            const Json& /*note*/) const {
  if (!files().stride) return nullptr;
  return std::make_unique<WindowWordMetrics>(dynamic_cast<const objective::TextWindows&>(samples), of_texts);
}

// ---- answers

namespace {

class TagAnswers final : public Answers {
 public:
  TagAnswers(std::vector<std::string> labels, std::optional<int64_t> stride)
      : Answers(std::move(labels)), scheme_(objective::tag_scheme(this->labels())), stride_(stride) {}

 private:
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override;
  void count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const override;
  std::vector<int64_t> rows_of_samples(const MicroBatch& batch) const override {
    return objective::words_of_samples(batch);
  }
  at::Tensor scores(const at::Tensor& logits) const override { return at::softmax(logits, -1); }
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;
  OrderedJson entities(const std::vector<std::string>& words, const Answer& tagged) const;

  objective::TagScheme scheme_;
  std::optional<int64_t> stride_;  ///< none: texts that are too long are cut
};

void TagAnswers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  const std::vector<std::string>& words = row.row.texts;
  if (words.empty()) return;
  text::TokenizedText text;
  text::tokenize_words(tokenizer, std::vector<std::string_view>(words.begin(), words.end()), text);
  row.tokens.emplace_back(text.ids.begin(), text.ids.end());
  add_windows(tokenizer, row, stride_, [&](size_t token) { return text.word_starts[token] != 0; });
}

/// Counts words: one whose first token is left out gets no tag.
void TagAnswers::count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const {
  if (stride_) return cut.add_words(std::ssize(row.row.texts), std::ssize(row.row.texts));
  int64_t tagged = 0;
  for (const data::Sample& sample : row.samples)
    for (size_t i = 0;
         i < std::min(sample.columns[0].tokens.size(), static_cast<size_t>(std::max<int64_t>(room, 0))); ++i)
      tagged += sample.columns[0].word_starts[i] ? 1 : 0;
  cut.add_words(std::ssize(row.row.texts), tagged);
}

Answer TagAnswers::answer(const TokenisedRow& row, std::span<const SampleScores> scores) const {
  const std::vector<std::string>& words = row.row.texts;
  Answer found;
  OrderedJson tags = OrderedJson::array();
  for (const SampleScores& window : scores)
    for (int64_t word = 0; word < window.rows(); ++word) {
      const std::span<const float> own = window.row(word);
      const auto best = std::max_element(own.begin(), own.end());
      found.labels.push_back(best - own.begin());
      found.scores.push_back(*best);
      tags.push_back(labels().at(static_cast<size_t>(found.labels.back())));
    }
  while (tags.size() < words.size()) tags.push_back(nullptr);
  OrderedJson line{{"words", words}, {"tags", tags}};
  if (scheme_ != objective::TagScheme::none) line["entities"] = entities(words, found);
  found.json = json_text(line);
  return found;
}

OrderedJson TagAnswers::entities(const std::vector<std::string>& words, const Answer& tagged) const {
  std::vector<std::string_view> names;
  for (const int64_t tag : tagged.labels) names.push_back(labels().at(static_cast<size_t>(tag)));
  OrderedJson all = OrderedJson::array();
  for (const objective::Entity& entity : objective::entities_of(names, scheme_)) {
    const auto begin = static_cast<size_t>(entity.begin), end = static_cast<size_t>(entity.end);
    double score = 0;
    for (size_t i = begin; i < end; ++i) score += tagged.scores[i];
    score /= static_cast<double>(end - begin);
    all.push_back({{"type", entity.type},
                   {"text", fmt::format("{}", fmt::join(words.begin() + entity.begin,
                                                        words.begin() + entity.end, " "))},
                   {"begin", begin},
                   {"end", end},
                   {"score", std::round(score * 1e6) / 1e6}});
  }
  return all;
}

}  // namespace

std::vector<std::string> Tags::answer_keys() const {
  return {"entities", "error", "tags", "words"};
}

std::unique_ptr<Answers> Tags::answers(std::vector<std::string> labels, const Json& note) const {
  if (note.is_object() && note.contains(kAggregation)) {
    const std::vector<std::string>& names = aggregation_names();
    const auto how =
        std::find(names.begin(), names.end(), note[kAggregation].get<std::string>()) - names.begin();
    return make_entity_answers(std::move(labels), static_cast<Aggregation>(how), files().stride);
  }
  return std::make_unique<TagAnswers>(std::move(labels), files().stride);
}

namespace {

bool is_conll(const InputOptions& options) {
  constexpr std::array names{".conll", ".conllu", ".iob", ".iob2", ".bio"};
  if (!options.format.empty()) return options.format == kConll;
  return std::find(names.begin(), names.end(), format::text_ending_of(options.path)) != names.end();
}

}  // namespace

std::unique_ptr<RowInput> Tags::open_input(const InputOptions& options) const {
  if (options.pairs || options.format == "tsv" || options.format == "csv" || options.header ||
      options.style.quotes != format::Quotes::automatic)
    throw InputError("usage",
                     "{} gives each word of a text a tag. It reads lines of words, CoNLL's formats and lists "
                     "of words in JSON lines. Leave out --pairs, --header, --quotes and --format {}",
                     options.model.string(), options.format.empty() ? "tsv or csv" : options.format);
  if (!is_conll(options)) return open_word_lists(options, files().text, *this);
  refuse_kept_columns(options);
  if (options.path.empty()) throw InputError("usage", "--format conll reads a file; give --input FILE");
  FileOptions files = this->files();
  files.format = kConll;
  return open_sentences(
      [&](std::function<void(const std::string&)> on_bad) {
        return Tags(type(), files)
            .open_rows(options.path,
                       {.labelled = false, .bad_rows = options.bad_rows, .on_bad = std::move(on_bad)});
      },
      options.whole_texts);
}

}  // namespace funicular::task
