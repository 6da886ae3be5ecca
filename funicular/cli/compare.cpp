// funicular compare: what models know of texts, beside each other: before and after one has learnt a domain.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/cli/command.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/options.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/corpus_score.h"

namespace funicular::cli {

namespace {

class Compare final : public Command {
 public:
  Compare()
      : Command("compare",
                "Prints a table: for each text the loss of each model, and what a word and a byte of the "
                "text cost it "
                "in bits. These compare models of different vocabularies too, as before and after vocabulary "
                "extend; "
                "losses and perplexities do not. Whole words are hidden, 15 % of the tokens. Texts that a "
                "model was "
                "trained on flatter it: give others, or --eval-fraction as it was given to pretrain.") {
    arguments.example("compare a model with the one that it was adapted from",
                      "funicular compare --models MODEL runs/domain/model --input texts.txt");
    arguments.example("get the numbers for a script",
                      "funicular compare --models MODEL runs/domain --input texts.txt --json");
    arguments.section("Input");
    arguments.add("models", "DIR", folders_, Effect::input, "model folders; each is compared with the first")
        .takes_model()
        .alias("model")
        .required();
    arguments
        .add("input", "PATH", files_, Effect::input,
             "text files: a line a row, documents separated by blank lines")
        .required();
    written_.declare(arguments, /*tables=*/false);
    arguments
        .add("eval-fraction", "SHARE", score_.eval_fraction, Effect::result,
             "only of the documents that pretrain holds out with the same share and seed; 0: of all")
        .range(0, 0.99);
    declare_max_length(arguments, max_length_, "longer documents are cut into pieces", 8)
        .default_text("128, or the shortest of the models' longest");
    arguments.section("Output");
    arguments.add("json", json_, Effect::result, "print one JSON object instead");
    arguments.section("Machine and randomness");
    declare_micro_batch_tokens(arguments, score_.batch_tokens, "of a forward pass", 1);
    declare_inference_precision(arguments, precision_, {"fp64"});
    declare_seed(arguments, score_.seed, "of the masks, and of what --eval-fraction holds out");
    device_.declare(arguments);
  }

  int run() override {
    device_.apply();
    precision_ = resolve_inference_precision(precision_, device_.place());
    score_.style = written_.style();
    std::vector<std::unique_ptr<model::Pretrained>> models;
    for (const fs::path& folder : folders_)
      models.push_back(
          std::make_unique<model::Pretrained>(folder, model::Pretrained::Expect::folder, "--models"));
    int64_t length = 128;
    for (const auto& one : models) {
      if (max_length_) one->check_max_length(*max_length_);
      length = std::min(length, one->config().encoder.longest_sequence());
    }
    for (const auto& one : models) score(*one, max_length_.value_or(length));
    if (json_)
      print_json();
    else
      print_table();
    return 0;
  }

 private:
  /// Adds the model's scores, one per text.
  void score(const model::Pretrained& pretrained, int64_t length) {
    const std::unique_ptr<text::Tokenizer> tokenizer = pretrained.tokenizer();
    const objective::MaskedLm objective = task::scoring_objective(*tokenizer, length);
    Model model =
        objective.build(pretrained.options(precision_ == "fp64" ? at::kDouble : at::kFloat, device_.place()));
    pretrained.load_all(model, objective.head());
    model::prepare_inference(model, precision_);
    scores_.emplace_back();
    for (const fs::path& file : files_)
      scores_.back().push_back(task::score_corpus(model, objective, *tokenizer, file, score_));
  }

  /// Returns how many percent more bits per byte the model needs than the first model.
  double change(size_t model, size_t file) const {
    return 100 * (scores_[model][file].bits_per_byte / scores_[0][file].bits_per_byte - 1);
  }

  void print_table() const {
    size_t wide = 5;
    for (const fs::path& folder : folders_) wide = std::max(wide, folder.string().size());
    for (size_t file = 0; file < files_.size(); ++file) {
      const task::CorpusScore& first = scores_[0][file];
      fmt::print("{}{}: {} documents, {} words{}, {} bytes\n", file ? "\n" : "", files_[file].string(),
                 first.documents, first.size.words,
                 first.size.characters > 0
                     ? fmt::format(" ({} are characters of scripts without blanks)", first.size.characters)
                     : "",
                 first.size.bytes);
      fmt::print("  {:<{}}  {:>9}  {:>9}  {:>8}  {:>10}  {:>9}  {:>9}  {:>8}\n", "model", wide, "tokens",
                 "unknown %", "loss", "perplexity", "bits/word", "bits/byte", "change %");
      for (size_t i = 0; i < folders_.size(); ++i) {
        const task::CorpusScore& own = scores_[i][file];
        fmt::print("  {:<{}}  {:>9}  {:>9.2f}  {:>8.4f}  {:>10.2f}  {:>9.3f}  {:>9.4f}  {:>8}\n",
                   folders_[i].string(), wide, own.tokens,
                   100.0 * static_cast<double>(own.unknown) / static_cast<double>(own.tokens), own.loss,
                   own.perplexity, own.bits_per_word, own.bits_per_byte,
                   i ? fmt::format("{:+.1f}", change(i, file)) : "");
      }
    }
  }

  void print_json() const {
    OrderedJson all = OrderedJson::array();
    for (size_t file = 0; file < files_.size(); ++file)
      for (size_t i = 0; i < folders_.size(); ++i) {
        const task::CorpusScore& own = scores_[i][file];
        all.push_back({{"text", files_[file].string()},
                       {"model", folders_[i].string()},
                       {"documents", own.documents},
                       {"words", own.size.words},
                       {"characters", own.size.characters},
                       {"bytes", own.size.bytes},
                       {"tokens", own.tokens},
                       {"unknown_tokens", own.unknown},
                       {"loss", own.loss},
                       {"perplexity", own.perplexity},
                       {"bits_per_word", own.bits_per_word},
                       {"bits_per_byte", own.bits_per_byte},
                       {"change_percent", change(i, file)}});
      }
    fmt::print("{}\n", json_text(OrderedJson{{"scores", all}}));
  }

  std::vector<fs::path> folders_, files_;
  std::optional<int64_t> max_length_;
  task::ScoreOptions score_;
  FileStyleOptions written_;
  bool json_ = false;
  std::string precision_ = kAutoPrecision;
  DeviceOptions device_;
  std::vector<std::vector<task::CorpusScore>> scores_;  ///< of each model, each text
};

}  // namespace

std::unique_ptr<Command> make_compare() {
  return std::make_unique<Compare>();
}

}  // namespace funicular::cli
