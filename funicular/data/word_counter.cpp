#include "funicular/data/word_counter.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "funicular/base/processor_limit.h"

namespace funicular::data {
namespace {

size_t thread_count(int wanted, size_t pieces) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = wanted > 0 ? wanted : threads_within_quota(all, processor_quota());
  return std::clamp<size_t>(std::min<size_t>(static_cast<size_t>(threads), pieces), 1, 1024);
}

/// Counts the pieces of a block, each thread for itself.
class BlockCounter {
 public:
  BlockCounter(const RowSource& source, const text::TrainingRules& rules, size_t threads) : source_(source) {
    for (size_t i = 0; i < threads; ++i) counters_.push_back(std::make_unique<text::TrainingWords>(rules));
  }

  /// Adds the words of pieces [begin, end) to `found`.
  void count(size_t begin, size_t end, CountedWords& found) {
    next_ = begin;
    skipped_ = 0;
    errors_.assign(end - begin, nullptr);
    {
      std::vector<std::jthread> others;
      for (size_t i = 1; i < counters_.size(); ++i)
        others.emplace_back([&, i] { work(*counters_[i], begin, end); });
      work(*counters_[0], begin, end);
    }
    for (const std::exception_ptr& error : errors_)
      if (error) std::rethrow_exception(error);
    for (const auto& counter : counters_) found.words.add(counter->take());
    for (size_t piece = begin; piece < end; ++piece) found.bytes += source_.piece_bytes(piece);
    found.skipped_rows += skipped_;
  }

 private:
  void work(text::TrainingWords& words, size_t begin, size_t end) {
    for (size_t piece; (piece = next_++) < end;) {
      try {
        skipped_ += source_.read(piece, [&](const SourceRow& row) {
          for (const std::string_view column : row.columns) words.add(column);
        });
      } catch (...) {
        errors_[piece - begin] = std::current_exception();
      }
    }
  }

  const RowSource& source_;
  std::vector<std::unique_ptr<text::TrainingWords>> counters_;
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> skipped_ = 0;
  std::vector<std::exception_ptr> errors_;  // by piece
};

}  // namespace

CountedWords count_words(const RowSource& source, const text::TrainingRules& rules,
                         const WordCountingOptions& options) {
  CountedWords found;
  BlockCounter counter(source, rules, thread_count(options.threads, source.pieces()));
  for (size_t begin = 0; begin < source.pieces(); begin += options.pieces_in_block) {
    counter.count(begin, std::min(begin + options.pieces_in_block, source.pieces()), found);
    found.forgotten += found.words.keep_most_frequent(options.most_words);
    if (options.progress) options.progress(found.bytes);
  }
  return found;
}

}  // namespace funicular::data
