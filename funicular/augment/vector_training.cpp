#include "funicular/augment/vector_training.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <numbers>
#include <unordered_map>
#include <utility>

#include "funicular/augment/text_words.h"
#include "funicular/base/error.h"
#include "funicular/base/temporary.h"
#include "funicular/core/loss_watch.h"
#include "funicular/runtime/parallel_loop.h"

namespace funicular::augment {

namespace {

/// A pair at distance d counts kUnit / d, a whole number for d up to 16.
constexpr uint64_t kUnit = 720'720;

using WordCounts = std::unordered_map<std::string, int64_t>;

/// Sums by key, in a hash table with open addressing; keys are above 0.
class PairCounts {
 public:
  PairCounts() : cells_(1 << 16) {}
  void add(uint64_t key, uint64_t count) {
    if (2 * (used_ + 1) > cells_.size()) grow();
    Cell& cell = find(key);
    used_ += cell.key == 0;
    cell.key = key;
    cell.count += count;
  }
  struct Cell {
    uint64_t key = 0, count = 0;
  };
  const std::vector<Cell>& cells() const { return cells_; }

 private:
  Cell& find(uint64_t key) {
    const size_t mask = cells_.size() - 1;
    size_t at = (key * 0x9E3779B97F4A7C15u) >> 20 & mask;
    while (cells_[at].key != 0 && cells_[at].key != key) at = (at + 1) & mask;
    return cells_[at];
  }
  void grow() {
    std::vector<Cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old)
      if (cell.key != 0) find(cell.key) = cell;
  }
  std::vector<Cell> cells_;
  size_t used_ = 0;
};

/// Calls use(worker, text) for each text of a source, on all threads, and reports progress up to `show(1)`.
template <class Use>
void for_each_text(const data::RowSource& source, int workers, const Use& use,
                   const std::function<void(double)>& show) {
  std::atomic<size_t> next{0};
  parallel_loop(0, workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker)
      for (size_t piece; (piece = next.fetch_add(1)) < source.pieces();) {
        source.read(piece, [&](const data::SourceRow& row) {
          for (const std::string_view text : row.columns) use(static_cast<size_t>(worker), text);
        });
        if (begin == 0) show(static_cast<double>(piece + 1) / static_cast<double>(source.pieces()));
      }
  });
}

/// The pairs of a word are consecutive: [starts[i], starts[i + 1]).
struct Pairs {
  std::vector<int64_t> starts;
  std::vector<int32_t> others;
  std::vector<float> weights;  ///< f(X)
};

/// The words' or the contexts' side.
struct Side {
  std::vector<float> vectors;
  std::vector<double> squares;  ///< AdaGrad's sums, one per row
};

constexpr int64_t kLanes = 16;
/// A power of two.
constexpr size_t kPlaces = size_t{1} << 20;
/// The initial value of AdaGrad's sums, which keeps the first steps short.
constexpr double kFirstSquare = 1e-3;

/// Sums in lanes, in a fixed order.
float dot(const float* a, const float* b, int64_t size) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

class Training {
 public:
  Training(const data::RowSource& source, const VectorTrainingOptions& options, const TrainingProgress& show)
      : source_(source), options_(options), show_(show), workers_(at::get_num_threads()) {}

  TrainedVectors run() {
    choose_words();
    count_pairs();
    start();
    LossWatch watch("epoch");
    watch.note_first(0, loss_at_start());
    for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
      watch.require_sound(epoch + 1, learn(contexts_, words_, epoch, 1), "the contexts' loss");
      result_.loss = learn(words_, contexts_, epoch, 2);
      watch.require_sound(epoch + 1, result_.loss, "the loss");
      tell("learning", static_cast<double>(epoch + 1) / static_cast<double>(options_.epochs));
    }
    if (!std::all_of(words_.vectors.begin(), words_.vectors.end(),
                     [](float value) { return std::isfinite(value); }))
      throw RunError("loss",
                     "some of the vectors are not finite after epoch {}; a lower --learning-rate may help",
                     options_.epochs);
    result_.vectors = std::move(words_.vectors);
    result_.size = options_.size;
    return std::move(result_);
  }

 private:
  void tell(const char* what, double share) const {
    if (show_) show_(what, share);
  }
  std::string spelling(std::string_view word) const {
    return options_.lower_case ? lower_cased(word) : std::string(word);
  }

  void choose_words() {
    std::vector<WordCounts> counts(static_cast<size_t>(workers_));
    for_each_text(
        source_, workers_,
        [&](size_t worker, std::string_view text) {
          for (const std::string_view word : words_of(text, options_.words)) ++counts[worker][spelling(word)];
        },
        [&](double share) { tell("counting words", share); });
    for (size_t worker = 1; worker < counts.size(); ++worker)
      for (const auto& [word, count] : counts[worker]) counts[0][word] += count;
    std::vector<std::pair<int64_t, std::string>> order;
    for (const auto& [word, count] : counts[0])
      if (count >= options_.min_count) order.emplace_back(-count, word);
    std::sort(order.begin(), order.end());
    if (static_cast<int64_t>(order.size()) > options_.most_words)
      order.resize(static_cast<size_t>(options_.most_words));
    if (order.size() < 2)
      throw InputError(
          "vectors",
          "{} words occur {} times or more; expected at least 2: give more text, or a smaller --min-count",
          order.size(), options_.min_count);
    for (const auto& [count, word] : order) {
      numbers_.emplace(word, static_cast<int32_t>(result_.words.size()));
      result_.words.push_back(word);
      result_.counts.push_back(-count);
    }
  }

  void count_pairs() {
    std::vector<PairCounts> counts(static_cast<size_t>(workers_));
    std::vector<std::vector<int32_t>> ids(static_cast<size_t>(workers_));
    for_each_text(
        source_, workers_,
        [&](size_t worker, std::string_view text) {
          std::vector<int32_t>& row = ids[worker];
          row.clear();
          for (const std::string_view word : words_of(text, options_.words)) {
            const auto found = numbers_.find(spelling(word));
            row.push_back(found == numbers_.end() ? -1 : found->second);
          }
          count_row(row, counts[worker]);
        },
        [&](double share) { tell("counting pairs", share); });
    std::vector<PairCounts::Cell> all;
    for (PairCounts& some : counts) {
      std::copy_if(some.cells().begin(), some.cells().end(), std::back_inserter(all),
                   [](const auto& cell) { return cell.key != 0; });
      some = PairCounts();
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    size_t kept = 0;
    for (const PairCounts::Cell& cell : all)
      if (kept > 0 && all[kept - 1].key == cell.key)
        all[kept - 1].count += cell.count;
      else
        all[kept++] = cell;
    all.resize(kept);
    arrange(all);
  }

  void count_row(const std::vector<int32_t>& row, PairCounts& counts) const {
    const auto size = static_cast<int64_t>(row.size());
    for (int64_t i = 0; i < size; ++i) {
      if (row[static_cast<size_t>(i)] < 0) continue;
      for (int64_t d = 1; d <= options_.window && i + d < size; ++d) {
        const auto a = row[static_cast<size_t>(i)], b = row[static_cast<size_t>(i + d)];
        if (b < 0) continue;
        // The smaller number comes first; + 1 keeps the key above 0. A word beside itself counts twice, once from
        // each side.
        const uint64_t key = (uint64_t(std::min(a, b)) + 1) << 32 | static_cast<uint64_t>(std::max(a, b));
        counts.add(key, kUnit / static_cast<uint64_t>(d) * (a == b ? 2 : 1));
      }
    }
  }

  /// Stores each pair in both orders. A word's pairs are sorted by their second word.
  void arrange(const std::vector<PairCounts::Cell>& cells) {
    const size_t words = result_.words.size();
    const auto of = [](const PairCounts::Cell& cell) {
      return std::pair(static_cast<size_t>(cell.key >> 32) - 1, static_cast<size_t>(cell.key & 0xFFFFFFFFu));
    };
    pairs_.starts.assign(words + 1, 0);
    for (const auto& cell : cells) {
      const auto [a, b] = of(cell);
      ++pairs_.starts[a + 1];
      if (a != b) ++pairs_.starts[b + 1];
    }
    for (size_t i = 0; i < words; ++i) pairs_.starts[i + 1] += pairs_.starts[i];
    const auto total = static_cast<size_t>(pairs_.starts.back());
    pairs_.others.resize(total);
    pairs_.weights.resize(total);
    std::vector<int64_t> next(pairs_.starts.begin(), pairs_.starts.end() - 1);
    for (const auto& cell : cells) {
      const auto [a, b] = of(cell);
      const double x = static_cast<double>(cell.count) / static_cast<double>(kUnit);
      const auto put = [&](size_t row, size_t other) {
        const auto at = static_cast<size_t>(next[row]++);
        pairs_.others[at] = static_cast<int32_t>(other);
        pairs_.weights[at] = static_cast<float>(std::min(1.0, std::pow(x / options_.most_counted, 0.75)));
      };
      put(a, b);
      if (a != b) put(b, a);
    }
    result_.pairs = static_cast<int64_t>(total);
  }

  void start() {
    const auto words = static_cast<uint32_t>(result_.words.size());
    const RandomKey key = make_key(options_.seed, kVectorTraining, 0);
    for (uint32_t word = 0; word < words; ++word)
      for (uint32_t i = 0; i < static_cast<uint32_t>(options_.size); ++i)
        words_.vectors.push_back(static_cast<float>((uniform(philox(key, make_counter(word, i, 0))) - 0.5) /
                                                    static_cast<double>(options_.size)));
    contexts_.vectors.assign(words_.vectors.size(), 0);
    words_.squares.assign(words, kFirstSquare);
    contexts_.squares = words_.squares;
    // Each word fills its share of the places, and samples draw places uniformly.
    double total = 0, sum = 0;
    for (const int64_t count : result_.counts) total += std::pow(static_cast<double>(count), 0.75);
    for (uint32_t word = 0; word < words; ++word) {
      sum += std::pow(static_cast<double>(result_.counts[word]), 0.75);
      const auto end =
          word + 1 == words ? kPlaces : static_cast<size_t>(sum / total * static_cast<double>(kPlaces));
      samples_.resize(std::max(samples_.size(), end), static_cast<int32_t>(word));
    }
  }

  /// The loss while all contexts are zero: log 2 for each pair and each of its samples.
  double loss_at_start() const {
    double sum = 0;
    for (const float weight : pairs_.weights) sum += weight;
    const auto terms = static_cast<double>(1 + options_.negatives);
    return result_.pairs > 0 ? sum * terms * std::numbers::ln2 / static_cast<double>(result_.pairs) : 0;
  }

  /// Makes one pass over the pairs in which `side` learns. Returns the mean weighted loss per pair.
  double learn(Side& side, const Side& other, int64_t epoch, uint32_t layer) const {
    const auto words = static_cast<int64_t>(result_.words.size());
    std::vector<double> losses(static_cast<size_t>(words));
    const RandomKey key = make_key(options_.seed, kVectorTraining, layer);
    std::atomic<int64_t> next{0};
    // Threads take words one by one, as the first, most frequent words have most of the pairs.
    parallel_loop(0, workers_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker)
        for (int64_t word; (word = next.fetch_add(1)) < words;)
          losses[static_cast<size_t>(word)] = learn_row(side, other, word, key, static_cast<uint64_t>(epoch));
    });
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return result_.pairs > 0 ? sum / static_cast<double>(result_.pairs) : 0;
  }

  double learn_row(Side& side, const Side& other, int64_t word, RandomKey key, uint64_t epoch) const {
    const auto row = static_cast<size_t>(word);
    const int64_t begin = pairs_.starts[row], count = pairs_.starts[row + 1] - begin;
    if (count == 0) return 0;
    const auto number = static_cast<uint32_t>(word);
    const RandomBlock block = philox(key, make_counter(number, 0xFFFFFFFFu, epoch));
    const auto first = static_cast<int64_t>(
        uniform_below((uint64_t{block[0]} << 32) | block[1], static_cast<uint64_t>(count)));
    double loss = 0;
    for (int64_t step = 0; step < count; ++step) {
      const int64_t pair = (first + step) % count;
      const auto at = static_cast<size_t>(begin + pair);
      const float weight = pairs_.weights[at];
      loss += meet(side, other, row, pairs_.others[at], weight, true);
      RandomBlock places{};
      for (int64_t sample = 0; sample < options_.negatives; ++sample) {
        const auto lane = static_cast<size_t>(sample % 4);
        if (lane == 0)
          places = philox(key, make_counter(number, static_cast<uint32_t>(pair),
                                            (epoch << 16) + static_cast<uint64_t>(sample / 4)));
        loss += meet(side, other, row, samples_[places[lane] % kPlaces], weight, false);
      }
    }
    return loss;
  }

  /// Moves the row of `side` towards the row `column` of `other`, or away from it. Returns the weighted loss before
  /// the step.
  double meet(Side& side, const Side& other, size_t row, int32_t column, float weight, bool near) const {
    const int64_t size = options_.size;
    float* const own = side.vectors.data() + static_cast<int64_t>(row) * size;
    const float* const context = other.vectors.data() + int64_t{column} * size;
    const float product = dot(own, context, size), toward = near ? -product : product;
    // If exp overflows to infinity, the share is correctly 0.
    const float share = 1 / (1 + std::exp(-toward));  // the pair's error, 0 to 1
    const float slope = (near ? -weight : weight) * share;
    double& squares = side.squares[row];
    const auto rate = static_cast<float>(options_.learning_rate / std::sqrt(squares)) * slope;
    squares += double{slope} * slope * dot(context, context, size) / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) own[i] -= rate * context[i];
    return double{weight} * (toward > 0 ? toward + std::log1p(std::exp(-double{toward}))
                                        : std::log1p(std::exp(double{toward})));
  }

  const data::RowSource& source_;
  const VectorTrainingOptions& options_;
  const TrainingProgress& show_;
  int workers_;
  std::unordered_map<std::string, int32_t> numbers_;
  Pairs pairs_;
  std::vector<int32_t> samples_;  ///< [kPlaces]
  Side words_, contexts_;
  TrainedVectors result_;
};

void check(const VectorTrainingOptions& options) {
  const auto require = [](bool fits, const char* name, auto found) {
    if (!fits) throw InputError("vectors", "{}: expected more than 0, found {}", name, found);
  };
  require(options.size > 0, "--size", options.size);
  require(options.window > 0, "--window", options.window);
  require(options.min_count > 0, "--min-count", options.min_count);
  require(options.most_words > 0, "--max-words", options.most_words);
  require(options.negatives > 0 && options.negatives <= 1000, "--negatives (at most 1000)",
          options.negatives);
  require(options.epochs > 0, "--epochs", options.epochs);
  require(options.learning_rate > 0, "--learning-rate", options.learning_rate);
  require(options.most_counted > 0, "x_max", options.most_counted);
  options.words.check();
}

}  // namespace

TrainedVectors train_vectors(const data::RowSource& source, const VectorTrainingOptions& options,
                             const TrainingProgress& show) {
  check(options);
  return Training(source, options, show).run();
}

void write_vectors(const TrainedVectors& trained, const fs::path& file, bool counts_first,
                   const std::function<void(const fs::path& written)>& before_rename) {
  Temporary temporary(file, Temporary::Kind::file);
  FileWriter writer(temporary.path(), Opening::replace, file);
  if (counts_first) writer.write(fmt::format("{} {}\n", trained.words.size(), trained.size));
  std::string line;
  for (size_t word = 0; word < trained.words.size(); ++word) {
    line = trained.words[word];
    for (int64_t i = 0; i < trained.size; ++i)
      fmt::format_to(std::back_inserter(line), " {:.6g}",
                     trained.vectors[word * static_cast<size_t>(trained.size) + static_cast<size_t>(i)]);
    line += '\n';
    writer.write(line);
  }
  writer.close(/*sync=*/true);
  if (before_rename) before_rename(temporary.path());
  temporary.rename_file();
}

}  // namespace funicular::augment
