#include "funicular/task/sheet.h"

#include <numeric>

#include "funicular/base/json_text.h"
#include "funicular/task/row_ids.h"
#include "funicular/task/task.h"

namespace funicular::task {

EvaluatedRows::EvaluatedRows(const Task& task, fs::path file, std::shared_ptr<const format::BadRows> left_out)
    : task_(task), file_(std::move(file)), left_out_(std::move(left_out)) {}

void EvaluatedRows::for_each(
    const std::function<void(int64_t number, const data::SourceRow& row)>& use) const {
  RowsOptions options;
  if (left_out_) options.bad_rows = std::make_shared<format::BadRows>(left_out_->skip());
  const std::unique_ptr<data::RowSource> source = task_.open_rows(file_, options);
  int64_t number = 0;
  for (size_t piece = 0; piece < source->pieces(); ++piece)
    source->read(piece, [&](const data::SourceRow& row) {
      if (left_out_ && left_out_->has(file_.string(), row.offset)) return;
      const uint64_t before = left_out_ ? left_out_->count_before(file_.string(), row.offset) : 0;
      use(++number + static_cast<int64_t>(before), row);
    });
}

std::vector<int64_t> EvaluatedRows::numbers(int64_t rows) const {
  std::vector<int64_t> numbers;
  if (left_out_ && left_out_->count() > 0) {
    for_each([&](int64_t number, const data::SourceRow&) { numbers.push_back(number); });
  } else {
    numbers.resize(static_cast<size_t>(rows));
    std::iota(numbers.begin(), numbers.end(), int64_t{1});
  }
  return numbers;
}

RowIds EvaluatedRows::ids() const {
  return {task_, file_};
}

void EvaluatedRows::add_texts(OrderedJson& mistakes) const {
  std::map<int64_t, OrderedJson*> places;
  for (OrderedJson& mistake : mistakes) places.emplace(mistake["row"].get<int64_t>(), &mistake);
  RowIds ids = this->ids();
  for_each([&](int64_t number, const data::SourceRow& row) {
    const auto place = places.find(number);
    if (place == places.end()) return;
    (*place->second)["texts"] = std::vector<std::string>(row.columns.begin(), row.columns.end());
    ids.want(row.offset, *place->second);
  });
  ids.read();
}

void write_evaluation(const fs::path& folder, OrderedJson about, const Sheet& sheet,
                      const EvaluatedRows& rows) {
  sheet.add_details(about);
  about["mistakes"] = sheet.mistakes(rows);
  make_directories(folder);
  write_file_atomically(folder / "predictions.jsonl", sheet.lines(rows));
  write_file_atomically(folder / "evaluation.json", json_text(about, 1) + "\n");
}

uint64_t weight_bytes(const fs::path& model) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(model))
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

}  // namespace funicular::task
