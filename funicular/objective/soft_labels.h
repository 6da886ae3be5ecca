#pragma once
// Losses of rows whose labels are shares (data/share_source.h), and rows with weights.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "funicular/core/batch.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"
#include "funicular/objective/class_loss.h"

namespace funicular::objective {

/// Tensors of a batch: shares [S, labels], and weights [S] in training or of windows, both float64.
inline constexpr const char *kShares = "shares", *kRowWeights = "row_weights";

struct SoftLabels {
  bool shares = false;   ///< rows may have shares instead of a label
  bool weights = false;  ///< rows have weights in training
  bool windows =
      false;  ///< samples are windows of texts (TextWindows), whose weights also count in evaluation
  /// In training, divides logits, flattens shares likewise, and multiplies the loss by its square. See Hinton et al.,
  /// "Distilling the Knowledge in a Neural Network", 2015.
  double temperature = 1;

  bool any() const { return shares || weights || windows; }
  /// The weight of a sample.
  double weight_of(const data::Sample& sample, bool training) const {
    return windows || (weights && training) ? sample.weight : 1;
  }
  /// Throws InputError of `component` for a temperature out of range.
  void check(const char* component) const;
  /// Adds shares, and weights that count, to the batch. `labels`: the number of shares per row. Throws InputError for
  /// a row with another number of shares.
  void add(MicroBatch& batch, std::span<const data::Sample> samples, int64_t labels) const;
  /// Adds the settings that a resumed run must share, if any.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

/// Adds the outputs "labels" and, for windows, "samples" [S] int64 (Packing::sample_ids).
void output_rows(const Pass& pass, const at::Tensor& labels, const SoftLabels& soft);

/// Sums the losses of rows [S], each times its weight if the batch has weights.
at::Tensor sum_of_rows(const at::Tensor& losses, const MicroBatch& batch);

/// Cross-entropy of each row: with its shares if the batch has some, with its label otherwise. Class weights apply to
/// each class's term, so a row with one share of 1 has the loss of a row with that label.
at::Tensor class_losses(const at::Tensor& logits, const MicroBatch& batch, const ClassLoss& loss,
                        const SoftLabels& soft);
/// Returns the divisor of the sum of these losses. A row counts as its weight times the mean of the class weights by
/// its shares.
double count_of_classes(std::span<const data::Sample> samples, std::span<const int64_t> classes,
                        const ClassLoss& loss, const SoftLabels& soft, bool training);

/// Binary cross-entropy of each row, summed over the labels with a known share.
at::Tensor label_losses(const at::Tensor& logits, const MicroBatch& batch, const SoftLabels& soft);
/// Returns the divisor of the sum of these losses: the known labels of each row, times its weight.
double count_of_labels(std::span<const data::Sample> samples, int64_t labels, const SoftLabels& soft,
                       bool training);

}  // namespace funicular::objective
