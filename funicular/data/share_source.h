#pragma once
// Soft labels: a share of each label, from annotators or a language model, and a weight per row.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/data/row_source.h"

namespace funicular::data {

/// How a file writes shares and weights.
struct ShareColumns {
  /// Columns with the share of a label each, written as a column of text; the columns name the labels. "NAME*"
  /// matches all columns whose names begin with NAME; the rest of a column's name is the label.
  std::vector<std::string> columns = {};
  bool objects = false;  ///< JSON lines: the label column is an object {"LABEL": SHARE, …}
  /// Divides shares by any sum. Otherwise the sum must be 1, up to the rounding of the decimals.
  bool normalize = false;
  std::string weight = {};  ///< the column of the row's weight; "": rows have none

  bool has_shares() const { return objects || !columns.empty(); }
  bool any() const { return has_shares() || !weight.empty(); }
  /// Describes all settings that affect how rows are read, for the keys of stores; "" unless any().
  std::string key() const;
};

/// The largest deviation from 1 that rounding explains, for the sum of `classes` shares written with this number of
/// decimals.
double share_sum_bound(size_t classes, int decimals);
/// The decimals of the shortest text that gives the number in float32: 3 for 0.125, even if it is written 0.12500000.
int decimals_of(double value);

/// Rows of a file with their shares, weights, or both. The label of a row with shares is a list
/// (format/column_list.h). It holds the label with the greatest share, or the labels with `independent` shares above
/// a half.
class ShareSource final : public RowSource {
 public:
  /// `file` has the texts and, if there are no shares, the label. `independent`: shares need not sum to 1, and a
  /// missing share is unknown. `names`: the labels in their order; empty: in the order of the columns, or of objects
  /// sorted. Throws InputError for columns or labels that the file does not have.
  ShareSource(const fs::path& file, TextFileSourceOptions layout, const ShareColumns& columns,
              bool independent, std::vector<std::string> names);
  int columns() const override { return rows_->columns(); }
  bool has_labels() const override { return has_shares() || rows_->has_labels(); }
  std::vector<std::string> share_names() const override { return names_; }
  bool has_weights() const override { return has_weight_; }
  size_t pieces() const override { return rows_->pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_->piece_bytes(piece); }
  /// A row is bad if its shares or weight are out of range, or if its shares do not sum to 1.
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  bool has_shares() const { return is_object_ || !share_columns_.empty(); }
  void name_columns(const fs::path& file, const ShareColumns& columns, const TextFileSourceOptions& layout);
  void name_keys();
  void put_in_order(const std::vector<std::string>& wanted, const fs::path& file);
  void take(const SourceRow& row, std::vector<double>& shares) const;
  void take_object(const std::string& text, std::vector<double>& shares) const;
  void check_sum(std::vector<double>& shares, int decimals) const;
  double weight_of(const SourceRow& row) const;
  std::string label_of(const std::vector<double>& shares) const;

  bool is_object_, normalizes_, independent_, has_weight_;
  std::vector<std::string> share_columns_;  ///< the file's names
  std::vector<std::string> names_;          ///< of the labels, in their order
  std::vector<size_t> places_;              ///< of each share column's label among them
  std::unique_ptr<TextFileSource> rows_;
};

}  // namespace funicular::data
