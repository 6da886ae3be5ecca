#include "funicular/data/share_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "funicular/data/token_store.h"
#include "funicular/data/token_store_builder.h"
#include "store_fixture.h"

namespace funicular::data {
namespace share_source_tests {

struct Read {
  std::vector<std::string> texts, labels;
  std::vector<std::vector<double>> shares;
  std::vector<double> weights;
};

class Shares : public ScratchTest {
 protected:
  fs::path file(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_ / name, text);
    return folder_ / name;
  }
  static TextFileSourceOptions layout() {
    TextFileSourceOptions layout;
    layout.header = true;
    layout.text_columns = {"text"};
    layout.label_column = "label";
    return layout;
  }
  ShareSource source(const fs::path& path, const ShareColumns& columns, bool independent = false,
                     std::vector<std::string> names = {}) const {
    return {path, layout(), columns, independent, std::move(names)};
  }
  static Read read(const RowSource& source) {
    Read found;
    for (size_t piece = 0; piece < source.pieces(); ++piece)
      source.read(piece, [&](const SourceRow& row) {
        found.texts.emplace_back(row.columns[0]);
        found.labels.emplace_back(row.label);
        found.shares.emplace_back(row.shares.begin(), row.shares.end());
        found.weights.push_back(row.weight);
      });
    return found;
  }
  std::string refusal(const std::string& rows, const ShareColumns& columns, bool independent = false) const {
    return input_error([&] { read(source(file("bad.csv", rows), columns, independent)); });
  }
};

TEST_F(Shares, OfColumnsAreCalledAsTheColumnsAndStandInTheirOrder) {
  const ShareSource rows = source(file("a.csv", "p_pro,text,p_contra\n0.25,one,0.75\n0.9,two,0.1\n"),
                                  {.columns = {"p_pro", "p_contra"}});
  EXPECT_EQ(rows.share_names(), (std::vector<std::string>{"p_pro", "p_contra"}));
  EXPECT_TRUE(rows.has_labels());
  const Read found = read(rows);
  EXPECT_EQ(found.shares, (std::vector<std::vector<double>>{{0.25, 0.75}, {0.9, 0.1}}));
  EXPECT_EQ(found.labels, (std::vector<std::string>{"\x1ep_contra", "\x1ep_pro"}));
  EXPECT_EQ(found.texts, (std::vector<std::string>{"one", "two"}));
}

TEST_F(Shares, AStarIsAllColumnsThatBeginSo) {
  const ShareSource rows =
      source(file("a.csv", "p_pro,text,p_contra\n0.25,one,0.75\n"), {.columns = {"p_*"}});
  EXPECT_EQ(rows.share_names(), (std::vector<std::string>{"pro", "contra"}));
}

TEST_F(Shares, OfObjectsAreSortedAndMissingClassesHaveNone) {
  const fs::path path = file("a.jsonl",
                             R"({"text": "one", "label": {"pro": 1}}
{"text": "two", "label": {"pro": 0.5, "contra": 0.5}}
)");
  const ShareSource rows = source(path, {.objects = true});
  EXPECT_EQ(rows.share_names(), (std::vector<std::string>{"contra", "pro"}));
  EXPECT_EQ(read(rows).shares, (std::vector<std::vector<double>>{{0, 1}, {0.5, 0.5}}));
}

TEST_F(Shares, ThatAreIndependentMayBeUnknownAndSumToAnything) {
  const Read found = read(source(file("a.csv", "text,joy,love,fear\none,0.9,0.8,\ntwo,,,0.2\n"),
                                 {.columns = {"joy", "love", "fear"}}, true));
  EXPECT_EQ(found.shares[0][0], 0.9);
  EXPECT_EQ(found.shares[0][1], 0.8);
  EXPECT_TRUE(std::isnan(found.shares[0][2]));
  EXPECT_EQ(found.labels, (std::vector<std::string>{"\x1ejoy\x1elove", "\x1e"}));
  const Read objects = read(source(file("a.jsonl", R"({"text": "one", "label": {"joy": 0.9, "love": null}}
)"),
                                   {.objects = true}, true));
  EXPECT_EQ(objects.shares[0][0], 0.9);
  EXPECT_TRUE(std::isnan(objects.shares[0][1]));
}

TEST_F(Shares, FollowTheNamesThatAreGiven) {
  const fs::path path = file("a.csv", "text,b,a\none,0.25,0.75\n");
  EXPECT_EQ(read(source(path, {.columns = {"b", "a"}}, false, {"a", "b"})).shares[0],
            (std::vector<double>{0.75, 0.25}));
  EXPECT_NE(input_error([&] {
              source(path, {.columns = {"b", "a"}}, false, {"a", "c"});
            }).find("expected columns for the labels a, c, found b, a"),
            std::string::npos);
}

TEST_F(Shares, AreDividedByTheirSumWhereRoundingMovedIt) {
  const Read found =
      read(source(file("a.csv", "text,a,b,c\none,0.33,0.33,0.33\n"), {.columns = {"a", "b", "c"}}));
  EXPECT_EQ(found.shares[0], (std::vector<double>{0.33 / 0.99, 0.33 / 0.99, 0.33 / 0.99}));
  const Read votes =
      read(source(file("v.csv", "text,a,b\none,3,1\n"), {.columns = {"a", "b"}, .normalize = true}));
  EXPECT_EQ(votes.shares[0], (std::vector<double>{0.75, 0.25}));
}

TEST_F(Shares, ThatMakeNoSenseAreRefusedByLine) {
  const ShareColumns both{.columns = {"a", "b"}};
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal("text,a,b\none,0.5,0.5\ntwo,0.5,0.4\n", both), "bad.csv:3: the shares sum to 0.9; expected 1");
  has(refusal("text,a,b\none,0.5,0.4\n", both), "--normalize-shares");
  has(refusal("text,a,b\none,1.5,-0.5\n", both), "the share of \"a\" is 1.5; expected a number from 0 to 1");
  has(refusal("text,a,b\none,high,0.5\n", both), "the column \"a\": expected a number, found \"high\"");
  has(refusal("text,a,b\none,1,\n", both), "the column \"b\" is empty; expected the share of the class");
  has(refusal("text,a,b\none,,\n", both, true), "the row has no share");
  has(refusal("text,a,b\none,0,0\n", {.columns = {"a", "b"}, .normalize = true}), "expected more than 0");
  has(refusal("text,a,b\none,1,0\n", {.columns = {"a"}}),
      "expected shares of at least two classes, found 1 (a)");
  const auto refused_objects = [&](const std::string& rows) {
    return input_error([&] { read(source(file("bad.jsonl", rows), {.objects = true})); });
  };
  has(refused_objects("{\"text\": \"one\", \"label\": {\"a\": 1, \"b\": null}}\n"),
      "the share of \"b\" is empty; expected a number");
  has(refused_objects("{\"text\": \"one\", \"shares\": {\"a\": 1, \"b\": 0}}\n"),
      "no row has an object with shares at the key \"label\"");
  has(refusal("text,a,b\none,1,0\n", {.columns = {"c*"}}), "no column begins with \"c\"");
  has(refusal("text,a,b,w\none,1,0,0\n", {.columns = {"a", "b"}, .weight = "w"}),
      "the weight is 0; expected a number above 0");
}

TEST_F(Shares, AndWeightsComeBackFromAStore) {
  const fs::path path = file("a.csv", "text,a,b,w\na b,0.25,0.75,2\nc,1,0,0.5\n");
  const ShareSource rows = source(path, {.columns = {"a", "b"}, .weight = "w"});
  build_token_store(letters(), rows, folder_ / "a.tokens", {.labels = LabelKind::shares});
  const auto store = TokenStore::open(folder_ / "a.tokens");
  store->verify();
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_store_meta(write_store_meta(store->meta()), "meta"), store->meta());
  const Sample first = store->row(0), second = store->row(1);
  EXPECT_EQ(std::vector<double>(first.shares.begin(), first.shares.end()), (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(first.label, 1);
  EXPECT_EQ(first.weight, 2);
  EXPECT_EQ(second.label, 0);
  EXPECT_EQ(second.weight, 0.5);
}

TEST_F(Shares, WeightsStandBesideALabel) {
  const ShareSource rows = source(file("a.csv", "text,label,w\none,pro,2.5\n"), {.weight = "w"});
  const Read found = read(rows);
  EXPECT_EQ(found.labels, std::vector<std::string>{"pro"});
  EXPECT_EQ(found.weights, std::vector<double>{2.5});
  EXPECT_TRUE(rows.has_weights());
  EXPECT_TRUE(found.shares[0].empty());
}

}  // namespace share_source_tests
}  // namespace funicular::data
