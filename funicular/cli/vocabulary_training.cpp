#include "funicular/cli/vocabulary_training.h"

#include <fmt/format.h>

#include <algorithm>
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

constexpr std::pair<const char*, VocabularyKind> kKinds[] = {{"wordpiece", VocabularyKind::word_piece},
                                                             {"bpe", VocabularyKind::bpe},
                                                             {"byte-bpe", VocabularyKind::byte_bpe},
                                                             {"unigram", VocabularyKind::unigram}};

VocabularyKind kind_from_name(const std::string& name) {
  for (const auto& [text, kind] : kKinds)
    if (name == text) return kind;
  throw InputError("usage",
                   "funicular vocabulary train: --kind is required: wordpiece, bpe, byte-bpe or unigram");
}

int thread_count(int64_t wanted) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return wanted > 0 ? static_cast<int>(wanted) : threads_within_quota(all, processor_quota());
}

}  // namespace

void VocabularyTraining::declare(Arguments& arguments) {
  arguments.section("A new vocabulary");
  arguments
      .add("kind", "NAME", kind_, Effect::result,
           "train: wordpiece (BERT), byte-bpe (ModernBERT, RoBERTa), unigram (XLM-R), bpe with byte fallback "
           "(Gemma)")
      .choices({"wordpiece", "bpe", "byte-bpe", "unigram"})
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
           "train: number of characters that get a token, the most frequent ones; not for byte-bpe")
      .range(1);
  arguments
      .add("special-tokens", "TOKEN", special_tokens_, Effect::result,
           "train: more special tokens, with the next ids")
      .default_text("none");
  arguments.add("lowercase", lowercase_, Effect::result,
                "train: lower-case the text; the default of wordpiece");
  arguments.add("cased", cased_, Effect::result,
                "train: keep upper case; the default unless --kind is wordpiece");
  arguments
      .add("text-column", "COLUMN", text_columns_, Effect::result,
           "train: column of tsv, csv or jsonl input with the text: a number from 1, a name in the header, "
           "or a key")
      .default_text("jsonl: text");
  arguments.add("skip-bad-rows", skip_bad_rows_, Effect::result,
                "train: leave out rows that cannot be read, and count them, instead of stopping");
  arguments
      .add("max-length", "N", max_length_, Effect::result,
           "train: longest row of the model to be, in tokens, for tokenizer_config.json")
      .alias("model-max-length")
      .range(1);
  arguments
      .add("max-words", "N", max_words_, Effect::result,
           "train: number of different words that are kept in memory; the rarest others are forgotten")
      .range(1000);
  arguments
      .add("threads", "N", threads_, Effect::none,
           "train: number of threads; the vocabulary does not depend on it")
      .default_text("all processors")
      .range(0, 1024);
}

const std::vector<const char*>& VocabularyTraining::option_names() {
  static const std::vector<const char*> names{
      "kind",  "size",        "min-frequency", "limit-alphabet", "special-tokens", "lowercase",
      "cased", "text-column", "skip-bad-rows", "max-length",     "max-words",      "threads"};
  return names;
}

text::VocabularyOptions VocabularyTraining::options(const Arguments& arguments) const {
  text::VocabularyOptions options;
  options.kind = kind_from_name(kind_);
  const auto refuse = [&](const char* option, const char* why) {
    if (arguments.given(option))
      throw InputError("usage", "--{} is not for --kind {}: {}", option, kind_, why);
  };
  if (options.kind == VocabularyKind::byte_bpe) {
    refuse("lowercase", "its tokenisers have no rule that lower-cases; lower-case the text itself");
    refuse("limit-alphabet", "its alphabet is the 256 bytes");
  }
  if (options.kind == VocabularyKind::unigram) refuse("min-frequency", "it makes no pairs");
  if (lowercase_ && cased_)
    throw InputError("usage", "--lowercase and --cased contradict each other; give one of them");
  options.lowercase = lowercase_ || (!cased_ && options.kind == VocabularyKind::word_piece);
  options.size = size_;
  options.min_frequency = min_frequency_;
  options.limit_alphabet = limit_alphabet_;
  options.special_tokens = special_tokens_;
  options.threads = thread_count(threads_);
  return options;
}

text::WordCounts VocabularyTraining::count(const std::vector<fs::path>& input, const format::FileStyle& style,
                                           const text::VocabularyOptions& options) const {
  data::TextFileSourceOptions files;
  files.style = style;
  files.header = true;
  for (const std::string& column : text_columns_)
    files.text_columns.push_back(format::column_from_text(column));
  for (const fs::path& file : input) {
    const format::TextFormat found = format::guess_text_format(file);
    if (text_columns_.empty() && (found == format::TextFormat::tsv || found == format::TextFormat::csv))
      throw InputError("usage",
                       "{} is a table: give the column of the text, --text-column NAME or --text-column 1",
                       file.string());
  }
  files.bad_rows = std::make_shared<format::BadRows>(skip_bad_rows_);
  const data::TextFileSource source(input, files);
  Progress line("count words", source.total_bytes(), ProgressOptions{.unit = "B", .terminal = {}});
  data::WordCountingOptions counting;
  counting.threads = options.threads;
  counting.most_words = static_cast<size_t>(max_words_);
  counting.progress = [&](uint64_t bytes) { line.update(bytes, ""); };
  data::CountedWords found = data::count_words(source, text::training_rules(options), counting);
  if (found.skipped_rows > 0) log::warning("{}", files.bad_rows->summary("left out"));
  if (found.forgotten > 0)
    log::warning(
        "the text has more than {} different words: the rarest were forgotten, {} times; --max-words N keeps "
        "more",
        max_words_, found.forgotten);
  log::info("{:.1f} MB of text, {} different words", static_cast<double>(found.bytes) / 1e6,
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
  const text::WordCounts words = count(input, style, options);
  const std::unique_ptr<text::Tokenizer> tokenizer = text::train_vocabulary(words, options);
  if (tokenizer->size() < size_)
    log::warning("the text gives {} tokens, fewer than --size {}", tokenizer->size(), size_);
  Temporary making(output, Temporary::Kind::folder);
  format::save_tokenizer(making.path(), *tokenizer, static_cast<int>(max_length_));
  making.rename_folder();
  log::info("{}: {}", output.string(), tokenizer->description());
  fmt::print("{}\n", OrderedJson{{"tokens", tokenizer->size()}, {"words", words.size()}}.dump());
}

}  // namespace funicular::cli
