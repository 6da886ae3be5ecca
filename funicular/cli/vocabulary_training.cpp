#include "funicular/cli/vocabulary_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/base/processor_limit.h"
#include "funicular/base/progress.h"
#include "funicular/base/temporary.h"
#include "funicular/cli/output_paths.h"
#include "funicular/data/word_counter.h"
#include "funicular/format/bad_rows.h"
#include "funicular/format/tokenizer_files.h"

namespace funicular::cli {
namespace {

using text::VocabularyKind;

const std::vector<std::string> kKinds{"wordpiece", "bpe", "byte-bpe", "unigram"};

const std::string& name_of(VocabularyKind kind) {
  return kKinds.at(static_cast<size_t>(kind));
}

bool is_table(const fs::path& file) {
  const format::TextFormat found = format::guess_text_format(file);
  return found == format::TextFormat::tsv || found == format::TextFormat::csv;
}

int thread_count(int64_t wanted) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return wanted > 0 ? static_cast<int>(wanted) : threads_within_quota(all, processor_quota());
}

}  // namespace

void VocabularyTraining::declare(Arguments& arguments) {
  const size_t declared_before = arguments.declarations().size();
  arguments.section("A new vocabulary");
  arguments
      .add("kind", "NAME", kind_, kKinds, Effect::result,
           "train: wordpiece (BERT), byte-bpe (ModernBERT), unigram (XLM-R), bpe (with byte fallback)")
      .default_text("none");
  arguments.add("size", "N", size_, Effect::result, "train: number of tokens, the special ones among them")
      .alias("vocab-size")
      .range(1, 10'000'000);
  arguments
      .add("min-frequency", "N", min_frequency_, Effect::result,
           "train: how often a pair must stand in the text to become a token; not for unigram")
      .range(0);
  arguments
      .add("limit-alphabet", "N", limit_alphabet_, Effect::result,
           "train: number of characters that get a token, the most frequent ones and the mark of a word; not "
           "for byte-bpe")
      .range(1);
  arguments
      .add("special-tokens", "TOKEN", special_tokens_, Effect::result,
           "train: more special tokens, with the next ids")
      .default_text("none");
  arguments.add("lowercase", lowercase_, Effect::result, "train: lower-case the text")
      .default_text("on for wordpiece");
  arguments.add("cased", cased_, Effect::result, "train: keep upper case")
      .default_text("on unless wordpiece");
  arguments
      .add("text-column", "COLUMN", text_columns_, Effect::result,
           "train: column of tsv, csv or jsonl input with the text: a number from 1, a name in the header, "
           "or a key")
      .default_text("jsonl: text");
  arguments.add("header", header_, Effect::result,
                "train: the first row of TSV and CSV names the columns; --no-header: it is data");
  arguments.add("skip-bad-rows", skip_bad_rows_, Effect::result,
                "train: leave out rows that cannot be read, and count them, instead of stopping");
  arguments
      .add("max-length", "N", max_length_, Effect::result,
           "train: longest row of the model to be, in tokens, for tokenizer_config.json")
      .alias("model-max-length")
      .range(1, std::numeric_limits<int32_t>::max());
  arguments
      .add("max-words", "N", max_words_, Effect::result,
           "train: number of different words that are kept in memory; the rarest others are forgotten")
      .range(1000);
  arguments
      .add("threads", "N", threads_, Effect::none,
           "train: number of threads; the vocabulary does not depend on it")
      .default_text("all processors")
      .range(0, 1024);
  const std::vector<const Declaration*> declared = arguments.declarations();
  for (size_t i = declared_before; i < declared.size(); ++i) option_names_.push_back(declared[i]->name);
}

bool VocabularyTraining::lower_cases(const Arguments& arguments) const {
  const bool told = arguments.given("lowercase");
  if (told && arguments.given("cased") && lowercase_ == cased_)
    throw InputError("usage", "--lowercase and --cased contradict each other; give one of them");
  if (told) return lowercase_;
  return arguments.given("cased") ? !cased_ : kind_ == VocabularyKind::word_piece;
}

text::VocabularyOptions VocabularyTraining::options(const Arguments& arguments) const {
  text::VocabularyOptions options;
  options.kind = kind_;
  options.lowercase = lower_cases(arguments);
  const auto refuse = [&](bool given, const char* option, const char* why) {
    if (given) throw InputError("usage", "--{} is not for --kind {}: {}", option, name_of(kind_), why);
  };
  if (kind_ == VocabularyKind::byte_bpe) {
    refuse(options.lowercase, arguments.given("lowercase") ? "lowercase" : "no-cased",
           "its tokenisers have no rule that lower-cases; lower-case the text itself");
    refuse(arguments.given("limit-alphabet"), "limit-alphabet", "its alphabet is the 256 bytes");
  }
  if (kind_ == VocabularyKind::unigram)
    refuse(arguments.given("min-frequency"), "min-frequency", "it makes no pairs");
  options.size = size_;
  options.min_frequency = min_frequency_;
  options.limit_alphabet = limit_alphabet_;
  options.special_tokens = special_tokens_;
  options.threads = thread_count(threads_);
  return options;
}

data::TextFileSourceOptions VocabularyTraining::source_options(const Arguments& arguments,
                                                               const std::vector<fs::path>& input,
                                                               const format::FileStyle& style) const {
  const auto table = std::find_if(input.begin(), input.end(), is_table);
  const bool has_columns = std::any_of(input.begin(), input.end(), [](const fs::path& file) {
    return is_table(file) || format::guess_text_format(file) == format::TextFormat::jsonl;
  });
  if (table != input.end() && text_columns_.empty())
    throw InputError("usage",
                     "{} is a table: give the column of the text, --text-column NAME or --text-column 1",
                     table->string());
  if (!has_columns && !text_columns_.empty())
    throw InputError("usage",
                     "--text-column is for tables and JSON lines, and no file of --input is named .tsv, .csv "
                     "or .jsonl; leave it out, or rename the file");
  if (table == input.end() && arguments.given("header"))
    throw InputError("usage",
                     "--header is for tables, and no file of --input is named .tsv or .csv; leave it out");
  if (table != input.end() && !arguments.given("header"))
    log::info("{}: the first row names the columns; --no-header: it is data", table->string());
  data::TextFileSourceOptions options;
  options.style = style;
  options.header = header_;
  for (const std::string& column : text_columns_)
    options.text_columns.push_back(format::column_from_text(column));
  options.bad_rows = std::make_shared<format::BadRows>(skip_bad_rows_);
  return options;
}

text::WordCounts VocabularyTraining::count(const data::TextFileSource& source,
                                           const format::BadRows& bad_rows,
                                           const text::VocabularyOptions& options) const {
  Progress line("count words", source.total_bytes(), ProgressOptions{.unit = "B", .terminal = {}});
  data::WordCountingOptions counting;
  counting.threads = options.threads;
  counting.most_words = static_cast<size_t>(max_words_);
  counting.progress = [&](uint64_t bytes) { line.update(bytes, ""); };
  data::CountedWords found = data::count_words(source, text::training_rules(options), counting);
  if (found.skipped_rows > 0) log::warning("{}", bad_rows.summary("left out"));
  if (found.forgotten > 0)
    log::warning(
        "the text has more than {} different words: {} rare words were forgotten; --max-words N keeps more",
        max_words_, found.forgotten);
  log::info("{:.1f} MB of input, {} different words", static_cast<double>(found.bytes) / 1e6,
            found.words.size());
  return std::move(found.words);
}

void VocabularyTraining::run(const Arguments& arguments, const std::vector<fs::path>& input,
                             const format::FileStyle& style, const fs::path& output) const {
  const text::VocabularyOptions options = this->options(arguments);
  require_folder_name(output, "--output");
  if (fs::exists(output))
    throw InputError("usage", "--output {} exists; choose another folder, or remove it", output.string());
  text::special_tokens(options);
  const data::TextFileSourceOptions reading = source_options(arguments, input, style);
  const data::TextFileSource source(input, reading);
  make_directories(fs::absolute(output.has_filename() ? output : output.parent_path()).parent_path());
  Temporary making(output, Temporary::Kind::folder);
  const text::WordCounts words = count(source, *reading.bad_rows, options);
  const std::unique_ptr<text::Tokenizer> tokenizer = text::train_vocabulary(words, options);
  if (tokenizer->size() < size_)
    log::warning("the text gives {} tokens, fewer than --size {}", tokenizer->size(), size_);
  format::save_tokenizer(making.path(), *tokenizer, static_cast<int>(max_length_));
  making.rename_folder();
  log::info("{}: {}", output.string(), tokenizer->description());
  fmt::print("{}\n", OrderedJson{{"tokens", tokenizer->size()}, {"words", words.size()}}.dump());
}

}  // namespace funicular::cli
