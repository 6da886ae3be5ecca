#pragma once
// What is learnt: from samples to tensors and targets, the head and the loss, the metrics. Knows no strategy
// and no optimiser.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/batch.h"
#include "funicular/core/metrics.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"
#include "funicular/model/bert.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

/// One objective is one file pair, and one row of objective/registry.h where `pretrain` offers it.
class Objective {
 public:
  virtual ~Objective() = default;
  /// How the rows of a store become samples. Throws InputError (damaged store).
  virtual std::shared_ptr<const data::Dataset> samples(
      std::shared_ptr<const data::TokenStore> store) const = 0;
  /// What Sample::other is drawn by, besides the seed; none: collate does not read it.
  virtual std::optional<uint64_t> other_document_key(const data::Sample& /*sample*/) const { return {}; }
  /// Samples → tensors, packing and counts. Thread-safe: loader threads call it. Pure in (samples, random).
  virtual MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const = 0;
  /// Tokens that collate would give this sample, special tokens included: what micro-batches are cut by.
  virtual int64_t length(const data::Sample& sample) const = 0;
  /// What it puts on an encoder.
  virtual model::Head head() const = 0;
  /// The model that it trains: the encoder of these options with head(). Override it for a model of several
  /// encoders.
  virtual Model build(model::BertOptions encoder) const {
    encoder.head = head();
    return model::build_bert(encoder);
  }
  /// New ones, for one evaluation after the other; null: the loss alone.
  virtual std::unique_ptr<Metrics> metrics() const { return nullptr; }
  /// What it leaves in the folder of the model of head(), beside that model, on a run's end.
  virtual void save_more(const Model& /*model*/, const format::BertConfig& /*config*/,
                         const text::Tokenizer& /*tokenizer*/, const fs::path& /*folder*/) const {}
  /// What must be the same for a run to go on from a checkpoint: in words, by name.
  virtual std::map<std::string, std::string> identity() const = 0;
};

}  // namespace funicular::objective
