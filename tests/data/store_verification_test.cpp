#include "funicular/data/store_verification.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/data/datasets.h"
#include "funicular/data/store_files.h"
#include "store_fixture.h"

namespace funicular::data {
namespace {

constexpr uint64_t kSmallBlock = 64;
const char* const kFiles[] = {kTokensFile, kRowsFile, kDocumentsFile, kWordsFile, kLabelsFile};

class StoreVerificationTest : public ScratchTest {
 protected:
  fs::path path() const { return folder_ / "a.tokens"; }

  std::shared_ptr<const TokenStore> make(uint64_t block_bytes = kSmallBlock) const {
    return make_store(path(), random_rows(60, 2), 2,
                      {.overwrite = true, .labels = LabelKind::classes, .block_bytes = block_bytes}, 0, 7);
  }
  void write(const char* name, const std::string& contents) const {
    std::ofstream(path() / name, std::ios::binary) << contents;
  }
  /// Changes a bit; returns the file as it was.
  std::string flip(const char* name, size_t place) const {
    const std::string whole = read_file(path() / name);
    std::string changed = whole;
    changed.at(place) = static_cast<char>(changed[place] ^ 4);
    write(name, changed);
    return whole;
  }
  /// Makes the store one of those from before there were checksums of blocks.
  void make_old() const {
    Json meta = read_json(path() / kMetaFile);
    meta.erase("block_bytes");
    meta.erase("xxh3");
    for (auto& file : meta["files"]) file.erase("blocks");
    write(kMetaFile, meta.dump(1) + "\n");
  }
};

void expect_in(const std::string& phrase, const std::string& message) {
  EXPECT_NE(message.find(phrase), std::string::npos) << "\"" << phrase << "\" is not in: " << message;
}

TEST_F(StoreVerificationTest, EveryBlockIsRecordedWithTheChecksumOfItsBytes) {
  for (const uint64_t block_bytes : {uint64_t{1}, kSmallBlock, uint64_t{1000}, kBlockBytes}) {
    const auto store = make(block_bytes);
    EXPECT_EQ(store->meta().block_bytes, block_bytes);
    ASSERT_EQ(store->meta().files.size(), 5u);
    for (const auto& file : store->meta().files) {
      const std::string contents = read_file(path() / file.name);
      std::vector<uint64_t> expected;
      for (size_t begin = 0; begin < contents.size(); begin += block_bytes)
        expected.push_back(hash_bytes(std::string_view(contents).substr(begin, block_bytes)));
      EXPECT_EQ(file.blocks, expected) << file.name << ", blocks of " << block_bytes;
      EXPECT_EQ(file.checksum, hash_bytes(contents)) << file.name;
    }
  }
}

TEST_F(StoreVerificationTest, AFlippedBitOfAnyFileIsRefusedWhenTheStoreIsOpenedAndItsBlockNamed) {
  make();
  for (const char* name : kFiles) {
    const size_t size = read_file(path() / name).size();
    for (const size_t place : {size_t{0}, size / 2, size - 1}) {
      const std::string whole = flip(name, place);
      const size_t begin = place / kSmallBlock * kSmallBlock, end = std::min(begin + kSmallBlock, size);
      const auto message = input_error([&] { TokenStore::open(path()); });
      expect_in((path() / name).string(), message);
      expect_in("bytes " + std::to_string(begin) + " to " + std::to_string(end - 1), message);
      expect_in("block " + std::to_string(begin / kSmallBlock + 1) + " of " +
                    std::to_string((size + kSmallBlock - 1) / kSmallBlock),
                message);
      expect_in("the checksum " + hash_text(hash_bytes(read_file(path() / name).substr(begin, kSmallBlock))),
                message);
      expect_in("expected " + hash_text(hash_bytes(whole.substr(begin, kSmallBlock))), message);
      expect_in("make it again with `funicular tokenize`", message);
      EXPECT_EQ(input_error([&] { TokenStore::open(path(), {.verify = false})->verify(); }), message);
      write(name, whole);
    }
  }
  EXPECT_NO_THROW(TokenStore::open(path()));
}

TEST_F(StoreVerificationTest, AFlippedBitAnywhereInMetaIsRefused) {
  make();
  const std::string whole = read_file(path() / kMetaFile);
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 4);
    EXPECT_THROW(read_store_meta(changed, "meta.json"), InputError)
        << "byte " << place << ": " << changed[place];
  }
  EXPECT_NO_THROW(read_store_meta(whole, "meta.json"));
  flip(kMetaFile, whole.size() / 2);
  expect_in("meta.json", input_error([&] { TokenStore::open(path()); }));
}

TEST_F(StoreVerificationTest, AMetaWhoseTextWasChangedSaysSo) {
  const auto names = make()->meta().label_names;
  std::string meta = read_file(path() / kMetaFile);
  const size_t place = meta.find("\"" + names.back() + "\"") + 1;
  meta[place] = '7';
  write(kMetaFile, meta);
  const auto message = input_error([&] { TokenStore::open(path()); });
  expect_in("meta.json: damaged, or changed by hand", message);
  expect_in("make it again", message);
}

TEST_F(StoreVerificationTest, AnOlderStoreOpensAndIsVerifiedByWholeFiles) {
  const uint64_t fingerprint = make()->fingerprint();
  make_old();
  const auto store = TokenStore::open(path());
  EXPECT_EQ(store->meta().block_bytes, 0u);
  EXPECT_EQ(store->fingerprint(), fingerprint) << "runs on it go on with a store that is made again";
  EXPECT_NO_THROW(store->verify());
  for (const char* name : kFiles) {
    const std::string whole = flip(name, read_file(path() / name).size() / 2);
    const auto message = input_error([&] { TokenStore::open(path()); });
    expect_in((path() / name).string(), message);
    expect_in("expected " + hash_text(hash_bytes(whole)), message);
    write(name, whole);
  }
}

TEST_F(StoreVerificationTest, ALargeStoreIsUsableAtOnceAndItsDamageIsFoundMeanwhile) {
  make();
  const std::string whole = flip(kTokensFile, 200);
  const auto store = TokenStore::open(path(), {.verify_first = 0});
  EXPECT_EQ(store->row(0).columns.size(), 2u);
  const auto message = input_error([&] { store->require_sound(); });
  expect_in("tokens.bin: damaged: bytes 192 to 255 (block 4 of", message);
  EXPECT_TRUE(store->found_damaged());
  EXPECT_EQ(input_error([&] { store->require_sound(); }), message) << "asked again";
  write(kTokensFile, whole);
  const auto sound = TokenStore::open(path(), {.verify_first = 0});
  EXPECT_NO_THROW(sound->require_sound());
  EXPECT_FALSE(sound->found_damaged());
}

TEST_F(StoreVerificationTest, WhatFitsTheLimitIsVerifiedBeforeTheStoreIsUsedTokensLast) {
  const auto meta = make()->meta();
  uint64_t others = 0, tokens = 0;
  for (const auto& file : meta.files) (file.name == kTokensFile ? tokens : others) += file.bytes;
  for (const char* name : {kRowsFile, kDocumentsFile, kWordsFile, kLabelsFile}) {
    const std::string whole = flip(name, read_file(path() / name).size() - 1);
    EXPECT_THROW(TokenStore::open(path(), {.verify_first = others}), InputError) << name;
    write(name, whole);
  }
  flip(kTokensFile, tokens - 1);
  EXPECT_THROW(TokenStore::open(path(), {.verify_first = others + tokens}), InputError);
  const auto store = TokenStore::open(path(), {.verify_first = others + tokens - 1});
  EXPECT_THROW(store->require_sound(), InputError);
}

TEST_F(StoreVerificationTest, ProcessesThatShareTheWorkFindEveryBlockOnceTogether) {
  make();
  for (const char* name : kFiles) {
    const size_t size = read_file(path() / name).size();
    for (size_t place = 0; place < size; place += kSmallBlock) {
      const std::string whole = flip(name, place);
      int found = 0;
      for (int part = 0; part < 3; ++part) {
        try {
          TokenStore::open(path(), {.part = part, .parts = 3});
        } catch (const InputError& error) {  // the ends of offsets are looked at by all
          found += std::string(error.what()).find("the checksum") != std::string::npos;
        }
      }
      EXPECT_EQ(found, 1) << name << ", byte " << place;
      write(name, whole);
    }
  }
}

TEST_F(StoreVerificationTest, DataSetsOverTheStoreKnowOfItsDamage) {
  make();
  flip(kWordsFile, 3);
  const auto store = TokenStore::open(path(), {.verify_first = 0});
  const auto rows = std::make_shared<RowDataset>(store);
  const auto pieces = std::make_shared<ChunkDataset>(store, 16);
  const SubsetDataset some(pieces, std::vector<uint64_t>(static_cast<size_t>(pieces->size() + 63) / 64, 5),
                           0);
  for (const Dataset* dataset :
       {static_cast<const Dataset*>(rows.get()), static_cast<const Dataset*>(pieces.get()),
        static_cast<const Dataset*>(&some)}) {
    EXPECT_THROW(dataset->require_sound(), InputError);
    EXPECT_TRUE(dataset->found_damaged());
  }
}

TEST_F(StoreVerificationTest, TheLimitIsWhatTheEnvironmentSays) {
  EXPECT_EQ(StoreOpenOptions().verify_first, kVerifiedFirst);
  ::setenv("FUNICULAR_VERIFY_FIRST", "12345", 1);
  EXPECT_EQ(StoreOpenOptions().verify_first, 12345u);
  for (const char* wrong : {"x", "-1", "1.5", "99999999999999999999", "1 "}) {
    ::setenv("FUNICULAR_VERIFY_FIRST", wrong, 1);
    EXPECT_THROW(bytes_verified_first(), InputError) << wrong;
  }
  ::unsetenv("FUNICULAR_VERIFY_FIRST");
}

TEST_F(StoreVerificationTest, MetaWithAWrongNumberOfBlocksIsRefused) {
  StoreMeta meta = make()->meta();
  meta.files[1].blocks.pop_back();
  const auto message = input_error([&] { read_store_meta(write_store_meta(meta), "meta.json"); });
  expect_in("rows.bin", message);
  expect_in("found " + std::to_string(meta.files[1].blocks.size()), message);
}

}  // namespace
}  // namespace funicular::data
