#pragma once
// Confident learning (Northcutt, Jiang, Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
// 2021): finds the probably wrong labels of a file, from out-of-sample probabilities. Rules and rounding follow
// cleanlab 2.9.

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

/// The rule that selects suspects.
enum class SuspectFilter {
  noise_rate,  ///< for each pair of classes, as many rows as the joint has, by the largest margin
  by_class,  ///< in each class, as many rows as the joint has off its diagonal, by the least self-confidence
  both,      ///< by both rules
  joint      ///< the rows themselves that the joint counts off its diagonal
};
/// prune-by-noise-rate, prune-by-class, both, confident-learning.
const std::vector<std::string>& suspect_filter_names();

/// The order of suspects.
enum class SuspectOrder { self_confidence, normalized_margin };
/// self-confidence, normalized-margin.
const std::vector<std::string>& suspect_order_names();

/// For each class, its mean probability over the rows with its label; 2 for a class without rows.
std::vector<double> confident_thresholds(const JudgedRows& rows);

/// [given][probable]: the estimated number of rows with one label that belong to another class. A row counts for a
/// class that reaches its threshold. The counts are then scaled to the labels' numbers of rows.
std::vector<std::vector<int64_t>> confident_joint(const JudgedRows& rows);

struct Suspect {
  int64_t row = 0;        ///< from 0
  int64_t suggested = 0;  ///< the most probable other class
  double certainty = 0;   ///< 1 minus the label's quality by which suspects are in order
};

/// The suspects, most certain first. A row whose label is the most probable class is never a suspect.
std::vector<Suspect> find_suspects(const JudgedRows& rows, SuspectFilter filter, SuspectOrder order);

}  // namespace funicular::task
