#include "funicular/objective/tags.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/tag_metrics.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective {
namespace {

using TagNames = std::vector<std::string_view>;
using FoundEntities = std::vector<std::tuple<int64_t, int64_t, std::string>>;

FoundEntities entities(const TagNames& tags) {
  FoundEntities found;
  for (const Entity& entity : entities_of(tags))
    found.emplace_back(entity.begin, entity.end, std::string(entity.type));
  return found;
}

TEST(Entities, OfIob2) {
  EXPECT_EQ(entities({"B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC"}),
            (FoundEntities{{0, 2, "PER"}, {3, 4, "LOC"}, {4, 6, "LOC"}}));
  EXPECT_EQ(entities({}), FoundEntities());
  EXPECT_EQ(entities({"O", "O"}), FoundEntities());
}

/// conlleval reads what a model gives against the rules: an I after nothing or after another type begins an entity.
TEST(Entities, OfTagsAgainstTheRules) {
  EXPECT_EQ(entities({"O", "I-PER", "I-LOC", "I-LOC"}), (FoundEntities{{1, 2, "PER"}, {2, 4, "LOC"}}));
  EXPECT_EQ(entities({"B-PER", "I-LOC"}), (FoundEntities{{0, 1, "PER"}, {1, 2, "LOC"}}));
  EXPECT_EQ(entities({"O", "I", "I", "O", "E"}), (FoundEntities{{1, 3, "_"}, {4, 5, "_"}}));
}

TEST(Entities, OfIobesAndBilou) {
  const FoundEntities expected{{0, 3, "PER"}, {3, 4, "LOC"}, {4, 5, "LOC"}, {6, 8, "ORG"}};
  EXPECT_EQ(entities({"B-PER", "I-PER", "E-PER", "S-LOC", "S-LOC", "O", "B-ORG", "E-ORG"}), expected);
  EXPECT_EQ(entities({"B-PER", "I-PER", "L-PER", "U-LOC", "U-LOC", "O", "B-ORG", "L-ORG"}), expected);
}

/// Of IOB1 only an entity right behind another one of its type begins with B.
TEST(Entities, OfIob1) {
  EXPECT_EQ(entities({"I-PER", "I-PER", "B-PER", "O", "I-LOC"}),
            (FoundEntities{{0, 2, "PER"}, {2, 3, "PER"}, {4, 5, "LOC"}}));
}

/// Valid IOB2, written from random entities: they come back.
TEST(Entities, OfRandomIob2AreThoseThatWereWritten) {
  std::mt19937 random(7);
  const std::vector<std::string> types{"A", "B", "C-D"};
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<std::string> tags;
    FoundEntities expected;
    while (tags.size() < 30) {
      if (random() % 2 == 0) {
        tags.emplace_back("O");
        continue;
      }
      const std::string& type = types[random() % 3];
      const auto begin = static_cast<int64_t>(tags.size());
      tags.push_back("B-" + type);
      while (random() % 3 == 0) tags.push_back("I-" + type);
      expected.emplace_back(begin, static_cast<int64_t>(tags.size()), type);
    }
    EXPECT_EQ(entities(TagNames(tags.begin(), tags.end())), expected);
  }
}

/// FNV-1a of the entities of all sequences of `length` tags, in the order of the names.
uint64_t hash_of_all(const TagNames& names, size_t length, TagScheme scheme) {
  uint64_t hash = 14695981039346656037u;
  std::vector<size_t> digits(length, 0);
  while (true) {
    TagNames tags;
    for (const size_t digit : digits) tags.push_back(names[digit]);
    std::string text;
    for (const Entity& entity : entities_of(tags, scheme))
      text += std::string(entity.type) + " " + std::to_string(entity.begin) + " " +
              std::to_string(entity.end) + ";";
    for (const char c : text + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    size_t at = length;
    while (at > 0 && ++digits[at - 1] == names.size()) digits[--at] = 0;
    if (at == 0) return hash;
  }
}

/// The numbers are those of seqeval 1.2.2: get_entities of each sequence, for the last one with suffix=True.
TEST(Entities, OfEverySequenceAreThoseOfSeqeval) {
  EXPECT_EQ(hash_of_all({"O", "B-A", "I-A", "E-A", "S-A", "M-A", "B-C", "I-C", "M-C"}, 4, TagScheme::prefix),
            15940470662121103278u);
  EXPECT_EQ(hash_of_all({"O", "B", "I", "E", "S", "M"}, 5, TagScheme::prefix), 12321814112342363752u);
  EXPECT_EQ(hash_of_all({"O", "A-B", "A-I", "A-E", "A-S", "A-M", "C-B", "C-I"}, 4, TagScheme::suffix),
            3193400569757348451u);
}

TEST(Entities, OfOtherSpellingsAreThoseOfIobes) {
  const FoundEntities expected{{0, 3, "loc"}, {4, 5, "per"}, {5, 6, "per"}};
  EXPECT_EQ(entities({"B-loc", "M-loc", "E-loc", "O", "S-per", "S-per"}), expected);
  EXPECT_EQ(entities({"b-loc", "m-loc", "e-loc", "o", "w-per", "w-per"}), expected);
  EXPECT_EQ(entities({"B_loc", "I_loc", "L_loc", "O", "U_per", "U_per"}), expected);
  EXPECT_EQ(entities({"b-loc", "i-loc", "i-loc", "o", "b-per", "b-per"}), expected);
}

TEST(Entities, AreTagsOfTheirSchemesAlone) {
  using List = std::vector<std::string>;
  EXPECT_TRUE(are_entity_tags(List{"O", "B-PER", "I-PER"}));
  EXPECT_FALSE(are_entity_tags(List{"NOUN", "VERB"}));
  EXPECT_FALSE(are_entity_tags(List{"O"}));
  EXPECT_FALSE(are_entity_tags(List{"O", "B-PER", "X-PER"}));
  for (const List& prefixes :
       {List{"B-X", "M-X", "E-X", "W-X", "O"}, List{"b-x", "i-x", "o"}, List{"B", "I", "O"},
        List{"B", "M", "E", "S"}, List{"b", "i", "o"}, List{"B_X", "O"}})
    EXPECT_EQ(tag_scheme(prefixes), TagScheme::prefix) << prefixes.front();
  EXPECT_EQ(tag_scheme(List{"PER-B", "PER-I", "O"}), TagScheme::suffix);
  for (const List& words :
       {List{"m", "s", "b"}, List{"M", "S"}, List{"ADJ", "X"}, List{"NN-B", "NN"}, List{}})
    EXPECT_EQ(tag_scheme(words), TagScheme::none);
  EXPECT_EQ(strangers_among_entity_tags(List{"O", "B-X", "I-X", "domain=en", "_"}), (List{"domain=en", "_"}));
  EXPECT_EQ(strangers_among_entity_tags(List{"NOUN", "VERB"}), List());
  EXPECT_EQ(tag_metric_names(List{"NOUN", "VERB"}), (List{"accuracy", "macro_f1"}));
  EXPECT_EQ(tag_metric_names(List{"O", "B-PER"}).front(), "f1");
}

TensorMap tag_outputs(const std::vector<int64_t>& predicted, const std::vector<int64_t>& truth,
                      const std::vector<int64_t>& sequences, int64_t tags) {
  return {{"logits", at::one_hot(at::tensor(predicted, at::kLong), tags).to(at::kFloat)},
          {"labels", at::tensor(truth, at::kLong)},
          {"samples", at::tensor(sequences, at::kLong)}};
}

/// Tags B-P 0, I-P 1, B-L 2, O 3. FoundEntities by hand: there are P [0, 2), L [3, 4) in the first text, P [0, 1) in the second and
/// in the third; given are P [0, 2), P [3, 4), P [0, 1), and I-P, which begins one, in the third.
TEST(TagMetrics, CountEntitiesThatAreWhollyRightOfEachTextByItself) {
  TagMetrics metrics({"B-P", "I-P", "B-L", "O"});
  metrics.start();
  metrics.add(tag_outputs({0, 1, 3, 0, 0}, {0, 1, 3, 2, 0}, {0, 0, 0, 0, 1}, 4));
  metrics.add(tag_outputs({1, 3}, {0, 3}, {0, 0}, 4));
  const auto found = metrics.finish(0);
  EXPECT_DOUBLE_EQ(found.at("precision"), 3.0 / 4);
  EXPECT_DOUBLE_EQ(found.at("recall"), 3.0 / 4);
  EXPECT_DOUBLE_EQ(found.at("f1"), 0.75);
  EXPECT_DOUBLE_EQ(found.at("accuracy"), 5.0 / 7);
  const OrderedJson types = metrics.classes();
  EXPECT_DOUBLE_EQ(types["P"]["precision"], 3.0 / 4);
  EXPECT_DOUBLE_EQ(types["P"]["recall"], 1);
  EXPECT_EQ(types["L"]["support"], 1);
  EXPECT_DOUBLE_EQ(types["L"]["f1"], 0);
}

/// An entity at the end of a text and one at the next one's begin are two, though the tags would join.
TEST(TagMetrics, EntitiesEndWithTheirText) {
  TagMetrics metrics({"B-P", "I-P", "O"});
  metrics.start();
  metrics.add(tag_outputs({0, 1, 2}, {0, 1, 2}, {0, 1, 1}, 3));
  EXPECT_EQ(metrics.classes()["P"]["support"], 2);
}

TEST(TagMetrics, OfPartsOfSpeechAreByTag) {
  TagMetrics metrics({"NOUN", "VERB"});
  metrics.start();
  metrics.add(tag_outputs({0, 1, 1}, {0, 1, 0}, {0, 0, 0}, 2));
  const auto found = metrics.finish(0);
  EXPECT_DOUBLE_EQ(found.at("accuracy"), 2.0 / 3);
  EXPECT_EQ(found.count("f1"), 0u);
  EXPECT_DOUBLE_EQ(metrics.classes()["VERB"]["precision"], 0.5);
}

// ---- batches

text::WordPiece tagging_tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 50; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// Words of `pieces` tokens each, with these tags.
struct TaggedSample {
  std::vector<uint16_t> tokens;
  std::vector<uint8_t> bits = std::vector<uint8_t>(16, 0);
  std::vector<int32_t> tags;

  TaggedSample(const std::vector<int>& pieces, std::vector<int32_t> of_words) : tags(std::move(of_words)) {
    for (const int count : pieces) {
      bits[tokens.size() / 8] = static_cast<uint8_t>(bits[tokens.size() / 8] | 1 << tokens.size() % 8);
      tokens.insert(tokens.end(), static_cast<size_t>(count), static_cast<uint16_t>(5 + tokens.size()));
    }
  }
  data::Sample sample(int64_t id) const {
    data::Sample result;
    result.columns.push_back({data::TokenSpan(tokens.data(), tokens.size()), {bits.data(), 0}});
    result.sample_id = result.draw_id = id;
    result.label_set = tags;
    return result;
  }
};

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

const std::vector<std::string> kTags{"O", "B-X", "I-X"};

/// [CLS] w w ##w [SEP] [CLS] w ##w ##w w [SEP]: the words begin at 1, 2 and at 6, 9.
TEST(TagsTest, AreReadAtTheFirstTokenOfEachWord) {
  const text::WordPiece tokenizer = tagging_tokenizer();
  const Tags objective(tokenizer, {.sequence = {.max_length = 16}, .tags = kTags});
  const TaggedSample first({1, 2}, {1, 2}), second({3, 1}, {0, 1});
  const std::vector<data::Sample> samples{first.sample(0), second.sample(1)};
  const MicroBatch batch = objective.collate(samples, {});
  EXPECT_EQ(numbers_of(batch["tag_rows"]), (std::vector<int64_t>{1, 2, 6, 9}));
  EXPECT_EQ(numbers_of(batch["tag_sequences"]), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(numbers_of(batch["labels"]), (std::vector<int64_t>{1, 2, 0, 1}));
  EXPECT_EQ(batch.counts.at("tags"), 4);
}

TEST(TagsTest, OfWordsThatAreCutOffAreNotLearnt) {
  const text::WordPiece tokenizer = tagging_tokenizer();
  const Tags objective(tokenizer, {.sequence = {.max_length = 6}, .tags = kTags});
  const TaggedSample row({2, 1, 2, 1},
                         {1, 2, 0, 1});  // four of the tokens fit, and so three words' first ones
  const std::vector<data::Sample> samples{row.sample(0)};
  const MicroBatch batch = objective.collate(samples, {});
  EXPECT_EQ(numbers_of(batch["labels"]), (std::vector<int64_t>{1, 2, 0}));
  EXPECT_EQ(batch.counts.at("tags"), 3);
}

TEST(TagsTest, AreWeighedAndSmoothedInTrainingAlone) {
  const text::WordPiece tokenizer = tagging_tokenizer();
  const ClassLoss loss{{1, 4, 2.5}, 0.3};
  const Tags objective(tokenizer, {.sequence = {.max_length = 16}, .tags = kTags, .loss = loss});
  format::ModelConfig config;
  config.encoder.vocabulary = 55;
  config.encoder.width = 16;
  config.encoder.layers = 1;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 32;
  config.encoder.positions.rows = 32;
  config.num_labels = 3;
  config.encoder.dropouts.hidden = config.encoder.dropouts.attention = 0;
  config.architectures = {"BertForTokenClassification"};
  const Model model = objective.build({.config = config, .dtype = at::kDouble, .seed = 5});
  const TaggedSample first({1, 2}, {1, 2}), second({3, 1}, {0, 1});
  const std::vector<data::Sample> samples{first.sample(0), second.sample(1)};
  for (const bool training : {true, false}) {
    const MicroBatch batch = objective.collate(samples, {.training = training});
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, Taps{}, sink);
    const at::Tensor shares = at::log_softmax(sink.outputs().at("logits"), 1);
    double expected = 0;
    const std::vector<int64_t> labels{1, 2, 0, 1};
    for (int64_t word = 0; word < 4; ++word)
      for (int64_t tag = 0; tag < 3; ++tag) {
        const bool own = tag == labels[static_cast<size_t>(word)];
        const double share = training ? (own ? 0.7 : 0) + 0.1 : own;
        expected -= share * (training ? loss.weights[static_cast<size_t>(tag)] : 1) *
                    shares[word][tag].item<double>();
      }
    EXPECT_NEAR(sink.terms().at(0).sum.item<double>(), expected, 1e-12) << training;
    EXPECT_EQ(batch.counts.at("tags"), training ? 4 + 2.5 + 1 + 4 : 4);
  }
  EXPECT_THROW(Tags(tokenizer, {.sequence = {.max_length = 16}, .tags = kTags, .loss = {{1, 2}, 0}}),
               InputError);
  EXPECT_THROW(Tags(tokenizer, {.sequence = {.max_length = 16}, .tags = kTags, .loss = {{}, 1}}), InputError);
  EXPECT_NE(objective.identity(),
            Tags(tokenizer, {.sequence = {.max_length = 16}, .tags = kTags}).identity());
}

TEST(TagsTest, ThatDoNotFitTheWordsAreRefused) {
  const text::WordPiece tokenizer = tagging_tokenizer();
  const Tags objective(tokenizer, {.sequence = {.max_length = 16}, .tags = kTags});
  // The last one is as long as rows may be: nothing of it is cut off that could have a tag.
  for (const TaggedSample& row :
       {TaggedSample({1, 2}, {1}), TaggedSample({1, 2}, {1, 1, 1}), TaggedSample({1}, {3}),
        TaggedSample({1}, {-1}), TaggedSample({14}, {1, 1})}) {
    const std::vector<data::Sample> samples{row.sample(0)};
    EXPECT_THROW(objective.collate(samples, {}), InputError);
  }
}

}  // namespace
}  // namespace funicular::objective
