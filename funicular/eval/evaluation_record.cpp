#include "funicular/eval/evaluation_record.h"

#include <map>
#include <memory>

#include "funicular/base/json_text.h"
#include "funicular/eval/row_ids.h"

namespace funicular::eval {

void for_each_row(const Task& task, const fs::path& file,
                  const std::function<void(int64_t number, const data::SourceRow& row)>& use) {
  const format::BadRows* const left_out = task.layout.bad_rows.get();
  Task again = task;
  if (left_out) again.layout.bad_rows = std::make_shared<format::BadRows>(left_out->skip());
  const std::unique_ptr<data::RowSource> source = open_task_rows(again, file);
  int64_t number = 0;
  for (size_t piece = 0; piece < source->pieces(); ++piece)
    source->read(piece, [&](const data::SourceRow& row) {
      if (left_out && left_out->has(file.string(), row.offset)) return;
      const uint64_t before = left_out ? left_out->count_before(file.string(), row.offset) : 0;
      use(++number + static_cast<int64_t>(before), row);
    });
}

std::vector<int64_t> numbers_of_rows(const Task& task, const fs::path& file) {
  std::vector<int64_t> numbers;
  for_each_row(task, file, [&](int64_t number, const data::SourceRow&) { numbers.push_back(number); });
  return numbers;
}

namespace {

/// Gives each mistake the texts and the ids of its row.
void add_rows(OrderedJson& mistakes, const Task& task, const fs::path& file) {
  std::map<int64_t, OrderedJson*> places;
  for (OrderedJson& mistake : mistakes) places.emplace(mistake["row"].get<int64_t>(), &mistake);
  RowIds ids(task, file);
  for_each_row(task, file, [&](int64_t number, const data::SourceRow& row) {
    const auto place = places.find(number);
    if (place == places.end()) return;
    (*place->second)["texts"] = std::vector<std::string>(row.columns.begin(), row.columns.end());
    ids.want(row.offset, *place->second);
  });
  ids.read();
}

}  // namespace

void write_evaluation(const fs::path& folder, OrderedJson about, const AnswerSheet& sheet, const Task& task,
                      const fs::path& data) {
  sheet.add_details(about);
  OrderedJson mistakes = sheet.mistakes();
  add_rows(mistakes, task, data);
  about["mistakes"] = std::move(mistakes);
  make_directories(folder);
  write_file_atomically(folder / "predictions.jsonl", sheet.lines());
  write_file_atomically(folder / "evaluation.json", json_text(about, 1) + "\n");
}

void write_evaluation(const fs::path& folder, OrderedJson about, const TagSheet& sheet, const Task& task,
                      const fs::path& data) {
  about["classes"] = sheet.classes();
  about["mistakes"] = sheet.mistakes(task, data);
  make_directories(folder);
  write_file_atomically(folder / "predictions.jsonl", sheet.lines(task, data));
  write_file_atomically(folder / "evaluation.json", json_text(about, 1) + "\n");
}

uint64_t weight_bytes(const fs::path& model) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(model))
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

}  // namespace funicular::eval
