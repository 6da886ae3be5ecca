// funicular tokenize: text files to a token store.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/cli/arguments_help.h"
#include "funicular/cli/command.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/verify_store.h"
#include "funicular/cli/word_options.h"
#include "funicular/data/named_tasks.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/data/word_references.h"
#include "funicular/format/hub_hint.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/text/tokenizer.h"

namespace funicular::cli {

namespace {

/// The files that are meant: a folder stands for the files in it and below, in the order of their names, hidden ones
/// left out. Links to files and folders are followed; a folder that two links lead to is read once.
void add_input(const fs::path& path, std::vector<fs::path>& files) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return files.push_back(path);
  std::vector<fs::path> found;
  std::set<fs::path> folders{fs::canonical(path)};
  for (auto entry = fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const bool hidden = entry->path().filename().string().front() == '.';
    if (!hidden && !entry->exists())
      throw InputError(
          "tokenize",
          "--input {}: {} is a link to a file that is not there; restore the file or remove the link",
          path.string(), entry->path().string());
    if (entry->is_directory() && (hidden || !folders.insert(fs::canonical(entry->path())).second))
      entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file()) found.push_back(entry->path());
  }
  if (found.empty()) throw InputError("tokenize", "--input {}: the folder holds no files", path.string());
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

/// Patterns of a shell that overlap, and a folder beside one of its files, name a file twice.
void warn_of_repeated(const std::vector<fs::path>& files) {
  std::map<fs::path, size_t> times;
  std::error_code ignored;
  for (const fs::path& file : files) ++times[fs::weakly_canonical(file, ignored)];
  if (times.size() == files.size()) return;
  const auto first =
      std::find_if(times.begin(), times.end(), [](const auto& each) { return each.second > 1; });
  log::warning(
      "--input names {} of {} files more than once, the first of them {}: their texts count as often",
      std::count_if(times.begin(), times.end(), [](const auto& each) { return each.second > 1; }),
      times.size(), first->first.string());
}

class Tokenize final : public Command {
 public:
  Tokenize()
      : Command("tokenize",
                "Tokenises text, lines, TSV, CSV or JSON lines into a token store: a folder that pretrain "
                "maps into memory. "
                "The store appears only when it is complete; an interrupted build leaves nothing (exit code "
                "75). With --verify it makes nothing, and reads a store that is there.") {
    arguments.example("make a token store of a text",
                      "funicular tokenize --tokenizer MODEL --input texts.txt --output texts.tokens");
    arguments.example(
        "take the texts of a table",
        "funicular tokenize --tokenizer MODEL --input rows.csv --text-column text --output rows.tokens");
    arguments.section("Input and output");
    arguments
        .add("tokenizer", "DIR", tokenizer_, Effect::tokenizer,
             "folder with a tokeniser, such as a model's: tokenizer.json, vocab.txt, vocab.json and "
             "merges.txt, or sentencepiece.bpe.model")
        .takes_model()
        .required_unless("verify");
    arguments.add("input", "PATH", inputs_, Effect::input, "files, or folders of files")
        .required_unless("verify");
    arguments.add("output", "STORE", output_, Effect::output, "the store to make, by convention NAME.tokens")
        .required_unless("verify");
    arguments.add("overwrite", overwrite_, Effect::none, "replace the store if there is one").common();
    arguments
        .add("verify", "STORE", verify_, Effect::input,
             "instead: read all of a store, compare it with its checksums, and say whether it is sound")
        .default_text("none");
    declare_format();
    arguments.section("Speed");
    arguments
        .add("threads", "N", threads_, Effect::none, "threads that tokenise; the store does not depend on it")
        .default_text("all processors")
        .range(0, 1024);
  }

  int run() override {
    if (!verify_.empty()) return verify();
    const InterruptGuard guard;  // from here on, so that no signal ends the program before it can clear up
    if (!fs::exists(tokenizer_))
      throw InputError("tokenizer", "--tokenizer {}: no such file or folder{}", tokenizer_.string(),
                       format::hub_hint(tokenizer_));
    const auto tokenizer = format::load_tokenizer(tokenizer_);
    const auto source = open_source();
    std::optional<data::ReferencedSource> referenced;
    if (!word_refs_.empty()) {
      if (skip_bad_rows_)
        throw InputError(
            "usage",
            "--word-refs has a line for each row, so none can be skipped; leave out --skip-bad-rows");
      referenced.emplace(*source, word_refs_);
    }
    const auto result =
        build(*tokenizer, referenced ? static_cast<const data::RowSource&>(*referenced) : *source);
    summarise(result);
    return 0;
  }

 private:
  int verify() const {
    for (const std::string& option : option_names(arguments))
      if (option != "--verify" && option != "--config" && arguments.given(option.substr(2)))
        throw InputError("tokenize", "--verify {} makes nothing; leave out {}", verify_.string(), option);
    fmt::print("{}\n", verify_store(verify_));
    return 0;
  }

  void declare_format() {
    arguments.section("Format of the input");
    arguments
        .add("task", "NAME", task_, Effect::result,
             "the columns and labels of a named task's files, instead of the options below")
        .choices({"cola", "sst2", "mrpc", "rte", "qnli", "qqp", "mnli", "wnli"})
        .default_text("none");
    arguments
        .add("format", "NAME", format_, Effect::result,
             "text: a line a row, documents separated by blank lines; lines: each line a "
             "document; tsv; csv; jsonl")
        .common()
        .choices({"text", "lines", "tsv", "csv", "jsonl"})
        .default_text("by each file's name");
    arguments
        .add("text-column", "COLUMN", text_columns_, Effect::result,
             "tsv, csv, jsonl: the column to tokenise; two for pairs; more are joined into one text. A "
             "column is a number from 1, a name in the header, or a key")
        .common()
        .alias("text-columns")
        .default_text("jsonl: text");
    arguments.add("separate-columns", separate_columns_, Effect::result,
                  "keep more than two columns of --text-column apart, for your own objectives that read "
                  "them; by default they are joined into one text");
    arguments
        .add("label-column", "COLUMN", label_column_, Effect::result, "tsv, csv, jsonl: the column of labels")
        .default_text("none");
    arguments
        .add("label-type", "KIND", label_type_, Effect::result,
             "class: names, numbered in sorted order; set: any number of names a row; value: numbers to "
             "predict")
        .choices({"class", "set", "value"});
    arguments.add("label-separator", "TEXT", label_separator_, Effect::result,
                  "set: what stands between the labels of a row; a list in jsonl needs none");
    arguments
        .add("label-names", "NAME", label_names_, Effect::result,
             "the classes in the order of their numbers; others are refused")
        .default_text("the classes in the input");
    arguments
        .add("header", header_, Effect::result,
             "the first row of TSV and CSV names the columns; --no-header: it is data")
        .common();
    written_.declare(arguments);
    declare_words(arguments, words_, "the tokeniser says which tokens begin words, for masking");
    arguments
        .add("word-refs", "FILE", word_refs_, Effect::input,
             "a JSON list a row of the positions that continue a word, as transformers' run_chinese_ref.py "
             "writes")
        .default_text("none");
    arguments.add("skip-bad-rows", skip_bad_rows_, Effect::result,
                  "leave out rows that cannot be read, and count them, instead of stopping");
  }

  std::unique_ptr<data::RowSource> open_source() {
    std::vector<fs::path> files;
    for (const auto& input : inputs_) add_input(input, files);
    warn_of_repeated(files);
    if (!task_.empty()) return open_task(files);
    data::TextFileSourceOptions options;
    if (!format_.empty()) options.format = format::text_format_from_name(format_);
    options.header = header_;
    for (const auto& column : text_columns_) options.text_columns.push_back(format::column_from_text(column));
    options.separate_columns = separate_columns_;
    options.style = written_.style();
    require_text_column(files, options.format);
    tell_of_header(files, options.format);
    if (!label_column_.empty()) options.label_column = format::column_from_text(label_column_);
    options.bad_rows = bad_rows_ = std::make_shared<format::BadRows>(skip_bad_rows_);
    if (label_type_ == "set") options.lists = format::Lists::last;
    return std::make_unique<data::TextFileSource>(files, options);
  }

  static bool is_table(const fs::path& file, std::optional<format::TextFormat> format) {
    const format::TextFormat own = format ? *format : format::guess_text_format(file);
    return own == format::TextFormat::tsv || own == format::TextFormat::csv;
  }

  /// Logs that the first row is a header, because earlier versions took it for data unless --header was given.
  void tell_of_header(const std::vector<fs::path>& files, std::optional<format::TextFormat> format) const {
    const auto table = std::find_if(files.begin(), files.end(),
                                    [&](const fs::path& file) { return is_table(file, format); });
    if (table != files.end() && !arguments.given("header"))
      log::info("{}: the first row names the columns; --no-header: it is data", table->string());
  }

  /// Requires --text-column for a table, whose first column might be the labels.
  void require_text_column(const std::vector<fs::path>& files,
                           std::optional<format::TextFormat> format) const {
    if (!text_columns_.empty()) return;
    for (const fs::path& file : files)
      if (is_table(file, format))
        throw InputError("usage",
                         "{} is a table: give the column to tokenise, --text-column NAME or --text-column 1",
                         file.string());
  }

  std::unique_ptr<data::RowSource> open_task(const std::vector<fs::path>& files) {
    for (const char* option : {"format", "text-column", "separate-columns", "label-column", "label-type",
                               "label-separator", "label-names", "header", "skip-bad-rows"})
      if (arguments.given(option))
        throw InputError("tokenize", "--task {} says how its files look; leave out --{}", task_, option);
    if (files.size() != 1)
      throw InputError("tokenize", "--task takes one --input file, found {}", files.size());
    const data::NamedTask* const task = data::find_named_task(task_);
    if (!task) throw InputError("task", "there is no layout of files of a task \"{}\"", task_);
    data::TextFileSourceOptions columns = task->columns;
    columns.style = written_.style();
    label_column_ = "of the task";
    label_names_ = task->label_names;
    return std::make_unique<data::NamedLabelSource>(files.front(), columns, task->label_names,
                                                    task->spellings);
  }

  data::StoreBuildResult build(const text::Tokenizer& tokenizer, const data::RowSource& source) const {
    ProgressOptions shown;
    shown.unit = "B";
    Progress line("tokenize", total_bytes(source), shown);
    data::StoreBuildOptions options;
    options.threads = static_cast<int>(threads_);
    options.overwrite = overwrite_;
    options.refuse_empty = true;
    if (!label_column_.empty())
      options.labels = label_type_ == "value" ? data::LabelKind::values
                       : label_type_ == "set" ? data::LabelKind::sets
                                              : data::LabelKind::classes;
    options.label_separator = label_separator_;
    options.label_names = label_names_;
    options.presegmented = words_ == "presegmented";
    options.progress = [&](const data::StoreProgress& now) {
      line.update(now.bytes, fmt::format("{} rows  {} tokens", short_number(static_cast<double>(now.rows)),
                                         short_number(static_cast<double>(now.tokens))));
    };
    options.stop = [] { return interrupt_requested() != 0; };
    return data::build_token_store(tokenizer, source, output_, options);
  }

  static uint64_t total_bytes(const data::RowSource& source) {
    uint64_t bytes = 0;
    for (size_t piece = 0; piece < source.pieces(); ++piece) bytes += source.piece_bytes(piece);
    return bytes;
  }

  void summarise(const data::StoreBuildResult& result) const {
    const auto& meta = result.meta;
    const double unknown =
        meta.tokens ? 100.0 * static_cast<double>(meta.unknown_tokens) / static_cast<double>(meta.tokens) : 0;
    log::info("{}: {} rows, {} documents, {} tokens ({:.2f} % unknown, longest row {}), {:.1f} MB",
              output_.string(), meta.rows, meta.documents, meta.tokens, unknown, meta.longest_row,
              static_cast<double>(result.store_bytes) / 1e6);
    log::info("{:.1f} MB of text in {:.2f} s, {:.1f} MB/s", static_cast<double>(result.text_bytes) / 1e6,
              result.seconds, static_cast<double>(result.text_bytes) / 1e6 / std::max(result.seconds, 1e-9));
    if (meta.labels == data::LabelKind::classes || meta.labels == data::LabelKind::sets)
      log::info("{} classes", meta.label_names.size());
    if (result.skipped_rows) log::warning("{}", bad_rows_->summary("left out"));
    warn_of_unknown_tokens(meta, output_);
  }

  fs::path tokenizer_, output_, verify_, word_refs_;
  std::vector<fs::path> inputs_;
  std::string task_, format_, label_column_, label_type_ = "class", label_separator_ = ",",
                                             words_ = "tokenizer";
  std::vector<std::string> text_columns_, label_names_;
  FileStyleOptions written_;
  bool overwrite_ = false, header_ = true, skip_bad_rows_ = false, separate_columns_ = false;
  std::shared_ptr<format::BadRows> bad_rows_;
  int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_tokenize() {
  return std::make_unique<Tokenize>();
}

}  // namespace funicular::cli
