#include "funicular/text/vocabulary_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/text/aligned_text.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/merge_trainer.h"
#include "funicular/text/nfc.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/piece_trainer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> characters;
  for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
    const char* const begin = at;
    next_code_point(at, end);
    characters.emplace_back(begin, at);
  }
  return characters;
}

std::map<std::string, uint64_t> random_words(std::mt19937& random, int count, const std::string& alphabet,
                                             int longest) {
  const std::vector<std::string> characters = characters_of(alphabet);
  std::map<std::string, uint64_t> words;
  for (int i = 0; i < count; ++i) {
    std::string word;
    for (int size = 1 + static_cast<int>(random() % static_cast<unsigned>(longest)); size > 0; --size)
      word += characters[std::min<size_t>(random() % characters.size(), random() % characters.size())];
    words[word] += 1 + random() % 1000;
  }
  return words;
}

WordCounts counted(const std::map<std::string, uint64_t>& words) {
  WordCounts counts;
  for (const auto& [word, times] : words) counts.add(word, times);
  return counts;
}

TEST(WordCounts, AreTheSameInAnyOrderAndForgetTheRarest) {
  std::mt19937 random(1);
  const std::map<std::string, uint64_t> words = random_words(random, 3000, "abcde", 6);
  WordCounts forwards = counted(words), backwards;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    WordCounts one;
    one.add(word->first, 1);
    backwards.add(one);
    backwards.add(word->first, word->second - 1);
  }
  EXPECT_EQ(forwards.sorted(), backwards.sorted());
  ASSERT_EQ(forwards.size(), words.size());
  std::vector<uint64_t> times;
  for (const CountedWord& word : forwards.sorted()) {
    EXPECT_EQ(words.at(std::string(word.text)), word.times);
    times.push_back(word.times);
  }
  std::sort(times.rbegin(), times.rend());
  EXPECT_EQ(forwards.keep_most_frequent(words.size()), 0u);
  EXPECT_EQ(forwards.keep_most_frequent(100), words.size() - 100);
  EXPECT_EQ(forwards.size(), 100u);
  for (const CountedWord& word : forwards.sorted()) EXPECT_GE(word.times, times[99]);
}

TEST(WordCounts, FillThePlacesWithTheSameEquallyRareWordsInAnyOrder) {
  std::vector<std::string> texts;
  for (int i = 0; i < 2001; ++i) texts.push_back("word" + std::to_string(i));
  WordCounts forwards, backwards;
  for (size_t i = 0; i < texts.size(); ++i) {
    forwards.add(texts[i]);
    backwards.add(texts[texts.size() - 1 - i]);
  }
  for (WordCounts* counts : {&forwards, &backwards}) counts->add("often", 2);
  for (const size_t most : {2001u, 50u, 1u}) {
    forwards.keep_most_frequent(most);
    backwards.keep_most_frequent(most);
    EXPECT_EQ(forwards.size(), most);
    EXPECT_EQ(forwards.sorted(), backwards.sorted());
  }
  EXPECT_EQ(forwards.sorted(), (std::vector<CountedWord>{{"often", 2}}));
}

// ---- words

/// The words of a text that is cut nowhere before the rules are applied.
std::map<std::string, uint64_t> words_at_once(const std::string& utf8, const TrainingRules& rules) {
  std::map<std::string, uint64_t> words;
  if (rules.kind == VocabularyKind::byte_bpe) {
    std::string text = compose(utf8);
    const size_t size = text.size();
    text.append(readable_behind, '\0');
    for (const char *at = text.data(), *const end = at + size; at < end;) {
      const char* const behind = end_of_piece(at, end);
      ++words[std::string(at, behind)];
      at = behind;
    }
  } else if (rules.kind == VocabularyKind::word_piece) {
    std::string word;
    for (const std::string& character :
         characters_of(normalize(utf8, NormalizerRules(rules.word_piece)) + " ")) {
      const char* at = character.data();
      const uint8_t flags = flags_of(next_code_point(at, at + character.size()));
      if ((flags & (unicode::white | unicode::punctuation)) == 0) {
        word += character;
        continue;
      }
      if (!word.empty()) ++words[std::exchange(word, "")];
      if ((flags & unicode::punctuation) != 0) ++words[character];
    }
  } else {
    AlignedText text{utf8, {}};
    apply_steps(rules.pieces.normalizer, text);
    for (const AlignedText& word : split_words(rules.pieces.splitter, text))
      for (const char *at = word.text.data(), *const end = at + word.text.size(); at < end;)
        ++words[std::string(next_part_of_one_kind(at, end))];
  }
  return words;
}

TEST(TrainingWords, AreThoseOfTextsThatAreCutNowhere) {
  const std::vector<std::string> parts = {" ",
                                          " ",
                                          "  ",
                                          "a",
                                          "B",
                                          "'s",
                                          "\t",
                                          "\v",
                                          "\r",
                                          "\xC2\xA0",
                                          "\xE3\x80\x80",
                                          "\xCC\x88",
                                          "A\xCC\x8A",
                                          "7",
                                          "\xE2\x91\xA0",
                                          ",",
                                          "\xE4\xB8\xAD",
                                          "\xE2\x80\x8B",
                                          "\xC2\xA8",
                                          "\xD8\x80",
                                          "\xE0\xA4\x95\xE0\xA4\xBF",
                                          "\xEF\xBC\xA1",
                                          "\xE2\x96\x81",
                                          "wordwordwordwordwordwordwordwordwordwordwordword"};
  for (const VocabularyKind kind :
       {VocabularyKind::word_piece, VocabularyKind::byte_bpe, VocabularyKind::unigram}) {
    const TrainingRules rules = training_rules({.kind = kind});
    TrainingWords words(rules);
    std::map<std::string, uint64_t> expected;
    std::mt19937 random(2);
    for (int i = 0; i < 20'000; ++i) {
      std::string text;
      for (int size = static_cast<int>(random() % 12); size > 0; --size)
        text += parts[random() % parts.size()];
      words.add(text);
      for (const auto& [word, times] : words_at_once(text, rules)) expected[word] += times;
    }
    const WordCounts counts = words.take();
    EXPECT_EQ(counts.sorted(), counted(expected).sorted()) << static_cast<int>(kind);
    EXPECT_EQ(words.take().size(), 0u);
  }
}

TEST(TrainingWords, OfPiecesHaveOneKindOfCharacters) {
  TrainingWords words(training_rules({.kind = VocabularyKind::unigram, .lowercase = false}));
  words.add("He said, 12th!? \xEF\xBC\xA1\xE0\xA4\x95\xE0\xA4\xBF");
  std::vector<std::string> found;
  const WordCounts counts = words.take();
  for (const CountedWord& word : counts.sorted()) found.emplace_back(word.text);
  EXPECT_EQ(found, (std::vector<std::string>{"!?", ",", "th",
                                             "\xE2\x96\x81"
                                             "12",
                                             "\xE2\x96\x81"
                                             "A\xE0\xA4\x95\xE0\xA4\xBF",
                                             "\xE2\x96\x81He", "\xE2\x96\x81said"}));
}

// ---- merges

/// An entry of the queue of `tokenizers`: a pair that waits to be merged in some words.
struct ObviousEntry {
  int64_t times;
  std::pair<int32_t, int32_t> pair;
  std::set<size_t> words;
};

/// BpeTrainer of `tokenizers`, with a list in place of the heap.
TrainedMerges obvious_merges(std::vector<std::string> tokens, std::vector<std::vector<int32_t>> words,
                             const std::vector<uint64_t>& times, const MergeTrainingOptions& options) {
  TrainedMerges result{std::move(tokens), {}};
  std::map<std::pair<int32_t, int32_t>, int64_t> counts;
  std::map<std::pair<int32_t, int32_t>, std::set<size_t>> met;
  std::vector<ObviousEntry> queue;
  const auto change = [&](int32_t left, int32_t right, size_t word, int sign) {
    counts[{left, right}] += sign * static_cast<int64_t>(times[word]);
    if (sign > 0) met[{left, right}].insert(word);
  };
  const auto queue_met = [&] {
    for (const auto& [pair, where] : met)
      if (counts[pair] > 0) queue.push_back({counts[pair], pair, where});
    met.clear();
  };
  for (size_t word = 0; word < words.size(); ++word)
    for (size_t i = 1; i < words[word].size(); ++i) change(words[word][i - 1], words[word][i], word, 1);
  queue_met();
  while (result.tokens.size() < options.size && !queue.empty()) {
    const auto top = std::max_element(queue.begin(), queue.end(), [](const auto& a, const auto& b) {
      return a.times != b.times ? a.times < b.times : a.pair > b.pair;
    });
    if (top->times != counts[top->pair]) {
      top->times = counts[top->pair];
      continue;
    }
    if (top->times < 1 || top->times < static_cast<int64_t>(options.min_frequency)) break;
    const ObviousEntry entry = *top;
    queue.erase(top);
    std::string rest = result.tokens[static_cast<size_t>(entry.pair.second)];
    if (rest.starts_with(options.continuing_prefix)) rest = rest.substr(options.continuing_prefix.size());
    const std::string made = result.tokens[static_cast<size_t>(entry.pair.first)] + rest;
    const auto found = std::find(result.tokens.begin(), result.tokens.end(), made);
    const auto id = static_cast<int32_t>(found - result.tokens.begin());
    if (found == result.tokens.end()) result.tokens.push_back(made);
    result.merges.push_back({entry.pair.first, entry.pair.second, id});
    for (const size_t index : entry.words) {
      std::vector<int32_t>& word = words[index];
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (std::pair(word[i], word[i + 1]) != entry.pair) continue;
        if (i > 0) change(word[i - 1], word[i], index, -1), change(word[i - 1], id, index, +1);
        if (i + 2 < word.size())
          change(word[i + 1], word[i + 2], index, -1), change(id, word[i + 2], index, +1);
        word[i] = id;
        word.erase(word.begin() + static_cast<ptrdiff_t>(i) + 1);
      }
    }
    queue_met();
  }
  return result;
}

TEST(MergeTrainer, EqualsTheObviousImplementation) {
  std::mt19937 random(3);
  for (int round = 0; round < 120; ++round) {
    const std::string prefix = round % 2 ? "##" : "";
    std::vector<std::string> tokens{"a", "b", "c"};
    if (round % 4 == 0) tokens.push_back("ab");  // a token that a merge makes, but need not
    if (round % 2) tokens.insert(tokens.end(), {"##a", "##b", "##c"});
    SpelledWords words;
    std::vector<std::vector<int32_t>> lists;
    const int most = 1 + static_cast<int>(random() % 150);
    for (const auto& [word, times] : random_words(random, most, "abc", 20)) {
      std::vector<int32_t> ids;
      for (const char letter : word) ids.push_back(letter - 'a' + (round % 2 && !ids.empty() ? 3 : 0));
      lists.push_back(ids);
      words.add(ids, round % 3 ? times : 1 + times % 3);  // few values: many equal counts
    }
    MergeTrainingOptions options;
    options.size = tokens.size() + random() % 500;
    options.min_frequency = random() % 4;
    options.continuing_prefix = prefix;
    const TrainedMerges expected = obvious_merges(tokens, lists, words.times, options);
    const TrainedMerges found = train_merges(tokens, words, options);
    ASSERT_EQ(found.tokens, expected.tokens) << round;
    ASSERT_EQ(found.merges, expected.merges) << round;
  }
}

// ---- pieces

using Scores = std::map<std::string, double>;

std::vector<std::string> substrings_at(const std::vector<std::string>& characters, size_t begin) {
  std::vector<std::string> result;
  std::string text;
  for (size_t i = begin; i < characters.size(); ++i) result.push_back(text += characters[i]);
  return result;
}

Scores obvious_seeds(const std::map<std::string, uint64_t>& words, size_t longest, size_t most) {
  Scores scores;
  std::map<std::string, std::multiset<std::string>>
      next;  // what follows each place of a text; "" at the end of a word
  for (const auto& [word, times] : words) {
    const std::vector<std::string> characters = characters_of(word);
    for (size_t begin = 0; begin < characters.size(); ++begin) {
      scores[characters[begin]] += static_cast<double>(times);
      const std::vector<std::string> texts = substrings_at(characters, begin);
      for (size_t size = 2; size <= texts.size() && size <= longest; ++size)
        next[texts[size - 1]].insert(begin + size < characters.size() ? characters[begin + size] : "");
    }
  }
  std::vector<std::pair<double, std::string>> texts;
  for (const auto& [text, behind] : next) {
    const bool branches = behind.size() > 1 && (behind.count("") > 0 || *behind.begin() != *behind.rbegin());
    if (branches) texts.emplace_back(static_cast<double>(behind.size() * characters_of(text).size()), text);
  }
  std::sort(texts.rbegin(), texts.rend());
  texts.resize(std::min(texts.size(), most - std::min(most, scores.size())));
  for (const auto& [score, text] : texts) scores[text] = score;
  double sum = 0;
  for (const auto& [text, score] : scores) sum += score;
  for (auto& [text, score] : scores) score = std::log(score / sum);
  return scores;
}

/// The pieces that may begin at a character, and the unknown one where none is that character alone.
std::vector<std::pair<std::string, double>> pieces_at(const Scores& scores,
                                                      const std::vector<std::string>& characters,
                                                      size_t begin) {
  double least = 0;
  for (const auto& [text, score] : scores) least = std::min(least, score);
  std::vector<std::pair<std::string, double>> result;
  if (!scores.contains(characters[begin])) result.emplace_back("", least - 10);
  for (const std::string& text : substrings_at(characters, begin))
    if (const auto found = scores.find(text); found != scores.end()) result.push_back(*found);
  return result;
}

size_t length_of(const std::string& piece) {
  return piece.empty() ? 1 : characters_of(piece).size();
}

/// Every path through a word, with its score: the model by its definition.
void for_each_path(const Scores& scores, const std::vector<std::string>& characters, size_t begin,
                   double score, std::vector<std::string>& path,
                   const std::function<void(const std::vector<std::string>&, double)>& found) {
  if (begin == characters.size()) return found(path, score);
  for (const auto& [piece, own] : pieces_at(scores, characters, begin)) {
    path.push_back(piece);
    for_each_path(scores, characters, begin + length_of(piece), score + own, path, found);
    path.pop_back();
  }
}

double obvious_digamma(double x) {
  const double h =
      1e-5 * std::max(1.0, x);  // the definition: the derivative of the logarithm of the gamma function
  return static_cast<double>(
      (std::lgamma(static_cast<long double>(x + h)) - std::lgamma(static_cast<long double>(x - h))) /
      (2 * static_cast<long double>(h)));
}

Scores obvious_step(const Scores& scores, const std::map<std::string, uint64_t>& words) {
  std::map<std::string, double> expected;
  for (const auto& [word, times] : words) {
    double all = 0;
    std::map<std::string, double> own;
    std::vector<std::string> path;
    for_each_path(scores, characters_of(word), 0, 0, path,
                  [&](const std::vector<std::string>& pieces, double score) {
                    all += std::exp(score);
                    for (const std::string& piece : pieces) own[piece] += std::exp(score);
                  });
    for (const auto& [piece, sum] : own) expected[piece] += static_cast<double>(times) * sum / all;
  }
  expected.erase("");
  double sum = 0;
  std::erase_if(expected, [](const auto& piece) { return piece.second < 0.5; });
  for (const auto& [piece, count] : expected) sum += count;
  for (auto& [piece, count] : expected) count = obvious_digamma(count) - obvious_digamma(sum);
  return expected;
}

std::vector<std::string> obvious_best(const Scores& scores, const std::string& word,
                                      const std::string& without, double& score) {
  std::vector<std::string> best, path;
  score = -std::numeric_limits<double>::infinity();
  for_each_path(scores, characters_of(word), 0, 0, path,
                [&](const std::vector<std::string>& pieces, double sum) {
                  if (pieces.size() == 1 && pieces[0] == without) return;
                  if (sum > score + 1e-12) score = sum, best = pieces;
                });
  return best;
}

Scores obvious_pruning(const Scores& scores, const std::map<std::string, uint64_t>& words, size_t wanted) {
  std::map<std::string, double> times;
  double sum = 0, all = 0, score = 0;
  for (const auto& [word, count] : words) {
    all += static_cast<double>(count);
    for (const std::string& piece : obvious_best(scores, word, "-", score))
      if (!piece.empty()) times[piece] += static_cast<double>(count), sum += static_cast<double>(count);
  }
  Scores kept;
  std::vector<std::pair<double, std::string>> losses;
  for (const auto& [piece, own] : scores) {
    if (characters_of(piece).size() == 1) {
      kept[piece] = own;
      continue;
    }
    const std::vector<std::string> others = obvious_best(scores, piece, piece, score);
    if (times[piece] == 0) continue;
    if (score > own) {
      kept[piece] = own;
      continue;
    }
    double loss = std::log(times[piece] / sum);
    for (const std::string& other : others)
      loss -= std::log(((other.empty() ? 0 : times[other]) + times[piece]) /
                       (sum + times[piece] * static_cast<double>(others.size() - 1)));
    losses.emplace_back(times[piece] / all * loss, piece);
  }
  std::sort(losses.rbegin(), losses.rend());
  for (const auto& [loss, piece] : losses)
    if (kept.size() < wanted) kept[piece] = scores.at(piece);
  return kept;
}

Scores obvious_pieces(const std::map<std::string, uint64_t>& words, const PieceTrainingOptions& options,
                      size_t& prunings) {
  Scores scores = obvious_seeds(words, options.longest, options.seeds);
  std::map<std::string, double> frequency;
  for (const auto& [word, times] : words)
    for (const std::string& character : characters_of(word))
      frequency[character] += static_cast<double>(times);
  const auto wanted = static_cast<size_t>(static_cast<double>(options.size) * 1.1);
  for (;;) {
    scores = obvious_step(obvious_step(scores, words), words);
    if (scores.size() <= wanted) break;
    ++prunings;
    scores = obvious_pruning(
        scores, words, std::max(wanted, static_cast<size_t>(0.75 * static_cast<double>(scores.size()))));
  }
  double least = 0;
  for (const auto& [piece, score] : scores) least = std::min(least, score);
  Scores result;
  std::vector<std::pair<double, std::string>> order, others;
  for (const auto& [character, times] : frequency) order.emplace_back(times, character);
  std::sort(order.rbegin(), order.rend());
  double penalty = 0;
  for (const auto& [times, character] : order) {
    const auto found = scores.find(character);
    result[character] = found == scores.end() ? least + penalty : found->second;
    if (found == scores.end()) penalty += 0.0001;
  }
  for (const auto& [piece, score] : scores)
    if (!result.contains(piece)) others.emplace_back(-score, piece);
  std::sort(others.begin(), others.end());
  for (const auto& [score, piece] : others)
    if (result.size() < options.size) result[piece] = -score;
  return result;
}

TEST(PieceTrainer, EqualsTheObviousImplementation) {
  std::mt19937 random(4);
  size_t missing = 0, prunings = 0;
  for (int round = 0; round < 30; ++round) {
    const std::map<std::string, uint64_t> words =
        random_words(random, 100, round % 2 ? "abc\xC3\xA4\xC3\xB6\xE4\xB8\xAD" : "abcd", 8);
    const WordCounts counts = counted(words);
    PieceTrainingOptions options;
    options.size = 7 + random() % 20;
    options.longest = round % 3 ? 16 : 3;
    options.seeds = round % 5 ? 1'000'000 : 40;
    Scores seeds;
    for (const TrainedPiece& piece : seed_pieces(counts.sorted(), options))
      EXPECT_TRUE(seeds.emplace(piece.text, piece.score).second);
    const Scores expected_seeds = obvious_seeds(words, options.longest, options.seeds);
    ASSERT_EQ(seeds.size(), expected_seeds.size());
    for (const auto& [text, score] : expected_seeds) ASSERT_NEAR(seeds.at(text), score, 1e-12) << text;

    const std::vector<TrainedPiece> pieces = train_pieces(counts.sorted(), options);
    const Scores expected = obvious_pieces(words, options, prunings);
    ASSERT_EQ(pieces.size(), expected.size()) << round;
    for (const TrainedPiece& piece : pieces) {
      ASSERT_TRUE(expected.contains(piece.text)) << round << " " << piece.text;
      EXPECT_NEAR(piece.score, expected.at(piece.text), 1e-5) << round << " " << piece.text;
    }
    for (size_t i = 1; i < pieces.size(); ++i) EXPECT_GE(pieces[i - 1].score, pieces[i].score);
    missing += pieces.size() < options.size;

    options.threads = 3;
    const std::vector<TrainedPiece> again = train_pieces(counts.sorted(), options);
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(again[i].text, pieces[i].text);
      EXPECT_EQ(again[i].score, pieces[i].score);
    }
  }
  EXPECT_GT(prunings, 20u);
  EXPECT_LT(missing, 30u);
}

// The probability of the long word is far below the least double. Its characters are the only pieces, so that it has one path.
TEST(PieceTrainer, ReadsWordsOfAnyLength) {
  std::map<std::string, uint64_t> words{{"ab", 1'000'000'000'000}};
  std::string longest;
  for (int i = 0; i < 6000; ++i) longest += i % 3 ? "c" : "d";
  words[longest] = 1;
  const WordCounts counts = counted(words);
  Scores scores;
  for (const TrainedPiece& piece : train_pieces(counts.sorted(), {.size = 30, .longest = 1}))
    scores[piece.text] = piece.score;
  EXPECT_NEAR(scores.at("c") - scores.at("d"), obvious_digamma(4000) - obvious_digamma(2000), 1e-6);
}

// ---- whole tokenisers

std::string refusal(const WordCounts& words, const VocabularyOptions& options) {
  try {
    train_vocabulary(words, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

std::unique_ptr<Tokenizer> trained(const VocabularyOptions& options, const std::vector<std::string>& texts) {
  TrainingWords words(training_rules(options));
  for (const std::string& text : texts) words.add(text);
  return train_vocabulary(words.take(), options);
}

TEST(VocabularyTrainer, GivesEachKindItsTokensInOrder) {
  const std::vector<std::string> texts{"low lower lowest low", "newer wider new low"};
  using List = std::vector<std::string>;
  const auto first = [](const Tokenizer& tokenizer, size_t begin, size_t count) {
    const List& all = tokenizer.vocabulary();
    return List(all.begin() + static_cast<ptrdiff_t>(begin),
                all.begin() + static_cast<ptrdiff_t>(begin + count));
  };
  const auto word_piece =
      trained({.kind = VocabularyKind::word_piece, .size = 40, .special_tokens = {"[X]"}}, texts);
  EXPECT_EQ(first(*word_piece, 0, 8), (List{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[X]", "d", "e"}));
  EXPECT_EQ(word_piece->tokenize("low [MASK] Lower").ids,
            (std::vector<int32_t>{word_piece->id_of("low"), 4, word_piece->id_of("low"),
                                  word_piece->id_of("##er")}));
  const auto bytes = trained({.kind = VocabularyKind::byte_bpe, .size = 265}, texts);
  EXPECT_EQ(first(*bytes, 0, 6), (List{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "!"}));
  EXPECT_EQ(first(*bytes, 261, 4), (List{"lo", "low", "\xC4\xA0low", "er"}));
  EXPECT_EQ(bytes->tokenize("low [MASK]").ids,
            (std::vector<int32_t>{bytes->id_of("low"), 4}));  // without the blank
  const auto bpe = trained({.kind = VocabularyKind::bpe, .size = 300, .lowercase = false}, texts);
  EXPECT_EQ(first(*bpe, 0, 6), (List{"<s>", "<pad>", "</s>", "<unk>", "<mask>", "<0x00>"}));
  EXPECT_EQ(bpe->tokenize("low").ids, std::vector<int32_t>{bpe->id_of("\xE2\x96\x81low")});
  EXPECT_EQ(bpe->tokenize("\xC3\xA9").ids,
            (std::vector<int32_t>{bpe->id_of("\xE2\x96\x81"), 5 + 0xC3, 5 + 0xA9}));
  const auto unigram = trained({.kind = VocabularyKind::unigram, .size = 19, .lowercase = false}, texts);
  EXPECT_EQ(first(*unigram, 0, 5), (List{"<s>", "<pad>", "</s>", "<unk>", "<mask>"}));
  EXPECT_EQ(unigram->tokenize("low").ids, std::vector<int32_t>{unigram->id_of("\xE2\x96\x81low")});
  EXPECT_EQ(unigram->size(), 19);
}

TEST(VocabularyTrainer, KeepsTheMostFrequentCharacters) {
  const std::vector<std::string> texts{"aaaa bbb cc d", "axa"};
  for (const VocabularyKind kind :
       {VocabularyKind::word_piece, VocabularyKind::bpe, VocabularyKind::unigram}) {
    const int64_t limit =
        kind == VocabularyKind::word_piece ? 3 : 4;  // the others have the mark of a blank, too
    const auto tokenizer = trained({.kind = kind, .size = 300, .limit_alphabet = limit}, texts);
    for (const char* kept : {"a", "b", "c"}) EXPECT_GE(tokenizer->id_of(kept), 0) << kept;
    for (const char* left_out : {"d", "x"}) EXPECT_LT(tokenizer->id_of(left_out), 0) << left_out;
  }
}

TEST(VocabularyTrainer, KeepsTheMarkOfAWordWhateverTheLimit) {
  for (const VocabularyKind kind : {VocabularyKind::bpe, VocabularyKind::unigram}) {
    const auto tokenizer = trained({.kind = kind, .size = 300, .limit_alphabet = 2}, {"aaaabbbcc aab"});
    EXPECT_GE(tokenizer->id_of("\xE2\x96\x81"), 0);
    EXPECT_GE(tokenizer->id_of("a"), 0);
    EXPECT_LT(tokenizer->id_of("b"), 0);
  }
}

TEST(VocabularyTrainer, RefusesWhatCannotBe) {
  const WordCounts words = counted({{"abc", 3}, {"xyz", 2}});
  EXPECT_NE(refusal({}, {}).find("the text has no words"), std::string::npos);
  EXPECT_NE(refusal(words, {.size = 14})
                .find("5 special tokens and 10 characters are tokens each; expected at least 15"),
            std::string::npos);
  EXPECT_EQ(refusal(words, {.size = 15}), "nothing");
  EXPECT_NE(refusal(words, {.kind = VocabularyKind::byte_bpe, .size = 260})
                .find("256 bytes are tokens each; expected at least 261"),
            std::string::npos);
  EXPECT_NE(
      refusal(words, {.kind = VocabularyKind::unigram, .size = 10}).find("5 special tokens and 6 characters"),
      std::string::npos);
  EXPECT_EQ(refusal(words, {.kind = VocabularyKind::unigram, .size = 11}), "nothing");
  EXPECT_NE(refusal(words, {.special_tokens = {"[SEP]"}}).find("\"[SEP]\" is there already"),
            std::string::npos);
  for (const char* token : {"a\nb", "\r", "a\xC2\x85", "\xE2\x80\xA8"})
    EXPECT_NE(
        refusal(words, {.special_tokens = {"[X]", token}}).find("special token 2 has a control character"),
        std::string::npos);
  EXPECT_NE(refusal(words, {.special_tokens = {""}}).find("special token 1 is empty"), std::string::npos);
}

}  // namespace
}  // namespace funicular::text
