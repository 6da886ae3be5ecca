// The time to answer one text: median and 99th percentile for each precision.
//
// usage: example_latency [MODEL [TEXT]]
// MODEL is a folder that `funicular finetune` left (RUN/model). Without it: a toy model, which is fine-tuned first.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "examples/toy_bert.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/task/folder_predictor.h"

using namespace funicular;

namespace {

constexpr int kFirst = 10;  // answers that are not counted: they touch the memory
constexpr int kAnswers = 200;

/// Milliseconds of each answer, ascending.
std::vector<double> times_of(const task::FolderPredictor& predictor, const std::string& text) {
  std::vector<double> times;
  for (int i = 0; i < kFirst + kAnswers; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    predictor.predict(text);
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    if (i >= kFirst) times.push_back(taken.count());
  }
  std::ranges::sort(times);
  return times;
}

void run_example(int count, char** words) {
  const TemporaryFolder folder;
  fs::path model = count < 2 ? folder.path() / "run" / "model" : fs::path(words[1]);
  const std::string text = count < 3 ? "a good film" : words[2];
  if (count < 2) {
    write_toy_bert(folder.path() / "bert");
    write_toy_rows(folder.path() / "rows.csv");
    task::finetune(toy_options(folder.path() / "bert", folder.path() / "rows.csv", folder.path() / "run"));
  }
  std::puts("precision   median ms   99th percentile ms");
  for (const char* precision : {"fp32", "bf16", "int8"}) {
    const task::FolderPredictor predictor(model, {.precision = precision});
    const std::vector<double> times = times_of(predictor, text);
    std::printf("%-9s %11.3f %20.3f\n", precision, times[times.size() / 2], times[times.size() * 99 / 100]);
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    run_example(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
