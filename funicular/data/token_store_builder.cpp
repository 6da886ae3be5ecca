#include "funicular/data/token_store_builder.h"

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/base/processor_limit.h"
#include "funicular/data/store_writer.h"
#include "funicular/format/column_list.h"
#include "funicular/text/given_words.h"
#include "funicular/text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace funicular::data {

namespace {

/// Tokenises pieces; each thread has its own encoder.
class PieceEncoder {
 public:
  PieceEncoder(const text::Tokenizer& tokenizer, const StoreMeta& meta, const StoreBuildOptions& options)
      : tokenizer_(tokenizer),
        meta_(meta),
        fixed_names_(options.label_names),
        separator_(options.label_separator),
        presegmented_(options.presegmented) {}

  /// Returns how many bad rows the source left out.
  uint64_t encode(const RowSource& source, size_t piece, EncodedRows& out) {
    out.clear();
    text_.ids.clear();
    text_.word_starts.clear();
    numbers_.clear();
    for (size_t i = 0; i < fixed_names_.size(); ++i)
      numbers_.emplace(fixed_names_[i], static_cast<int32_t>(i));
    const uint64_t skipped = source.read(piece, [&](const SourceRow& row) { add(row, out); });
    pack(out);
    return skipped;
  }

 private:
  void add(const SourceRow& row, EncodedRows& out) {
    if (meta_.labels == LabelKind::tags) return add_tagged(row, out);
    if (meta_.labels != LabelKind::none) add_label(row, out);
    if (meta_.weights) out.weights.push_back(row.weight);
    if (row.new_document) out.document_rows.push_back(out.rows);
    const size_t begin = text_.ids.size();
    for (const auto column : row.columns) {
      if (presegmented_)
        add_words(column);
      else
        tokenizer_.tokenize(column, text_);
      out.column_ends.push_back(text_.ids.size());
    }
    for (const int32_t position : row.continued) {
      const size_t tokens = text_.ids.size() - begin;
      if (static_cast<size_t>(position) > tokens)
        throw BadRow(
            fmt::format("the row has {} tokens, and its word references name position {}", tokens, position));
      text_.word_starts[begin + static_cast<size_t>(position) - 1] = 0;
    }
    out.longest_row = std::max<uint64_t>(out.longest_row, text_.ids.size() - begin);
    ++out.rows;
  }

  /// A row of words with a tag each: lists, or separated by blanks.
  void add_tagged(const SourceRow& row, EncodedRows& out) {
    const auto words = format::split_list(row.columns[0], " "), tags = format::split_list(row.label, " ");
    if (words.empty()) throw BadRow("the row has no words");
    if (words.size() != tags.size())
      throw BadRow(
          fmt::format("expected a tag for each word, found {} words and {} tags", words.size(), tags.size()));
    set_.clear();
    for (const std::string_view tag : tags) set_.push_back(number_of(tag, out));
    out.classes.insert(out.classes.end(), set_.begin(), set_.end());
    out.set_ends.push_back(out.classes.size());
    if (row.new_document) out.document_rows.push_back(out.rows);
    const size_t begin = text_.ids.size();
    text::tokenize_words(tokenizer_, words, text_);
    out.column_ends.push_back(text_.ids.size());
    out.longest_row = std::max<uint64_t>(out.longest_row, text_.ids.size() - begin);
    ++out.rows;
  }

  /// Takes the text between blanks as words, whatever their tokens.
  void add_words(std::string_view text) {
    for (std::string_view word; !(word = text::next_given_word(text)).empty();) {
      const size_t first = text_.ids.size();
      tokenizer_.tokenize(word, text_);
      for (size_t i = first + 1; i < text_.ids.size(); ++i) text_.word_starts[i] = 0;
    }
  }

  void add_label(const SourceRow& row, EncodedRows& out) {
    const std::string_view label = row.label;
    if (meta_.labels == LabelKind::values)
      return out.values.push_back(parse_value(label, row.decimal_commas));
    if (meta_.labels == LabelKind::sets) return add_set(label, out);
    if (has_shares(meta_.labels)) {
      out.values.insert(out.values.end(), row.shares.begin(), row.shares.end());
      return;
    }
    if (label.empty() && fixed_names_.empty()) throw BadRow("the label is empty");
    out.classes.push_back(number_of(label, out));
  }

  /// Adds the classes of a row, ascending and without duplicates. If the names are fixed, the order is that of the
  /// final numbers.
  void add_set(std::string_view labels, EncodedRows& out) {
    set_.clear();
    for (const std::string_view label : format::split_list(labels, separator_))
      set_.push_back(number_of(label, out));
    std::sort(set_.begin(), set_.end());
    out.classes.insert(out.classes.end(), set_.begin(), std::unique(set_.begin(), set_.end()));
    out.set_ends.push_back(out.classes.size());
  }

  int32_t number_of(std::string_view label, EncodedRows& out) {
    const auto found = numbers_.find(std::string(label));
    if (found != numbers_.end()) return found->second;
    if (!fixed_names_.empty())
      throw BadRow(
          fmt::format("expected one of the labels {}, found \"{}\"", fmt::join(fixed_names_, ", "), label));
    if (std::any_of(label.begin(), label.end(), [](char c) { return c >= 0 && c < ' '; }))
      throw BadRow(
          fmt::format("expected the name of a class, found \"{}\" with a control character; is a quote "
                      "never closed, or a line end wrong?",
                      label));
    const auto number = static_cast<int32_t>(out.class_names.size());
    numbers_.emplace(label, number);
    out.class_names.emplace_back(label);
    return number;
  }

  static double parse_value(std::string_view label, bool decimal_commas) {
    if (const auto value = decimal_commas ? read_number_with_comma(label) : read_number(label)) return *value;
    if (label.starts_with(format::kListMark)) throw BadRow("expected a finite number as label, found a list");
    throw BadRow(fmt::format(
        "expected a finite number as label, found \"{}\"{}", label,
        read_number_with_comma(label)
            ? "; write a decimal point, not a comma (a comma is read where semicolons separate the columns)"
            : ""));
  }

  void pack(EncodedRows& out) {
    const size_t count = text_.ids.size();
    const int32_t unknown = tokenizer_.special().unknown;
    out.tokens_count = count;
    out.unknown_tokens = static_cast<uint64_t>(std::count(text_.ids.begin(), text_.ids.end(), unknown));
    out.tokens.resize(count * static_cast<size_t>(meta_.token_bytes));
    if (meta_.token_bytes == 2) {
      auto* narrow = reinterpret_cast<uint16_t*>(out.tokens.data());
      for (size_t i = 0; i < count; ++i) narrow[i] = static_cast<uint16_t>(text_.ids[i]);
    } else if (count > 0) {
      std::memcpy(out.tokens.data(), text_.ids.data(), out.tokens.size());
    }
    out.word_bits.assign((count + 63) / 64, 0);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) out.word_bits[i / 64] |= eight_bits(&text_.word_starts[i]) << (i % 64);
    for (; i < count; ++i) out.word_bits[i / 64] |= uint64_t{text_.word_starts[i] != 0} << (i % 64);
  }

  /// Eight bytes that are 0 or 1 as eight bits, the first byte the lowest. The product moves byte i from bit 8 i to
  /// bit 56 + i; no two of its terms meet.
  static uint64_t eight_bits(const uint8_t* bytes) {
    static_assert(std::endian::native == std::endian::little);
    uint64_t eight = 0;
    std::memcpy(&eight, bytes, sizeof eight);
    return eight * 0x0102040810204080 >> 56;
  }

  const text::Tokenizer& tokenizer_;
  const StoreMeta& meta_;
  const std::vector<std::string>& fixed_names_;
  text::TokenizedText text_;
  const std::string& separator_;
  bool presegmented_;
  std::unordered_map<std::string, int32_t> numbers_;
  std::vector<int32_t> set_;
};

/// Threads take the pieces in order and tokenise them. The thread that completes the next piece to be written also
/// writes the completed pieces after it. The number of unfinished pieces is bounded, which bounds memory.
class Pipeline {
 public:
  Pipeline(const text::Tokenizer& tokenizer, const RowSource& source, StoreWriter& writer,
           const StoreMeta& meta, const StoreBuildOptions& options)
      : tokenizer_(tokenizer),
        source_(source),
        writer_(writer),
        meta_(meta),
        options_(options),
        end_(source.pieces()) {
    for (size_t piece = 0; piece < end_; ++piece) progress_.total_bytes += source.piece_bytes(piece);
  }

  /// Returns how many bad rows were left out.
  uint64_t run() {
    const size_t wanted =
        options_.threads > 0
            ? static_cast<size_t>(options_.threads)
            : static_cast<size_t>(threads_within_quota(
                  std::max(1, static_cast<int>(std::thread::hardware_concurrency())), processor_quota()));
    const size_t count = std::clamp<size_t>(std::min(wanted, end_), 1, 1024);
    window_ = 2 * count + 2;
    running_ = count;
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    watch();
    threads.clear();  // joins
    if (error_) std::rethrow_exception(error_);
    return skipped_;
  }

  uint64_t text_bytes() const { return progress_.total_bytes; }
  uint64_t rows() const { return progress_.rows; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void work() {
    PieceEncoder encoder(tokenizer_, meta_, options_);
    size_t piece = 0;
    std::unique_ptr<EncodedRows> rows;
    while (claim(piece, rows)) {
      try {
        const uint64_t skipped = encoder.encode(source_, piece, *rows);
        deliver(piece, std::move(rows), skipped);
      } catch (...) {
        fail(piece);
      }
    }
    const Lock lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  bool claim(size_t& piece, std::unique_ptr<EncodedRows>& rows) {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ >= end_ || next_ < written_ + window_; });
    if (next_ >= end_) return false;
    piece = next_++;
    if (spare_.empty()) {
      rows = std::make_unique<EncodedRows>();
    } else {
      rows = std::move(spare_.back());
      spare_.pop_back();
    }
    return true;
  }

  void deliver(size_t piece, std::unique_ptr<EncodedRows> rows, uint64_t skipped) {
    Lock lock(mutex_);
    skipped_ += skipped;
    ready_.emplace(piece, std::move(rows));
    if (writing_) return;
    writing_ = true;
    while (!ready_.empty() && ready_.begin()->first == written_ && !error_) {
      auto due = std::move(ready_.begin()->second);
      ready_.erase(ready_.begin());
      lock.unlock();
      std::exception_ptr failure;
      try {
        writer_.append(*due);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) stop_with(written_, failure);
      written(std::move(due));
    }
    writing_ = false;
  }

  void written(std::unique_ptr<EncodedRows> rows) {
    progress_.bytes += source_.piece_bytes(written_);
    progress_.rows += rows->rows;
    progress_.tokens += rows->tokens_count;
    spare_.push_back(std::move(rows));
    ++written_;
    changed_.notify_all();
  }

  void fail(size_t piece) {
    const Lock lock(mutex_);
    stop_with(piece, std::current_exception());
  }

  // Keeps the error of the earliest piece, whichever thread fails first. Pieces are taken in order, so all pieces
  // before `piece` are done or under way.
  void stop_with(size_t piece, std::exception_ptr error) {
    end_ = std::min(end_, next_);
    if (!error_ || piece < error_piece_) {
      error_ = error;
      error_piece_ = piece;
    }
    next_ = end_;
    changed_.notify_all();
  }

  void watch() {
    Lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return running_ == 0; })) {
      const StoreProgress now = progress_;
      lock.unlock();
      if (options_.progress) options_.progress(now);
      const bool stop = options_.stop && options_.stop();
      lock.lock();
      if (stop && !error_) stop_with(end_, interrupted());
    }
  }

  static std::exception_ptr interrupted() {
    return std::make_exception_ptr(Error(ExitCode::interrupted, "token store",
                                         "interrupted; nothing was written: run the same command again",
                                         fmt::format_args()));
  }

  const text::Tokenizer& tokenizer_;
  const RowSource& source_;
  StoreWriter& writer_;
  const StoreMeta& meta_;
  const StoreBuildOptions& options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t end_, next_ = 0, written_ = 0, window_ = 0, running_ = 0;
  bool writing_ = false;
  std::map<size_t, std::unique_ptr<EncodedRows>> ready_;
  std::vector<std::unique_ptr<EncodedRows>> spare_;
  std::exception_ptr error_;
  size_t error_piece_ = 0;
  StoreProgress progress_;
  uint64_t skipped_ = 0;
};

StoreMeta initial_meta(const text::Tokenizer& tokenizer, const RowSource& source,
                       const StoreBuildOptions& options) {
  if (options.labels != LabelKind::none && !source.has_labels())
    throw InputError("token store", "labels are wanted, but the input has none; say which column holds them");
  if (options.presegmented && tokenizer.type() != "WordPiece")
    throw InputError(
        "token store",
        "words that blanks separate are marked for WordPiece; tokens of {} begin words where blanks do",
        tokenizer.type());
  if (options.labels == LabelKind::tags && source.columns() != 1)
    throw InputError("token store", "words with tags are one column, found {}", source.columns());
  StoreMeta meta;
  meta.tokenizer_fingerprint = tokenizer.fingerprint();
  meta.tokenizer_description = tokenizer.description();
  meta.vocabulary_size = tokenizer.id_limit();
  meta.token_bytes = meta.vocabulary_size <= 65536 ? 2 : 4;
  meta.columns = source.columns();
  meta.labels = options.labels;
  meta.block_bytes = options.block_bytes;
  if (options.labels == LabelKind::classes || has_label_lists(options.labels))
    meta.label_names = options.label_names;
  if (has_shares(options.labels)) meta.label_names = source.share_names();
  meta.weights = source.has_weights() && options.labels != LabelKind::none;
  return meta;
}

}  // namespace

StoreBuildResult build_token_store(const text::Tokenizer& tokenizer, const RowSource& source,
                                   const fs::path& output, const StoreBuildOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const StoreMeta meta = initial_meta(tokenizer, source, options);
  StoreWriter writer(output, options.overwrite, meta);
  Pipeline pipeline(tokenizer, source, writer, meta, options);
  StoreBuildResult result;
  result.skipped_rows = pipeline.run();
  result.text_bytes = pipeline.text_bytes();
  if (options.refuse_empty && pipeline.rows() == 0)
    throw InputError(
        "tokenize", "the input has no rows{}; expected at least one line of text",
        result.skipped_rows ? fmt::format(" but {} that cannot be read", result.skipped_rows) : "");
  result.meta = writer.commit();
  for (const auto& file : result.meta.files) result.store_bytes += file.bytes;
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace funicular::data
