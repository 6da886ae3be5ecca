#include "funicular/cli/word_input.h"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/cli/input.h"
#include "funicular/format/list.h"
#include "funicular/format/row_stream.h"
#include "funicular/format/text_format.h"

namespace funicular::cli {

namespace {

eval::Tagger::Words split_words(std::string_view text) {
  const auto words = format::split_list(text, " ");
  return {words.begin(), words.end()};
}

/// Lines of words with blanks between them, or lists in JSON lines (format/list.h), as they arrive.
class StreamedWords final : public WordInput {
 public:
  StreamedWords(const fs::path& path, format::TextOptions layout)
      : input_(path), rows_(input_.descriptor, input_.name, std::move(layout)) {}

  std::optional<eval::Tagger::Row> next() override {
    const format::Row* const row = rows_.next();
    if (!row) return std::nullopt;
    if (rows_.problem().empty())
      return eval::Tagger::Row{split_words(row->columns.front()), "", rows_.line()};
    return eval::Tagger::Row{{}, fmt::format("{}:{}: {}", input_.name, rows_.line(), rows_.problem()), 0};
  }

 private:
  const Input input_;
  format::StreamRowReader rows_;
};

/// The sentences of a file of CoNLL's, piece by piece.
class SentenceWords final : public WordInput {
 public:
  SentenceWords(const eval::Task& task, const fs::path& path)
      : rows_(eval::open_tagged_rows(task, path, /*tagged=*/false, [this](const std::string& problem) {
          texts_.push_back({{}, problem});
        })) {}

  std::optional<eval::Tagger::Row> next() override {
    while (texts_.empty() && piece_ < rows_->pieces())
      rows_->read(piece_++, [&](const data::SourceRow& row) {
        texts_.push_back({split_words(row.columns.front()), "", 0});
      });
    if (texts_.empty()) return std::nullopt;
    eval::Tagger::Row text = std::move(texts_.front());
    texts_.pop_front();
    return text;
  }

 private:
  std::deque<eval::Tagger::Row> texts_;
  const std::unique_ptr<data::RowSource> rows_;
  size_t piece_ = 0;
};

bool is_conll_name(const std::string& ending) {
  constexpr std::array names{".conll", ".conllu", ".iob", ".iob2", ".bio"};
  return std::find(names.begin(), names.end(), ending) != names.end();
}

}  // namespace

std::unique_ptr<WordInput> open_words(const fs::path& path, const std::string& format,
                                      const eval::CustomColumns& columns,
                                      const std::shared_ptr<format::BadRows>& bad_rows) {
  const std::string ending = format::ending_of(path);
  if (format == "conll" || (format.empty() && is_conll_name(ending))) {
    if (path.empty()) throw InputError("usage", "--format conll reads a file; give --input FILE");
    eval::CustomColumns custom = columns;
    custom.format = "conll";
    eval::Task task = eval::find_task(eval::kTagTask, custom);
    task.layout.bad_rows = bad_rows;
    return std::make_unique<SentenceWords>(task, path);
  }
  const bool json = format == "jsonl" || (format.empty() && (ending == ".jsonl" || ending == ".ndjson"));
  format::TextOptions layout;
  layout.format = json ? format::TextFormat::jsonl : format::TextFormat::lines;
  layout.keep_blank_lines = !json;
  layout.lists = format::Lists::all;
  layout.style = columns.style;
  layout.bad_rows = bad_rows;
  if (json)
    layout.columns = {format::column_from_text(columns.text.empty() ? "tokens" : columns.text.front())};
  return std::make_unique<StreamedWords>(path, std::move(layout));
}

}  // namespace funicular::cli
