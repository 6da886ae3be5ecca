#pragma once
// A file of rows with labels and with probabilities of models that have not seen the rows.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/task/confident_learning.h"
#include "funicular/task/doubtful_labels.h"

namespace funicular::cli {

/// JSON lines with the key "probabilities", and the key "label" or, for any number of labels per row, "labels". The
/// first line decides which. The file may be compressed.
class JudgedFile {
 public:
  /// Throws InputError that names FILE:LINE for a line that does not fit.
  explicit JudgedFile(const fs::path& file);

  bool has_lists() const { return has_lists_; }
  int64_t rows() const { return static_cast<int64_t>(lines_.size()); }
  /// The rows; only without has_lists().
  const task::JudgedRows& classes() const { return classes_; }
  /// The rows; only with has_lists().
  const task::JudgedLabels& labels() const { return labels_; }
  /// The row's number and texts, as far as the file has them.
  OrderedJson line(int64_t row) const;
  const std::string& name(int64_t label) const { return names_.at(static_cast<size_t>(label)); }

 private:
  [[noreturn]] void refuse(size_t line, const std::string& problem) const;
  void add(std::string_view text, size_t line);
  void take_names(const OrderedJson& object, size_t line);
  int64_t number_of(const OrderedJson& label, size_t line) const;
  std::vector<double> probabilities_of(const OrderedJson& object, size_t line) const;
  void add_class(const OrderedJson& object, const std::vector<double>& probabilities, size_t line);
  void add_labels(const OrderedJson& object, const std::vector<double>& probabilities, size_t line);

  fs::path file_;
  bool has_lists_ = false;
  std::vector<std::string> names_;  ///< of the classes or labels
  std::vector<OrderedJson> lines_;
  task::JudgedRows classes_;
  task::JudgedLabels labels_;
};

}  // namespace funicular::cli
