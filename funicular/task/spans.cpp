#include "funicular/task/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/decompressor.h"
#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/format/family.h"
#include "funicular/format/text_format.h"
#include "funicular/task/questions.h"
#include "funicular/task/registry.h"
#include "funicular/task/span_scores.h"
#include "funicular/task/text_report.h"
#include "funicular/text/utf8.h"

namespace funicular::task {

namespace {

constexpr const char* kThresholdNote = "null_threshold";

/// The questions of Spans::open_rows, in the same order. Bad ones were reported when the store was made.
QuestionFile read_again(const fs::path& file, const FileOptions& options) {
  format::BadRows left_out(true);
  QuestionFile found = read_questions(file, true, &left_out);
  if (!options.split) return found;
  found.keep_only([&](const Question& question) {
    const std::string_view columns[] = {question.text, found.context_of(question)};
    return options.split->holds_out({.columns = columns, .label = ""}) == options.held_out;
  });
  return found;
}

std::optional<double> threshold_in(const Json& note) {
  if (!note.is_object() || !note.contains(kThresholdNote)) return {};
  return json_get<double>(note, kThresholdNote, "config.json (key \"funicular\")");
}

double rounded(double score) {
  return std::round(score * 1e6) / 1e6;
}

}  // namespace

namespace {

/// Whether the first bytes have the key of SQuAD's contexts.
bool begins_as_squad(const fs::path& file) {
  constexpr size_t kBegin = size_t{64} << 10;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  const MappedFile mapped(file);
  std::string begin(mapped.text().substr(0, kBegin));
  if (const Compression compression = compression_of(begin); compression != Compression::none) {
    Decompressor unpacker(compression, file.string());
    unpacker.give(mapped.text());
    begin.clear();
    for (std::string_view text = unpacker.take(); !text.empty() && begin.size() < kBegin;
         text = unpacker.take())
      begin += text;
  }
  return begin.find("\"paragraphs\"") != std::string::npos;
}

}  // namespace

TaskType Spans::row() {
  return {
      .name = "spans",
      .option = "spans",
      .options = {"stride"},
      .gives = "a span of a context for each question",
      .reads = "SQuAD's JSON",
      .answers =
          "A model of spans reads questions with contexts (SQuAD's JSON, or the columns question and "
          "context), and gives the answer and its characters.",
      .example = {"answer questions", "--train train.json --output runs/spans"},
      .owns = objective::is_span_reader,
      .make = [](const TaskType& type, FileOptions files, const data::NamedTask*) -> std::unique_ptr<Task> {
        return std::make_unique<Spans>(type, std::move(files));
      },
      .aliases = {"squad", "qa"},
      .foreign = {"squad2", "squad-v2", "squadv2", "question-answering", "extractive-qa"},
      .keyed_ending = ".squad.json",
      .reads_file =
          [](const fs::path& file) {
            return format::text_ending_of(file) == ".json" && begins_as_squad(file);
          }};
}

Spans::Spans(const TaskType& type, FileOptions files) : Task(type, "spans", std::move(files)) {}

std::unique_ptr<data::RowSource> Spans::open_rows(const fs::path& file, const RowsOptions& options) const {
  return own_side(std::make_unique<QuestionSource>(file, options.labelled, options.bad_rows));
}

std::string Spans::row_key(const std::string& bad_rows, const std::string& style) const {
  return " questions" + bad_rows + style;
}

MetricNames Spans::metrics(const std::vector<std::string>& /*labels*/) const {
  return {span_metric_names(), "f1"};
}

std::unique_ptr<objective::Objective> Spans::objective(const text::Tokenizer& tokenizer,
                                                       const format::ModelConfig& /*config*/,
                                                       const ObjectiveOptions& options) const {
  return std::make_unique<objective::Spans>(
      tokenizer,
      objective::SpanOptions{
          .max_length = options.sequence.max_length, .stride = files().stride, .labelled = options.labelled});
}

TaskSamples Spans::samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                           std::shared_ptr<const data::TokenStore> store, const fs::path& file) const {
  const auto& spans = dynamic_cast<const objective::Spans&>(objective);
  QuestionFile questions = read_again(file, files());
  const auto windows = std::make_shared<objective::SpanWindows>(std::move(store), spans.span_form(),
                                                                answer_tokens(questions, tokenizer));
  return {windows, std::make_unique<SpanMetrics>(std::move(questions), windows, tokenizer)};
}

void Spans::describe_in(format::ModelConfig& config, const std::vector<std::string>& /*labels*/) const {
  config.id2label = {};
  config.num_labels = 2;
  config.problem_type = "";
  config.architectures = {format::family_of(config).class_of(objective::span_reader().architecture)};
}

void Spans::check_training(const FileRows& rows) const {
  require_texts(rows.store, rows.file);
  const QuestionFile file = read_again(rows.file, files());
  if (file.lost == std::ssize(file.questions))
    throw InputError("task", "{}: no answer stands in its context; nothing can be learnt",
                     rows.file.string());
}

void Spans::report_training(const FileRows& rows) const {
  const QuestionFile file = read_again(rows.file, files());
  const int64_t all = std::ssize(file.questions);
  if (file.moved > 0)
    log::info("{}: {} of {} answers do not stand where answer_start says; the nearest place is taken",
              rows.file.string(), file.moved, all);
  if (file.lost > 0)
    log::warning(
        "{}: {} of {} questions have no answer that stands in the context; nothing is learnt from them",
        rows.file.string(), file.lost, all);
}

// ---- evaluation

namespace {

class SpanSheet final : public Sheet {
 public:
  SpanSheet(std::unique_ptr<Metrics> metrics, const Json& note) : Sheet(std::move(metrics)) {
    auto& own = const_cast<SpanMetrics&>(spans());  // the sheet's own
    if (const auto threshold = threshold_in(note)) own.set_threshold(*threshold);
  }

  void add_details(OrderedJson& /*found*/) const override {}
  OrderedJson mistakes(const EvaluatedRows& /*rows*/) const override {
    std::vector<std::pair<double, size_t>> wrong;
    for (size_t i = 0; i < spans().answered().size(); ++i)
      if (spans().score_of(i).exact < 1) wrong.emplace_back(spans().score_of(i).f1, i);
    std::sort(wrong.begin(), wrong.end());
    OrderedJson found = OrderedJson::array();
    for (const auto& [f1, i] : wrong) {
      OrderedJson line = this->line(i);
      const Question& question = spans().file().questions[i];
      line["label"] = question.answers.empty() ? "" : question.answers.front();
      line["predicted"] = line["answer"];
      line["texts"] = {question.text, spans().file().context_of(question)};
      found.push_back(std::move(line));
    }
    return found;
  }
  std::string lines(const EvaluatedRows& /*rows*/) const override {
    std::string text;
    for (size_t i = 0; i < spans().answered().size(); ++i) text += json_text(line(i)) + "\n";
    return text;
  }

 private:
  const SpanMetrics& spans() const { return dynamic_cast<const SpanMetrics&>(metrics()); }
  OrderedJson line(size_t i) const {
    const Question& question = spans().file().questions[i];
    const AnsweredQuestion& found = spans().answered()[i];
    const SpanScore score = spans().score_of(i);
    return {{"row", question.number + 1},
            {"id", question.id},
            {"question", question.text},
            {"answers", question.answers},
            {"answer", spans().is_null(i) ? "" : found.answer},
            {"exact", score.exact},
            {"f1", score.f1},
            {"score", rounded(found.span.score)},
            {"null_score", rounded(found.span.null_score)}};
  }
};

}  // namespace

std::unique_ptr<Sheet> Spans::sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> /*labels*/,
                                    const Json& note) const {
  return std::make_unique<SpanSheet>(std::move(metrics), note);
}

// ---- answers

namespace {

class SpanAnswers final : public Answers {
 public:
  SpanAnswers(std::optional<int64_t> stride, std::optional<double> threshold, int64_t listed)
      : Answers({}), stride_(stride), threshold_(threshold), listed_(listed) {}
  int64_t width() const override { return 2; }
  std::string example() const override {
    return fmt::format(R"({{"id": "", "answer": "", "start": 0, "end": 0, "score": 0, "null_score": 0{}}})",
                       listed_ > 0 ? R"(, "n_best": [])" : "");
  }

 private:
  objective::SpanForm form_of(const text::Tokenizer& tokenizer, const TokenisedRow& row) const {
    return {tokenizer.sequence(), row.max_length, stride_};
  }
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override;
  void count_cut(const TokenisedRow& /*row*/, int64_t /*room*/, data::CutRows& /*cut*/) const override {}
  std::vector<int64_t> rows_of_samples(const MicroBatch& batch) const override;
  at::Tensor scores(const at::Tensor& logits) const override { return logits; }
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;
  OrderedJson n_best(const TokenisedRow& row, std::span<const SampleScores> scores, double null_score) const;

  std::optional<int64_t> stride_;
  std::optional<double> threshold_;
  int64_t listed_;  ///< candidates
};

text::CharacterRange characters_of_span(const TokenisedRow& row, int64_t first, int64_t last) {
  return {row.places.at(static_cast<size_t>(first)).begin, row.places.at(static_cast<size_t>(last)).end};
}

/// A sample per window.
void SpanAnswers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  row.row.texts.at(0) = std::string(without_leading_space(row.row.texts.at(0)));
  row.row.texts.at(1) = text::to_valid_utf8(row.row.texts.at(1));
  data::Sample whole;
  for (const std::string& column : {row.row.texts[0], row.row.texts[1]}) {
    text::TokenizedText text;
    row.places.clear();  // those of the context, the last one, stay
    tokenizer.tokenize(column, text, row.places);
    const auto& ids = row.tokens.emplace_back(text.ids.begin(), text.ids.end());
    whole.columns.push_back({data::TokenSpan(ids.data(), ids.size()), {}});
  }
  const objective::SpanForm form = form_of(tokenizer, row);
  const int64_t question = std::ssize(row.tokens[0]);
  for (const objective::TokenRange window : form.windows(question, std::ssize(row.tokens[1]))) {
    row.samples.push_back(form.sample(whole, window));
    row.windows.push_back({window.begin, window.end, form.place(question)});
  }
}

std::vector<int64_t> SpanAnswers::rows_of_samples(const MicroBatch& batch) const {
  const std::vector<int32_t>& offsets = batch.packing.host_offsets;
  std::vector<int64_t> rows;
  for (size_t i = 1; i < offsets.size(); ++i) rows.push_back(offsets[i] - offsets[i - 1]);
  return rows;
}

/// The best candidates by score, including "no answer" if the model has a threshold. The probabilities are a softmax
/// over them, as in SQuAD's nbest_predictions.
OrderedJson SpanAnswers::n_best(const TokenisedRow& row, std::span<const SampleScores> scores,
                                double null_score) const {
  objective::BestSpans best(listed_);
  for (size_t i = 0; i < scores.size(); ++i)
    best.read(scores[i].values, row.windows.at(i).place, {row.windows[i].begin, row.windows[i].end});
  std::vector<objective::ScoredSpan> spans = best.spans();
  if (threshold_) {
    const auto behind =
        std::find_if(spans.begin(), spans.end(), [&](const auto& span) { return span.score < null_score; });
    spans.insert(behind, {null_score, -1, -1});
  }
  double sum = 0;
  for (const objective::ScoredSpan& span : spans) sum += std::exp(span.score - spans.front().score);
  OrderedJson list = OrderedJson::array();
  for (const objective::ScoredSpan& span : spans) {
    const text::CharacterRange place =
        span.first < 0 ? text::CharacterRange{} : characters_of_span(row, span.first, span.last);
    list.push_back({{"answer", characters_of(row.row.texts[1], place)},
                    {"start", place.begin},
                    {"end", place.end},
                    {"score", rounded(span.score)},
                    {"probability", rounded(std::exp(span.score - spans.front().score) / sum)}});
  }
  return list;
}

Answer SpanAnswers::answer(const TokenisedRow& row, std::span<const SampleScores> scores) const {
  objective::BestSpan best;
  for (size_t i = 0; i < scores.size(); ++i)
    best.read(scores[i].values, row.windows.at(i).place, {row.windows[i].begin, row.windows[i].end});
  text::CharacterRange place;
  const bool is_null = best.first < 0 || (threshold_ && best.null_odds() > *threshold_);
  if (!is_null) place = characters_of_span(row, best.first, best.last);
  OrderedJson line;
  if (row.row.texts.size() > 2) line["id"] = row.row.texts[2];
  line["answer"] = characters_of(row.row.texts[1], place);
  line["start"] = place.begin;
  line["end"] = place.end;
  line["score"] = std::isfinite(best.score) ? OrderedJson(rounded(best.score)) : OrderedJson();
  line["null_score"] = rounded(best.null_score);
  if (listed_ > 0) line["n_best"] = n_best(row, scores, best.null_score);
  return {json_text(line), {}, {static_cast<float>(best.score), static_cast<float>(best.null_score)}};
}

}  // namespace

std::unique_ptr<Answers> Spans::answers(std::vector<std::string> /*labels*/, const Json& note) const {
  const bool lists = note.is_object() && note.contains(kBestSpans);
  return std::make_unique<SpanAnswers>(files().stride, threshold_in(note),
                                       lists ? note[kBestSpans].get<int64_t>() : 0);
}

std::vector<std::string> Spans::answer_keys() const {
  return {"answer", "end", "error", "n_best", "null_score", "score", "start"};
}

std::unique_ptr<RowInput> Spans::open_input(const InputOptions& options) const {
  if (options.format.empty() && format::text_ending_of(options.path) == ".json")
    return open_questions(options, *this);
  format::TextOptions layout;
  layout.style = options.style;
  layout.bad_rows = options.bad_rows;
  layout.format = options.path.empty() && options.format.empty() ? format::TextFormat::jsonl
                  : options.format.empty()                       ? format::guess_text_format(options.path)
                                           : format::text_format_from_name(options.format);
  if (layout.format == format::TextFormat::lines || layout.format == format::TextFormat::text)
    throw InputError(
        "usage",
        "{} answers questions about contexts. It reads SQuAD's JSON (.json), and tables and JSON lines "
        "with the columns question and context; give --format jsonl, tsv or csv",
        options.model.string());
  layout.header = options.header.value_or(true) && layout.format != format::TextFormat::jsonl;
  layout.columns = {"question", "context"};
  if (!options.text.empty()) layout.columns.clear();
  for (const std::string& column : options.text) layout.columns.push_back(format::column_from_text(column));
  if (layout.columns.size() != 2)
    throw InputError("usage", "expected two of --text-column, the question and the context, found {}",
                     layout.columns.size());
  return std::make_unique<TextInput>(options.path, layout, 2, KeptColumns(options.keep, *this));
}

}  // namespace funicular::task
