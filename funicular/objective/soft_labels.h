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
  bool shares = false;   ///< rows may have shares in place of a label
  bool weights = false;  ///< rows have weights, by which training counts them
  bool windows =
      false;  ///< samples are windows of texts (TextWindows), whose weights count in evaluation, too
  /// In training, divides logits, makes shares as flat, and multiplies the loss by its square. See Hinton et al.,
  /// "Distilling the Knowledge in a Neural Network", 2015.
  double temperature = 1;

  bool any() const { return shares || weights || windows; }
  /// By which the sample counts.
  double weight_of(const data::Sample& sample, bool training) const {
    return windows || (weights && training) ? sample.weight : 1;
  }
  /// Throws InputError of `component` for a temperature out of range.
  void check(const char* component) const;
  /// Puts shares, and weights that count, into the batch. `labels`: how many a row with shares has. Throws
  /// InputError for a row with another number of them.
  void add(MicroBatch& batch, std::span<const data::Sample> samples, int64_t labels) const;
  /// Adds what a resumed run must have too, if anything.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

/// Leaves the outputs "labels" and, of windows, "samples" [S] int64 (Packing::sample_ids).
void output_rows(const Pass& pass, const at::Tensor& labels, const SoftLabels& soft);

/// Sums the losses of rows [S], each times its weight if the batch has weights.
at::Tensor sum_of_rows(const at::Tensor& losses, const MicroBatch& batch);

/// Cross-entropy of each row: with its shares if the batch has some, with its label otherwise. Class weights apply to the
/// terms of a sum over classes, so rows of one whole share have the loss of their label.
at::Tensor class_losses(const at::Tensor& logits, const MicroBatch& batch, const ClassLoss& loss,
                        const SoftLabels& soft);
/// Returns the divisor of the sum of these losses. A row counts as its weight times the mean of the class weights by its
/// shares.
double count_of_classes(std::span<const data::Sample> samples, std::span<const int64_t> classes,
                        const ClassLoss& loss, const SoftLabels& soft, bool training);

/// Binary cross-entropy of each row: the sum over the labels whose share is known.
at::Tensor label_losses(const at::Tensor& logits, const MicroBatch& batch, const SoftLabels& soft);
/// Returns the divisor of the sum of these losses: the known labels of each row, times its weight.
double count_of_labels(std::span<const data::Sample> samples, int64_t labels, const SoftLabels& soft,
                       bool training);

}  // namespace funicular::objective
