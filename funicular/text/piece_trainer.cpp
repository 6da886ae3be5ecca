#include "funicular/text/piece_trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/trie.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

constexpr int32_t kUnknown = -1;  ///< the piece of a character that no piece has
constexpr double kUnknownPenalty = 10.0, kLeastExpected = 0.5, kFinalShare = 1.1, kPenaltyStep = 0.0001;
/// Sums of doubles depend on their order: each share of the words has a sum of its own, and these are added in order.
constexpr size_t kShares = 16;

/// Calls `work(share)` for each of the shares.
void for_each_share(int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t share; (share = next++) < kShares;) work(share);
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min<int>(threads, kShares); ++i) others.emplace_back(run);
  run();
}

/// The derivative of the logarithm of the gamma function at x > 0. A recurrence reaches 7, then comes the asymptotic
/// series about x + 1/2 (Abramowitz and Stegun 1964, 6.3.5 and 6.3.18).
double digamma(double x) {
  double result = 0.0;
  for (; x < 7.0; ++x) result -= 1.0 / x;
  x -= 0.5;
  const double inverse = 1.0 / x, square = inverse * inverse, fourth = square * square;
  return result + std::log(x) + square / 24.0 - 7.0 / 960.0 * fourth + 31.0 / 8064.0 * fourth * square -
         127.0 / 30720.0 * fourth * fourth;
}

/// The pieces and their scores, found by their texts.
class PieceSet {
 public:
  explicit PieceSet(std::vector<TrainedPiece> pieces) { set(std::move(pieces)); }

  void set(std::vector<TrainedPiece> pieces) {
    pieces_ = std::move(pieces);
    std::vector<Trie::Key> keys;
    double least = 0.0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      keys.emplace_back(pieces_[i].text, static_cast<int32_t>(i));
      least = std::min(least, pieces_[i].score);
    }
    trie_ = Trie(std::move(keys));
    unknown_score_ = least - kUnknownPenalty;
  }

  const std::vector<TrainedPiece>& pieces() const { return pieces_; }
  double score(int32_t id) const {
    return id == kUnknown ? unknown_score_ : pieces_[static_cast<size_t>(id)].score;
  }
  double least_score() const { return unknown_score_ + kUnknownPenalty; }

  /// Calls `found(end, id)` for each piece that begins at `begin`, the shortest first. If the first character is no
  /// piece, it calls `found` for the unknown piece before them. Returns the end of that character.
  template <class Found>
  size_t for_each_at(std::string_view word, size_t begin, Found found) const {
    size_t next = begin + 1;
    while (next < word.size() && continues_character(word[next])) ++next;
    int32_t node = Trie::root;
    size_t end = begin;
    while (end < next && node != Trie::none) node = trie_.next(node, static_cast<uint8_t>(word[end++]));
    if (node == Trie::none || trie_.id(node) == Trie::none) found(next, kUnknown);
    while (node != Trie::none) {
      if (const int32_t id = trie_.id(node); id != Trie::none) found(end, id);
      if (end == word.size()) break;
      node = trie_.next(node, static_cast<uint8_t>(word[end++]));
    }
    return next;
  }

 private:
  std::vector<TrainedPiece> pieces_;
  Trie trie_;
  double unknown_score_ = 0;
};

/// The sums over all paths through a word: how often each piece is expected on one.
class Expectation {
 public:
  explicit Expectation(const PieceSet& set) : set_(set) {
    probabilities_.reserve(set.pieces().size());
    for (const TrainedPiece& piece : set.pieces()) probabilities_.push_back(std::exp(piece.score));
    unknown_ = std::exp(set.score(kUnknown));
  }

  void add(const CountedWord& word, std::vector<double>& expected) {
    forward(word.text);
    const size_t size = word.text.size();
    const double weight = static_cast<double>(word.times) / sums_[size];
    behind_.assign(size + 1, 0.0);
    behind_[size] = 1.0;
    for (size_t i = edges_.size(); i-- > 0;) {
      const Edge& edge = edges_[i];
      double rest = edge.probability * behind_[edge.end];
      if (const int raised = scales_[edge.end] - scales_[edge.begin]; raised != 0)
        rest = std::ldexp(rest, kScale * raised);
      behind_[edge.begin] += rest;
      if (edge.id != kUnknown) expected[static_cast<size_t>(edge.id)] += weight * sums_[edge.begin] * rest;
    }
  }

 private:
  /// Powers of two by which sums are raised before they become too small for a double.
  static constexpr int kScale = 400;
  struct Edge {
    uint32_t begin, end;
    int32_t id;
    double probability;
  };

  // sums_[i] is the sum of the probabilities of all paths to byte i, times 2^(kScale * scales_[i]).
  void forward(std::string_view word) {
    edges_.clear();
    sums_.assign(word.size() + 1, 0.0);
    scales_.assign(word.size() + 1, 0);
    sums_[0] = 1.0;
    reached_ = 0, scale_ = 0;
    for (size_t begin = 0; begin < word.size();) {
      if (sums_[begin] < 0x1p-400) raise(begin);
      begin = set_.for_each_at(word, begin, [&](size_t end, int32_t id) {
        const double probability = id == kUnknown ? unknown_ : probabilities_[static_cast<size_t>(id)];
        edges_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), id, probability});
        for (; reached_ < end; ++reached_) scales_[reached_ + 1] = scale_;
        sums_[end] += sums_[begin] * probability;
      });
    }
  }

  // Takes time for the bytes of a piece: nothing is added up behind `reached_`.
  void raise(size_t begin) {
    ++scale_;
    for (size_t i = begin; i <= reached_; ++i) {
      sums_[i] = std::ldexp(sums_[i], kScale);
      scales_[i] = scale_;
    }
  }

  const PieceSet& set_;
  std::vector<double> probabilities_;
  double unknown_;
  std::vector<Edge> edges_;
  std::vector<double> sums_, behind_;
  std::vector<int> scales_;
  size_t reached_ = 0;  // the end of the farthest edge
  int scale_ = 0;       // of all sums from the current beginning to reached_
};

/// The best path through a word; of equally good ones the one whose pieces begin first.
class BestPath {
 public:
  explicit BestPath(const PieceSet& set) : set_(set) {}

  /// The pieces from the last one to the first. `without`: a piece that may not be the whole word.
  const std::vector<int32_t>& find(std::string_view word, int32_t without = kUnknown) {
    cells_.assign(word.size() + 1, {});
    cells_[0].score = 0.0;
    for (size_t begin = 0; begin < word.size();) {
      const double before = cells_[begin].score;
      begin = set_.for_each_at(word, begin, [&](size_t end, int32_t id) {
        if (id != kUnknown && id == without) return;
        if (const double score = before + set_.score(id); score > cells_[end].score)
          cells_[end] = {score, begin, id};
      });
    }
    path_.clear();
    for (size_t end = word.size(); end > 0; end = cells_[end].begin) path_.push_back(cells_[end].id);
    return path_;
  }

 private:
  struct Cell {
    double score = -std::numeric_limits<double>::infinity();
    size_t begin = 0;
    int32_t id = kUnknown;
  };
  const PieceSet& set_;
  std::vector<Cell> cells_;
  std::vector<int32_t> path_;
};

class PieceTrainer {
 public:
  PieceTrainer(const std::vector<CountedWord>& words, const PieceTrainingOptions& options)
      : words_(words),
        options_(options),
        final_size_(static_cast<size_t>(static_cast<double>(options.size) * kFinalShare)),
        set_(seed_pieces(words, options)) {
    for (const TrainedPiece& piece : set_.pieces())
      if (is_character(piece.text)) characters_.push_back(piece.text);
  }

  std::vector<TrainedPiece> train() {
    if (characters_.size() > options_.size)
      throw InputError(
          kTokenizerComponent,
          "{} pieces were wanted, and the text has {} different characters, which are pieces each",
          options_.size, characters_.size());
    for (;;) {
      for (int step = 0; step < options_.expectation_steps; ++step) maximize(expected_counts());
      if (set_.pieces().size() <= final_size_) break;
      prune();
    }
    return final_pieces();
  }

 private:
  static bool is_character(std::string_view text) {
    const char* at = text.data();
    next_valid_code_point(at, at + text.size());
    return at == text.data() + text.size();
  }

  std::pair<size_t, size_t> share(size_t number) const {
    return {words_.size() * number / kShares, words_.size() * (number + 1) / kShares};
  }

  std::vector<double> expected_counts() const {
    std::vector<std::vector<double>> sums(kShares);
    for_each_share(options_.threads, [&](size_t number) {
      sums[number].assign(set_.pieces().size(), 0.0);
      Expectation expectation(set_);
      for (auto [word, end] = share(number); word < end; ++word) expectation.add(words_[word], sums[number]);
    });
    for (size_t number = 1; number < kShares; ++number)
      for (size_t i = 0; i < sums[0].size(); ++i) sums[0][i] += sums[number][i];
    return std::move(sums[0]);
  }

  void maximize(const std::vector<double>& expected) {
    std::vector<TrainedPiece> pieces;
    double sum = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] < kLeastExpected) continue;
      pieces.push_back({set_.pieces()[i].text, expected[i]});
      sum += expected[i];
    }
    for (TrainedPiece& piece : pieces) piece.score = digamma(piece.score) - digamma(sum);
    set_.set(std::move(pieces));
  }

  /// How often each piece is on the best path of a word.
  std::vector<uint64_t> path_counts() const {
    std::vector<std::vector<uint64_t>> counts(kShares);
    for_each_share(options_.threads, [&](size_t number) {
      counts[number].assign(set_.pieces().size(), 0);
      BestPath path(set_);
      for (auto [word, end] = share(number); word < end; ++word)
        for (const int32_t id : path.find(words_[word].text))
          if (id != kUnknown) counts[number][static_cast<size_t>(id)] += words_[word].times;
    });
    for (size_t number = 1; number < kShares; ++number)
      for (size_t i = 0; i < counts[0].size(); ++i) counts[0][i] += counts[number][i];
    return std::move(counts[0]);
  }

  void prune() {
    const std::vector<TrainedPiece>& pieces = set_.pieces();
    const std::vector<uint64_t> times = path_counts();
    double sum = 0.0, words = 0.0;
    for (const uint64_t count : times) sum += static_cast<double>(count);
    for (const CountedWord& word : words_) words += static_cast<double>(word.times);
    std::vector<TrainedPiece> kept;
    std::vector<std::pair<double, size_t>> losses;
    BestPath path(set_);
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (is_character(pieces[id].text)) {
        kept.push_back(pieces[id]);
      } else if (times[id] > 0) {
        const std::vector<int32_t>& others = path.find(pieces[id].text, static_cast<int32_t>(id));
        losses.emplace_back(loss_of(times, static_cast<double>(times[id]), others, sum) / words, id);
      }
    }
    const auto share = static_cast<size_t>(static_cast<double>(pieces.size()) * options_.kept_share);
    const size_t wanted = std::max(final_size_, share);
    std::stable_sort(losses.begin(), losses.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [loss, id] : losses) {
      if (kept.size() >= wanted) break;
      kept.push_back(pieces[id]);
    }
    set_.set(std::move(kept));
  }

  /// How much likelihood is lost, times the number of words, if `others` stand wherever the piece stood.
  static double loss_of(const std::vector<uint64_t>& times, double own, const std::vector<int32_t>& others,
                        double sum) {
    const double sum_without = sum + own * static_cast<double>(others.size() - 1);
    double score = 0.0;
    for (const int32_t id : others) {
      const double before = id == kUnknown ? 0.0 : static_cast<double>(times[static_cast<size_t>(id)]);
      score += std::log(before + own) - std::log(sum_without);
    }
    return own * (std::log(own) - std::log(sum) - score);
  }

  std::vector<TrainedPiece> final_pieces() const {
    std::unordered_map<std::string_view, double> scores;
    for (const TrainedPiece& piece : set_.pieces()) scores.emplace(piece.text, piece.score);
    const auto by_score = [](const TrainedPiece& a, const TrainedPiece& b) {
      return a.score != b.score ? a.score > b.score : a.text < b.text;
    };
    std::vector<TrainedPiece> result;
    std::unordered_set<std::string_view> required(characters_.begin(), characters_.end());
    double penalty = 0.0;
    for (const std::string& character : characters_) {
      const auto found = scores.find(character);
      result.push_back({character, found != scores.end() ? found->second : set_.least_score() + penalty});
      if (found == scores.end()) penalty += kPenaltyStep;
    }
    std::vector<TrainedPiece> others;
    for (const TrainedPiece& piece : set_.pieces())
      if (!required.contains(piece.text)) others.push_back(piece);
    std::sort(others.begin(), others.end(), by_score);
    others.resize(std::min(others.size(), options_.size - result.size()));
    result.insert(result.end(), others.begin(), others.end());
    std::sort(result.begin(), result.end(), by_score);
    return result;
  }

  const std::vector<CountedWord>& words_;
  const PieceTrainingOptions& options_;
  size_t final_size_;
  PieceSet set_;
  std::vector<std::string> characters_;  // the most frequent first
};

}  // namespace

std::vector<TrainedPiece> train_pieces(const std::vector<CountedWord>& words,
                                       const PieceTrainingOptions& options) {
  return PieceTrainer(words, options).train();
}

}  // namespace funicular::text
