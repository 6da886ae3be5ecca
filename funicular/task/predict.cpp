#include "funicular/task/predict.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/folder_predictor.h"
#include "funicular/task/missing_values.h"
#include "funicular/task/registry.h"

namespace funicular::task {

namespace {

class FunctionSink final : public AnswerSink {
 public:
  explicit FunctionSink(const std::function<void(std::string_view)>& write) : write_(write) {}
  void write(std::string_view lines) override { write_(lines); }

 private:
  const std::function<void(std::string_view)>& write_;
};

/// The file options that override the note of fine-tuning.
FileOptions said_of_files(const InputOptions& input) {
  return {.text = input.text, .header = input.header, .stride = input.stride, .style = input.style};
}

void require_windows(const PredictOptions& options, const Task& task) {
  const std::vector<std::string>& known = task.type().options;
  if (options.input.stride && std::find(known.begin(), known.end(), "stride") == known.end())
    throw InputError("usage", "--stride: {} gives {}, and reads no windows; leave it out",
                     options.model.string(), task.type().gives);
}

void require_same_rows(const PredictOptions& options, const FolderPredictor& model) {
  comm::require_equal(options.group, "predict", [&] {
    std::map<std::string, std::string> all = options.identity;
    all["the data of --input"] = hash_text(hash_file(options.input.path));
    all["the weights of --model"] = model.pretrained().weights_hash();
    if (!options.cascade.empty())
      all["the weights of --cascade"] = model::Pretrained(options.cascade).weights_hash();
    all["the length of sequences"] = std::to_string(model.max_length());
    return all;
  });
}

void report(const StreamCounts& done, const RowInput& input, const InputOptions& options,
            const FolderPredictor& model) {
  if (options.bad_rows && options.bad_rows->count() > 0)
    log::warning("{}", options.bad_rows->summary("gave an error instead of an answer to"));
  const std::string name = options.path.empty() ? "standard input" : options.path.string();
  report_cut(done.cut, name, {model.max_length(), model.pretrained().config().encoder.longest_sequence()},
             model.task().answers_to_cut_texts());
  if (done.textless.count > 0)
    log::warning("{}: {} of {} rows have no text, the first is line {}; the answers to them mean nothing",
                 name, done.textless.count, done.rows, done.textless.first_line);
  warn_of_missing_texts(done.missing.count, done.rows, fmt::format("line {}", done.missing.first_line), name);
  input.report(done.rows);
}

}  // namespace

StreamCounts predict(const PredictOptions& options, AnswerSink& sink) {
  model::Pretrained pretrained(options.model);
  const std::shared_ptr<const Task> task = task_of(pretrained, said_of_files(options.input));
  require_windows(options, *task);
  InputOptions wanted = options.input;
  const model::TaskNote note = pretrained.note();
  wanted.texts = note.task.empty() ? 0 : note.text_columns;
  wanted.model = options.model;
  const bool leads = options.group.rank() == 0;
  std::unique_ptr<RowInput> input;
  comm::together(options.group, [&] {
    input = wanted.row.empty() ? task->open_input(wanted) : open_one_row(wanted, *task);
  });
  FolderOptions opened{.precision = options.precision,
                       .max_length = options.max_length,
                       .batch_tokens = options.batch_tokens,
                       .window = options.window,
                       .device = options.device,
                       .texts = input->texts()};
  std::optional<FolderPredictor> small;
  if (!options.cascade.empty()) {
    small.emplace(model::Pretrained(options.cascade, model::Pretrained::Expect::folder, "--cascade"), nullptr,
                  opened);
    opened.small = &*small;
  }
  opened.exits = options.exits;
  opened.decision = options.decision;
  opened.cuda_graphs = options.cuda_graphs;
  const FolderPredictor model(std::move(pretrained), task, opened);
  require_same_rows(options, model);
  const InterruptGuard guard;  // from here on, so that no signal leaves an unfinished file behind
  comm::together(options.group, [&] {
    if (leads) sink.begin(*task, model.predictor().answers());
  });
  const auto write = [&](std::string_view lines) {
    if (leads) sink.write(lines);
  };
  const StreamCounts done = model.predictor().stream(*input, write, share_of(options.group));
  comm::together(options.group, [&] {
    if (leads) sink.end();
  });
  report(done, *input, wanted, model);
  return done;
}

StreamCounts predict(const PredictOptions& options, const std::function<void(std::string_view)>& write) {
  FunctionSink sink(write);
  return predict(options, sink);
}

}  // namespace funicular::task
