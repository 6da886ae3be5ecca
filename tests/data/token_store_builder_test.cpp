#include "funicular/data/token_store_builder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "funicular/data/store_files.h"
#include "funicular/data/store_writer.h"
#include "store_fixture.h"

namespace funicular::data {
namespace {

class StoreBuilder : public ScratchTest {
 protected:
  fs::path path() const { return folder_ / "a.tokens"; }
  fs::path temporary() const { return building_folder(path()); }

  std::map<std::string, std::string> contents(const fs::path& store) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(store))
      files[entry.path().filename().string()] = read_file(entry.path());
    return files;
  }
  std::vector<std::string> names_in_folder() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    return names;
  }
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
};

/// Stops in the middle: the read of one piece runs `action`.
class InterceptedSource : public MemorySource {
 public:
  InterceptedSource(std::vector<Row> rows, size_t piece, std::function<void()> action)
      : MemorySource(std::move(rows), 1, true, 16), piece_(piece), action_(std::move(action)) {}
  uint64_t read(size_t piece, const RowSink& sink) const override {
    if (piece == piece_) action_();
    return MemorySource::read(piece, sink);
  }

 private:
  size_t piece_;
  std::function<void()> action_;
};

TEST_F(StoreBuilder, TheStoreIsTheSameByteForByteForAnyNumberOfThreadsAndAnyCut) {
  const auto rows = random_rows(3000, 2);
  const auto build = [&](const char* name, int threads, size_t rows_per_piece) {
    make_store(folder_ / name, rows, 2, {.threads = threads, .labels = LabelKind::classes}, 0,
               rows_per_piece);
    return contents(folder_ / name);
  };
  const auto one = build("one", 1, 3000);
  EXPECT_EQ(one.size(), 6u);
  EXPECT_EQ(build("b", 1, 7), one);
  EXPECT_EQ(build("c", 2, 7), one);
  EXPECT_EQ(build("d", 5, 13), one);
  EXPECT_EQ(build("e", 16, 1), one);
}

TEST_F(StoreBuilder, TheErrorOfTheFirstWrongRowIsToldHoweverManyThreads) {
  auto rows = random_rows(400, 1);
  rows[123].label = "x1";
  rows[131].label = "x2";
  rows[399].label = "x3";
  // Once the piece of row 123 is the slower one, so that other threads meet the later errors first; once the piece behind it,
  // so that its error comes when the first one is known.
  struct Slow final : MemorySource {
    std::array<int, 2> milliseconds;
    Slow(std::vector<Row> rows, std::array<int, 2> milliseconds)
        : MemorySource(std::move(rows), 1, true, 16), milliseconds(milliseconds) {}
    uint64_t read(size_t piece, const RowSink& sink) const override {
      if (const size_t slow = piece - 123 / 16; slow < 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds[slow]));
      return MemorySource::read(piece, sink);
    }
  };
  for (const std::array<int, 2> milliseconds : {std::array{120, 30}, std::array{30, 120}}) {
    const Slow source(rows, milliseconds);
    for (int threads : {1, 2, 8}) {
      const auto message = input_error([&] {
        build_token_store(letters(), source, path(), {.threads = threads, .labels = LabelKind::values});
      });
      EXPECT_NE(message.find("row 123"), std::string::npos) << message;
      EXPECT_TRUE(names_in_folder().empty()) << "nothing is left of a failed build";
    }
  }
}

TEST_F(StoreBuilder, StoppingLeavesNothingAndSaysInterrupted) {
  std::atomic<bool> stop = false;
  const InterceptedSource source(random_rows(2000, 1), 20, [&] {
    stop = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the builder looks ten times a second
  });
  try {
    build_token_store(letters(), source, path(), {.threads = 2, .stop = [&] { return stop.load(); }});
    FAIL() << "the build went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::interrupted) << error.what();
  }
  EXPECT_TRUE(names_in_folder().empty());
}

TEST_F(StoreBuilder, AKilledBuildIsNeverUsedAndTheNextOneClearsIt) {
  const auto rows = random_rows(2000, 1);
  for (size_t piece : {size_t{0}, size_t{3}, size_t{100}}) {
    const pid_t child = ::fork();
    if (child == 0) {  // dies as by SIGKILL: no destructor runs
      const InterceptedSource source(rows, piece, [] { ::_exit(9); });
      build_token_store(letters(), source, path(), {.threads = 2});
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(WEXITSTATUS(status), 9);
    ASSERT_TRUE(fs::exists(temporary()));
    EXPECT_FALSE(fs::exists(path()));
    const auto message = input_error([&] { TokenStore::open(path()); });
    EXPECT_NE(message.find("interrupted"), std::string::npos) << message;
    input_error([&] { TokenStore::open(temporary()); });
    EXPECT_NO_THROW(make_store(path(), rows, 1)->verify());
    EXPECT_EQ(names_in_folder(), std::vector<std::string>{"a.tokens"});
    fs::remove_all(path());
  }
}

TEST_F(StoreBuilder, AKilledReplacementLeavesTheOldStoreWhole) {
  const auto before = make_store(path(), random_rows(10, 1, 1), 1)->fingerprint();
  const pid_t child = ::fork();
  if (child == 0) {
    const InterceptedSource source(random_rows(500, 1, 2), 12, [] { ::_exit(9); });
    build_token_store(letters(), source, path(), {.threads = 2, .overwrite = true});
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  const auto store = TokenStore::open(path());
  EXPECT_NO_THROW(store->verify());
  EXPECT_EQ(store->fingerprint(), before);
}

TEST_F(StoreBuilder, ALinkInThePlaceOfTheFolderWhereItIsBuiltIsNeitherFollowedNorRemoved) {
  fs::create_directories(folder_ / "victim");
  for (const char* name : {"tokens.bin", "meta.json"}) write(std::string("victim/") + name, "mine");
  const auto before = contents(folder_ / "victim");
  for (const fs::path& target :
       {folder_ / "victim", folder_ / "victim" / "tokens.bin", folder_ / "nowhere"}) {
    fs::create_symlink(target, temporary());
    const auto message = input_error([&] { make_store(path(), random_rows(10, 1), 1); });
    EXPECT_NE(message.find(temporary().string()), std::string::npos) << message;
    EXPECT_NE(message.find("remove it"), std::string::npos) << message;
    EXPECT_EQ(contents(folder_ / "victim"), before);
    EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
    EXPECT_TRUE(fs::is_symlink(temporary()));
    fs::remove(temporary());
  }
  EXPECT_NO_THROW(make_store(path(), random_rows(10, 1), 1));
}

TEST_F(StoreBuilder, LinksWithinALeftoverAreNotWrittenThrough) {
  const auto victim = write("victim", "mine");
  for (const bool hard : {false, true}) {
    fs::create_directories(temporary());
    for (const char* name : {kTokensFile, kRowsFile, kMetaFile})
      hard ? fs::create_hard_link(victim, temporary() / name)
           : fs::create_symlink(victim, temporary() / name);
    const auto store = make_store(path(), random_rows(10, 1), 1, {.overwrite = true});
    EXPECT_EQ(store->rows(), 10);
    EXPECT_EQ(read_file(victim), "mine");
    for (const auto& entry : fs::directory_iterator(path())) {
      EXPECT_FALSE(entry.is_symlink()) << entry.path();
      EXPECT_EQ(entry.hard_link_count(), 1u) << entry.path();
    }
    EXPECT_FALSE(fs::exists(temporary()));
  }
}

TEST_F(StoreBuilder, AFolderOfOtherFilesInThePlaceWhereItIsBuiltIsKept) {
  fs::create_directories(temporary());
  std::ofstream(temporary() / "notes.txt") << "mine";
  const auto message = input_error([&] { make_store(path(), random_rows(10, 1), 1); });
  EXPECT_NE(message.find("notes.txt"), std::string::npos) << message;
  EXPECT_EQ(read_file(temporary() / "notes.txt"), "mine");
}

TEST_F(StoreBuilder, OnlyItsOwnerMayEnterTheFolderWhileItIsBuiltAndTheStoreHasTheUsualRights) {
  const mode_t before = ::umask(022);
  fs::perms building{};
  const InterceptedSource source(random_rows(100, 1), 2,
                                 [&] { building = fs::status(temporary()).permissions(); });
  build_token_store(letters(), source, path());
  ::umask(before);
  EXPECT_EQ(building, fs::perms::owner_all);
  EXPECT_EQ(static_cast<int>(fs::status(path()).permissions()), 0755);
}

TEST_F(StoreBuilder, ASecondBuildOfTheSameStoreIsRefusedWhileTheFirstRuns) {
  std::string message;
  const InterceptedSource source(random_rows(100, 1), 2, [&] {
    message = input_error([&] { make_store(path(), random_rows(5, 1), 1); });
  });
  build_token_store(letters(), source, path());
  EXPECT_NE(message.find("another build"), std::string::npos) << message;
  EXPECT_EQ(TokenStore::open(path())->rows(), 100) << "the first one is not disturbed";
}

TEST_F(StoreBuilder, ReplacesAStoreOnlyWhenAskedAndKeepsItsReadersSafe) {
  const auto old_rows = random_rows(10, 1, 1), new_rows = random_rows(20, 1, 2);
  const auto old_store = make_store(path(), old_rows, 1);
  const auto expected = ids(old_store->row(9).columns[0].tokens);
  const auto message = input_error([&] { make_store(path(), new_rows, 1); });
  EXPECT_NE(message.find("--overwrite"), std::string::npos) << message;
  EXPECT_EQ(TokenStore::open(path())->rows(), 10);
  EXPECT_EQ(make_store(path(), new_rows, 1, {.overwrite = true})->rows(), 20);
  EXPECT_EQ(ids(old_store->row(9).columns[0].tokens), expected);
  EXPECT_EQ(names_in_folder(), std::vector<std::string>{"a.tokens"});
}

TEST_F(StoreBuilder, AnInputWithoutRowsIsRefusedWhereAskedAndCostsNothing) {
  make_store(path(), random_rows(10, 1), 1);
  const auto message =
      input_error([&] { make_store(path(), {}, 1, {.overwrite = true, .refuse_empty = true}); });
  EXPECT_NE(message.find("the input has no rows; expected"), std::string::npos) << message;
  EXPECT_EQ(TokenStore::open(path())->rows(), 10);
  EXPECT_EQ(names_in_folder(), std::vector<std::string>{"a.tokens"});
}

TEST_F(StoreBuilder, NeverReplacesAFolderWithOtherFilesOrAFile) {
  make_store(path(), random_rows(10, 1), 1);
  write("a.tokens/notes.txt", "mine");
  const auto message = input_error([&] { make_store(path(), random_rows(5, 1), 1, {.overwrite = true}); });
  EXPECT_NE(message.find("notes.txt"), std::string::npos) << message;
  EXPECT_EQ(read_file(path() / "notes.txt"), "mine");
  write("file", "mine");
  input_error([&] { make_store(folder_ / "file", random_rows(5, 1), 1, {.overwrite = true}); });
  EXPECT_EQ(read_file(folder_ / "file"), "mine");
}

TEST_F(StoreBuilder, ABuildThatFailsLeavesOnlyTheFoldersThatWereThere) {
  fs::create_directories(folder_ / "there");
  const auto file = write("in.tsv", "label\ttext\nx\ta\nonly one column\n");
  const TextFileSource source(
      {file}, {.header = true, .text_columns = {std::string("text")}, .label_column = std::string("label")});
  EXPECT_THROW(build_token_store(letters(), source, folder_ / "there" / "x" / "y" / "z.tokens"), InputError);
  EXPECT_TRUE(fs::is_empty(folder_ / "there"));
  // A name too long for the folder in which it would be built.
  EXPECT_THROW(build_token_store(letters(), MemorySource(random_rows(2, 1), 1, true),
                                 folder_ / "there" / "x" / std::string(250, 'n')),
               RunError);
  EXPECT_TRUE(fs::is_empty(folder_ / "there"));
}

TEST_F(StoreBuilder, AnEmptyFolderASlashAndAMissingParentAreFine) {
  fs::create_directories(path());
  EXPECT_EQ(make_store(path(), random_rows(5, 1), 1)->rows(), 5);
  build_token_store(letters(), MemorySource(random_rows(6, 1), 1, true), folder_ / "x" / "y.tokens" / "");
  EXPECT_EQ(TokenStore::open(folder_ / "x" / "y.tokens")->rows(), 6);
}

TEST_F(StoreBuilder, LabelsThatTheSourceLacksAreAnError) {
  const MemorySource source({{{"a"}}}, 1, false);
  EXPECT_THROW(build_token_store(letters(), source, path(), {.labels = LabelKind::classes}), InputError);
}

TEST_F(StoreBuilder, ReadsTextAsDocumentsBetweenBlankLines) {
  const auto file = write("in.txt", "a b\nc\n\n\nd e f\n");
  const TextFileSource source({file, file}, {});
  build_token_store(letters(), source, path());
  const auto store = TokenStore::open(path());
  EXPECT_EQ(store->rows(), 6);
  ASSERT_EQ(store->documents(), 4) << "a file begins a document";
  EXPECT_EQ(store->document_rows(0).size(), 2u);
  EXPECT_EQ(store->document_rows(1).size(), 1u);
  EXPECT_EQ(ids(store->row(2).columns[0].tokens), letters().tokenize("d e f").ids);
}

TEST_F(StoreBuilder, ReadsColumnsAndLabelsOfATableInEveryCut) {
  std::string text = "name\tsecond\tlabel\tfirst\n";
  std::vector<MemorySource::Row> rows = random_rows(300, 2);
  for (const auto& row : rows)
    text += "x\t" + row.columns[1] + "\t" + row.label + "\t" + row.columns[0] + "\n";
  const auto file = write("in.tsv", text);
  make_store(folder_ / "expected",
             [&] {
               for (auto& row : rows) row.new_document = true;
               return rows;
             }(),
             2, {.labels = LabelKind::classes});
  for (uint64_t piece : {200, 3000, 1 << 20}) {
    const TextFileSource source({file}, {.header = true,
                                         .text_columns = {std::string("first"), std::string("second")},
                                         .label_column = std::string("label"),
                                         .piece_bytes = piece});
    build_token_store(letters(), source, path(),
                      {.threads = 3, .overwrite = true, .labels = LabelKind::classes});
    EXPECT_EQ(contents(path()), contents(folder_ / "expected")) << "pieces of " << piece;
  }
}

std::vector<std::vector<int32_t>> label_sets(const TokenStore& store) {
  std::vector<std::vector<int32_t>> sets;
  for (int64_t row = 0; row < store.rows(); ++row) {
    const auto set = store.row(row).label_set;
    sets.emplace_back(set.begin(), set.end());
  }
  return sets;
}

const std::vector<MemorySource::Row> kRowsWithSets = {
    {{"a"}, "sad, joy"}, {{"b"}, ""}, {{"c"}, "joy"}, {{"d"}, "calm,sad , joy,joy"}};

TEST_F(StoreBuilder, KeepsAnyNumberOfLabelsARowInTheOrderOfTheirSortedNames) {
  for (const size_t piece : {1, 2, 100}) {
    const MemorySource source(kRowsWithSets, 1, true, piece);
    build_token_store(letters(), source, folder_ / "x.tokens",
                      {.threads = 2, .overwrite = true, .labels = LabelKind::sets});
    const auto store = TokenStore::open(folder_ / "x.tokens");
    EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"calm", "joy", "sad"}));
    EXPECT_EQ(label_sets(*store), (std::vector<std::vector<int32_t>>{{1, 2}, {}, {1}, {0, 1, 2}}));
    EXPECT_NO_THROW(store->verify());
  }
}

TEST_F(StoreBuilder, NumbersLabelSetsByTheNamesThatAreGivenAndRefusesOthers) {
  const MemorySource source(kRowsWithSets, 1, true);
  StoreBuildOptions options{.labels = LabelKind::sets, .label_names = {"sad", "joy", "calm"}};
  build_token_store(letters(), source, folder_ / "x.tokens", options);
  EXPECT_EQ(label_sets(*TokenStore::open(folder_ / "x.tokens")),
            (std::vector<std::vector<int32_t>>{{0, 1}, {}, {1}, {0, 1, 2}}));
  options.label_names = {"sad", "joy"};
  EXPECT_NE(input_error([&] {
              build_token_store(letters(), source, folder_ / "y.tokens", options);
            }).find("expected one of the labels sad, joy, found \"calm\""),
            std::string::npos);
}

TEST_F(StoreBuilder, NoticesDamagedLabelSets) {
  const MemorySource source(kRowsWithSets, 1, true);
  build_token_store(letters(), source, folder_ / "x.tokens", {.labels = LabelKind::sets});
  for (const auto& [file, at] : {std::pair{"labels.bin", 0}, std::pair{"label_rows.bin", 8}}) {
    const fs::path path = folder_ / "x.tokens" / file;
    const std::string whole = read_file(path);
    std::string changed = whole;
    changed[static_cast<size_t>(at)] ^= 64;
    std::ofstream(path, std::ios::binary) << changed;
    EXPECT_NE(input_error([&] { TokenStore::open(folder_ / "x.tokens"); }).find(file), std::string::npos);
    // Without the comparison with the checksums: never a wild read.
    const auto store = TokenStore::open(folder_ / "x.tokens", {.verify = false});
    EXPECT_NE(input_error([&] { label_sets(*store); }).find(file), std::string::npos);
    std::ofstream(path, std::ios::binary) << whole;
  }
}

TEST_F(StoreBuilder, ReadsListsOfJsonAndSeparatedLabels) {
  const auto sets_of = [&](const std::string& name, const std::string& text, TextFileSourceOptions options,
                           const std::string& separator) {
    std::ofstream(folder_ / name) << text;
    options.lists = format::Lists::last;
    const TextFileSource source({folder_ / name}, options);
    build_token_store(letters(), source, folder_ / "x.tokens",
                      {.overwrite = true, .labels = LabelKind::sets, .label_separator = separator});
    const auto store = TokenStore::open(folder_ / "x.tokens");
    EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"joy", "sad, too"}));
    return label_sets(*store);
  };
  const std::vector<std::vector<int32_t>> expected = {{0, 1}, {}, {0}};
  EXPECT_EQ(
      sets_of("rows.jsonl",
              "{\"text\": \"a\", \"label\": [\"sad, too\", \"joy\"]}\n{\"text\": \"b\", \"label\": []}\n"
              "{\"text\": \"c\", \"label\": \"joy\"}\n",
              {.text_columns = {"text"}, .label_column = "label"}, ","),
      expected);
  EXPECT_EQ(sets_of("rows.csv", "text,label\na,\"sad, too|joy\"\nb,\nc,joy\n",
                    {.header = true, .text_columns = {"text"}, .label_column = "label"}, "|"),
            expected);
  EXPECT_EQ(sets_of("rows.tsv", "a\tjoy;sad, too\nb\t\nc\tjoy\n",
                    {.text_columns = {size_t{0}}, .label_column = size_t{1}}, ";"),
            expected);
}

TEST_F(StoreBuilder, NamesFileAndLineOfAWrongLabel) {
  const auto file = write("in.tsv", "a\t1\nb\t2\nc\tthree\nd\t4\n");
  const TextFileSource source({file}, {.text_columns = {size_t{0}}, .label_column = size_t{1}});
  const auto message =
      input_error([&] { build_token_store(letters(), source, path(), {.labels = LabelKind::values}); });
  EXPECT_NE(message.find("in.tsv:3"), std::string::npos) << message;
  EXPECT_NE(message.find("three"), std::string::npos) << message;
}

TEST_F(StoreBuilder, ReadsDecimalCommasWhereSemicolonsSeparate) {
  const auto labels = [&](const char* name, const std::string& text) {
    const TextFileSource source({write(name, text)},
                                {.header = true, .text_columns = {"text"}, .label_column = "label"});
    build_token_store(letters(), source, path(), {.overwrite = true, .labels = LabelKind::values});
    const auto store = TokenStore::open(path());
    return std::vector<double>{store->row(0).label, store->row(1).label};
  };
  EXPECT_EQ(labels("a.csv", "text;label\na;0,5\nb;-12\n"), (std::vector<double>{0.5, -12}));
  for (const auto& [name, text] : {std::pair("b.tsv", "text\tlabel\na\t0,5\nb\t1\n"),
                                   std::pair("c.csv", "text,label\na,\"0,5\"\nb,1\n")}) {
    const std::string message = input_error([&, name = name, text = text] { labels(name, text); });
    EXPECT_NE(message.find(":2: expected a finite number as label, found \"0,5\"; write a decimal point"),
              std::string::npos)
        << message;
  }
}

TEST_F(StoreBuilder, RefusesNamesOfClassesWithControlCharacters) {
  const TextFileSource source({write("in.csv", "a,x\nb,\"y\nz\"\n")},
                              {.text_columns = {size_t{0}}, .label_column = size_t{1}});
  const auto message =
      input_error([&] { build_token_store(letters(), source, path(), {.labels = LabelKind::classes}); });
  EXPECT_NE(message.find("in.csv:2: expected the name of a class"), std::string::npos) << message;
}

TEST_F(StoreBuilder, RefusesColumnsOfPlainText) {
  const auto file = write("in.txt", "a\n");
  EXPECT_THROW(TextFileSource({file}, {.label_column = size_t{1}}), InputError);
  EXPECT_THROW(TextFileSource({file}, {.text_columns = {size_t{0}, size_t{1}}}), InputError);
  EXPECT_THROW(TextFileSource({}, {}), InputError);
  EXPECT_THROW(TextFileSource({folder_ / "missing.txt"}, {}), InputError);
}

TEST_F(StoreBuilder, ReportsWhatItDid) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "abc de ? f\n\n";
  const TextFileSource source({write("in.txt", text)}, {.piece_bytes = 1000});
  const auto result = build_token_store(letters(), source, path(), {.threads = 2});
  EXPECT_EQ(result.text_bytes, text.size());
  EXPECT_EQ(result.meta.rows, 20000u);
  EXPECT_EQ(result.meta.tokens, 7u * 20000u) << "abc and de are pieces of letters";
  EXPECT_EQ(result.meta.unknown_tokens, 20000u);
  EXPECT_EQ(result.meta.longest_row, 7u);
  EXPECT_EQ(result.meta, TokenStore::open(path())->meta());
}

}  // namespace
}  // namespace funicular::data
