#pragma once
// The unigram language model, equal to `tokenizers`: cuts a word into the pieces whose scores have the
// largest sum. Source: Kudo 2018, "Subword Regularization: Improving Neural Network Translation Models with
// Multiple Subword Candidates".

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "funicular/text/piece_model.h"
#include "funicular/text/trie.h"

namespace funicular::text {

class Unigram final : public PieceModel {
 public:
  /// `scores[i]` is the logarithm of the probability of `pieces[i]`. If a piece stands there twice, the last one
  /// counts. Throws InputError (lists of different length, an empty piece, invalid UTF-8, no unknown token, a
  /// score that is no number).
  Unigram(std::vector<std::string> pieces, std::vector<double> scores, int32_t unknown, bool byte_fallback);

  std::string_view type() const override { return "Unigram"; }
  const std::vector<std::string>& vocabulary() const override { return pieces_; }
  int32_t id_of(std::string_view token) const override;
  int32_t unknown() const override { return unknown_; }
  bool byte_fallback() const override { return byte_fallback_; }
  void encode(std::string_view word, std::vector<WordPart>& out) const override;
  void encode_ids(std::string_view word, std::vector<int32_t>& ids) const override;
  bool splits_between(uint32_t, std::string_view) const override { return false; }
  uint64_t fingerprint() const override;
  const std::vector<double>& scores() const { return scores_; }

 private:
  struct Lattice;
  /// The trie node behind one character, and the token that this character is on its own.
  struct First {
    int32_t node = NumberTrie::none;  ///< none where no piece has the character
    int32_t id = -1;                  ///< the unknown token if no piece is this character
    double score = 0;
  };
  const First& first_of(uint32_t code) const;
  uint32_t number_of(const First& first) const { return static_cast<uint32_t>(first.node - first_node_); }
  bool may_continue(uint32_t first, uint32_t second) const;
  void find_firsts(const std::unordered_map<uint32_t, uint32_t>& numbers);
  void find_pairs();
  static Lattice& thread_lattice();
  void read_characters(std::string_view word, Lattice& lattice) const;
  void find_path(std::string_view word, Lattice& lattice) const;
  void put_path(std::string_view word, const Lattice& lattice, std::vector<WordPart>& out) const;
  void put_unknown(std::string_view word, uint32_t begin, uint32_t end, std::vector<WordPart>& out) const;

  std::vector<std::string> pieces_;
  std::vector<double> scores_;
  int32_t unknown_;
  bool byte_fallback_;
  double unknown_score_ = 0;
  /// Pieces as the numbers of their characters. Every character of a piece has a node at the root.
  NumberTrie trie_;
  int32_t first_node_ = 0;                      ///< of the character 0 at the root, followed by all others
  First unknown_first_;                         ///< of characters that no piece has
  std::vector<First> first_;                    ///< of each character below U+10000
  std::unordered_map<uint32_t, First> higher_;  ///< of other characters of pieces
  std::vector<uint64_t> pairs_;          ///< a bit for each hash of two characters that a piece begins with
  std::array<int32_t, 256> byte_ids_{};  // all or none: -1 where a byte has no token
};

}  // namespace funicular::text
