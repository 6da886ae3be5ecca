#pragma once
// An objective: how samples become tensors and targets, the head, the loss and the metrics. Knows no strategy
// and no optimiser.

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

/// One objective is one file pair, and one row of objective/registry.h where `pretrain` offers it.
class Objective {
 public:
  virtual ~Objective() = default;
  /// How the rows of a store become samples. Throws InputError (damaged store; the library's objectives also for a
  /// store of another tokeniser or with another kind of labels).
  virtual std::shared_ptr<const data::Dataset> samples(
      std::shared_ptr<const data::TokenStore> store) const = 0;
  /// What Sample::other is drawn by, besides the seed; none: collate does not read it.
  virtual std::optional<uint64_t> other_document_key(const data::Sample& /*sample*/) const { return {}; }
  /// Samples → tensors, packing and counts. Thread-safe: loader threads call it. Pure in (samples, random).
  virtual MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const = 0;
  /// Tokens that collate would give this sample, special tokens included: what micro-batches are cut by.
  virtual int64_t length(const data::Sample& sample) const = 0;
  /// Says what its loss is a sum over. A loss that compares the rows of a batch with each other, as with in-batch
  /// negatives, must say LossOver::batch. The trainer then refuses every cut of a batch. A class that inherits from
  /// one of the library's declares nothing, whatever its base does (see of_class).
  virtual LossOver loss_over() const { return LossOver::undeclared; }
  /// A loss that compares the rows of a global batch by their vectors: the trainer then computes it before each step,
  /// and loss_over() is LossOver::rows. Null: there is none.
  virtual const BatchLoss* batch_loss() const { return nullptr; }
  /// Hashes of the texts by which TrainerOptions::distinct_batches keeps rows apart.
  virtual std::vector<uint64_t> texts_of(const data::Sample& /*sample*/) const { return {}; }
  /// The head that it puts on an encoder.
  virtual model::Head head() const = 0;
  /// The model that it trains: the encoder of these options with head(), whose segments declare loss_over(). Override
  /// it for a model of several encoders, and call Model::declare_loss there. Throws InputError for a configuration
  /// that does not fit.
  virtual Model build(model::ModelOptions encoder) const {
    encoder.head = head();
    Model model = model::build_model(encoder);
    model.declare_loss(loss_over());
    return model;
  }
  /// New metrics, for consecutive evaluations; null: only the loss.
  virtual std::unique_ptr<Metrics> metrics() const { return nullptr; }
  /// What it leaves in the folder of the model of head(), beside that model, on a run's end.
  virtual void save_more(const Model& /*model*/, const format::ModelConfig& /*config*/,
                         const text::Tokenizer& /*tokenizer*/, const fs::path& /*folder*/) const {}
  /// What must be the same for a run to go on from a checkpoint: in words, by name.
  virtual std::map<std::string, std::string> identity() const = 0;

 protected:
  /// LossOver::rows if this object is a `Class` itself. A class that inherits from it may have another head or other
  /// batches, of which `Class` knows nothing.
  template <class Class>
  LossOver of_class() const {
    return typeid(*this) == typeid(Class) ? LossOver::rows : LossOver::undeclared;
  }
};

}  // namespace funicular::objective
