#include "funicular/task/word_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/column_list.h"
#include "funicular/format/text_format.h"

namespace funicular::task {

std::vector<std::string> split_words(std::string_view text) {
  const auto words = format::split_list(text, " ");
  return {words.begin(), words.end()};
}

namespace {

std::vector<std::string> texts_of(std::string_view words, bool whole_texts) {
  if (!whole_texts) return split_words(words);
  if (!words.starts_with(format::kListMark)) return {std::string(words)};
  return {fmt::format("{}", fmt::join(split_words(words), " "))};
}

/// Lines of words with blanks between them, or lists in JSON lines (format/column_list.h), as they arrive.
class StreamedWords final : public RowInput {
 public:
  StreamedWords(const fs::path& path, const format::TextOptions& layout, bool whole_texts, KeptColumns kept)
      : input_(path),
        rows_(input_.descriptor, input_.name, layout, kept.columns),
        whole_texts_(whole_texts),
        kept_(std::move(kept)) {}

  std::optional<InputRow> next() override {
    const format::Row* const row = rows_.next();
    if (!row) return std::nullopt;
    if (rows_.problem().empty())
      return InputRow{texts_of(row->columns.front(), whole_texts_), "", rows_.line(),
                      kept_.members(rows_.kept())};
    return InputRow{{}, fmt::format("{}:{}: {}", input_.name, rows_.line(), rows_.problem())};
  }
  void stop() override { rows_.stop(); }

 private:
  const InputFile input_;
  format::StreamRowReader rows_;
  bool whole_texts_;
  KeptColumns kept_;
};

/// The sentences of a CoNLL file, piece by piece.
class SentenceWords final : public RowInput {
 public:
  SentenceWords(const OpenSentences& open, bool whole_texts)
      : whole_texts_(whole_texts), rows_(open([this](const std::string& problem) {
          texts_.push_back({{}, problem});
        })) {}

  std::optional<InputRow> next() override {
    while (texts_.empty() && piece_ < rows_->pieces())
      rows_->read(piece_++, [&](const data::SourceRow& row) {
        texts_.push_back({texts_of(row.columns.front(), whole_texts_)});
      });
    if (texts_.empty()) return std::nullopt;
    InputRow text = std::move(texts_.front());
    texts_.pop_front();
    return text;
  }

 private:
  std::deque<InputRow> texts_;
  bool whole_texts_;
  const std::unique_ptr<data::RowSource> rows_;
  size_t piece_ = 0;
};

}  // namespace

void refuse_kept_columns(const InputOptions& options) {
  if (options.keep.empty()) return;
  throw InputError(
      "usage",
      "--keep {}: lines of words and CoNLL's files have no columns to keep. Write JSON lines such as "
      "{{\"tokens\": [\"New\", \"York\"], \"id\": 1}} to a .jsonl file, or give --format jsonl",
      options.keep.front());
}

std::unique_ptr<RowInput> open_word_lists(const InputOptions& options,
                                          const std::vector<std::string>& columns, const Task& task) {
  const std::string ending = format::text_ending_of(options.path);
  if (options.format.empty() && (ending == ".csv" || ending == ".tsv"))
    throw InputError(
        "usage",
        "{}: a table holds no words with a tag each. Write the texts as lines of words, or as lists "
        "of words in JSON lines; if each line is a text already, give --format lines",
        options.path.string());
  const bool json =
      options.format == "jsonl" || (options.format.empty() && (ending == ".jsonl" || ending == ".ndjson"));
  if (!json) refuse_kept_columns(options);
  format::TextOptions layout;
  layout.format = json ? format::TextFormat::jsonl : format::TextFormat::lines;
  layout.keep_blank_lines = !json;
  layout.lists = format::Lists::all;
  layout.style = options.style;
  layout.bad_rows = options.bad_rows;
  if (json) layout.columns = {format::column_from_text(columns.empty() ? "tokens" : columns.front())};
  return std::make_unique<StreamedWords>(options.path, layout, options.whole_texts,
                                         KeptColumns(options.keep, task));
}

std::unique_ptr<RowInput> open_sentences(const OpenSentences& open, bool whole_texts) {
  return std::make_unique<SentenceWords>(open, whole_texts);
}

}  // namespace funicular::task
