// Measures the token store: building it from text (seconds, peak resident memory), opening it without and
// with its contents verified, random rows, and what each of four processes that read it at once has in
// memory, its share of the pages and its own.
//
//   store_bench [MEGABYTES=200] [ROW_BYTES=435] [THREADS=2]
//   store_bench TOKENIZER_DIR TEXT_FILE WORK_DIR [MEGABYTES=200] [ROW_BYTES=435] [THREADS=2]
//
// The text and its tokeniser are made up (made_up_text.h), in a folder for temporary files, or those that are
// given. The lines of the text are repeated, cut into rows of 1 to 2 * ROW_BYTES - 1 bytes, until MEGABYTES
// (10^6) are reached. The build runs in a process of its own, so that its peak memory is its own; mapped
// pages count.

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/data/datasets.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/text/tokenizer.h"
#include "made_up_text.h"

namespace {

using namespace funicular;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What is tokenised, and with what; empty paths: what is made up.
struct Input {
  fs::path tokenizer, text;

  std::unique_ptr<text::Tokenizer> load_tokenizer() const {
    return tokenizer.empty() ? bench::made_up(false).tokenizer : format::load_tokenizer(tokenizer);
  }
  std::string load_text() const {
    std::string all;
    if (text.empty()) {
      for (const std::string& line : bench::made_up(false).lines) all += line + "\n";
    } else {
      all = read_file(text);
    }
    return all;
  }
};

// Whole words, so that rows look like text; the lengths are uniform and the same in every run.
void write_corpus(std::string text, const fs::path& target, uint64_t bytes, uint64_t row_bytes) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  FileWriter writer(target);
  size_t place = 0;
  for (uint32_t row = 0; writer.position() < bytes; ++row) {
    const uint64_t bits = philox({7, 7}, make_counter(row, 0, 0))[0];
    const size_t length = 1 + uniform_below(bits << 32, 2 * row_bytes - 1);
    if (place + length + 100 > text.size()) place = 0;
    const size_t end = std::min(text.find(' ', place + length), text.size());
    writer.write(std::string_view(text).substr(place, end - place));
    writer.write("\n");
    place = end + 1;
  }
  writer.close(false);
}

void build(const Input& input, const fs::path& corpus, const fs::path& store, int threads) {
  const std::unique_ptr<text::Tokenizer> tokenizer = input.load_tokenizer();
  const auto start = Clock::now();
  const data::TextFileSource source({corpus}, {.format = format::TextFormat::lines});
  const auto result =
      data::build_token_store(*tokenizer, source, store, {.threads = threads, .overwrite = true});
  fmt::print("text {:.1f} MB, {} rows, {} tokens, store {:.1f} MB\n",
             1e-6 * static_cast<double>(result.text_bytes), result.meta.rows, result.meta.tokens,
             1e-6 * static_cast<double>(result.store_bytes));
  fmt::print("build {:.2f} s, {:.1f} MB/s (flushed to the disk)\n", seconds_since(start),
             1e-6 * static_cast<double>(result.text_bytes) / seconds_since(start));
}

/// Carries it out in a process of its own; gives what that used.
rusage in_a_process(const std::function<void()>& action) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) throw RunError("bench", "cannot start a process");
  if (child == 0) {
    try {
      action();
      std::fflush(stdout);
      ::_exit(0);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      ::_exit(1);
    }
  }
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  if (status != 0) throw RunError("bench", "a step failed; what went wrong stands above");
  return usage;
}

void measure_build(const Input& input, const fs::path& corpus, const fs::path& store, int threads) {
  const rusage usage = in_a_process([&] { build(input, corpus, store, threads); });
  fmt::print("build: peak resident {:.0f} MB, {:.2f} s of processor time\n",
             static_cast<double>(usage.ru_maxrss) / 1024,
             static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
}

// Reads the first and the last token of random samples, so that the pages are really touched.
void measure_reads(const char* name, const data::Dataset& dataset) {
  constexpr uint32_t kReads = 4'000'000;
  int64_t sum = 0;
  const auto start = Clock::now();
  for (uint32_t i = 0; i < kReads; ++i) {
    const auto block = philox({1, 2}, make_counter(i, 0, 0));
    const uint64_t bits = (uint64_t{block[0]} << 32) | block[1];
    const auto sample =
        dataset.get(static_cast<int64_t>(uniform_below(bits, static_cast<uint64_t>(dataset.size()))));
    const auto& tokens = sample.columns[0].tokens;
    if (tokens.size() > 0) sum += tokens[0] + tokens[tokens.size() - 1];
  }
  const double seconds = seconds_since(start);
  fmt::print("{}: {} samples, {:.2f} million random ones a second (checksum {})\n", name, dataset.size(),
             1e-6 * kReads / seconds, sum);
}

void measure_store(const fs::path& path) {
  auto start = Clock::now();
  data::TokenStore::open(path, {.verify = false});
  fmt::print("open {:.3f} ms, its contents not verified\n", 1e3 * seconds_since(start));
  start = Clock::now();
  const auto store = data::TokenStore::open(path);
  const double opened = seconds_since(start);
  store->require_sound();
  uint64_t bytes = 0;
  for (const auto& file : store->meta().files) bytes += file.bytes;
  fmt::print("open {:.1f} ms, the first {:.0f} MB verified; all {:.0f} MB after {:.1f} ms, {:.0f} MB/s\n",
             1e3 * opened, 1e-6 * static_cast<double>(data::kVerifiedFirst),
             1e-6 * static_cast<double>(bytes), 1e3 * seconds_since(start),
             1e-6 * static_cast<double>(bytes) / seconds_since(start));
  start = Clock::now();
  const data::ChunkDataset chunks(store, 126);
  fmt::print("index of pieces of 126 tokens {:.1f} ms\n", 1e3 * seconds_since(start));
  measure_reads("rows", data::RowDataset(store));
  measure_reads("pieces", chunks);
  start = Clock::now();
  store->verify();
  fmt::print("verify checksums, offsets and ids {:.2f} s\n", seconds_since(start));
}

/// "Pss", "Private_Dirty" …: of this process, in megabytes.
double memory_of_kind(const std::string& kind) {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word)
    if (word == kind + ":") {
      double kilobytes = 0;
      file >> kilobytes;
      return kilobytes / 1024;
    }
  return 0;
}

/// What all processes have done before any goes on: each tells it and waits until the other end is closed.
class Rendezvous {
 public:
  Rendezvous() {
    if (::pipe(told_) != 0 || ::pipe(closed_) != 0) throw RunError("bench", "cannot make a pipe");
  }
  /// In the processes that meet, once after fork.
  void join() { ::close(closed_[1]); }
  void arrive() const {
    char byte = 0;
    if (::write(told_[1], &byte, 1) != 1 || ::read(closed_[0], &byte, 1) != 0) ::_exit(1);
  }
  /// In the process that has started them.
  void release(int processes) {
    ::close(told_[1]);
    char byte = 0;
    for (int have = 0; have < processes; ++have)
      if (::read(told_[0], &byte, 1) != 1)
        throw RunError("bench", "a process that reads the store has ended");
    ::close(closed_[1]);
  }

 private:
  int told_[2], closed_[2];
};

void read_beside_others(const fs::path& path, int process, const Rendezvous& all_have_read,
                        const Rendezvous& all_have_looked) {
  const double before = memory_of_kind("Private_Dirty");
  const auto store = data::TokenStore::open(path);
  const data::RowDataset rows(store);
  int64_t sum = 0;
  for (uint32_t i = 0; i < 500'000; ++i) {
    const uint64_t bits = uint64_t{philox({3, static_cast<uint32_t>(process)}, make_counter(i, 0, 0))[0]}
                          << 32;
    const auto sample =
        rows.get(static_cast<int64_t>(uniform_below(bits, static_cast<uint64_t>(rows.size()))));
    const auto& tokens = sample.columns[0].tokens;
    for (size_t place = 0; place < tokens.size(); ++place) sum += tokens[place];
  }
  all_have_read.arrive();
  const double resident = memory_of_kind("Rss"), share = memory_of_kind("Pss");
  const double own = memory_of_kind("Private_Dirty") - before;
  all_have_looked.arrive();
  fmt::print(
      "process {}: resident {:.0f} MB, its share of them {:.0f} MB, written by itself {:.1f} MB (checksum "
      "{})\n",
      process + 1, resident, share, own, sum);
  std::fflush(stdout);
}

/// Four processes open the store and read random rows.
void measure_sharing(const fs::path& path) {
  constexpr int kProcesses = 4;
  Rendezvous all_have_read, all_have_looked;
  std::fflush(stdout);
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    if (child < 0) throw RunError("bench", "cannot start a process");
    if (child == 0) {
      all_have_read.join();
      all_have_looked.join();
      read_beside_others(path, process, all_have_read, all_have_looked);
      ::_exit(0);
    }
  }
  all_have_read.release(kProcesses);
  all_have_looked.release(kProcesses);
  for (int process = 0; process < kProcesses; ++process) ::wait(nullptr);
}

}  // namespace

int main(int count, char** words) {
  const std::string first = count > 1 ? words[1] : "";
  const bool made_up = first.find_first_not_of("0123456789") == std::string::npos;
  if (!made_up && count < 4) {
    fmt::print(first == "--help" ? stdout : stderr,
               "usage: store_bench [MEGABYTES] [ROW_BYTES] [THREADS]\n"
               "       store_bench TOKENIZER_DIR TEXT_FILE WORK_DIR [MEGABYTES] [ROW_BYTES] [THREADS]\n");
    return first == "--help" ? 0 : 2;
  }
  try {
    const TemporaryFolder temporary;
    const Input input = made_up ? Input{} : Input{words[1], words[2]};
    const fs::path folder = made_up ? temporary.path() : fs::path(words[3]);
    const fs::path corpus = folder / "corpus.txt", store = folder / "corpus.tokens";
    const auto number = [&, numbers = made_up ? 1 : 4](int place, int fallback) {
      return count > numbers + place ? std::atoi(words[numbers + place]) : fallback;
    };
    make_directories(folder);
    in_a_process([&] {
      write_corpus(input.load_text(), corpus, static_cast<uint64_t>(number(0, 200)) * 1'000'000,
                   static_cast<uint64_t>(number(1, 435)));
    });
    measure_build(input, corpus, store, number(2, 2));
    measure_sharing(store);
    measure_store(store);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
