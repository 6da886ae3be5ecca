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
  first_.assign(0x10000, Trie::none);
  for (uint32_t code = 0; code < first_.size(); ++code) {
    char bytes[4];
    first_[code] = trie_.find({bytes, static_cast<size_t>(put_code_point(code, bytes) - bytes)});
  }
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto found = last.find(byte_token(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == last.end() ? -1 : found->second;
  }
}

int32_t Unigram::id_of(std::string_view token) const {
  const int32_t node = trie_.find(token);
  return node == Trie::none ? -1 : trie_.id(node);
}

// From each place, pieces by ascending length; a path gives way only to one of a greater score.
void Unigram::find_path(std::string_view word, std::vector<Cell>& cells) const {
  cells.assign(word.size() + 1, {0.0, -1, -1});
  const auto offer = [&](size_t end, double score, size_t begin, int32_t id) {
    Cell& cell = cells[end];
    if (cell.begin < 0 || score > cell.score) cell = {score, static_cast<int32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const char* at = word.data() + begin;
    const uint32_t code = next_valid_code_point(at, word.data() + word.size());
    const auto next = static_cast<size_t>(at - word.data());
    const double before = cells[begin].score;
    int32_t node = code < first_.size() ? first_[code] : trie_.find(word.substr(begin, next - begin));
    if (node == Trie::none || trie_.id(node) == Trie::none)
      offer(next, unknown_score_ + before, begin, unknown_);
    for (size_t end = next; node != Trie::none;) {
      if (const int32_t id = trie_.id(node); id != Trie::none)
        offer(end, scores_[static_cast<size_t>(id)] + before, begin, id);
      if (end == word.size()) break;
      node = trie_.next(node, static_cast<uint8_t>(word[end++]));
    }
    begin = next;
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
