// funicular mask: shows what pretrain would hide, and counts it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/cli/command.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/masking_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/verify_store.h"
#include "funicular/data/other_document.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/format/hub_hint.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/mask_statistics.h"
#include "funicular/objective/registry.h"
#include "funicular/train/source.h"

namespace funicular::cli {

namespace {

/// The meaning of an objective's pair labels, 0 and 1.
struct PairKind {
  const char *tensor, *first, *second;
};
constexpr PairKind kPairKinds[] = {{"next_sentence_labels", "follows", "of another document"},
                                   {"sentence_order_labels", "in order", "swapped"}};

class Mask final : public Command {
 public:
  Mask()
      : Command("mask",
                "Masks sequences of a text or of a token store as pretrain does with these options. Counts "
                "the masked tokens and their replacements. --show first prints masked sequences as "
                "{original|replacement}, in colours on a terminal.") {
    arguments.example("show masked sequences of a text",
                      "funicular mask --tokenizer MODEL --input texts.txt --show");
    arguments.example("count what whole words change",
                      "funicular mask --tokenizer MODEL --data texts.tokens --whole-words");
    arguments.section("Input and output");
    arguments
        .add("tokenizer", "DIR", tokenizer_, Effect::tokenizer,
             "folder with a tokeniser, such as a model's: tokenizer.json, vocab.txt, vocab.json and "
             "merges.txt, or sentencepiece.bpe.model")
        .takes_model()
        .alias("model")
        .required();
    arguments
        .add("input", "PATH", input_, Effect::input,
             "text files: a line a row, documents separated by blank lines")
        .common()
        .required_unless("data");
    written_.declare(arguments, /*tables=*/false);
    arguments.add("data", "STORE", data_, Effect::input, "token store to take sequences of instead")
        .common()
        .default_text("none");
    arguments.add("show", show_, Effect::result, "print masked sequences").common();
    arguments.add("examples", "N", examples_, Effect::result, "number of sequences that --show prints")
        .range(1);
    arguments
        .add("sequences", "N", sequences_, Effect::result,
             "sequences to mask and count, spread over the whole input")
        .common()
        .range(1);
    arguments.add("json", json_, Effect::result, "print one JSON object instead");
    arguments
        .add("objective", "NAME", objective_name_, Effect::result,
             "objective of the sequences, as for pretrain")
        .choices(objective::pretraining_names());
    declare_max_length(arguments, max_length_, "longer documents are cut into pieces", 8);
    masking_.declare(arguments);
    declare_seed(arguments, seed_, "of every random choice");
  }

  int run() override {
    if (!input_.empty() && !data_.empty())
      throw InputError("usage", "--input and --data are both given; give one of them");
    if (input_.empty() && arguments.given("encoding"))
      throw InputError("usage", "--encoding is for --input; --data reads a token store");
    if (!fs::exists(tokenizer_))
      throw InputError("tokenizer", "--tokenizer {}: no such file or folder{}", tokenizer_.string(),
                       format::hub_hint(tokenizer_));
    const std::unique_ptr<text::Tokenizer> loaded = format::load_tokenizer(tokenizer_);
    const text::Tokenizer& tokenizer = *loaded;
    objective::MaskStatistics statistics;
    Json shown = Json::array();
    objective::MaskedLmOptions options = masking_.options(max_length_);
    options.observer = [&](const objective::MaskedSequence& sequence) {
      statistics.add(sequence);
      if (!show_ || static_cast<int64_t>(shown.size()) == examples_) return;
      shown.push_back(objective::masked_text(sequence, tokenizer, colours()));
    };
    const auto objective = objective::make_pretraining(objective_name_, tokenizer, options);
    mask(*objective, open_store(tokenizer), shown);
    report(statistics, shown);
    return 0;
  }

 private:
  bool colours() const { return !json_ && ::isatty(STDOUT_FILENO) != 0; }

  std::shared_ptr<const data::TokenStore> open_store(const text::Tokenizer& tokenizer) {
    if (data_.empty()) {
      temporary_.emplace();
      const data::TextFileSource source(input_,
                                        {.format = format::TextFormat::text, .style = written_.style()});
      data_ = temporary_->path() / "input.tokens";
      data::build_token_store(tokenizer, source, data_, {.refuse_empty = true});
    }
    auto store = data::TokenStore::open(data_);
    store->require_tokenizer(tokenizer);
    warn_of_unknown_tokens(store->meta(), input_.empty() ? data_ : input_.front());
    return store;
  }

  void mask(const objective::Objective& objective, std::shared_ptr<const data::TokenStore> store,
            Json& shown) {
    const auto dataset = objective.samples(std::move(store));
    const int64_t size = dataset->size();
    if (size == 0)
      throw InputError("data", "{}: the store holds no text; expected at least one row", data_.string());
    if (objective.other_document_key(dataset->get(0)) && !data::has_several_documents(*dataset))
      log::warning(
          "there is one document, so that every second half follows the first; pretrain refuses that: blank "
          "lines "
          "separate documents");
    const train::DatasetSource<objective::Objective> source(objective, *dataset);
    for (int64_t i = 0; i < sequences_; ++i) {
      const int64_t sample = sequences_ <= size ? i * size / sequences_ : i % size;
      const size_t before = shown.size();
      const MicroBatch batch = source.collate(std::vector<data::Draw>{{sample, i}}, {.seed = seed_});
      note_pair(batch, shown.size() > before ? &shown.back() : nullptr);
    }
  }

  /// Counts what the two halves of a sequence are to each other, and says it behind the sequence where that is `shown`.
  void note_pair(const MicroBatch& batch, Json* shown) {
    for (const PairKind& kind : kPairKinds) {
      const auto labels = batch.tensors.find(kind.tensor);
      if (labels == batch.tensors.end()) continue;
      const int64_t label = labels->second.item<int64_t>();
      const char* name = label == 0 ? kind.first : label == 1 ? kind.second : "no pair";
      ++pairs_[name];
      if (shown) *shown = fmt::format("{}  ({})", shown->get<std::string>(), name);
    }
  }

  Json shares_of_pairs() const {
    Json all = Json::object();
    for (const auto& [name, count] : pairs_)
      all[name] = {{"sequences", count},
                   {"share", static_cast<double>(count) / static_cast<double>(sequences_)}};
    return all;
  }

  void report(const objective::MaskStatistics& statistics, const Json& shown) const {
    if (json_) {
      Json all = statistics.json();
      if (!pairs_.empty()) all["pairs"] = shares_of_pairs();
      if (show_) all["examples"] = shown;
      fmt::print("{}\n", all.dump());
      return;
    }
    for (const Json& line : shown) fmt::print("{}\n", line.get<std::string>());
    if (show_ && colours()) fmt::print("\n{}\n", objective::colour_legend());
    if (show_) fmt::print("\n");
    fmt::print("{}", statistics.text());
    for (const auto& [name, count] : pairs_)
      fmt::print("{}: {} sequences, {:.1f} %\n", name, count,
                 100.0 * static_cast<double>(count) / static_cast<double>(sequences_));
  }

  fs::path tokenizer_, data_;
  std::vector<fs::path> input_;
  bool show_ = false, json_ = false;
  int64_t examples_ = 10, sequences_ = 1000, max_length_ = 128;
  uint64_t seed_ = 42;
  std::string objective_name_ = "mlm";
  std::map<std::string, int64_t> pairs_;  ///< sequences by what their halves are to each other
  MaskingOptions masking_;
  FileStyleOptions written_;
  std::optional<TemporaryFolder> temporary_;
};

}  // namespace

std::unique_ptr<Command> make_mask() {
  return std::make_unique<Mask>();
}

}  // namespace funicular::cli
