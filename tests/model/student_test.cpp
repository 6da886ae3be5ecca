// Claims about students: their sizes, and the teacher's layers that they begin with.
#include "funicular/model/student.h"

#include <gtest/gtest.h>

#include "funicular/base/error.h"

namespace funicular::model {
namespace {

TEST(Students, HaveTheSizesOfThePapers) {
  const format::ModelConfig teacher;  // BERT-base
  EXPECT_EQ(count_parameters(student_config("tinybert4", teacher), Head::none), 14350248);
  EXPECT_EQ(count_parameters(student_config("tinybert6", teacher), Head::none), 66955008);
  const format::ModelConfig minilm = student_config("minilm6", teacher);
  EXPECT_EQ(minilm.encoder.layers, 6);
  EXPECT_EQ(minilm.encoder.width, 384);
  EXPECT_EQ(minilm.encoder.feed_forward.width, 1536);
  EXPECT_EQ(minilm.encoder.heads, 12);
  EXPECT_EQ(minilm.encoder.vocabulary, teacher.encoder.vocabulary);
}

TEST(Students, OfTheTeachersSizesHaveFewerLayers) {
  format::ModelConfig teacher;
  teacher.encoder.width = 384;
  const format::ModelConfig student = student_config("3-layers", teacher);
  EXPECT_EQ(student.encoder.layers, 3);
  EXPECT_EQ(student.encoder.width, 384);
  EXPECT_EQ(student_config("1-layer", teacher).encoder.layers, 1);
  for (const char* wrong : {"0-layers", "-1-layers", "3-", "3-layerss", "layers", "", "tinybert5"})
    EXPECT_THROW(student_config(wrong, teacher), InputError) << wrong;
}

TEST(Students, BeginWithLayersThatAreNamedOrEvenlySpaced) {
  using Layers = std::vector<int64_t>;
  EXPECT_EQ(parse_init_layers("even", 4, 12), (Layers{3, 6, 9, 12}));
  EXPECT_EQ(parse_init_layers("even", 5, 12), (Layers{2, 4, 7, 9, 12}));
  EXPECT_EQ(parse_init_layers("even", 6, 6), (Layers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(parse_init_layers("1,7,7", 3, 12), (Layers{1, 7, 7}));
  EXPECT_EQ(parse_init_layers(" 1, 7 ,7", 3, 12), (Layers{1, 7, 7}));
  EXPECT_THROW(parse_init_layers("even", 7, 6), InputError);
  for (const char* wrong : {"1,2", "1,2,3,4", "0,1,2", "1,2,13", "1,2,x", "1,,2", "1 2,3,4", "1, ,2", ""})
    EXPECT_THROW(parse_init_layers(wrong, 3, 12), InputError) << wrong;
}

/// Layers of ModernBERT: every third one sees all tokens.
format::ModelConfig modernbert(int64_t layers) {
  format::ModelConfig config = format::default_config("modernbert");
  config.encoder.set_layers(layers);
  return config;
}

std::string refusal(const format::ModelConfig& student, const format::ModelConfig& teacher,
                    const std::vector<int64_t>& layers) {
  try {
    check_init_layers(student, teacher, layers);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Students, TakeTheAttentionOfTheLayersThatTheyBeginWith) {
  const format::ModelConfig teacher = modernbert(6);
  format::ModelConfig student = student_config("3-layers", teacher);
  const std::vector<int64_t> layers = parse_init_layers("even", 3, 6);
  EXPECT_NE(refusal(student, teacher, layers).find("expected equal attention"), std::string::npos);
  take_layer_attention(student, teacher, layers);
  EXPECT_EQ(student.encoder.attention_of(0), teacher.encoder.attention_of(1));
  EXPECT_EQ(student.encoder.attention_of(1), teacher.encoder.attention_of(3));
  EXPECT_EQ(student.encoder.attention_of(2), teacher.encoder.attention_of(5));
  EXPECT_EQ(refusal(student, teacher, layers), "");
  format::ModelConfig bert = student_config("3-layers", format::ModelConfig());
  take_layer_attention(bert, format::ModelConfig(), {1, 1, 2});
  EXPECT_TRUE(bert.encoder.attention.empty());
  EXPECT_EQ(refusal(bert, format::ModelConfig(), {1, 1, 2}), "");
}

TEST(Students, DoNotBeginALaterLayerWithAFirstOneThatLacksItsNorm) {
  const format::ModelConfig teacher = modernbert(6);
  format::ModelConfig student = student_config("2-layers", teacher);
  take_layer_attention(student, teacher, {1, 1});
  EXPECT_NE(refusal(student, teacher, {1, 1}).find("the teacher's layer 1 has no norm before attention"),
            std::string::npos);
}

TEST(Students, DoNotBeginWithLayersThatReadDistancesOtherwise) {
  const format::ModelConfig teacher = format::default_config("mpnet");
  format::ModelConfig student = student_config("3-layers", teacher);
  EXPECT_EQ(refusal(student, teacher, {1, 2, 3}), "");
  EXPECT_NO_THROW(check_init_sizes(student, teacher));
  student.encoder.heads = 6;  // of the table of biases
  EXPECT_THROW(check_init_sizes(student, teacher), InputError);
  student.encoder.positions.relative.reset();
  EXPECT_NE(refusal(student, teacher, {1, 2, 3}).find("expected equal distances"), std::string::npos);
  const format::ModelConfig albert = format::default_config("albert");
  student = student_config("3-layers", albert);
  EXPECT_NO_THROW(check_init_sizes(student, albert));
  student.encoder.embedding_size = 64;
  EXPECT_THROW(check_init_sizes(student, albert), InputError);
}

TEST(Students, KeepGroupsOfLayersWhole) {
  format::ModelConfig teacher = format::default_config("albert");
  EXPECT_EQ(student_config("5-layers", teacher).encoder.distinct_layers(), 1);
  teacher.encoder.layer_groups = 4;  // of 3 layers
  const format::ModelConfig student = student_config("6-layers", teacher);
  EXPECT_EQ(student.encoder.distinct_layers(), 2);
  EXPECT_EQ(student.encoder.weights_of(2), 0);
  EXPECT_EQ(student.encoder.weights_of(3), 1);
  EXPECT_EQ(student_config("15-layers", teacher).encoder.distinct_layers(), 5);
  EXPECT_THROW(student_config("8-layers", teacher), InputError);
  teacher.encoder.layer_groups = 12;
  EXPECT_EQ(student_config("8-layers", teacher).encoder.distinct_layers(), 8);
}

}  // namespace
}  // namespace funicular::model
