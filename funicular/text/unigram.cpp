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

/// The pieces as the numbers of their characters, which go to `numbers`. Every character has a node at the root.
NumberTrie make_number_trie(const std::vector<std::string>& pieces,
                            const std::unordered_map<std::string_view, int32_t>& ids,
                            std::unordered_map<uint32_t, uint32_t>& numbers) {
  size_t size = 0;
  for (const std::string& piece : pieces) size += piece.size();
  std::u32string all;
  all.reserve(size);  // the keys point into it
  std::vector<bool> is_piece;
  std::vector<NumberTrie::Key> keys;
  for (const auto& [piece, id] : ids) {
    const size_t begin = all.size();
    for (const char *at = piece.data(), *const end = at + piece.size(); at < end;) {
      const auto number = static_cast<uint32_t>(numbers.size());
      all.push_back(numbers.try_emplace(next_valid_code_point(at, end), number).first->second);
    }
    is_piece.resize(numbers.size());
    const std::u32string_view text = std::u32string_view(all).substr(begin);
    if (text.size() == 1) is_piece[text.front()] = true;
    keys.emplace_back(text, id);
  }
  std::u32string others;
  for (uint32_t number = 0; number < is_piece.size(); ++number)
    if (!is_piece[number]) others.push_back(number);
  for (size_t i = 0; i < others.size(); ++i)
    keys.emplace_back(std::u32string_view(others).substr(i, 1), NumberTrie::none);
  return NumberTrie(std::move(keys));
}

}  // namespace

std::string byte_token(uint8_t byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

/// A word and the best path to each place between its characters. The vectors only grow.
struct Unigram::Lattice {
  struct Character {
    First first;
    uint32_t code;
    uint32_t begin;  ///< its first byte
    bool goes_on;    ///< whether a piece may begin with it and the next one
  };
  /// The last piece of the best path to a place.
  struct Cell {
    double score;
    int32_t begin;  ///< the place where the piece begins; -1: no path yet
    int32_t id;
  };
  size_t count = 0;  ///< characters
  std::vector<Character> characters;
  std::vector<Cell> cells;
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
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  unknown_first_ = {NumberTrie::none, unknown_, unknown_score_};
  std::unordered_map<uint32_t, uint32_t> numbers;
  trie_ = make_number_trie(pieces_, last, numbers);
  find_firsts(numbers);
  find_pairs();
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto found = last.find(byte_token(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == last.end() ? -1 : found->second;
  }
}

void Unigram::find_firsts(const std::unordered_map<uint32_t, uint32_t>& numbers) {
  first_.assign(0x10000, unknown_first_);
  first_node_ = trie_.next(NumberTrie::root, 0);
  for (const auto& [code, number] : numbers) {
    First first = unknown_first_;
    first.node = trie_.next(NumberTrie::root, number);
    if (const int32_t id = trie_.id(first.node); id != NumberTrie::none)
      first.id = id, first.score = scores_[static_cast<size_t>(id)];
    (code < first_.size() ? first_[code] : higher_[code]) = first;
  }
}

void Unigram::find_pairs() {
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

inline const Unigram::First& Unigram::first_of(uint32_t code) const {
  if (code < first_.size()) return first_[code];
  const auto found = higher_.find(code);
  return found == higher_.end() ? unknown_first_ : found->second;
}

int32_t Unigram::id_of(std::string_view token) const {
  int32_t node = NumberTrie::root;
  for (const char *at = token.data(), *const end = at + token.size(); at < end;) {
    const First& first = first_of(next_code_point(at, end));
    if (first.node == NumberTrie::none) return -1;
    node = trie_.next(node, number_of(first));
    if (node == NumberTrie::none) return -1;
  }
  const int32_t id = trie_.id(node);
  return id >= 0 && pieces_[static_cast<size_t>(id)] == token ? id : -1;
}

Unigram::Lattice& Unigram::thread_lattice() {
  thread_local Lattice lattice;
  return lattice;
}

inline void Unigram::read_characters(std::string_view word, Lattice& lattice) const {
  if (lattice.characters.size() < word.size() + 1) {
    lattice.characters.resize(word.size() + 1);
    lattice.cells.resize(word.size() + 1);
  }
  Lattice::Character* to = lattice.characters.data();
  for (const char *at = word.data(), *const end = at + word.size(); at < end; ++to) {
    to->begin = static_cast<uint32_t>(at - word.data());
    to->code = next_valid_code_point(at, end);
    to->first = first_of(to->code);
  }
  to->begin = static_cast<uint32_t>(word.size());
  lattice.count = static_cast<size_t>(to - lattice.characters.data());
  to->first = unknown_first_;
  for (Lattice::Character* one = lattice.characters.data(); one < to; ++one) {
    const Lattice::Character& next = one[1];
    one->goes_on = one->first.node != NumberTrie::none && next.first.node != NumberTrie::none &&
                   may_continue(one->code, next.code);
    if (one->goes_on) trie_.prefetch(one->first.node, number_of(next.first));
  }
}

// Tries the pieces from each place by ascending length. A path replaces another only if its score is greater.
void Unigram::find_path(std::string_view word, Lattice& lattice) const {
  read_characters(word, lattice);
  const Lattice::Character* const characters = lattice.characters.data();
  Lattice::Cell* const cells = lattice.cells.data();
  const size_t count = lattice.count;
  for (size_t place = 0; place <= count; ++place) cells[place] = {0.0, -1, -1};
  const auto offer = [&](size_t end, double score, size_t begin, int32_t id) {
    Lattice::Cell& cell = cells[end];
    if (cell.begin < 0 || score > cell.score) cell = {score, static_cast<int32_t>(begin), id};
  };
  for (size_t begin = 0; begin < count; ++begin) {
    const First& first = characters[begin].first;
    const double before = cells[begin].score;
    size_t end = begin + 1;
    offer(end, first.score + before, begin, first.id);
    if (!characters[begin].goes_on) continue;
    int32_t node = first.node;
    while (end < count && characters[end].first.node != NumberTrie::none) {
      node = trie_.next(node, number_of(characters[end++].first));
      if (node == NumberTrie::none) break;
      if (const int32_t id = trie_.id(node); id != NumberTrie::none)
        offer(end, scores_[static_cast<size_t>(id)] + before, begin, id);
    }
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
  Lattice& lattice = thread_lattice();
  find_path(word, lattice);
  put_path(word, lattice, out);
}

void Unigram::put_path(std::string_view word, const Lattice& lattice, std::vector<WordPart>& out) const {
  thread_local std::vector<WordPart> path;
  path.clear();
  for (size_t end = lattice.count; end > 0;) {
    const Lattice::Cell& cell = lattice.cells[end];
    const auto begin = static_cast<size_t>(cell.begin);
    path.push_back({cell.id, lattice.characters[begin].begin, lattice.characters[end].begin});
    end = begin;
  }
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

void Unigram::encode_ids(std::string_view word, std::vector<int32_t>& ids) const {
  thread_local std::vector<WordPart> parts;
  Lattice& lattice = thread_lattice();
  find_path(word, lattice);
  const Lattice::Cell* const cells = lattice.cells.data();
  size_t count = 0;
  bool all_known = true;
  for (size_t end = lattice.count; end > 0; end = static_cast<size_t>(cells[end].begin), ++count)
    all_known &= cells[end].id != unknown_;
  if (!all_known) {
    parts.clear();
    put_path(word, lattice, parts);
    for (const WordPart& part : parts) ids.push_back(part.id);
    return;
  }
  ids.resize(ids.size() + count);
  int32_t* to = ids.data() + ids.size();
  for (size_t end = lattice.count; end > 0; end = static_cast<size_t>(cells[end].begin))
    *--to = cells[end].id;
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
