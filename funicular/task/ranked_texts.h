#pragma once
// Rows of a reranker: a query with a text and a label, with a positive and negatives, or with lists of texts and
// labels.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/data/row_source.h"
#include "funicular/task/row_input.h"

namespace funicular::task {

/// The elements of a column's list, including empty ones; a single text is one element.
std::vector<std::string_view> elements_of(std::string_view text);

/// The numbers of a row's label: of a list, or one. Throws data::BadRow for anything else.
std::vector<double> numbers_of_label(const data::SourceRow& row);

/// The texts of a row of a file. A document is a query with its texts, and each of its rows is (query, text, label).
///
/// With two columns, the second one is a text, and the label is a number; in JSON lines both may be lists. With more
/// columns, the texts are a positive and negatives; the last column may be a list of negatives. Their labels are 1
/// and 0. A label column has a teacher's scores of all texts, or the positive's margin over each negative.
class RankedTextSource final : public data::RowSource {
 public:
  /// Throws InputError as data::TextFileSource does, and for columns that the file lacks.
  RankedTextSource(const fs::path& file, data::TextFileSourceOptions columns, bool labelled);
  int columns() const override { return 2; }
  bool has_labels() const override { return labelled_; }
  size_t pieces() const override { return rows_.pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_.piece_bytes(piece); }
  uint64_t read(size_t piece, const data::RowSink& sink) const override;

 private:
  data::TextFileSource rows_;
  std::vector<std::string> names_;  ///< of the columns, for messages
  bool labelled_;
};

/// The lists to rank: neighbouring rows with one query, or lists of JSON lines. InputRow::texts are the query and its
/// texts. Refuses empty queries, empty texts, and rows of a query beyond objective::kMostListTexts.
class RankedTextInput final : public RowInput {
 public:
  /// `layout`: two columns. `kept`: the columns that become InputRow::kept_of_texts. A row of JSON may have a list of
  /// texts and, in a kept column, a list of as many elements. Each text then gets its element.
  RankedTextInput(const fs::path& path, const format::TextOptions& layout, KeptColumns kept = {});
  std::optional<InputRow> next() override;
  int texts() const override { return 2; }
  void stop() override { rows_.stop(); }

 private:
  struct ReadRow {
    InputRow row;
    bool is_list = false;  ///< is a separate list, whatever its query
  };
  std::optional<ReadRow> read();
  void check_texts(std::span<const std::string_view> texts, bool list);
  void count_row(std::string_view query, bool list);
  std::vector<std::string> kept_of(size_t texts, bool is_list) const;

  const InputFile input_;
  format::StreamRowReader rows_;
  KeptColumns kept_;
  std::optional<ReadRow> waiting_;  ///< the row after the last returned list
  bool ended_ = false;
  std::string query_;          ///< of the last row
  int64_t rows_of_query_ = 0;  ///< neighbouring rows with query_, since the last list
};

}  // namespace funicular::task
