#include "funicular/data/word_counter.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace funicular::data {
namespace {

/// Counts the pieces of a block, each thread for itself.
class BlockCounter {
 public:
  BlockCounter(const RowSource& source, const text::TrainingRules& rules, size_t threads)
      : source_(source), counted_(threads) {
    for (size_t i = 0; i < threads; ++i) counters_.push_back(std::make_unique<text::TrainingWords>(rules));
  }

  /// Adds the words of pieces [begin, end) to `found`.
  void count(size_t begin, size_t end, CountedWords& found) {
    next_ = begin;
    skipped_ = 0;
    errors_.assign(end - begin + counters_.size(), nullptr);
    {
      std::vector<std::jthread> others;
      for (size_t i = 1; i < counters_.size(); ++i) others.emplace_back([&, i] { work(i, begin, end); });
      work(0, begin, end);
    }
    for (const std::exception_ptr& error : errors_)
      if (error) std::rethrow_exception(error);
    for (text::WordCounts& words : counted_) found.words.add(std::exchange(words, {}));
    for (size_t piece = begin; piece < end; ++piece) found.bytes += source_.piece_bytes(piece);
    found.skipped_rows += skipped_;
  }

 private:
  void work(size_t number, size_t begin, size_t end) {
    text::TrainingWords& words = *counters_[number];
    const auto guarded = [&](size_t error, const auto& step) {
      try {
        step();
      } catch (...) {
        errors_[error] = std::current_exception();
      }
    };
    for (size_t piece; (piece = next_++) < end;)
      guarded(piece - begin, [&] {
        skipped_ += source_.read(piece, [&](const SourceRow& row) {
          for (const std::string_view column : row.columns) words.add(column);
        });
      });
    guarded(end - begin + number, [&] { counted_[number] = words.take(); });  // normalises most of the text
  }

  const RowSource& source_;
  std::vector<std::unique_ptr<text::TrainingWords>> counters_;
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> skipped_ = 0;
  std::vector<text::WordCounts> counted_;   // by thread
  std::vector<std::exception_ptr> errors_;  // by piece, then by thread
};

}  // namespace

CountedWords count_words(const RowSource& source, const text::TrainingRules& rules,
                         const WordCountingOptions& options) {
  CountedWords found;
  BlockCounter counter(
      source, rules,
      std::clamp<size_t>(source.pieces(), 1, static_cast<size_t>(std::max(1, options.threads))));
  for (size_t begin = 0; begin < source.pieces(); begin += options.pieces_in_block) {
    counter.count(begin, std::min(begin + options.pieces_in_block, source.pieces()), found);
    found.forgotten += found.words.keep_most_frequent(options.most_words);
    if (options.progress) options.progress(found.bytes);
  }
  return found;
}

}  // namespace funicular::data
