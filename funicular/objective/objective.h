#pragma once
// An objective defines how samples become tensors and targets, and the head, the loss and the metrics. It is
// independent of the strategy and the optimiser.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/batch.h"
#include "funicular/core/batch_loss.h"
#include "funicular/core/metrics.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"
#include "funicular/model/encoder.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

/// Each objective has its own pair of files. If `pretrain` offers it, it also has an entry in objective/registry.h.
class Objective {
 public:
  virtual ~Objective() = default;
  /// Makes samples of the rows of a store. Throws InputError for a damaged store. The library's objectives also throw
  /// it for a store with another tokeniser or another kind of labels.
  virtual std::shared_ptr<const data::Dataset> samples(
      std::shared_ptr<const data::TokenStore> store) const = 0;
  /// The key, besides the seed, by which Sample::other is drawn; none: collate does not read Sample::other.
  virtual std::optional<uint64_t> other_document_key(const data::Sample& /*sample*/) const { return {}; }
  /// Makes tensors, packing and counts of samples. Thread-safe, as loader threads call it. The result depends only on
  /// (samples, random).
  virtual MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const = 0;
  /// The number of tokens that collate gives this sample, with special tokens. Micro-batches are cut by it.
  virtual int64_t length(const data::Sample& sample) const = 0;
  /// Declares over what the loss is a sum. Return LossOver::batch if the loss compares the rows of a batch with each
  /// other, as in-batch negatives do. The trainer then refuses to split batches. A class derived from one of the
  /// library's declares nothing by default (see of_class).
  virtual LossOver loss_over() const { return LossOver::undeclared; }
  /// A loss that compares the rows of a global batch by their vectors; null: none. The trainer computes it before
  /// each step, and loss_over() is LossOver::rows.
  virtual const BatchLoss* batch_loss() const { return nullptr; }
  /// Hashes of a sample's texts. TrainerOptions::distinct_batches puts rows with equal texts in different batches.
  virtual std::vector<uint64_t> texts_of(const data::Sample& /*sample*/) const { return {}; }
  /// The head that the objective puts on an encoder.
  virtual model::Head head() const = 0;
  /// Builds the model to train: the encoder of these options with head(), whose segments declare loss_over().
  /// Override it for a model of several encoders, and call Model::declare_loss in the override. Throws InputError for
  /// a configuration that does not fit.
  virtual Model build(model::ModelOptions encoder) const {
    encoder.head = head();
    Model model = model::build_model(encoder);
    model.declare_loss(loss_over());
    return model;
  }
  /// Makes new metrics, usable for consecutive evaluations; null: only the loss.
  virtual std::unique_ptr<Metrics> metrics() const { return nullptr; }
  /// Saves further files at the end of a run, in the folder of the model of head().
  virtual void save_more(const Model& /*model*/, const format::ModelConfig& /*config*/,
                         const text::Tokenizer& /*tokenizer*/, const fs::path& /*folder*/) const {}
  /// The settings that a resumed run must share with its checkpoint: name to description.
  virtual std::map<std::string, std::string> identity() const = 0;

 protected:
  /// Returns LossOver::rows if this object is exactly a `Class`. A derived class may have another head or other
  /// batches, of which `Class` knows nothing.
  template <class Class>
  LossOver of_class() const {
    return typeid(*this) == typeid(Class) ? LossOver::rows : LossOver::undeclared;
  }
};

}  // namespace funicular::objective
