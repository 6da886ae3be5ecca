// Manifests: every damage to a folder is found and named; a committed folder appears whole.

#include "funicular/format/manifest.h"

#include "scratch.h"

namespace funicular::format {
namespace {

fs::path checkpoint(const Scratch& scratch) {
  const fs::path folder = scratch / "step-1.tmp";
  make_directories(folder / "inner");
  write_file_atomically(folder / "model.bin", std::string(10'000, 'm'));
  write_file_atomically(folder / "inner" / "state.json", "{}");
  write_file_atomically(folder / "empty", "");
  write_manifest(folder);
  return folder;
}

std::string problem(const fs::path& folder, bool deep = true) {
  return verify_manifest(folder, deep).value_or("");
}

TEST(Manifest, AnIntactFolderVerifies) {
  const Scratch scratch;
  const fs::path folder = checkpoint(scratch);
  EXPECT_EQ(problem(folder), "");
  EXPECT_EQ(read_manifest(folder).size(), 3u);
  EXPECT_EQ(read_manifest(folder).at("inner/state.json").size, 2u);
  EXPECT_EQ(read_manifest(folder).at("model.bin").hash, hash_bytes(std::string(10'000, 'm')));
}

TEST(Manifest, EveryDamageIsFoundAndNamed) {
  const auto after = [](auto damage, bool deep = true) {
    const Scratch scratch;
    const fs::path folder = checkpoint(scratch);
    damage(folder);
    return problem(folder, deep);
  };
  const auto flip = [](const fs::path& folder) {
    std::string text = read_file(folder / "model.bin");
    text[5'000] ^= 1;
    write_file_atomically(folder / "model.bin", text);
  };
  EXPECT_NE(after(flip).find("model.bin: its contents have changed"), std::string::npos);
  EXPECT_EQ(after(flip, /*deep=*/false), "");
  EXPECT_NE(after([](const fs::path& folder) { fs::resize_file(folder / "model.bin", 9'999); }, false)
                .find("expected 10000 bytes, found 9999"),
            std::string::npos);
  EXPECT_NE(after([](const fs::path& folder) {
              fs::remove(folder / "inner" / "state.json");
            }).find("state.json: No such file"),
            std::string::npos);
  EXPECT_NE(after([](const fs::path& folder) { fs::remove(folder / kManifestName); }).find("manifest.json"),
            std::string::npos);
  EXPECT_NE(after([](const fs::path& folder) {
              fs::resize_file(folder / kManifestName, 50);
            }).find("not valid JSON"),
            std::string::npos);
  EXPECT_NE(after([](const fs::path& folder) {
              fs::resize_file(folder / kManifestName, 0);
            }).find("not valid JSON"),
            std::string::npos);
}

TEST(Manifest, PathsThatLeaveTheFolderAreRefused) {
  const Scratch scratch;
  for (const char* name : {"../model.bin", "/etc/passwd", "a/../../b", ""}) {
    scratch.put(kManifestName, std::string(R"({"format":"funicular-manifest","version":1,"files":{")") +
                                   name + R"(":{"size":1,"xxh3":"0000000000000000"}}})");
    EXPECT_NE(error_of([&] { read_manifest(scratch.path()); }).find("no path within the folder"),
              std::string::npos)
        << name;
  }
  scratch.put(kManifestName, R"({"format":"funicular-manifest","version":2,"files":{}})");
  EXPECT_NE(problem(scratch.path()).find("expected version 1, found 2"), std::string::npos);
}

TEST(Manifest, HashesHaveSixteenDigits) {
  const Scratch scratch;
  for (const char* hash :
       {"000000000000000", "00000000000000000", "", "0x00000000000000", "000000000000000g"}) {
    scratch.put(kManifestName, std::string(R"({"format":"funicular-manifest","version":1,"files":{"a":)") +
                                   R"({"size":1,"xxh3":")" + hash + R"("}}})");
    EXPECT_NE(error_of([&] { read_manifest(scratch.path()); }).find("expected 16 hexadecimal digits"),
              std::string::npos)
        << hash;
  }
}

TEST(Manifest, MutatedManifestsNeverThrowWhileVerifying) {
  const Scratch scratch;
  const fs::path folder = checkpoint(scratch);
  const std::string manifest = read_file(folder / kManifestName);
  std::mt19937_64 random(13);
  size_t found = 0;
  for (int round = 0; round < 500; ++round) {
    scratch.put("step-1.tmp/manifest.json", mutate(manifest, random));
    found += !problem(folder).empty();
  }
  EXPECT_GT(found, 250u);
}

}  // namespace
}  // namespace funicular::format
