#pragma once
// Tasks with known file layouts: columns, spellings of the classes, and metrics. One row per task.

#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/row_source.h"

namespace funicular::data {

/// A task of the GLUE benchmark (Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
/// Understanding", 2019), with the layout of its files.
struct NamedTask {
  std::string name;
  std::string type;                      ///< as task/registry.h calls it
  TextFileSourceOptions columns;         ///< with text columns and a label column
  std::vector<std::string> label_names;  ///< of the classes by number; empty: the labels are numbers
  std::vector<std::string> spellings;    ///< spellings of the classes in files; empty: their names
  std::vector<std::string> metrics;      ///< the first one chooses the best model
};

const std::vector<NamedTask>& named_tasks();
/// Null if there is no such task.
const NamedTask* find_named_task(std::string_view name);

/// Rows of a file, with each label replaced by the name of its class.
class NamedLabelSource : public RowSource {
 public:
  /// `spellings`: as many as `names`, or none, which leaves labels as they are.
  NamedLabelSource(const fs::path& file, const TextFileSourceOptions& columns, std::vector<std::string> names,
                   std::vector<std::string> spellings);
  int columns() const override { return rows_.columns(); }
  bool has_labels() const override { return rows_.has_labels(); }
  size_t pieces() const override { return rows_.pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_.piece_bytes(piece); }
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  std::string_view name_of(std::string_view label) const;
  std::vector<std::string> names_, spellings_;
  TextFileSource rows_;
};

}  // namespace funicular::data
