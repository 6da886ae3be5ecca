#pragma once
// Labels that are no single class: a share of each label, as people or a language model give them, and a weight per
// row.

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
  /// Columns with the share of a label each, written as a column of text; the columns name the labels. "NAME*" is
  /// all columns whose names start so, and their labels are called by what stands for the star.
  std::vector<std::string> columns = {};
  bool objects = false;  ///< JSON lines: the label column is an object {"LABEL": SHARE, …}
  /// Shares are divided by their sum, whatever it is. Otherwise the sum must be 1, but for the rounding of the decimals.
  bool normalize = false;
  std::string weight = {};  ///< the column of the row's weight; "": rows have none

  bool has_shares() const { return objects || !columns.empty(); }
  bool any() const { return has_shares() || !weight.empty(); }
  /// Says all that decides how rows are read, for the keys of stores; "" unless any().
  std::string key() const;
};

/// How far from 1 the sum of `classes` shares may be that are written with so many decimals. A sum farther away is
/// no matter of rounding.
double share_sum_bound(size_t classes, int decimals);
/// Decimals of the shortest text that is the number in float32: 3 for 0.125, also where it is written 0.12500000.
int decimals_of(double value);

/// Rows of a file with their shares, weights, or both. The label of a row with shares is a list
/// (format/column_list.h). It holds the label with the greatest share, or the labels with `independent` shares above a half.
class ShareSource final : public RowSource {
 public:
  /// `file` has the texts and, if there are no shares, the label. `independent`: shares do not sum to 1, and a
  /// missing one is not known. `names`: the labels in their order; empty: in the order of the columns, or of objects
  /// sorted. Throws InputError for columns or labels that the file does not have.
  ShareSource(const fs::path& file, TextFileSourceOptions layout, const ShareColumns& columns,
              bool independent, std::vector<std::string> names);
  int columns() const override { return rows_->columns(); }
  bool has_labels() const override { return has_shares() || rows_->has_labels(); }
  std::vector<std::string> share_names() const override { return names_; }
  bool has_weights() const override { return has_weight_; }
  size_t pieces() const override { return rows_->pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_->piece_bytes(piece); }
  /// A row is bad whose shares or weight are no such numbers, or whose shares do not sum to 1.
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
  std::vector<std::string> share_columns_;  ///< as the file calls them
  std::vector<std::string> names_;          ///< of the labels, in their order
  std::vector<size_t> places_;              ///< of each share column's label among them
  std::unique_ptr<TextFileSource> rows_;
};

}  // namespace funicular::data
