#include "funicular/text/unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

// The table takes 128 kB and fits into the L2 cache; the trie takes megabytes.
constexpr uint32_t kPairBits = 20;

uint64_t pair_bit(uint32_t first, uint32_t second) {
  return (uint64_t{first} << 32 | second) * 0x9E3779B97F4A7C15ull >> (64 - kPairBits);
}

void check_pieces(const std::vector<std::string>& pieces, const std::vector<double>& scores,
                  int32_t unknown) {
  if (pieces.size() != scores.size() || pieces.empty())
    throw InputError(kTokenizerComponent,
                     "the model has {} pieces and {} scores: expected a score for each piece", pieces.size(),
                     scores.size());
  if (unknown < 0 || static_cast<size_t>(unknown) >= pieces.size())
    throw InputError(
        kTokenizerComponent,
        "the unknown token (unk_id) is {}: expected an id from 0 to {}; characters that no piece "
        "has need one",
        unknown, pieces.size() - 1);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].empty() || !is_valid_utf8(pieces[i]))
      throw InputError(kTokenizerComponent,
                       "piece {} of the vocabulary is empty or not valid UTF-8; copy the file again", i);
    if (!std::isfinite(scores[i]))
      throw InputError(kTokenizerComponent, "the score of piece {}, \"{}\", is {}: expected a finite number",
                       i, pieces[i], scores[i]);
  }
}

}  // namespace

std::string byte_token(uint8_t byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

/// The best path to a place in a word: the place where its last piece begins, and that piece.
struct Unigram::Cell {
  double score;
  int32_t begin;  ///< -1: no path yet
  int32_t id;
};

Unigram::Unigram(std::vector<std::string> pieces, std::vector<double> scores, int32_t unknown,
                 bool byte_fallback)
    : pieces_(std::move(pieces)),
      scores_(std::move(scores)),
      unknown_(unknown),
      byte_fallback_(byte_fallback) {
  check_pieces(pieces_, scores_, unknown_);
  std::unordered_map<std::string_view, int32_t> last;
  last.reserve(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) last[pieces_[i]] = static_cast<int32_t>(i);
  trie_ = Trie(std::vector<Trie::Key>(last.begin(), last.end()));
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  find_firsts();
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto found = last.find(byte_token(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == last.end() ? -1 : found->second;
  }
}

void Unigram::find_firsts() {
  std::vector<First> firsts(0x10000);
  for (uint32_t code = 0; code < firsts.size(); ++code) {
    char bytes[4];
    firsts[code] = first_of(code, {bytes, static_cast<size_t>(put_code_point(code, bytes) - bytes)});
  }
  first_ = std::move(firsts);
  pairs_.resize((size_t{1} << kPairBits) / 64);
  for (const std::string& piece : pieces_) {
    const char *at = piece.data(), *const end = at + piece.size();
    const uint32_t code = next_code_point(at, end);
    if (at == end) continue;
    const uint64_t bit = pair_bit(code, next_code_point(at, end));
    pairs_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

inline bool Unigram::may_continue(uint32_t first, uint32_t second) const {
  const uint64_t bit = pair_bit(first, second);
  return (pairs_[bit / 64] >> (bit % 64) & 1) != 0;
}

inline Unigram::First Unigram::first_of(uint32_t code, std::string_view character) const {
  if (code < first_.size()) return first_[code];
  const int32_t node = trie_.find(character), id = node == Trie::none ? Trie::none : trie_.id(node);
  return id == Trie::none ? First{node, unknown_, unknown_score_}
                          : First{node, id, scores_[static_cast<size_t>(id)]};
}

int32_t Unigram::id_of(std::string_view token) const {
  const int32_t node = trie_.find(token);
  return node == Trie::none ? -1 : trie_.id(node);
}

// Tries the pieces from each place by ascending length. A path replaces another only if its score is greater.
void Unigram::find_path(std::string_view word, std::vector<Cell>& cells) const {
  cells.assign(word.size() + 1, {0.0, -1, -1});
  const auto offer = [&](size_t end, double score, size_t begin, int32_t id) {
    Cell& cell = cells[end];
    if (cell.begin < 0 || score > cell.score) cell = {score, static_cast<int32_t>(begin), id};
  };
  const char *at = word.data(), *const behind = at + word.size();
  uint32_t code = next_valid_code_point(at, behind);
  for (size_t begin = 0;;) {
    const auto next = static_cast<size_t>(at - word.data());
    const double before = cells[begin].score;
    const First first = first_of(code, word.substr(begin, next - begin));
    offer(next, first.score + before, begin, first.id);
    if (at == behind) return;
    const uint32_t second = next_valid_code_point(at, behind);
    int32_t node = may_continue(code, second) ? first.node : Trie::none;
    for (size_t end = next; node != Trie::none && end < word.size();) {
      node = trie_.next(node, static_cast<uint8_t>(word[end++]));
      if (node == Trie::none) break;
      if (const int32_t id = trie_.id(node); id != Trie::none)
        offer(end, scores_[static_cast<size_t>(id)] + before, begin, id);
    }
    begin = next;
    code = second;
  }
}

void Unigram::put_unknown(std::string_view word, uint32_t begin, uint32_t end,
                          std::vector<WordPart>& out) const {
  const std::string_view run = word.substr(begin, end - begin);
  if (const int32_t id = id_of(run); id >= 0) return out.push_back({id, begin, end});
  const bool in_bytes = byte_fallback_ && std::all_of(run.begin(), run.end(), [&](char byte) {
                          return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
                        });
  if (!in_bytes) return out.push_back({unknown_, begin, end});
  for (const char byte : run) out.push_back({byte_ids_[static_cast<uint8_t>(byte)], begin, end});
}

void Unigram::encode(std::string_view word, std::vector<WordPart>& out) const {
  thread_local std::vector<Cell> cells;
  thread_local std::vector<WordPart> path;
  find_path(word, cells);
  path.clear();
  for (size_t end = word.size(); end > 0; end = static_cast<size_t>(cells[end].begin))
    path.push_back({cells[end].id, static_cast<uint32_t>(cells[end].begin), static_cast<uint32_t>(end)});
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i].id != unknown_) {
      out.push_back(path[i]);
      continue;
    }
    const uint32_t begin = path[i].begin;
    while (i > 0 && path[i - 1].id == unknown_) --i;
    put_unknown(word, begin, path[i].end, out);
  }
}

uint64_t Unigram::fingerprint() const {
  StreamHash hash;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto size = static_cast<int64_t>(pieces_[i].size());
    hash.update(&size, sizeof size);
    hash.update(pieces_[i].data(), pieces_[i].size());
    // A file that is written and read again may differ in the last bit of a double.
    const auto score = static_cast<float>(scores_[i]);
    hash.update(&score, sizeof score);
  }
  const int64_t rules[] = {unknown_, byte_fallback_};
  hash.update(rules, sizeof rules);
  return hash.digest();
}

}  // namespace funicular::text
