#include "funicular/task/word_input.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

#include "funicular/format/column_list.h"
#include "funicular/format/text_format.h"

namespace funicular::task {

std::vector<std::string> split_words(std::string_view text) {
  const auto words = format::split_list(text, " ");
  return {words.begin(), words.end()};
}

namespace {

/// Lines of words with blanks between them, or lists in JSON lines (format/column_list.h), as they arrive.
class StreamedWords final : public RowInput {
 public:
  StreamedWords(const fs::path& path, const format::TextOptions& layout)
      : input_(path), rows_(input_.descriptor, input_.name, layout) {}

  std::optional<InputRow> next() override {
    const format::Row* const row = rows_.next();
    if (!row) return std::nullopt;
    if (rows_.problem().empty()) return InputRow{split_words(row->columns.front()), "", rows_.line()};
    return InputRow{{}, fmt::format("{}:{}: {}", input_.name, rows_.line(), rows_.problem())};
  }
  void stop() override { rows_.stop(); }

 private:
  const InputFile input_;
  format::StreamRowReader rows_;
};

/// The sentences of a file of CoNLL's, piece by piece.
class SentenceWords final : public RowInput {
 public:
  explicit SentenceWords(const OpenSentences& open)
      : rows_(open([this](const std::string& problem) {
          texts_.push_back({{}, problem});
        })) {}

  std::optional<InputRow> next() override {
    while (texts_.empty() && piece_ < rows_->pieces())
      rows_->read(piece_++,
                  [&](const data::SourceRow& row) { texts_.push_back({split_words(row.columns.front())}); });
    if (texts_.empty()) return std::nullopt;
    InputRow text = std::move(texts_.front());
    texts_.pop_front();
    return text;
  }

 private:
  std::deque<InputRow> texts_;
  const std::unique_ptr<data::RowSource> rows_;
  size_t piece_ = 0;
};

}  // namespace

std::unique_ptr<RowInput> open_word_lists(const InputOptions& options,
                                          const std::vector<std::string>& columns) {
  const std::string ending = format::ending_of(options.path);
  const bool json =
      options.format == "jsonl" || (options.format.empty() && (ending == ".jsonl" || ending == ".ndjson"));
  format::TextOptions layout;
  layout.format = json ? format::TextFormat::jsonl : format::TextFormat::lines;
  layout.keep_blank_lines = !json;
  layout.lists = format::Lists::all;
  layout.style = options.style;
  layout.bad_rows = options.bad_rows;
  if (json) layout.columns = {format::column_from_text(columns.empty() ? "tokens" : columns.front())};
  return std::make_unique<StreamedWords>(options.path, layout);
}

std::unique_ptr<RowInput> open_sentences(const OpenSentences& open) {
  return std::make_unique<SentenceWords>(open);
}

}  // namespace funicular::task
