#include "funicular/eval/evaluation_record.h"

#include <map>
#include <memory>

namespace funicular::eval {

namespace {

constexpr size_t kMostMistakes = 50;

}  // namespace

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

std::vector<std::vector<std::string>> texts_of_rows(const Task& task, const fs::path& file,
                                                    const std::vector<int64_t>& rows) {
  std::multimap<int64_t, size_t> places;
  for (size_t at = 0; at < rows.size(); ++at) places.emplace(rows[at], at);
  std::vector<std::vector<std::string>> texts(rows.size());
  for_each_row(task, file, [&](int64_t number, const data::SourceRow& row) {
    const auto [begin, end] = places.equal_range(number);
    for (auto place = begin; place != end; ++place)
      texts[place->second].assign(row.columns.begin(), row.columns.end());
  });
  return texts;
}

void write_evaluation(const fs::path& folder, OrderedJson about, const AnswerSheet& sheet, const Task& task,
                      const fs::path& data) {
  sheet.add_details(about);
  OrderedJson mistakes = sheet.mistakes(kMostMistakes);
  std::vector<int64_t> rows;
  for (const OrderedJson& mistake : mistakes) rows.push_back(mistake["row"].get<int64_t>());
  const auto texts = texts_of_rows(task, data, rows);
  for (size_t at = 0; at < rows.size(); ++at) mistakes[at]["texts"] = texts[at];
  about["mistakes"] = std::move(mistakes);
  make_directories(folder);
  sheet.write(folder / "predictions.jsonl");
  write_file_atomically(folder / "evaluation.json", about.dump(1) + "\n");
}

void write_evaluation(const fs::path& folder, OrderedJson about, const TagSheet& sheet, const Task& task,
                      const fs::path& data) {
  about["classes"] = sheet.classes();
  about["mistakes"] = sheet.mistakes(task, data, kMostMistakes);
  make_directories(folder);
  sheet.write(folder / "predictions.jsonl", task, data);
  write_file_atomically(folder / "evaluation.json", about.dump(1) + "\n");
}

uint64_t weight_bytes(const fs::path& model) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(model))
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

}  // namespace funicular::eval
