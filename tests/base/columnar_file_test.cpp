// Files of Parquet and Arrow. A shell script stands in for the Python that has pyarrow; tests/cli has the real one.

#include "funicular/base/columnar_file.h"

#include <gtest/gtest.h>

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/temporary_folder.h"

namespace funicular {
namespace {

class ColumnarFile : public testing::Test {
 protected:
  /// Lets this shell script read the files. It ignores its options.
  void stand_in(const std::string& script) const {
    const fs::path path = folder.path() / "python";
    write_file_atomically(path, "#!/bin/sh\n" + script + "\n");
    fs::permissions(path, fs::perms::owner_all);
    ::setenv("FUNICULAR_PYTHON", path.c_str(), 1);
  }
  fs::path file(const std::string& name) const {
    write_file_atomically(folder.path() / name, "PAR1\x15\n");
    return folder.path() / name;
  }
  std::string refusal(const std::string& name) const {
    try {
      MappedText text(file(name));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  void TearDown() override { ::unsetenv("FUNICULAR_PYTHON"); }
  const TemporaryFolder folder;
};

TEST_F(ColumnarFile, IsReadAsWhatTheScriptWrites) {
  stand_in("cat; printf '{}\\n'");
  EXPECT_EQ(MappedText(file("a.parquet")).text(), "PAR1\x15\n{}\n") << "the file is the script's input";
  EXPECT_EQ(MappedText(file("a.ARROW"), "gb18030").content(), "PAR1\x15\n{}\n") << "whose output is UTF-8";
  EXPECT_NE(refusal("a.bin").find("a.bin is a Parquet file"), std::string::npos);
  const fs::path once = file("once.parquet");
  stand_in("printf 1");
  EXPECT_EQ(MappedText(once).text(), "1");
  stand_in("printf 2");
  EXPECT_EQ(MappedText(once).text(), "1") << "a file is converted once";
  EXPECT_EQ(MappedText(file("other.parquet")).text(), "2");
}

TEST_F(ColumnarFile, IsRefusedWithTheConversionWhereNothingReadsIt) {
  const std::string remedy = "pandas.read_parquet('" + (folder.path() / "a.parquet").string() + "')";
  stand_in("exit 3");
  EXPECT_NE(refusal("a.parquet").find(remedy), std::string::npos) << refusal("a.parquet");
  ::setenv("FUNICULAR_PYTHON", "/no/python", 1);
  EXPECT_NE(refusal("a.parquet").find(remedy), std::string::npos);
  EXPECT_NE(refusal("a.parquet").find("pip install pyarrow"), std::string::npos);
}

TEST_F(ColumnarFile, OfTextIsRefused) {
  write_file_atomically(folder.path() / "b.feather", "{}\n");
  EXPECT_THROW(MappedText(folder.path() / "b.feather"), InputError);
}

TEST_F(ColumnarFile, ThatIsBrokenIsNamedWithTheReason) {
  stand_in("echo 'ArrowInvalid: no footer' >&2; exit 1");
  EXPECT_NE(
      refusal("a.parquet").find("a.parquet: pyarrow cannot read it as a table: ArrowInvalid: no footer"),
      std::string::npos)
      << refusal("a.parquet");
  stand_in("echo 'OSError: no space' >&2; exit 4");
  EXPECT_THROW(MappedText(file("a.parquet")), RunError);
  stand_in("kill -9 $$");
  EXPECT_NE(refusal("a.parquet").find("was ended by signal 9"), std::string::npos);
}

TEST_F(ColumnarFile, AnInterruptEndsItsScript) {
  const fs::path finished = folder.path() / "finished";
  stand_in("sleep 1; touch " + finished.string());
  const InterruptGuard guard;
  for (const bool while_it_runs : {false, true}) {
    const pthread_t reader = ::pthread_self();
    std::thread sender([&] {
      if (!while_it_runs) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::pthread_kill(reader, SIGTERM);
    });
    if (!while_it_runs) std::raise(SIGTERM);
    try {
      MappedText text(file("a.parquet"));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::interrupted);
    }
    sender.join();
    EXPECT_FALSE(fs::exists(finished)) << while_it_runs;
    clear_interrupt();
  }
}

}  // namespace
}  // namespace funicular
