#include "funicular/cli/pretraining_data.h"

#include "funicular/base/error.h"
#include "funicular/cli/verify_store.h"
#include "funicular/comm/together.h"
#include "funicular/data/datasets.h"
#include "funicular/data/joined_dataset.h"
#include "funicular/data/other_document.h"
#include "funicular/launch/environment.h"
#include "funicular/train/mixture.h"

namespace funicular::cli {

namespace {

std::shared_ptr<const data::Dataset> joined(const Datasets& parts) {
  if (parts.size() < 2) return parts.empty() ? nullptr : parts.front();
  return std::make_shared<data::JoinedDataset>(parts);
}

/// Each rank on a host verifies its own blocks.
std::shared_ptr<const data::Dataset> open_store(const fs::path& path, const PretrainingData::Use& use) {
  const launch::Environment place = launch::read_environment();
  std::shared_ptr<const data::TokenStore> store;
  comm::together(use.group, [&] {
    store = data::TokenStore::open(path, {.part = place.local_rank, .parts = place.local_size});
  });
  store->require_tokenizer(use.tokenizer);
  warn_of_unknown_tokens(store->meta(), path);
  auto dataset = use.objective.samples(store);
  if (dataset->size() == 0)
    throw InputError("data", "{}: the store holds no text; expected at least one row", path.string());
  return dataset;
}

/// In one document alone all pairs would be of sentences that follow each other, and nothing would be learnt from them.
void require_other_documents(const PretrainingData::Use& use, const data::Dataset& dataset,
                             const fs::path& path, const char* left) {
  if (!use.objective.other_document_key(dataset.get(0)) || data::has_several_documents(dataset)) return;
  throw InputError("data",
                   "{}: --objective {} puts sentences of different documents beside each other, and there is "
                   "one document{}; expected at least two. In a text file a blank line stands between "
                   "documents, and --format lines makes each line one (funicular tokenize); --objective "
                   "mlm-sop needs one document alone",
                   path.string(), use.name, left);
}

}  // namespace

void PretrainingData::declare_evaluation(Arguments& arguments) {
  arguments.add("eval", "STORE", evaluation_stores_, Effect::input, "token stores to evaluate on")
      .alias("validation-file")
      .formerly("eval-data")
      .default_text("none");
  arguments
      .add("eval-fraction", "SHARE", fraction_, Effect::result,
           "hold out this share of the documents for evaluation instead")
      .common()
      .default_text("0")
      .range(0, 0.99);
  arguments.rivals({"eval", "eval-fraction"});
}

void PretrainingData::check_options() {
  weights_ = corpora_.weights();
  if (!evaluation_stores_.empty() && fraction_ > 0)
    throw InputError("usage", "--eval and --eval-fraction are both given; give one of them");
}

std::vector<fs::path> PretrainingData::files() const {
  std::vector<fs::path> all = corpora_.stores;
  all.insert(all.end(), evaluation_stores_.begin(), evaluation_stores_.end());
  return all;
}

void PretrainingData::open(const Use& use) {
  Datasets held_out;
  for (const fs::path& path : evaluation_stores_) held_out.push_back(open_store(path, use));
  for (const fs::path& path : corpora_.stores) {
    train_.push_back(open_store(path, use));
    if (fraction_ == 0) continue;
    const data::Split split = data::split_dataset(train_.back(), fraction_, use.seed);
    train_.back() = split.train;
    held_out.push_back(split.held_out);
  }
  for (size_t i = 0; i < train_.size(); ++i)
    require_other_documents(use, *train_[i], corpora_.stores[i], holds_out() ? " after --eval-fraction" : "");
  for (size_t i = 0; i < held_out.size(); ++i)
    require_other_documents(use, *held_out[i], holds_out() ? corpora_.stores[i] : evaluation_stores_[i],
                            holds_out() ? " for --eval-fraction" : "");
  evaluation_ = joined(held_out);
  if (train_.size() > 1) mixture_.emplace(corpora_.parts(train_, weights_));
}

std::unique_ptr<train::Source> PretrainingData::source(const objective::Objective& objective) const {
  if (!mixture_) return std::make_unique<train::DatasetSource<objective::Objective>>(objective, *train_[0]);
  return std::make_unique<train::MixedDatasetSource<objective::Objective>>(
      objective, data::JoinedDataset(train_), *mixture_);
}

}  // namespace funicular::cli
