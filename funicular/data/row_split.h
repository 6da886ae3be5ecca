#pragma once
// Splits the rows of a file into training and held-out rows.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "funicular/data/row_source.h"

namespace funicular::data {

/// One of several folds of the rows.
struct Fold {
  int64_t number = 0, count = 1;  ///< number < count
  std::string file = {};          ///< of the rows, for messages
  /// Whether each named label needs two texts. Rows with shares teach a class also if it is nowhere the greatest.
  bool needs_two_texts = true;
};

/// Holds out about a share of the rows of each label, or one of several equal parts. Rows with equal texts are on one
/// side. Texts that differ only in Unicode case or in blanks count as equal. The held-out texts of a label depend on
/// the seed and the label's rows, but not on the order of the rows.
class RowSplit {
 public:
  /// `labels_of` gives the labels of a row as the file writes them; none: labels have no effect. 0 < fraction < 1.
  /// `columns`: the first columns of a row, which are its text; 0: all; kAnyColumn, kLastColumn: see there.
  using LabelsOf = std::function<std::vector<std::string>(std::string_view label)>;
  /// Each column is a text of its own. Rows that have any text in common are on one side, and so are all rows that a
  /// chain of such rows joins.
  static constexpr size_t kAnyColumn = SIZE_MAX;
  /// The last column alone is the text, such as the context of a question.
  static constexpr size_t kLastColumn = SIZE_MAX - 1;
  RowSplit(double fraction, uint64_t seed, LabelsOf labels_of = nullptr, size_t columns = 0);
  /// Holds out one fold. Each row is in one fold. Folds have about as many rows of each label.
  /// A named label of one text makes choose() throw InputError: without that text no model could learn it. Two texts
  /// of a label are in two folds, unless another label prevents it.
  RowSplit(Fold fold, uint64_t seed, LabelsOf labels_of = nullptr, size_t columns = 0);

  /// The splits of all folds; `fold.number` is ignored. choose() has run on all of them, with one pass over the rows.
  static std::vector<std::shared_ptr<const RowSplit>> all_folds(const RowSource& rows, const Fold& fold,
                                                                uint64_t seed, const LabelsOf& labels_of,
                                                                size_t columns = 0);

  /// Chooses the texts that are held out. A label with fewer than five rows keeps all of them for training.
  /// If a row has several labels, all labels must allow it. Reads the rows the first time alone; threads may
  /// call it together.
  void choose(const RowSource& rows) const;
  /// Returns whether the row is held out, once choose() has returned.
  bool holds_out(const SourceRow& row) const;
  /// Returns how many rows choose() has held out.
  uint64_t held_out_rows() const { return held_out_rows_; }
  /// Returns a description that distinguishes splits, for the keys of stores: "0.1 42 comparable".
  std::string key() const;

 private:
  struct LabelRows {
    uint32_t label = 0;
    uint64_t rows = 0;
  };
  struct Text {
    uint64_t hash = 0;                ///< of the text as it is compared, with the seed
    uint64_t rows = 0;                ///< that have the text
    std::vector<LabelRows> labels{};  ///< of these rows
  };
  /// Sorted by their hashes.
  std::vector<Text> read_texts(const RowSource& rows, std::vector<uint64_t>& rows_of_label,
                               std::vector<std::string>& names) const;
  uint64_t hash_of(const SourceRow& row) const;
  uint64_t hash_of_columns(std::span<const std::string_view> columns) const;
  std::vector<uint64_t> hashes_of_texts(const SourceRow& row) const;
  void join_rows(const RowSource& rows) const;
  void choose_share(const std::vector<Text>& texts, std::vector<uint64_t> left) const;
  /// The fold of each text.
  std::vector<size_t> assign_folds(const std::vector<Text>& texts, const std::vector<uint64_t>& rows_of_label,
                                   const std::vector<std::string>& names) const;
  void require_two_texts(const std::vector<uint64_t>& texts_of_label,
                         const std::vector<std::string>& names) const;
  void hold_out(const Text& text) const;

  double fraction_ = 0;
  Fold fold_;
  uint64_t seed_;
  LabelsOf labels_of_;
  size_t columns_;
  /// With kAnyColumn: the group of each text.
  using Groups = std::unordered_map<uint64_t, uint64_t>;
  mutable std::shared_ptr<const Groups> groups_;
  mutable std::once_flag chosen_;
  mutable std::unordered_set<uint64_t> held_out_;
  mutable uint64_t held_out_rows_ = 0;
};

/// The rows of one side of a split, in their order.
class SplitSource final : public RowSource {
 public:
  /// `held_out`: which side.
  SplitSource(std::unique_ptr<RowSource> rows, std::shared_ptr<const RowSplit> split, bool held_out)
      : rows_(std::move(rows)), split_(std::move(split)), held_out_(held_out) {}
  int columns() const override { return rows_->columns(); }
  bool has_labels() const override { return rows_->has_labels(); }
  std::vector<std::string> share_names() const override { return rows_->share_names(); }
  bool has_weights() const override { return rows_->has_weights(); }
  size_t pieces() const override { return rows_->pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_->piece_bytes(piece); }
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  std::unique_ptr<RowSource> rows_;
  std::shared_ptr<const RowSplit> split_;
  bool held_out_;
};

}  // namespace funicular::data
