// funicular augment: more rows for training, by TinyBERT's data augmentation.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "funicular/augment/augment_table.h"
#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/cli/task_options.h"
#include "funicular/cli/variant_options.h"
#include "funicular/comm/together.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/text_task.h"

namespace funicular::cli {

namespace {

constexpr int64_t kMostVectors = 100'000;  // as TinyBERT's program

void declare_rows(Arguments& arguments, TaskOptions& task) {
  task.declare_name(arguments, task::text_task_names()).default_text("custom");
  arguments
      .add("text-column", "COLUMN", task.text, Effect::result,
           "for a custom task: the columns whose texts are varied: names in the header, JSON keys, or "
           "numbers from 1")
      .common()
      .alias("text-columns")
      .default_text("as --model was fine-tuned, else text");
  arguments.add("format", "NAME", task.format, Effect::result, "for a custom task: format of the input")
      .choices({"tsv", "csv", "jsonl"})
      .default_text("by the file's name");
  arguments.add("header", task.header, Effect::result,
                "for a custom task: the first row of TSV and CSV names the columns; --no-header: it is data");
  task.written.declare(arguments);
}

Json json_of(const std::vector<format::Column>& columns) {
  Json names = Json::array();
  for (const format::Column& column : columns)
    names.push_back(std::holds_alternative<size_t>(column) ? Json(std::get<size_t>(column))
                                                           : Json(std::get<std::string>(column)));
  return names;
}

/// An output that augment did not write is left alone. One that was killed left its journal, which lies there until
/// the record does.
void refuse_foreign_output(const fs::path& output) {
  std::error_code error;
  if (fs::is_regular_file(output, error) && !fs::is_regular_file(augment::record_of(output), error) &&
      !fs::exists(augment::Journal::folder_of(output), error))
    throw InputError(
        "usage",
        "--output {}: there is a file already, and augment did not write it (there is no {}); choose "
        "another name, or move it away",
        output.string(), augment::record_of(output).filename().string());
}

/// Rows are written in the format in which they are read.
void check_layout(const data::TextFileSourceOptions& columns, format::TextFormat format,
                  const fs::path& input, const fs::path& output) {
  const std::string name(format::text_format_name(format)), own = ending_of(format::unpacked_name(input));
  std::vector<std::string> known{name};
  if (format == format::TextFormat::jsonl) known.emplace_back("ndjson");
  // GLUE's own tables end in .txt, and so may their variants.
  const std::vector<std::string> others{"tsv", "csv", "jsonl", "ndjson", "json", "html"};
  if (!own.empty() && std::find(others.begin(), others.end(), own) == others.end()) known.push_back(own);
  const std::string ending = ending_of(output);
  if (!ending.empty() && std::find(known.begin(), known.end(), ending) == known.end())
    throw InputError(
        "usage", "--output {}: rows are written as they are read, in {}; expected a name that ends in .{}",
        output.string(), name, fmt::join(known, " or ."));
  const auto& texts = columns.text_columns;
  if (columns.label_column && std::find(texts.begin(), texts.end(), *columns.label_column) != texts.end())
    throw InputError(
        "usage",
        "--text-column names the column of the labels, which no variant changes; expected columns of text");
}

class Augment final : public Command {
 public:
  Augment()
      : Command("augment",
                "Writes each row of a table, followed by variants of it (TinyBERT's data augmentation). A "
                "variant replaces some words: a masked language model proposes replacements for words of one "
                "piece. Words of several pieces are replaced by words with near vectors. The table keeps its "
                "format, its columns and its labels. To resume an interrupted run, repeat the command. The "
                "last line of output is one JSON object that counts rows, variants and words.") {
    arguments.example("make variants of rows",
                      "funicular augment --model MODEL --input train.tsv --output more.tsv");
    arguments.example("vary another column",
                      "funicular augment --model MODEL --input reviews.csv --text-column review "
                      "--output more.csv");
    arguments.section("Input and output");
    declare_model(arguments, model_, "model folder with a masked-language-model head");
    arguments.add("input", "FILE", input_, Effect::input, "the rows")
        .alias("train")
        .alias("train-file")
        .required();
    arguments
        .add("output", "FILE", output_, Effect::output,
             "rows and variants, in the input's format; it appears when it is complete")
        .required();
    arguments
        .add("vectors", "FILE", vectors_, Effect::input,
             "word vectors as text, GloVe's or word2vec's; the first 100,000 are used")
        .common()
        .default_text("none: words of several pieces stay");
    arguments
        .add("vectors-cache", "FILE", vectors_cache_, Effect::none,
             "keep the vectors in a file that is mapped, for the next time")
        .default_text("among the unfinished work");
    declare_rows(arguments, task_);
    arguments.add("skip-bad-rows", skip_bad_rows_, Effect::result,
                  "leave out rows that cannot be read, and tell which, instead of stopping at the first");
    variants_.declare(arguments);
    arguments.section("Machine and randomness");
    declare_seed(arguments, variants_.chosen.seed, "of every random choice");
    declare_inference_precision(arguments, precision_);
    declare_micro_batch_tokens(arguments, variants_.chosen.batch_tokens, "each thread has a pass of its own",
                               1)
        .alias("batch-tokens")
        .affects(Effect::result)
        .default_text(default_by_device(variants_.chosen.batch_tokens, kTokensOnGpu));
    device_.declare(arguments, Effect::result, Effect::none);
    device_.declare_sharing(arguments);
  }

  int run() override {
    open();
    const Json identity = this->identity();
    const std::string done = comm::from_first(group_, [&] {
      const auto counts = augment::finished(output_, identity);
      if (counts) augment::Journal::remove(augment::Journal::folder_of(output_));
      return counts ? augment::to_json(*counts).dump() : std::string();
    });
    if (!done.empty()) {
      if (group_.rank() == 0) log::info("{} is complete already", output_.string());
      return report(done);
    }
    const InterruptGuard guard;
    const fs::path folder = augment::Journal::folder_of(output_);
    std::unique_ptr<FolderLock> lock;
    comm::together(group_, [&] {
      if (group_.rank() == 0) lock = augment::Journal::prepare(folder, identity);
    });
    std::optional<augment::Journal> journal;
    comm::together(group_, [&] { journal.emplace(folder); });
    try {
      if (!vary(*journal)) return static_cast<int>(ExitCode::interrupted);
    } catch (const InputError&) {
      // Nothing was begun that is worth a folder.
      if (group_.rank() == 0 && journal->size() == 0) augment::Journal::remove(folder);
      throw;
    }
    const std::string counts = comm::from_first(group_, [&] {
      return augment::to_json(augment::put_together(*table_, augment::Journal(folder), identity, output_))
          .dump();
    });
    if (group_.rank() == 0) augment::Journal::remove(folder);
    return report(counts);
  }

 private:
  void open() {
    if (task_.name.empty()) task_.name = task::TextTask::kOption;
    device_.apply();
    device_.use_gpu_default(arguments, "micro-batch-tokens", variants_.chosen.batch_tokens, kTokensOnGpu);
    group_ = comm::Group::from_environment({.timeout = std::chrono::hours(24)});
    if (group_.rank() > 0 && !log::enabled(log::Level::debug)) log::set_level(log::Level::error);
    check_files();
    precision_ = resolve_inference_precision(precision_, device_.place());
    pretrained_.emplace(model_);
    const std::shared_ptr<const task::Task> task = task_.task_for(*pretrained_, arguments);
    const data::TextFileSourceOptions columns = task->columns();
    format::TextOptions layout;
    layout.format = columns.format ? *columns.format : format::guess_text_format(input_);
    layout.columns = columns.text_columns;
    layout.style = columns.style;
    layout.header = columns.header && layout.format != format::TextFormat::jsonl;
    layout.bad_rows = std::make_shared<format::BadRows>(skip_bad_rows_);
    check_layout(columns, *layout.format, input_, output_);
    table_.emplace(input_, layout);
    if (layout.bad_rows->count() > 0) log::warning("{}", layout.bad_rows->summary("left out"));
    tokenizer_ = pretrained_->tokenizer();
    pretrained_->check_columns(2, tokenizer_->sequence());
    variants_.complete(task->name(), *pretrained_);
  }

  void check_files() const {
    require_parent_folder(output_, "--output");
    require_parent_folder(vectors_cache_, "--vectors-cache");
    if (!vectors_cache_.empty() && vectors_.empty())
      throw InputError("usage", "--vectors-cache keeps what --vectors FILE says; give both, or neither");
    std::error_code error;
    for (const fs::path& input : {input_, vectors_, variants_.stop_words, variants_.words.dictionary})
      for (const fs::path& output : {output_, vectors_cache_, augment::record_of(output_)})
        if (!input.empty() && !output.empty() && fs::equivalent(input, output, error))
          throw InputError("usage",
                           "{} would be replaced by what is made of it; choose another name for the output",
                           input.string());
    refuse_foreign_output(output_);
  }

  /// All that decides the output.
  Json identity() const {
    const auto hash = [](const fs::path& file) {
      return file.empty() ? std::string() : hash_text(hash_file(file));
    };
    Json all{{"version", 2},
             {"input", hash(input_)},
             {"format", format::text_format_name(table_->file().format())},
             {"header", table_->file().options().header},
             {"columns", json_of(table_->file().options().columns)},
             {"model", model::describe_model(pretrained_->config())},
             {"weights", pretrained_->weights_hash()},
             {"tokenizer", hash_text(tokenizer_->fingerprint())},
             {"vectors", hash(vectors_)},
             {"stop_words", hash(variants_.stop_words)},
             {"batch_tokens", variants_.chosen.batch_tokens},
             {"precision", precision_},
             {"device", device_.device},
             {"seed", variants_.chosen.seed}};
    variants_.note(all);
    if (skip_bad_rows_) all["skip_bad_rows"] = true;
    if (!table_->file().options().style.encoding.empty())
      all["encoding"] = table_->file().options().style.encoding;
    if (table_->file().fields().quoted && table_->file().format() == format::TextFormat::tsv)
      all["quotes"] = true;
    if (task_.written.quotes == "none") all["quotes"] = false;
    return all;
  }

  /// False where it was interrupted, on any rank.
  bool vary(augment::Journal& journal) {
    std::vector<int64_t> blocks;
    comm::together(group_, [&] {  // all have read the journal before any adds to it
      blocks = augment::own_blocks(journal, *table_, group_.rank(), group_.size());
    });
    if (journal.size() > 0)
      log::info("resuming: {} of {} blocks of rows are done", journal.size(), table_->blocks().size());
    const auto vectors = open_vectors();
    bool complete = true;
    if (!blocks.empty()) {
      const Model model = load();
      const augment::Augmenter augmenter(model, *tokenizer_, vectors, variants_.chosen);
      uint64_t rows = 0;
      for (const int64_t block : blocks)
        rows += static_cast<uint64_t>(table_->blocks()[static_cast<size_t>(block)].rows);
      Progress progress("augment", rows, {.unit = "rows", .terminal = {}});
      complete = augment::vary_blocks(blocks, *table_, augmenter, variants_.chosen.published, journal,
                                      [&](int64_t done) {
                                        if (group_.rank() == 0) progress.update(static_cast<uint64_t>(done));
                                      });
    }
    for (const std::string& other : group_.gather_texts(complete ? "" : "interrupted"))
      complete &= other.empty();
    if (!complete) log::warning("interrupted; repeat the command to resume");
    return complete;
  }

  std::shared_ptr<const format::WordVectors> open_vectors() const {
    if (vectors_.empty()) return nullptr;
    const fs::path binary =
        vectors_cache_.empty() ? augment::Journal::folder_of(output_) / "vectors.bin" : vectors_cache_;
    std::shared_ptr<const format::WordVectors> vectors;
    for (const bool first : {true, false})  // made by one, mapped by all
      comm::together(group_, [&] {
        if ((group_.rank() == 0) == first)
          vectors = std::make_shared<format::WordVectors>(
              format::WordVectors::open(vectors_, kMostVectors, binary));
      });
    return vectors;
  }

  Model load() const {
    const model::Head head = augment::MaskedWords::head();
    model::ModelOptions options = pretrained_->options(at::kFloat, device_.place());
    options.head = head;
    Model model = model::build_model(options);
    try {
      pretrained_->load_all(model, head);
    } catch (const InputError& error) {
      if (std::string_view(error.what()).find("lacks weights") == std::string_view::npos) throw;
      throw InputError(
          "augment",
          "{} has no complete masked-language-model head ({}). To train one on your texts: funicular "
          "tokenize --tokenizer {} --input texts.txt --output texts.tokens, then funicular pretrain --model "
          "{} --train texts.tokens --output RUN, then --model RUN/model",
          model_.string(), error.what(), model_.string(), model_.string());
    }
    model::prepare_inference(model, precision_);
    return model;
  }

  int report(const std::string& counts) const {
    if (group_.rank() > 0) return 0;
    const augment::AugmentCounts all = augment::counts_from_json(parse_json(counts, "counts"));
    log::info("{}: {} rows and {} variants; {} attempts gave a text that was there and were dropped",
              output_.string(), all.rows, all.variants, all.duplicates);
    fmt::print("{}\n", counts);
    return 0;
  }

  fs::path model_, input_, output_, vectors_, vectors_cache_;
  TaskOptions task_;
  VariantOptions variants_;
  bool skip_bad_rows_ = false;
  std::string precision_ = kAutoPrecision;
  DeviceOptions device_;
  comm::Group group_;
  std::optional<augment::Table> table_;
  std::optional<model::Pretrained> pretrained_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Command> make_augment() {
  return std::make_unique<Augment>();
}

}  // namespace funicular::cli
