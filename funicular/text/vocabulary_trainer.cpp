#include "funicular/text/vocabulary_trainer.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/character_bpe.h"
#include "funicular/text/merge_trainer.h"
#include "funicular/text/piece_trainer.h"
#include "funicular/text/unigram.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

constexpr const char* kContinuing = "##";
constexpr uint32_t kMark = 0x2581;  ///< kBlankMark

/// The special tokens of a kind by their roles, and their order.
struct SpecialNames {
  const char *pad, *unknown, *cls, *sep, *mask;
  std::array<const char*, 5> order;
};

const SpecialNames& names_of(VocabularyKind kind) {
  static constexpr SpecialNames bert{"[PAD]", "[UNK]",  "[CLS]",
                                     "[SEP]", "[MASK]", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}};
  static constexpr SpecialNames roberta{"<pad>", "<unk>",  "<s>",
                                        "</s>",  "<mask>", {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}};
  return kind == VocabularyKind::word_piece || kind == VocabularyKind::byte_bpe ? bert : roberta;
}

/// Control characters, and the separators at which some readers end a line.
bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
}

std::string character(uint32_t code) {
  std::string text;
  append_code_point(code, text);
  return text;
}

/// The characters of the words, the most frequent first. Equally frequent characters come in the order of their codes.
std::vector<uint32_t> characters_by_frequency(const std::vector<CountedWord>& words) {
  std::map<uint32_t, uint64_t> times;
  for (const CountedWord& word : words)
    for (const char *at = word.text.data(), *const end = at + word.text.size(); at < end;)
      times[next_valid_code_point(at, end)] += word.times;
  std::vector<std::pair<uint32_t, uint64_t>> by_times(times.begin(), times.end());
  std::stable_sort(by_times.begin(), by_times.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<uint32_t> characters;
  for (const auto& [code, count] : by_times) characters.push_back(code);
  return characters;
}

std::set<uint32_t> first_of(const std::vector<uint32_t>& characters, int64_t limit) {
  const auto count = std::min(static_cast<int64_t>(characters.size()), limit);
  return {characters.begin(), characters.begin() + count};
}

/// The words cut at characters that get no token: no piece crosses them.
WordCounts parts_in(const std::set<uint32_t>& alphabet, const std::vector<CountedWord>& words) {
  WordCounts parts;
  for (const CountedWord& word : words) {
    const char *at = word.text.data(), *const end = at + word.text.size(), *begin = at;
    const auto end_part = [&](const char* behind) {
      if (begin < behind) parts.add({begin, static_cast<size_t>(behind - begin)}, word.times);
    };
    while (at < end) {
      const char* const here = at;
      if (alphabet.contains(next_valid_code_point(at, end))) continue;
      end_part(here);
      begin = at;
    }
    end_part(end);
  }
  return parts;
}

class VocabularyTrainer {
 public:
  VocabularyTrainer(const WordCounts& counts, const VocabularyOptions& options)
      : options_(options),
        rules_(training_rules(options)),
        tokens_(special_tokens(options)),
        words_(counts.sorted()) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      ids_.emplace(tokens_[i], static_cast<int32_t>(i));
      const bool strips =
          tokens_[i] == names_of(options.kind).mask && options.kind != VocabularyKind::word_piece;
      added_.push_back({.id = static_cast<int32_t>(i), .content = tokens_[i], .lstrip = strips});
    }
    specials_ = tokens_.size();
  }

  std::unique_ptr<Tokenizer> train() {
    switch (options_.kind) {
      case VocabularyKind::word_piece:
        return train_word_piece();
      case VocabularyKind::byte_bpe:
        return train_byte_bpe();
      case VocabularyKind::bpe:
        return train_bpe();
      case VocabularyKind::unigram:
        return train_unigram();
    }
    throw RunError(kTokenizerComponent, "no such kind of vocabulary");
  }

 private:
  int32_t add_token(std::string text) {
    const auto [found, is_new] = ids_.try_emplace(text, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(std::move(text));
    return found->second;
  }

  /// Throws InputError if the special tokens and `first` more are more than wanted.
  void require_size(size_t first, const char* what) const {
    const size_t needed = specials_ + first;
    if (static_cast<int64_t>(needed) <= options_.size) return;
    throw InputError(kTokenizerComponent,
                     "a vocabulary of {} tokens is too small: {} special tokens and {} {} are tokens each; "
                     "expected at least {}{}",
                     options_.size, specials_, first, what, needed,
                     options_.kind == VocabularyKind::byte_bpe ? "" : ", or a smaller --limit-alphabet");
  }

  TrainedMerges merges(SpelledWords words, const char* prefix = "") {
    MergeTrainingOptions options;
    options.size = static_cast<size_t>(options_.size);
    options.min_frequency = static_cast<uint64_t>(options_.min_frequency);
    options.continuing_prefix = prefix;
    return train_merges(tokens_, std::move(words), options);
  }

  /// Words by the tokens of their characters. Characters without a token are left out, as in `tokenizers`.
  template <class Token>
  SpelledWords spelled(const std::vector<CountedWord>& words, Token token) const {
    SpelledWords result;
    std::vector<int32_t> ids;
    for (const CountedWord& word : words) {
      ids.clear();
      for (const char *begin = word.text.data(), *at = begin, *const end = at + word.text.size(); at < end;) {
        const bool first = at == begin;
        if (const int32_t id = token(next_valid_code_point(at, end), first); id >= 0) ids.push_back(id);
      }
      result.add(ids, word.times);
    }
    return result;
  }

  std::unique_ptr<Tokenizer> train_word_piece() {
    const std::set<uint32_t> alphabet = first_of(characters_by_frequency(words_), options_.limit_alphabet);
    std::set<uint32_t> within;
    std::unordered_map<uint32_t, int32_t> first_ids, later_ids;
    for (const CountedWord& word : words_)
      for (const char *begin = word.text.data(), *at = begin, *const end = at + word.text.size(); at < end;) {
        const bool first = at == begin;
        if (const uint32_t code = next_valid_code_point(at, end); !first && alphabet.contains(code))
          within.insert(code);
      }
    for (const uint32_t code : alphabet) first_ids[code] = add_token(character(code));
    for (const uint32_t code : within) later_ids[code] = add_token(kContinuing + character(code));
    require_size(tokens_.size() - specials_, "characters");
    TrainedMerges trained = merges(spelled(words_,
                                           [&](uint32_t code, bool first) {
                                             const auto& ids = first ? first_ids : later_ids;
                                             const auto found = ids.find(code);
                                             return found == ids.end() ? -1 : found->second;
                                           }),
                                   kContinuing);
    return std::make_unique<WordPiece>(std::move(trained.tokens), rules_.word_piece, std::move(added_));
  }

  std::unique_ptr<Tokenizer> train_byte_bpe() {
    std::vector<std::pair<uint32_t, int>> bytes;  // by the codes of their characters
    for (int byte = 0; byte < 256; ++byte)
      bytes.emplace_back(byte_character(static_cast<uint8_t>(byte)), byte);
    std::sort(bytes.begin(), bytes.end());
    std::array<int32_t, 256> ids{};
    for (const auto& [code, byte] : bytes) ids[static_cast<size_t>(byte)] = add_token(character(code));
    require_size(tokens_.size() - specials_, "bytes");
    SpelledWords spelled;
    std::vector<int32_t> word_ids;
    for (const CountedWord& word : words_) {
      word_ids.clear();
      for (const char byte : word.text) word_ids.push_back(ids[static_cast<uint8_t>(byte)]);
      spelled.add(word_ids, word.times);
    }
    TrainedMerges trained = merges(std::move(spelled));
    const SpecialNames& names = names_of(options_.kind);
    ByteBpeOptions options;
    options.compose = rules_.compose;
    options.reads_types = false;
    options.pad_token = names.pad, options.unknown_token = names.unknown, options.mask_token = names.mask;
    options.cls_token = names.cls, options.sep_token = names.sep;
    return std::make_unique<ByteBpe>(
        std::move(trained.tokens), std::move(trained.merges), std::move(options), std::move(added_),
        SequenceTemplate::bert(names.cls, ids_.at(names.cls), names.sep, ids_.at(names.sep)));
  }

  /// Cuts the words at the characters that get no token. Returns the characters that get a token. The mark of
  /// a word's beginning always gets one, because every word begins with it.
  std::set<uint32_t> limit_characters() {
    std::vector<uint32_t> characters = characters_by_frequency(words_);
    const int64_t limit = std::max<int64_t>(options_.limit_alphabet, 1);
    if (static_cast<int64_t>(characters.size()) <= limit) return {characters.begin(), characters.end()};
    const auto mark = std::find(characters.begin(), characters.end(), kMark);
    if (mark != characters.end() && mark - characters.begin() >= limit)
      std::swap(*mark, characters[static_cast<size_t>(limit) - 1]);
    std::set<uint32_t> alphabet = first_of(characters, limit);
    parts_ = parts_in(alphabet, words_);
    words_ = parts_.sorted();
    return alphabet;
  }

  std::unique_ptr<Tokenizer> train_bpe() {
    for (int byte = 0; byte < 256; ++byte) add_token(byte_token(static_cast<uint8_t>(byte)));
    for (const uint32_t code : limit_characters()) add_token(character(code));
    require_size(tokens_.size() - specials_, "bytes and characters");
    TrainedMerges trained =
        merges(spelled(words_, [&](uint32_t code, bool) { return ids_.at(character(code)); }));
    CharacterBpeOptions options;
    options.unknown_token = names_of(options_.kind).unknown;
    options.fuse_unknown = options.byte_fallback = true;
    return with_pieces(
        std::make_unique<CharacterBpe>(std::move(trained.tokens), std::move(trained.merges), options));
  }

  std::unique_ptr<Tokenizer> train_unigram() {
    require_size(limit_characters().size(), "characters");
    PieceTrainingOptions options;
    options.size = static_cast<size_t>(options_.size) - specials_;
    options.threads = options_.threads;
    std::vector<double> scores(specials_, 0.0);
    for (const TrainedPiece& piece : train_pieces(words_, options)) {
      if (ids_.contains(piece.text)) continue;  // a special token
      tokens_.push_back(piece.text);
      scores.push_back(piece.score);
    }
    const int32_t unknown = ids_.at(names_of(options_.kind).unknown);
    return with_pieces(
        std::make_unique<Unigram>(tokens_, std::move(scores), unknown, /*byte_fallback=*/false));
  }

  /// XLM-R's sequences: two separators between the texts of a pair, no token types.
  std::unique_ptr<Tokenizer> with_pieces(std::unique_ptr<const PieceModel> model) {
    using Step = SequenceTemplate::Step;
    const SpecialNames& names = names_of(options_.kind);
    const Step cls = Step::special(ids_.at(names.cls), 0), sep = Step::special(ids_.at(names.sep), 0),
               first = Step::text(0, 0), second = Step::text(1, 0);
    return std::make_unique<PieceTokenizer>(
        std::move(model), rules_.pieces, std::move(added_),
        SequenceTemplate({cls, first, sep}, {cls, first, sep, sep, second, sep}));
  }

  const VocabularyOptions& options_;
  TrainingRules rules_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<AddedToken> added_;
  size_t specials_ = 0;
  std::vector<CountedWord> words_;  // views into the counts, or into parts_
  WordCounts parts_;
};

}  // namespace

TrainingRules training_rules(const VocabularyOptions& options) {
  TrainingRules rules{.kind = options.kind};
  rules.word_piece.lowercase = options.lowercase;
  rules.pieces.normalizer = {{.kind = NormalizerStep::nmt}, {.kind = NormalizerStep::nfkc}};
  if (options.lowercase) rules.pieces.normalizer.push_back({.kind = NormalizerStep::lowercase});
  rules.pieces.splitter = {{.kind = SplitterStep::white_space}, {.kind = SplitterStep::metaspace}};
  return rules;
}

std::vector<std::string> special_tokens(const VocabularyOptions& options) {
  const SpecialNames& names = names_of(options.kind);
  std::vector<std::string> tokens(names.order.begin(), names.order.end());
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || !is_valid_utf8(token))
      throw InputError(kTokenizerComponent, "special token {} is empty or not valid UTF-8",
                       tokens.size() - names.order.size() + 1);
    for (const char *at = token.data(), *const end = at + token.size(); at < end;)
      if (is_control(next_valid_code_point(at, end)))
        throw InputError(kTokenizerComponent,
                         "special token {} has a control character; expected one line of text, as vocab.txt "
                         "holds a token per line",
                         tokens.size() - names.order.size() + 1);
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end())
      throw InputError(kTokenizerComponent, "the special token \"{}\" is there already; leave it out", token);
    tokens.push_back(token);
  }
  return tokens;
}

std::unique_ptr<Tokenizer> train_vocabulary(const WordCounts& words, const VocabularyOptions& options) {
  if (words.size() == 0)
    throw InputError(kTokenizerComponent, "the text has no words; expected text to train a vocabulary on");
  return VocabularyTrainer(words, options).train();
}

}  // namespace funicular::text
