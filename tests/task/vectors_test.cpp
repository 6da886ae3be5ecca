// Claims about vectors: their codes and files are numpy's and sentence-transformers', the search is exact, the
// metrics are the published ones, and an interrupted file goes on.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary.h"
#include "funicular/format/npy.h"
#include "funicular/format/vector_codes.h"
#include "funicular/task/nearest.h"
#include "funicular/task/retrieval.h"
#include "funicular/task/vector_output.h"
#include "tests/format/scratch.h"
#include "tests/fuzz_rounds.h"

namespace funicular::task::vectors_tests {
namespace {

using format::NpyFile;
using format::NpyType;
using format::VectorCode;
using format::VectorRanges;

/// Nine vectors of four numbers and their codes by sentence-transformers 6.2's quantize_embeddings.
const std::vector<std::vector<float>> kVectors{{1, 2, 3, 4},  {2, -1, 0, 1}, {0, 1, -1, 2},
                                               {1, 1, 3, 3},  {1, -2, 1, 0}, {1, 0, -1, 3},
                                               {4, -1, 0, 1}, {2, 1, 2, 1},  {0, 1, 1, -2}};
const std::vector<std::vector<int>> kInt8{{-65, 126, 126, 127}, {-1, -65, -65, -1},   {-128, 63, -128, 42},
                                          {-65, 63, 126, 84},   {-65, -128, -1, -43}, {-65, -1, -128, 84},
                                          {126, -65, -65, -1},  {-1, 63, 63, -1},     {-128, 63, -1, -128}};
const std::vector<int> kUbinary{240, 144, 80, 240, 160, 144, 144, 240, 96};

std::string code_of(VectorCode code, const std::vector<float>& vector, const VectorRanges& ranges) {
  std::string out;
  append_code(code, vector, ranges, out);
  return out;
}

VectorRanges ranges_of_all() {
  VectorRanges ranges;
  for (const auto& vector : kVectors) ranges.add(vector);
  return ranges;
}

TEST(VectorCodes, AreThoseOfSentenceTransformers) {
  const VectorRanges ranges = ranges_of_all();
  for (size_t i = 0; i < kVectors.size(); ++i) {
    const std::string bytes = code_of(VectorCode::int8, kVectors[i], ranges);
    const std::string other = code_of(VectorCode::uint8, kVectors[i], ranges);
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(static_cast<int>(static_cast<signed char>(bytes[j])), kInt8[i][j]) << i << " " << j;
      EXPECT_EQ(static_cast<int>(static_cast<unsigned char>(other[j])), kInt8[i][j] + 128) << i << " " << j;
    }
    EXPECT_EQ(static_cast<unsigned char>(code_of(VectorCode::ubinary, kVectors[i], {})[0]), kUbinary[i]);
    EXPECT_EQ(static_cast<signed char>(code_of(VectorCode::binary, kVectors[i], {})[0]), kUbinary[i] - 128);
  }
}

TEST(VectorCodes, ADimensionWithoutRangeAndNumbersBeyondTheRangeAreCoded) {
  VectorRanges ranges;
  ranges.add(std::vector<float>{1, 0});
  ranges.add(std::vector<float>{1, 1});
  const std::string bytes = code_of(VectorCode::uint8, {1, 7}, ranges);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]), 0);
  EXPECT_EQ(static_cast<unsigned char>(bytes[1]), 255);
  EXPECT_NE(error_of([&] {
              code_of(VectorCode::int8, {1, 2, 3}, ranges);
            }).find("expected as many"),
            std::string::npos);
}

fs::path put_table(const Scratch& scratch, NpyType type, int64_t rows, int64_t columns,
                   std::string_view data) {
  return scratch.put("table.npy", npy_header(type, rows, columns) + std::string(data));
}

TEST(Npy, ATableIsReadAsItWasWritten) {
  const Scratch scratch;
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const NpyFile file(
      put_table(scratch, NpyType::float32, 3, 2, {reinterpret_cast<const char*>(numbers), sizeof numbers}));
  EXPECT_EQ(file.rows(), 3);
  EXPECT_EQ(file.columns(), 2);
  float row[2];
  std::memcpy(row, file.row(2).data(), sizeof row);
  EXPECT_EQ(row[0], 5);
  EXPECT_EQ(row[1], 6);
}

TEST(Npy, WhatIsNoTableIsRefusedByName) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& contents) {
    return error_of([&] { NpyFile(scratch.put("table.npy", contents)); });
  };
  const std::string good = npy_header(NpyType::uint8, 2, 3) + "abcdef";
  EXPECT_EQ(refusal(good), "");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"text", "is no .npy file"},
      {good.substr(0, 60), "ends within its header"},
      {good + "g", "the header says 2 rows of 3 numbers of 1 bytes, and 7 bytes follow"},
      {good.substr(0, good.size() - 1), "is the file complete?"},
      {with("|u1", "<f8"), "numbers of type <f8; expected float32, int8 or uint8"},
      {with("False", "True "), "lies column by column"},
      {with("(2, 3)", "(6,  )"), "two dimensions"},
      {with("(2, 3)", "(2, 0)"), "0 numbers per row"},
      {with("(2, 3)", "(-2,3)"), "damaged"},
      {with("shape", "shapo"), "damaged"},
      {with("\x01", "\x09"), "version 9"}};
  for (const auto& [contents, expected] : cases)
    EXPECT_NE(refusal(contents).find(expected), std::string::npos) << expected << "\n" << refusal(contents);
}

TEST(Npy, AnyBytesAreReadOrRefused) {
  std::mt19937_64 random(5);
  const Scratch scratch;
  const std::string good = npy_header(NpyType::int8, 2, 3) + "abcdef";
  int taken = 0;
  const int rounds = fuzz_rounds(400);
  for (int round = 0; round < rounds; ++round) {
    const fs::path path = scratch.put("table.npy", mutate(good, random));
    if (!error_of([&] {
           const NpyFile file(path);
           EXPECT_EQ(file.data().size(),
                     static_cast<size_t>(file.rows() * file.columns()) * npy_size(file.type()));
         }).empty())
      continue;
    ++taken;
  }
  EXPECT_GT(taken, rounds / 20);
  EXPECT_LT(taken, rounds);
}

// ---- files that go on

std::string records_of(size_t begin, size_t end) {
  std::string bytes;
  for (size_t i = begin; i < end; ++i) bytes += code_of(VectorCode::float32, kVectors[i], {});
  return bytes;
}

VectorOutputOptions output_options(const Scratch& scratch, VectorCode code = VectorCode::float32) {
  return {.path = scratch / "v.npy", .code = code, .width = 4, .identity = Json{{"model", "a"}}};
}

void finish(VectorOutput& out) {
  out.finish([](const fs::path&) {});
}

std::string whole_file(VectorCode code) {
  const Scratch scratch;
  VectorOutput out(output_options(scratch, code));
  out.write(records_of(0, kVectors.size()));
  finish(out);
  EXPECT_FALSE(fs::exists(VectorOutput::folder_of(scratch / "v.npy")));
  return read_file(scratch / "v.npy");
}

TEST(VectorOutput, AnInterruptedFileGoesOnBehindItsLastWholeVector) {
  for (const VectorCode code : {VectorCode::float32, VectorCode::int8, VectorCode::ubinary}) {
    const std::string whole = whole_file(code);
    const Scratch scratch;
    {
      VectorOutput out(output_options(scratch, code));
      out.write(records_of(0, 4));
    }
    const fs::path part = VectorOutput::folder_of(scratch / "v.npy") / "vectors.npy";
    fs::resize_file(part, fs::file_size(part) - 5);
    VectorOutput out(output_options(scratch, code));
    EXPECT_EQ(out.rows(), 3);
    out.write(records_of(3, kVectors.size()));
    finish(out);
    EXPECT_EQ(read_file(scratch / "v.npy"), whole);
  }
}

TEST(VectorOutput, WorkOfAnotherIdentityBeginsAnew) {
  const Scratch scratch;
  { VectorOutput(output_options(scratch)).write(records_of(0, 4)); }
  VectorOutputOptions other = output_options(scratch);
  other.identity["model"] = "b";
  EXPECT_EQ(VectorOutput(other).rows(), 0);
}

/// A run that is killed before its job is written, or while its folder is removed, leaves no job.
TEST(VectorOutput, WorkWithoutAJobBeginsAnew) {
  const Scratch scratch;
  const fs::path folder = VectorOutput::folder_of(scratch / "v.npy");
  { VectorOutput(output_options(scratch)).write(records_of(0, 4)); }
  fs::remove(folder / "job.json");
  const Temporary unfinished(folder / "job.json", Temporary::Kind::file);
  write_file_atomically(unfinished.path(), "{");
  EXPECT_EQ(VectorOutput(output_options(scratch)).rows(), 0);
  EXPECT_FALSE(fs::exists(unfinished.path()));
  fs::remove(folder / "job.json");
  write_file_atomically(folder / "mine", "");
  EXPECT_THROW(VectorOutput(output_options(scratch)), InputError);
}

TEST(VectorOutput, RangesStandBesideTheFile) {
  const Scratch scratch;
  VectorOutput out(output_options(scratch, VectorCode::int8));
  out.write(records_of(0, kVectors.size()));
  finish(out);
  const VectorRanges read = read_ranges(VectorOutput::ranges_of(scratch / "v.npy")),
                     expected = ranges_of_all();
  EXPECT_EQ(read.least, expected.least);
  EXPECT_EQ(read.most, expected.most);
  const NpyFile file(scratch / "v.npy");
  EXPECT_EQ(file.type(), NpyType::int8);
  EXPECT_EQ(static_cast<int>(file.row(6)[0]), 126);
}

TEST(VectorOutput, RangesThatAreGivenStandBesideTheFileToo) {
  const Scratch scratch;
  VectorRanges wide;
  wide.add(std::vector<float>{-9, -9, -9, -9});
  wide.add(std::vector<float>{9, 9, 9, 9});
  for (const bool given : {false, true}) {
    VectorOutputOptions options = output_options(scratch, VectorCode::int8);
    if (given) options.ranges = wide;
    VectorOutput out(options);
    out.write(records_of(0, kVectors.size()));
    finish(out);
    const VectorRanges expected = given ? wide : ranges_of_all();
    const VectorRanges read = read_ranges(VectorOutput::ranges_of(scratch / "v.npy"));
    EXPECT_EQ(read.least, expected.least) << given;
    EXPECT_EQ(read.most, expected.most) << given;
  }
}

TEST(VectorOutput, TheRangesOfAnEarlierFileGo) {
  for (const VectorCode code : {VectorCode::float32, VectorCode::ubinary}) {
    const Scratch scratch;
    for (const VectorCode each : {VectorCode::int8, code}) {
      VectorOutput out(output_options(scratch, each));
      out.write(records_of(0, kVectors.size()));
      finish(out);
      EXPECT_EQ(fs::exists(VectorOutput::ranges_of(scratch / "v.npy")), each == VectorCode::int8);
    }
  }
}

TEST(VectorOutput, JsonLinesHoldTheNumbers) {
  const Scratch scratch;
  VectorOutputOptions options = output_options(scratch);
  options.form = VectorForm::json_lines;
  VectorOutput out(options);
  out.write(records_of(8, 9));
  finish(out);
  EXPECT_EQ(read_file(scratch / "v.npy"), "{\"embedding\": [0, 1, 1, -2]}\n");
}

// ---- search

at::Tensor numbers(int64_t rows, int64_t columns, double phase) {
  return (at::arange(rows * columns, at::kFloat) * 0.731 + phase).sin().view({rows, columns});
}

/// Rows by score and number, the plain way.
std::vector<int64_t> plainly(const at::Tensor& scores, int64_t k) {
  std::vector<int64_t> rows(static_cast<size_t>(scores.size(0)));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](int64_t a, int64_t b) { return scores[a].item<float>() > scores[b].item<float>(); });
  rows.resize(static_cast<size_t>(std::min<int64_t>(k, scores.size(0))));
  return rows;
}

TEST(Nearest, BlocksGiveWhatOneComparisonOfAllGives) {
  const at::Tensor index = numbers(300, 7, 0.1), queries = numbers(5, 7, 2.3);
  const auto cosine = [](const at::Tensor& x) { return x / x.norm(2, 1, true); };
  const std::vector<std::pair<Similarity, at::Tensor>> cases{
      {Similarity::cosine, cosine(queries).matmul(cosine(index).t())},
      {Similarity::dot, queries.matmul(index.t())},
      {Similarity::euclidean, -at::cdist(queries, index, 2)},
      {Similarity::manhattan, -at::cdist(queries, index, 1)}};
  for (const auto& [similarity, scores] : cases) {
    NearestRows nearest(queries, 12, similarity);
    for (int64_t begin = 0; begin < 300; begin += 70)
      nearest.add(index.narrow(0, begin, std::min<int64_t>(70, 300 - begin)));
    const auto found = nearest.found();
    for (int64_t q = 0; q < 5; ++q) {
      const std::vector<int64_t> expected = plainly(scores[q], 12);
      ASSERT_EQ(found[static_cast<size_t>(q)].size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(found[static_cast<size_t>(q)][i].row, expected[i])
            << static_cast<int>(similarity) << " " << q << " " << i;
    }
  }
}

TEST(Nearest, EqualScoresComeInTheOrderThatIsAskedFor) {
  const at::Tensor index = at::ones({6, 2}), query = at::ones({1, 2});
  NearestRows rows(query, 3, Similarity::dot),
      turned(query, 3, Similarity::dot, [](int64_t a, int64_t b) { return a > b; });
  for (NearestRows* const one : {&rows, &turned}) {
    one->add(index.narrow(0, 0, 4));
    one->add(index.narrow(0, 4, 2));
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows.found()[0][i].row, static_cast<int64_t>(i));
    EXPECT_EQ(turned.found()[0][i].row, 5 - static_cast<int64_t>(i));
  }
}

TEST(Nearest, AFileOfBytesOrBitsIsSearched) {
  const at::Tensor vectors = numbers(200, 40, 0.4), queries = vectors.narrow(0, 20, 4);
  for (const VectorCode code :
       {VectorCode::float32, VectorCode::int8, VectorCode::uint8, VectorCode::binary, VectorCode::ubinary}) {
    const Scratch scratch;
    VectorOutput out({.path = scratch / "v.npy", .code = code, .width = 40, .identity = Json{{"a", 1}}});
    out.write({reinterpret_cast<const char*>(vectors.const_data_ptr<float>()),
               static_cast<size_t>(vectors.nbytes())});
    finish(out);
    const fs::path ranges = VectorOutput::ranges_of(scratch / "v.npy");
    const auto found = nearest_in_file(NpyFile(scratch / "v.npy"), queries, 3, Similarity::cosine,
                                       fs::exists(ranges) ? read_ranges(ranges) : VectorRanges{});
    for (size_t q = 0; q < 4; ++q) {
      EXPECT_EQ(found[q][0].row, static_cast<int64_t>(20 + q)) << static_cast<int>(code);
      EXPECT_NEAR(found[q][0].score, 1, 1e-3) << static_cast<int>(code);
      EXPECT_LT(found[q][1].score, found[q][0].score + 1e-6);
    }
  }
}

TEST(Nearest, BytesWithoutRangesAreRefused) {
  const Scratch scratch;
  VectorOutput out(output_options(scratch, VectorCode::int8));
  out.write(records_of(0, 3));
  finish(out);
  const auto refusal = [&](const VectorRanges& ranges) {
    return error_of([&] {
      nearest_in_file(NpyFile(scratch / "v.npy"), at::ones({1, 4}), 3, Similarity::cosine, ranges);
    });
  };
  EXPECT_NE(refusal({}).find("bytes need the ranges that they stand for; give --ranges FILE"),
            std::string::npos);
  EXPECT_EQ(refusal(ranges_of_all()), "");
}

TEST(Nearest, WidthsThatDoNotFitAreRefused) {
  const Scratch scratch;
  VectorOutput out(output_options(scratch));
  out.write(records_of(0, 3));
  finish(out);
  EXPECT_NE(error_of([&] {
              nearest_in_file(NpyFile(scratch / "v.npy"), at::ones({1, 5}), 3, Similarity::cosine);
            }).find("the queries have 5 numbers each, and the index 4"),
            std::string::npos);
}

// ---- metrics

TEST(Retrieval, MetricsAreThoseOfSentenceTransformers) {
  // q1: d1, d2, d3 of which d2 is relevant, and d9 is not there; q2: d3, d1, d2 of which d1 is.
  const OrderedJson found = retrieval_metrics(
      {{.hits = {false, true, false}, .relevant = 2}, {.hits = {false, true, false}, .relevant = 1}});
  const std::vector<std::pair<const char*, double>> expected{{"accuracy@1", 0},
                                                             {"accuracy@3", 1},
                                                             {"precision@1", 0},
                                                             {"precision@3", 1.0 / 3},
                                                             {"recall@1", 0},
                                                             {"recall@3", 0.75},
                                                             {"ndcg@10", 0.5088912804029996},
                                                             {"mrr@10", 0.5},
                                                             {"map@100", 0.375}};
  for (const auto& [name, value] : expected) EXPECT_NEAR(found[name].get<double>(), value, 1e-15) << name;
}

TEST(Retrieval, FilesOfBeirAreReadAndWhatIsWrongIsNamed) {
  const Scratch scratch;
  fs::create_directories(scratch / "qrels");
  scratch.put("corpus.jsonl",
              "{\"_id\": \"d1\", \"title\": \"A\", \"text\": \"b\"}\n{\"_id\": \"d2\", \"title\": \"\", "
              "\"text\": \"c\"}\n");
  scratch.put("queries.jsonl", "{\"_id\": \"q1\", \"text\": \"x\"}\n{\"_id\": \"q2\", \"text\": \"y\"}\n");
  scratch.put("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td2\t1\nq1\td1\t0\nq1\td9\t2\n");
  const RetrievalSet set = read_retrieval_set(scratch.path());
  EXPECT_EQ(set.documents.texts, (std::vector<std::string>{"A b", "c"}));
  EXPECT_EQ(set.queries.ids, std::vector<std::string>{"q1"});
  EXPECT_EQ(set.relevant[0], (std::set<std::string>{"d2", "d9"}));
  const auto refusal = [&](const char* file, const char* contents) {
    const std::string before = read_file(scratch / file);
    scratch.put(file, contents);
    const std::string error = error_of([&] { read_retrieval_set(scratch.path()); });
    scratch.put(file, before);
    return error;
  };
  EXPECT_NE(refusal("corpus.jsonl", "{\"text\": \"b\"}\n")
                .find("corpus.jsonl:1: expected an object with the text \"_id\""),
            std::string::npos);
  EXPECT_NE(
      refusal("corpus.jsonl", "{\"_id\": \"d1\", \"text\": \"b\"}\n\n{\"_id\": \"d1\", \"text\": \"b\"}\n")
          .find("corpus.jsonl:3: the id d1 was there before"),
      std::string::npos);
  EXPECT_NE(refusal("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1 d2 1\n")
                .find("test.tsv:2: expected query-id"),
            std::string::npos);
  EXPECT_NE(refusal("qrels/test.tsv", "q1\td2\t1\nq1\td1\tx\n").find("test.tsv:2: expected a number"),
            std::string::npos);
  EXPECT_NE(refusal("qrels/test.tsv", "q\td\ts\nq1\td2\t0\n").find("no relevant document"),
            std::string::npos);
  EXPECT_NE(refusal("qrels/test.tsv", "q\td\ts\nq7\td2\t1\n").find("none of the queries"), std::string::npos);
}

}  // namespace
}  // namespace funicular::task::vectors_tests
