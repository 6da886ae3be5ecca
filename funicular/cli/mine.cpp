// funicular mine: hard negatives for pairs of texts.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/answer_output.h"
#include "funicular/cli/command.h"
#include "funicular/cli/embedding_options.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/output_paths.h"
#include "funicular/launch/environment.h"
#include "funicular/task/mining.h"

namespace funicular::cli {

namespace {

/// Rows of a file, whose first one names the columns of a table.
class MinedFile {
 public:
  MinedFile(const fs::path& path, AnswerFormat form) : form_(form), output_(path) {}
  void add(const OrderedJson& row) {
    const std::string line = json_text(row);
    if (!text_) {
      text_.emplace(form_, line, /*errors=*/false);
      output_.write(text_->begin());
    }
    output_.write(text_->rows(line + "\n"));
    ++rows_;
  }
  void finish() {
    if (text_) output_.write(text_->end());
    output_.finish();
  }
  int64_t rows() const { return rows_; }

 private:
  AnswerFormat form_;
  AnswerOutput output_;
  std::optional<AnswerText> text_;
  int64_t rows_ = 0;
};

class Mine final : public Command {
 public:
  Mine()
      : Command(
            "mine",
            "Finds hard negatives: texts that an embedder places near a query and that are not its "
            "positives. Reads pairs of a query and a text that answers it. Writes rows for finetune --task "
            "triplets and --task reranker. The rules and their defaults follow mine_hard_negatives of "
            "sentence-transformers. To resume an interrupted search, repeat the command.") {
    arguments.example("find three negatives per pair",
                      "funicular mine --model EMBEDDER --input pairs.tsv --output triplets.jsonl");
    arguments.example(
        "write lists for a reranker",
        "funicular mine --model EMBEDDER --input pairs.tsv --output-form labeled-list --output lists.jsonl");
    arguments.section("Input and output");
    declare_model(arguments, options_.model, "folder of the sentence encoder that finds negatives");
    arguments.add("input", "FILE", input_, Effect::input, "the pairs: TSV, CSV or JSON lines").required();
    declare_texts();
    arguments
        .add("output", "FILE", output_, Effect::output,
             "file for the rows: .jsonl, .csv or .tsv. It appears when it is complete")
        .required();
    arguments.add("overwrite", overwrite_, Effect::none, "replace the file of --output if there is one");
    arguments
        .add("output-form", "NAME", form_, task::mined_form_names(), Effect::result,
             "triplet: a row per positive and negative; n-tuple: a row per positive; labeled-pair: a row per "
             "text, "
             "label 1 or 0; labeled-list: lists per positive")
        .alias("output-format")
        .common();
    arguments.add("scores", scores_, Effect::result,
                  "write similarity scores; labelled forms then have no label");
    declare_rules();
    arguments.section("Machine");
    embedding_.declare_machine(arguments);
  }

  int run() override {
    if (launch::read_environment().size > 1)
      throw InputError("usage", "mine runs in one process; leave out funicular launch");
    check_paths();
    embedding_.join();
    const InterruptGuard guard;
    options_.embedder = embedding_.options();
    options_.embedder.max_length = max_length_;
    options_.work = output_;
    options_.work += ".parts";
    const task::MiningTexts texts = read();
    options_.rules.check(texts.most_positives, !options_.reranker.empty());
    log::info("{} pairs: {} queries, {} texts", texts.rows, texts.queries.size(), texts.documents.size());
    MinedFile file(output_, answer_form_);  // before the search, which may take hours
    make_directories(options_.work);
    write(texts, task::mine_negatives(texts, options_), file);
    task::remove_mining_work(options_.work);
    return 0;
  }

 private:
  void declare_texts() {
    arguments
        .add("text-column", "COLUMN", files_.text, Effect::result, "columns of the query and of its positive")
        .alias("text-columns")
        .default_text("anchor positive");
    arguments.add("format", "NAME", files_.format, Effect::result, "format of --input")
        .choices({"tsv", "csv", "jsonl"})
        .default_text("by the file's name");
    arguments
        .add("header", header_, Effect::result,
             "the first row of TSV and CSV names the columns; --no-header: it is data")
        .default_text("on");
    arguments
        .add("corpus", "FILE", corpus_, Effect::input,
             "more texts among which negatives are looked for: lines, TSV, CSV or JSON lines")
        .default_text("the positives of all pairs");
    arguments
        .add("corpus-column", "COLUMN", corpus_column_, Effect::result,
             "column of the texts in a table of --corpus")
        .default_text("text");
    written_.declare(arguments);
  }

  void declare_rules() {
    task::NegativeRules& rules = options_.rules;
    arguments.section("Negatives");
    arguments.add("negatives", "N", rules.negatives, Effect::result, "negatives per query")
        .alias("num-negatives")
        .common()
        .range(1, 1000);
    arguments
        .add("range-min", "RANK", rules.range_min, Effect::result,
             "skip this many of the nearest candidates, which may be positives that nobody has labelled")
        .range(0, 1 << 20);
    arguments
        .add("range-max", "RANK", rules.range_max, Effect::result, "read this many of the nearest candidates")
        .range(1, 1 << 20)
        .default_text("as many as the rules need");
    arguments
        .add("relative-margin", "SHARE", rules.relative_margin, Effect::result,
             "drop candidates whose score is above the positive's less this share of it, such as 0.05")
        .range(0)
        .default_text("none");
    arguments
        .add("absolute-margin", "X", rules.absolute_margin, Effect::result,
             "drop candidates whose score is above the positive's less this number")
        .default_text("none");
    arguments.add("max-score", "X", rules.max_score, Effect::result, "drop candidates with a higher score")
        .default_text("none");
    arguments.add("min-score", "X", rules.min_score, Effect::result, "drop candidates with a lower score")
        .default_text("none");
    arguments
        .add("sampling", "NAME", rules.sampling, task::negative_sampling_names(), Effect::result,
             "take the nearest candidates, or any of them")
        .alias("sampling-strategy");
    arguments.add("seed", "N", rules.seed, Effect::result, "seed for --sampling random");
    arguments
        .add("reranker", "DIR", options_.reranker, Effect::input,
             "folder of a reranker that scores positives and candidates again, before the rules are applied")
        .takes_model()
        .default_text("none");
    declare_max_length(arguments, max_length_, "longer texts are truncated for the embedder")
        .default_text("as the model says, else its longest");
  }

  void check_paths() {
    require_parent_folder(output_, "--output");
    require_ending(output_, "--output", {"jsonl", "ndjson", "csv", "tsv"});
    require_new_file(output_, "--output", overwrite_);
    answer_form_ = answer_format(output_, "--output");
    if (form_ == task::MinedForm::labelled_list && answer_form_ != AnswerFormat::json_lines)
      throw InputError(
          "usage",
          "--output {}: --output-form labeled-list writes lists, which a table cannot hold; expected a "
          "name that ends in .jsonl",
          output_.string());
    if (!corpus_column_.empty() && corpus_.empty())
      throw InputError("usage", "--corpus-column works only with --corpus");
    std::error_code none;
    for (const fs::path& read : {input_, corpus_})
      if (!read.empty() && fs::equivalent(read, output_, none))
        throw InputError("usage", "{} would be replaced by the rows; choose another --output", read.string());
    for (const auto& [option, read] : {std::pair{"--input", input_}, std::pair{"--corpus", corpus_}})
      if (!read.empty() && !fs::is_regular_file(read, none))
        throw InputError("usage", "{} {}: {}", option, read.string(),
                         fs::exists(read, none) ? "expected a file" : "no such file");
  }

  task::MiningTexts read() {
    if (arguments.given("header")) files_.header = header_;
    files_.style = written_.style();
    std::vector<task::InputOptions> corpus;
    if (!corpus_.empty()) {
      corpus.push_back({.path = corpus_, .style = written_.style()});
      if (!corpus_column_.empty()) corpus.back().text = {corpus_column_};
    }
    return task::read_mining_texts(input_, files_, corpus);
  }

  void write(const task::MiningTexts& texts, const task::MinedNegatives& mined, MinedFile& file) const {
    task::write_mined(texts, mined, form_, scores_, options_.rules.negatives,
                      [&](const OrderedJson& row) { file.add(row); });
    int64_t negatives = 0, short_of = 0;
    for (const task::MinedQuery& query : mined.queries) {
      negatives += std::ssize(query.negatives);
      short_of += std::ssize(query.negatives) < options_.rules.negatives;
    }
    if (file.rows() == 0)
      throw InputError("mine",
                       "no query has {} negatives; choose a larger --range-max, a larger --corpus or wider "
                       "margins",
                       options_.rules.negatives);
    file.finish();
    if (short_of > 0)
      log::warning(
          "{} of {} queries have fewer than {} negatives; a larger --range-max or wider margins find more",
          short_of, texts.queries.size(), options_.rules.negatives);
    OrderedJson counts{{"queries", texts.queries.size()},
                       {"texts", texts.documents.size()},
                       {"negatives", negatives},
                       {"rows", file.rows()}};
    for (const auto& [rule, dropped] : mined.dropped) counts["dropped"][rule] = dropped;
    fmt::print("{}\n", counts.dump());
  }

  task::MiningOptions options_;
  task::FileOptions files_;
  fs::path input_, corpus_, output_;
  std::string corpus_column_;
  task::MinedForm form_ = task::MinedForm::triplet;
  AnswerFormat answer_form_ = AnswerFormat::json_lines;
  std::optional<int64_t> max_length_;
  bool header_ = true, overwrite_ = false, scores_ = false;
  FileStyleOptions written_;
  EmbeddingOptions embedding_;
};

}  // namespace

std::unique_ptr<Command> make_mine() {
  return std::make_unique<Mine>();
}

}  // namespace funicular::cli
