#include "funicular/format/model_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "funicular/base/temporary_folder.h"
#include "funicular/format/hub_hint.h"

namespace funicular::format {
namespace model_folder_tests {

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const variable : kVariables) ::unsetenv(variable);
    ::setenv("HF_HUB_CACHE", cache().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("HF_HUB_CACHE"); }

  fs::path cache() const { return folder_.path() / "cache"; }
  void write(const fs::path& file, const std::string& text = "{}") const {
    fs::create_directories(file.parent_path());
    write_file_atomically(file, text);
  }
  /// Puts a model into the cache as huggingface_hub does.
  fs::path cached(const std::string& folder, const std::string& commit = "c0ffee") const {
    write(cache() / folder / "refs" / "main", commit);
    const fs::path snapshot = cache() / folder / "snapshots" / commit;
    write(snapshot / "config.json");
    return snapshot;
  }

  static constexpr const char* kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                               "XDG_CACHE_HOME"};
  TemporaryFolder folder_;
};

TEST_F(ModelFolder, NamesOfTheHubAreFoundInTheCache) {
  const fs::path bare = cached("models--tiny-bert"), owned = cached("models--org--tiny.bert_2", "abc");
  EXPECT_EQ(find_model_folder("tiny-bert"), bare);
  EXPECT_EQ(find_model_folder("org/tiny.bert_2"), owned);
  EXPECT_EQ(find_model_folder("org/other"), "org/other");
}

TEST_F(ModelFolder, AnIncompleteDownloadIsNoModel) {
  const fs::path snapshot = cached("models--org--half");
  fs::remove(snapshot / "config.json");
  EXPECT_EQ(find_model_folder("org/half"), "org/half");
  fs::remove(cache() / "models--org--half" / "refs" / "main");
  EXPECT_EQ(find_model_folder("org/half"), "org/half");
}

TEST_F(ModelFolder, ACommitLeadsNowhereElse) {
  cached("models--org--good");
  fs::create_directories(cache() / "models--org--bad" / "snapshots");
  write(cache() / "models--org--bad" / "refs" / "main", "../../models--org--good/snapshots/c0ffee");
  EXPECT_EQ(find_model_folder("org/bad"), "org/bad");
}

TEST_F(ModelFolder, WhatExistsComesBeforeTheCache) {
  cached("models--tiny");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  write(folder_.path() / "tiny" / "config.json");
  EXPECT_EQ(find_model_folder("tiny"), "tiny");
  fs::current_path(before);
}

TEST_F(ModelFolder, TheFolderOfARunStandsForItsModel) {
  const fs::path run = folder_.path() / "run";
  write(run / "run.json");
  EXPECT_EQ(find_model_folder(run), run);  // it has none yet
  write(run / "model" / "config.json");
  EXPECT_EQ(find_model_folder(run), run / "model");
  write(run / "config.json");
  EXPECT_EQ(find_model_folder(run), run);
}

TEST_F(ModelFolder, TheCacheIsWhereHuggingFaceHasIt) {
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(hub_cache(), "/home/me/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(hub_cache(), "/caches/huggingface/hub");
  ::setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(hub_cache(), "/home/me/hf/hub");
  ::setenv("HF_HUB_CACHE", "/hub", 1);
  EXPECT_EQ(hub_cache(), "/hub");
  for (const char* const variable : kVariables) ::unsetenv(variable);
}

TEST_F(ModelFolder, PathsAreNoNames) {
  for (const char* const name : {"bert-base-uncased", "org/name", "org/name-v1.5", "runs"})
    EXPECT_TRUE(is_hub_name(name)) << name;
  for (const char* const path :
       {"./runs", "/models/bert", "../bert", "runs/a/model", "~/bert", "org/", "/", "", "a b", ".."})
    EXPECT_FALSE(is_hub_name(path)) << path;
  EXPECT_EQ(hub_hint("runs/a/model"), "");
  EXPECT_NE(hub_hint("org/name").find("hf download org/name"), std::string::npos);
}

TEST_F(ModelFolder, AMissingFolderBesideOthersIsNoName) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_NE(hub_hint("runs/form"), "");
  fs::create_directory("runs");
  EXPECT_EQ(hub_hint("runs/form"), "");
  EXPECT_NE(hub_hint("form"), "");
  fs::current_path(before);
}

}  // namespace model_folder_tests
}  // namespace funicular::format
