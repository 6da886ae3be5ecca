// Fine-tunes a BERT folder on a table, evaluates it, and answers a text.
//
// usage: example_finetune_bert [MODEL TRAIN.csv TEST.csv]
// The tables have the columns text and label. Without arguments: a toy model and toy rows.

#include <cstdio>
#include <exception>

#include "examples/toy_bert.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/task/evaluate.h"
#include "funicular/task/folder_predictor.h"

using namespace funicular;

namespace {

task::FinetuneOptions options_of(const fs::path& model, const fs::path& rows, const fs::path& run) {
  task::FinetuneOptions options;
  options.model = model;
  options.train_file = rows;
  options.eval_fraction = 0.1;  // chooses the best epoch
  options.task = task::find_task("classes");
  options.trainer = {.output = run, .num_train_epochs = 3, .batch_size = 32};
  options.optimizer = optim::AdamW{.learning_rate = 5e-5};
  return options;
}

void run_example(int count, char** words) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const bool toy = count < 4;
  const fs::path model = toy ? folder.path() / "bert" : fs::path(words[1]);
  const fs::path train = toy ? folder.path() / "rows.csv" : fs::path(words[2]);
  const fs::path test = toy ? train : fs::path(words[3]);
  if (toy) {
    write_toy_bert(model);
    write_toy_rows(train);
  }
  task::finetune(toy ? toy_options(model, train, run) : options_of(model, train, run));

  // RUN/model is a folder that transformers reads, too. It remembers the columns and the task.
  const task::Evaluation found = task::evaluate({.model = run / "model", .data = test});
  std::printf("accuracy %.3f of %lld rows\n", found.scores["accuracy"].get<double>(),
              static_cast<long long>(found.scores["samples"].get<int64_t>()));

  const task::FolderPredictor predictor(run / "model");  // opening takes longer than an answer: keep it
  const task::Answer answer = predictor.predict("a good film");
  std::printf("%s: %s\n", predictor.labels()[static_cast<size_t>(answer.labels[0])].c_str(),
              answer.json.c_str());
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
