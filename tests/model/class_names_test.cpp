// Claims about names of classes that differ only in how they are spelt.
#include "funicular/model/class_names.h"

#include <gtest/gtest.h>

namespace funicular::model {
namespace {

using Names = std::vector<std::string>;

TEST(ClassNames, AreSpeltAsWantedInTheOrderOfTheModel) {
  EXPECT_EQ(spelt_as({"POSITIVE", "NEGATIVE"}, {"negative", "positive"}), (Names{"positive", "negative"}));
  EXPECT_EQ(spelt_as({"Not-Entailment", "entailment"}, {"entailment", "not_entailment"}),
            (Names{"not_entailment", "entailment"}));
}

TEST(ClassNames, StayAsTheyAreWhereTheyAreOthers) {
  for (const Names& own : {Names{"LABEL_0", "LABEL_1"}, Names{"positive"}, Names{"POSITIVE", "positive"}})
    EXPECT_EQ(spelt_as(own, {"negative", "positive"}), own);
  EXPECT_EQ(spelt_as({"a", "b"}, {"A", "a"}), (Names{"a", "b"})) << "two names that are one";
}

}  // namespace
}  // namespace funicular::model
