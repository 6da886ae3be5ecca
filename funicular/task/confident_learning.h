#pragma once
// Confident learning (Northcutt, Jiang, Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021):
// which labels of a file are probably wrong, from probabilities of models that have not seen the rows. Rules and
// rounding follow cleanlab 2.9.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace funicular::task {

/// Labels and probabilities [rows, classes] of rows.
struct JudgedRows {
  int64_t classes = 0;
  std::vector<int64_t> labels = {};
  std::vector<double> probabilities = {};

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
  std::span<const double> of(int64_t row) const {
    return std::span(probabilities).subspan(static_cast<size_t>(row * classes), static_cast<size_t>(classes));
  }
};

/// Which rows are suspected.
enum class SuspectFilter {
  noise_rate,  ///< for each pair of classes as many rows as the joint counts there, by the largest margin
  by_class,  ///< in each class as many rows as the joint counts off its diagonal, by the least self-confidence
  both,      ///< by both rules
  joint      ///< the rows themselves that the joint counts off its diagonal
};
/// prune-by-noise-rate, prune-by-class, both, confident-learning.
const std::vector<std::string>& suspect_filter_names();

/// How suspects are put in order.
enum class SuspectOrder { self_confidence, normalized_margin };
/// self-confidence, normalized-margin.
const std::vector<std::string>& suspect_order_names();

/// For each class the mean probability that rows with its label give it; 2 for a class without rows.
std::vector<double> confident_thresholds(const JudgedRows& rows);

/// [given][probable]: how many rows with one label are thought to belong to another class. Rows count where a class
/// reaches its threshold, then the counts are scaled to the labels' numbers of rows.
std::vector<std::vector<int64_t>> confident_joint(const JudgedRows& rows);

struct Suspect {
  int64_t row = 0;        ///< from 0
  int64_t suggested = 0;  ///< the most probable other class
  double certainty = 0;   ///< 1 minus the label's quality by which suspects are in order
};

/// The suspects, most certain first. A row whose label is the most probable class is none.
std::vector<Suspect> find_suspects(const JudgedRows& rows, SuspectFilter filter, SuspectOrder order);

}  // namespace funicular::task
