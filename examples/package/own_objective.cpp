// An objective of one's own: is a text in order, or backwards? A classifier learns it without labels, from a token store.
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "funicular/data/datasets.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"
#include "funicular/text/word_piece.h"
#include "funicular/train/trainer.h"

using namespace funicular;

class WordOrder : public objective::Objective {
 public:
  explicit WordOrder(const text::Tokenizer& tokenizer) : form_(tokenizer.sequence()) {}
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override {
    return std::make_shared<data::RowDataset>(std::move(store));
  }
  int64_t length(const data::Sample& sample) const override {
    return objective::sequence_length(sample, form_, sequence_);
  }
  model::Head head() const override { return model::Head::classification; }
  std::map<std::string, std::string> identity() const override { return {{"objective", "word order"}}; }

  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override {
    objective::PackedSequences packed;
    std::vector<int64_t> labels;
    for (const data::Sample& sample : samples) {
      const auto begin = static_cast<std::ptrdiff_t>(packed.token_ids.size());
      packed.add(sample, form_, sequence_);
      // Keyed by the draw, so that neither ranks nor micro-batches change which texts are turned.
      const RandomBlock bits = philox(make_key(random.seed, Purpose::user),
                                      make_counter(0, 0, static_cast<uint64_t>(sample.draw_id)));
      labels.push_back(bits[0] & 1);
      if (labels.back()) std::reverse(packed.token_ids.begin() + begin + 1, packed.token_ids.end() - 1);
    }
    MicroBatch batch = packed.to_batch(random);
    batch.tensors["labels"] = at::tensor(labels, at::kLong);
    batch.counts["classification"] = static_cast<double>(labels.size());
    return batch;
  }

 private:
  text::SequenceTemplate form_;
  objective::SequenceOptions sequence_{.max_length = 16};
};

int main() {
  const text::WordPiece tokenizer(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "four", "five"}, {}, {});
  const char* const words[] = {"one ", "two ", "three ", "four ", "five "};
  std::vector<data::MemorySource::Row> rows;
  for (int i = 0; i < 400; ++i)
    rows.push_back({{std::string(words[i % 3]) + words[i % 3 + 1] + words[i % 3 + 2]}, "", true});
  const fs::path path = fs::temp_directory_path() / ("word_order_" + std::to_string(::getpid()) + ".tokens");
  data::build_token_store(tokenizer, data::MemorySource(rows, 1, false), path);

  const WordOrder objective(tokenizer);
  format::ModelConfig config;
  config.encoder.vocabulary = 10, config.encoder.width = 32, config.encoder.layers = 2,
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 64, config.encoder.positions.rows = 16, config.num_labels = 2;
  Model model = objective.build({.config = config});
  Trainer trainer({.num_train_epochs = 8, .batch_size = 32, .progress = false}, parallel::make_single,
                  optim::AdamW{.learning_rate = 2e-3});
  const auto data = objective.samples(data::TokenStore::open(path));
  const double loss = trainer.fit(model, objective, *data).loss;
  fs::remove_all(path);
  std::printf("loss %.3f; guessing would be 0.693\n", loss);
  return loss < 0.2 ? 0 : 1;
}
