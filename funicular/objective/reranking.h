#pragma once
// Rerankers: one score for a query and a text. The texts of a query form one sample, so that splitting a batch never
// separates them.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "funicular/format/cross_encoder.h"
#include "funicular/objective/ranking_losses.h"
#include "funicular/objective/row_objective.h"

namespace funicular::objective {

/// The lists that the rows (query, text) of a store form.
struct ListRows {
  std::vector<uint64_t> begins = {};  ///< the first row of each list, and the end
  int64_t scattered = 0;  ///< queries whose rows are not all consecutive; lists of several texts do not count
};
/// A document with several texts is one list. `join`: consecutive documents with one text and equal queries form one
/// list.
ListRows list_rows(const data::TokenStore& store, bool join);

/// The lists of a store of rows (query, text): the rows of a document have one query. A sample's columns are the
/// query and the texts; Sample::shares are the labels of the texts.
class TextLists final : public data::Dataset {
 public:
  /// `join`: as for list_rows(). Throws InputError for a list with more than kMostListTexts.
  TextLists(std::shared_ptr<const data::TokenStore> store, bool join);
  int64_t size() const override { return std::ssize(begins_) - 1; }
  data::Sample get(int64_t index) const override;
  uint64_t fingerprint() const override;
  bool found_damaged() const override { return store_->found_damaged(); }
  void require_sound() const override { store_->require_sound(); }

 private:
  std::shared_ptr<const data::TokenStore> store_;
  std::vector<uint64_t> begins_;  ///< first row of each sample, and the end
  std::vector<double> labels_;    ///< of all rows
};

struct RerankingOptions {
  SequenceOptions sequence;
  RankingLossOptions loss;
  bool labelled = true;  ///< false: labels are not read, and there is no loss
  /// For metrics, only the first text of each list is relevant, whatever the labels are.
  bool first_is_relevant = false;
  format::ScoreActivation activation =
      format::ScoreActivation::identity;  ///< from logits to the output `scores`
};

/// Batch of R samples with S texts in all: token_ids, token_type_ids [T] of S sequences (query, text), the texts of a
/// sample side by side; `queries` [S] int64, a hash of the query. If labels are read, there are more tensors.
/// `labels` is [S] float64. `list_places` [S] int64 is the place of each text in a table [R, kMostListTexts].
/// `list_labels` is this table, and `row_draws` is [R] int64. `relevance` [S] float64 is there if first_is_relevant.
/// Counts: by the name of the loss, see RankingLossOfLists::count; R for a loss that compares lists.
///
/// Outputs: `logits` [S, 1], `scores` [S, 1], `queries`, and `labels` and `relevance` where there are such.
///
/// The draw of a sequence is its sample's draw times kMostListTexts plus its place in the list.
class Reranking final : public RowObjective {
 public:
  Reranking(const text::Tokenizer& tokenizer, const RerankingOptions& options);
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  int64_t length(const data::Sample& sample) const override;
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  model::Head head() const override;
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Reranking>(); }
  const BatchLoss* batch_loss() const override {
    return options_.loss.compares_lists() ? loss_.get() : nullptr;
  }
  /// The activation and the loss in config.json, and the length in tokenizer_config.json.
  void save_more(const Model& model, const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                 const fs::path& folder) const override;
  std::map<std::string, std::string> identity() const override;
  const std::shared_ptr<const RankingLossOfLists>& loss() const { return loss_; }

 private:
  void add_labels(std::span<const data::Sample> samples, MicroBatch& batch) const;

  RerankingOptions options_;
  std::shared_ptr<const RankingLossOfLists> loss_;
};

}  // namespace funicular::objective
