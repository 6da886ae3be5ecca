// Safetensors: what is written is read back, and no malformed header passes.

#include "funicular/format/safetensors.h"
#include "funicular/format/safetensors_writer.h"

#include <cstring>
#include <thread>

#include "scratch.h"
#include "tests/fuzz_rounds.h"

namespace funicular::format {
namespace {

std::string file_of(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header) + std::string(data_bytes, 'd');
}

std::string entry(std::string_view name, std::string_view rest) {
  return "\"" + std::string(name) + "\":{" + std::string(rest) + "}";
}

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Malformed {
  const char* what;
  std::string file;
  const char* message;  // a part of it
};

std::vector<Malformed> malformed_files() {
  const std::string f4 = R"("dtype":"F32","shape":[1],"data_offsets":)";
  std::string too_long = file_of("{}", 0);
  const uint64_t hundred = 100'000'001;
  std::memcpy(too_long.data(), &hundred, 8);
  std::string beyond = file_of("{}", 0);
  beyond[0] = 3;
  std::string huge = file_of("{}", 0);
  std::memset(huge.data(), 0xFF, 8);
  const std::string deep(5000, '[');
  return {
      {"empty", "", "at least 8 bytes"},
      {"seven bytes", "1234567", "at least 8 bytes"},
      {"header over the limit", too_long, "limit"},
      {"header length of 2^64-1", huge, "limit"},
      {"header beyond the file", beyond, "cut short"},
      {"no header", file_of("", 0), "does not begin with '{'"},
      {"leading space", file_of(" {}", 0), "does not begin with '{'"},
      {"a byte-order mark", file_of("\xEF\xBB\xBF{}", 0), "does not begin with '{'"},
      {"an array", file_of("[]", 0), "does not begin with '{'"},
      {"half JSON", file_of("{\"a\":", 0), "not valid JSON"},
      {"something after the JSON", file_of("{} x", 0), "not valid JSON"},
      {"a zero byte ends the JSON", file_of(std::string("{}\0garbage", 10), 0), "zero byte"},
      {"invalid UTF-8", file_of("{\"\xC3\x28\":{}}", 0), "not valid JSON"},
      {"a comment", file_of("{/* */}", 0), "not valid JSON"},
      {"name twice", file_of("{" + entry("a", f4 + "[0,4]") + "," + entry("a", f4 + "[4,8]") + "}", 8),
       "\"a\" occurs twice"},
      {"name twice, escaped",
       file_of("{" + entry("a", f4 + "[0,4]") + "," + entry("\\u0061", f4 + "[4,8]") + "}", 8),
       "occurs twice"},
      {"metadata twice", file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "occurs twice"},
      {"metadata key twice", file_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "occurs twice"},
      {"key twice in an entry", file_of("{" + entry("a", "\"dtype\":\"I32\"," + f4 + "[0,4]") + "}", 4),
       "\"dtype\" occurs twice"},
      {"unknown dtype",
       file_of("{" + entry("a", R"("dtype":"F31","shape":[1],"data_offsets":[0,4])") + "}", 4),
       "unknown dtype \"F31\""},
      {"dtype of lower case",
       file_of("{" + entry("a", R"("dtype":"f32","shape":[1],"data_offsets":[0,4])") + "}", 4),
       "unknown dtype"},
      {"dtype a number", file_of("{" + entry("a", R"("dtype":32,"shape":[1],"data_offsets":[0,4])") + "}", 4),
       "\"dtype\": expected a string"},
      {"dtype null", file_of("{" + entry("a", R"("dtype":null,"shape":[1],"data_offsets":[0,4])") + "}", 4),
       "\"dtype\": expected a string"},
      {"dtype missing", file_of("{" + entry("a", R"("shape":[1],"data_offsets":[0,4])") + "}", 4),
       "\"dtype\" is missing"},
      {"shape missing", file_of("{" + entry("a", R"("dtype":"F32","data_offsets":[0,4])") + "}", 4),
       "\"shape\" is missing"},
      {"offsets missing", file_of("{" + entry("a", R"("dtype":"F32","shape":[1])") + "}", 4),
       "\"data_offsets\" is missing"},
      {"negative dimension",
       file_of("{" + entry("a", R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])") + "}", 4),
       "negative number -1"},
      {"minus zero", file_of("{" + entry("a", R"("dtype":"F32","shape":[-0],"data_offsets":[0,0])") + "}", 0),
       "\"shape\""},
      {"dimension 1.0",
       file_of("{" + entry("a", R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])") + "}", 4),
       "the number 1.0"},
      {"dimension 1e0",
       file_of("{" + entry("a", R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])") + "}", 4),
       "the number 1e0"},
      {"dimension a string",
       file_of("{" + entry("a", R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])") + "}", 4),
       "\"shape\""},
      {"dimension true",
       file_of("{" + entry("a", R"("dtype":"F32","shape":[true],"data_offsets":[0,4])") + "}", 4),
       "\"shape\""},
      {"dimension of 2^63",
       file_of("{" + entry("a", R"("dtype":"U8","shape":[9223372036854775808,0],"data_offsets":[0,0])") + "}",
               0),
       "63 bits"},
      {"shape a number",
       file_of("{" + entry("a", R"("dtype":"F32","shape":1,"data_offsets":[0,4])") + "}", 4),
       "\"shape\": expected an array"},
      {"shape nested",
       file_of("{" + entry("a", R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])") + "}", 4),
       "\"shape\""},
      {"negative offset", file_of("{" + entry("a", f4 + "[-4,0]") + "}", 4), "negative"},
      {"offset beyond 64 bits", file_of("{" + entry("a", f4 + "[0,18446744073709551620]") + "}", 4),
       "\"data_offsets\""},
      {"one offset", file_of("{" + entry("a", f4 + "[4]") + "}", 4), "two numbers"},
      {"no offset", file_of("{" + entry("a", f4 + "[]") + "}", 4), "two numbers"},
      {"three offsets", file_of("{" + entry("a", f4 + "[0,4,4]") + "}", 4), "two numbers"},
      {"begin after end", file_of("{" + entry("a", f4 + "[4,0]") + "}", 4), "after its end"},
      {"size too small", file_of("{" + entry("a", f4 + "[0,3]") + "}", 3),
       "takes 4 bytes, its offsets hold 3"},
      {"size too large", file_of("{" + entry("a", f4 + "[0,8]") + "}", 8),
       "takes 4 bytes, its offsets hold 8"},
      {"product overflows to 0",
       file_of(
           "{" + entry("a", R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])") + "}",
           0),
       "overflows"},
      {"bytes overflow to 0",
       file_of("{" + entry("a", R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])") + "}",
               0),
       "overflows"},
      {"half a byte", file_of("{" + entry("a", R"("dtype":"F4","shape":[3],"data_offsets":[0,2])") + "}", 2),
       "no whole number of bytes"},
      {"overlap", file_of("{" + entry("a", f4 + "[0,4]") + "," + entry("b", f4 + "[2,6]") + "}", 6),
       "within that of the one before"},
      {"the same bytes twice",
       file_of("{" + entry("a", f4 + "[0,4]") + "," + entry("b", f4 + "[0,4]") + "}", 4),
       "within that of the one before"},
      {"hole", file_of("{" + entry("a", f4 + "[0,4]") + "," + entry("b", f4 + "[5,9]") + "}", 9), "a hole"},
      {"hole at the beginning", file_of("{" + entry("a", f4 + "[1,5]") + "}", 5), "a hole"},
      {"trailing bytes", file_of("{" + entry("a", f4 + "[0,4]") + "}", 5), "1 bytes belong to no tensor"},
      {"data without tensors", file_of("{}", 1), "belong to no tensor"},
      {"data cut short", file_of("{" + entry("a", f4 + "[0,4]") + "}", 3), "cut short"},
      {"entry a number", file_of("{\"a\":1}", 0), "\"a\": expected an object"},
      {"entry null", file_of("{\"a\":null}", 0), "\"a\": expected an object"},
      {"entry a list", file_of("{\"a\":[]}", 0), "\"a\": expected an object"},
      {"metadata a list", file_of("{\"__metadata__\":[]}", 0), "__metadata__"},
      {"metadata of numbers", file_of("{\"__metadata__\":{\"a\":1}}", 0), "\"a\": expected a string"},
      {"metadata nested", file_of("{\"__metadata__\":{\"a\":{}}}", 0), "\"a\": expected a string"},
      {"metadata null value", file_of("{\"__metadata__\":{\"a\":null}}", 0), "\"a\": expected a string"},
      {"deep nesting in a shape", file_of("{" + entry("a", "\"shape\":" + deep), 0), "\"shape\""},
      {"deep nesting in an unknown key", file_of("{" + entry("a", "\"x\":" + deep), 0), "nested too deeply"},
  };
}

TEST(Safetensors, EveryMalformedFileIsRefusedWithItsReason) {
  const Scratch scratch;
  for (const Malformed& bad : malformed_files()) {
    const fs::path path = scratch.put("bad.safetensors", bad.file);
    const std::string message = error_of([&] { SafetensorsFile file(path); });
    EXPECT_NE(message.find(bad.message), message.npos) << bad.what << ": " << message;
    EXPECT_NE(message.find(path.string()), message.npos) << bad.what << ": " << message;
  }
}

TEST(Safetensors, OddButValidFilesAreRead) {
  const Scratch scratch;
  const std::string empty_between = "{" + entry("b", R"("dtype":"F32","shape":[2],"data_offsets":[0,8])") +
                                    "," + entry("a", R"("dtype":"F32","shape":[0,3],"data_offsets":[8,8])") +
                                    "," + entry("", R"("dtype":"I64","shape":[],"data_offsets":[8,16])") +
                                    "}   \n";
  const SafetensorsFile file(scratch.put("odd.safetensors", file_of(empty_between, 16)));
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.at("").data.size(), 8u);
  EXPECT_EQ(file.at("a").shape, (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(SafetensorsFile(scratch.put("none.safetensors", file_of("{}", 0))).entries().empty());
  EXPECT_TRUE(SafetensorsFile(scratch.put("null.safetensors", file_of(R"({"__metadata__":null})", 0)))
                  .metadata()
                  .empty());
  const std::string unknown =
      "{" + entry("a", R"("more":{"x":[1,{}]},"dtype":"U8","shape":[1],"data_offsets":[0,1],"y":null)") + "}";
  EXPECT_EQ(SafetensorsFile(scratch.put("more.safetensors", file_of(unknown, 1))).at("a").dtype, DType::U8);
}

TEST(Safetensors, AMissingNameSuggestsTheNearest) {
  const Scratch scratch;
  const std::string header =
      "{" + entry("encoder.weight", R"("dtype":"U8","shape":[1],"data_offsets":[0,1])") + "}";
  const SafetensorsFile file(scratch.put("a.safetensors", file_of(header, 1)));
  EXPECT_EQ(file.find("encoder.wieght"), nullptr);
  const std::string message = error_of([&] { file.at("encoder.wieght"); });
  EXPECT_NE(message.find("did you mean \"encoder.weight\"?"), message.npos) << message;
}

TEST(SafetensorsWriter, WhatIsWrittenInAnyOrderByThreadsIsReadBack) {
  const Scratch scratch;
  const fs::path path = scratch / "w.safetensors";
  const std::string big(300'000, 'B'), scalar(8, 's');
  SafetensorsWriter writer(
      path, {{"big", DType::BF16, {1500, 100}}, {"scalar", DType::F64, {}}, {"none", DType::F32, {0, 7}}});
  EXPECT_FALSE(fs::exists(path));
  std::vector<std::thread> threads;
  for (const uint64_t begin : {200'000, 0, 100'000})
    threads.emplace_back([&, begin] { writer.write_at("big", begin, bytes(big).subspan(begin, 100'000)); });
  for (std::thread& thread : threads) thread.join();
  writer.write("scalar", bytes(scalar));
  const uint64_t hash = writer.close();
  EXPECT_EQ(hash, hash_file(path));
  EXPECT_EQ(fs::file_size(path), writer.file_size());
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(std::memcmp(file.at("big").data.data(), big.data(), big.size()), 0);
  EXPECT_EQ(std::memcmp(file.at("scalar").data.data(), scalar.data(), 8), 0);
  EXPECT_TRUE(file.at("none").data.empty());
  EXPECT_EQ(file.entries()[0].name, "scalar");  // the widest dtype first
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.entries()[0].data.data()) % 64, 0u);
}

TEST(SafetensorsWriter, TheFileDoesNotDependOnTheOrderOfDeclarationsOrWrites) {
  const Scratch scratch;
  const std::string one(4, '1'), two(8, '2');
  const auto write = [&](const char* name, bool swapped) {
    std::vector<TensorDeclaration> tensors = {{"one", DType::F32, {1}}, {"two", DType::F32, {2}}};
    if (swapped) std::swap(tensors[0], tensors[1]);
    SafetensorsWriter writer(scratch / name, tensors);
    writer.write(swapped ? "two" : "one", bytes(swapped ? two : one));
    writer.write(swapped ? "one" : "two", bytes(swapped ? one : two));
    const uint64_t hash = writer.close();
    EXPECT_EQ(hash, hash_file(scratch / name));
    return read_file(scratch / name);
  };
  EXPECT_EQ(write("a", false), write("b", true));
}

TEST(SafetensorsWriter, MistakesOfTheCallerAreNamed) {
  const Scratch scratch;
  const fs::path path = scratch / "w.safetensors";
  const std::string four(4, 'x');
  EXPECT_NE(error_of([&] {
              SafetensorsWriter(path, {{"a", DType::U8, {1}}, {"a", DType::U8, {1}}});
            }).find("declared twice"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              SafetensorsWriter(path, {{"a", DType::U8, {-1}}});
            }).find("impossible"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              SafetensorsWriter(path, {{"__metadata__", DType::U8, {1}}});
            }).find("reserved"),
            std::string::npos);
  {
    SafetensorsWriter writer(path, {{"a", DType::U8, {8}}});
    EXPECT_NE(error_of([&] { writer.write("b", bytes(four)); }).find("not declared"), std::string::npos);
    EXPECT_NE(error_of([&] { writer.write("a", bytes(four)); }).find("declared with 8 bytes"),
              std::string::npos);
    EXPECT_NE(error_of([&] { writer.write_at("a", 5, bytes(four)); }).find("has 8 bytes"), std::string::npos);
    EXPECT_NE(error_of([&] { writer.write_at("a", ~uint64_t{0}, bytes(four)); }).find("has 8 bytes"),
              std::string::npos);
    writer.write_at("a", 2, bytes(four));
    EXPECT_NE(error_of([&] { writer.write_at("a", 5, bytes(four).first(1)); }).find("written twice"),
              std::string::npos);
    EXPECT_NE(error_of([&] { writer.write_at("a", 0, bytes(four)); }).find("written twice"),
              std::string::npos);
    EXPECT_NE(error_of([&] { writer.close(); }).find("not written wholly"), std::string::npos);
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));  // nothing is left of a file that was not closed
}

TEST(SafetensorsWriter, AMappingOfTheFileThatIsReplacedStaysValid) {
  const Scratch scratch;
  const fs::path path = scratch / "w.safetensors";
  const auto write = [&](char value) {
    const std::string data(5000, value);
    SafetensorsWriter writer(path, {{"a", DType::U8, {5000}}});
    writer.write("a", bytes(data));
    writer.close();
  };
  write('1');
  const SafetensorsFile old(path);
  write('2');
  EXPECT_EQ(old.at("a").data[4999], std::byte{'1'});
  EXPECT_EQ(SafetensorsFile(path).at("a").data[4999], std::byte{'2'});
}

TEST(SafetensorsFuzz, MutatedFilesAreReadWithinBoundsOrRefused) {
  const Scratch scratch;
  std::mt19937_64 random(20240607);
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             entry("a", R"("dtype":"F32","shape":[2,3],"data_offsets":[0,24])") + "," +
                             entry("b", R"("dtype":"BF16","shape":[],"data_offsets":[24,26])") + "}";
  size_t valid = 0, refused = 0;
  for (int round = 0, rounds = fuzz_rounds(6000); round < rounds; ++round) {
    std::string file;
    if (round % 3 == 0) {
      file = mutate(file_of(header, 26), random);
    } else {
      file = file_of(mutate(header, random), 26);  // keeps the length right, so that the JSON is reached
    }
    const fs::path path = scratch.put("fuzz.safetensors", file);
    try {
      const SafetensorsFile read(path);
      uint64_t sum = 0;
      for (const TensorEntry& tensor : read.entries())
        for (const std::byte byte : tensor.data) sum += static_cast<uint64_t>(byte);
      valid += sum != 1;  // uses the sum, so that every byte is touched
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(valid, 20u);
  EXPECT_GT(refused, 3000u);
}

}  // namespace
}  // namespace funicular::format
