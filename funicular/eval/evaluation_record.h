#pragma once
// What an evaluation leaves for people and for funicular report: a folder with evaluation.json and predictions.jsonl.

#include <functional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/eval/answer_sheet.h"
#include "funicular/eval/tag_sheet.h"
#include "funicular/eval/tasks.h"

namespace funicular::eval {

/// `use` gets each row of a task's file that an evaluation has read, and its number in the file, from 1: rows that were left out
/// (data::TextFileSourceOptions::bad_rows) have numbers, too.
void for_each_row(const Task& task, const fs::path& file,
                  const std::function<void(int64_t number, const data::SourceRow& row)>& use);

/// The numbers, from 1, of the rows that a store of a task's file holds, in order: rows that were left out of it
/// (data::TextFileSourceOptions::bad_rows) have numbers, too.
std::vector<int64_t> numbers_of_rows(const Task& task, const fs::path& file);

/// Writes the folder. `about` is what evaluation.json begins with; AnswerSheet::add_details and all mistakes follow, with their
/// texts and, where the file has columns that name a row (row_ids.h), those as "ids". Throws RunError (disk).
void write_evaluation(const fs::path& folder, OrderedJson about, const AnswerSheet& sheet, const Task& task,
                      const fs::path& data);

/// The same of words and their tags; of TagSheet::classes and TagSheet::mistakes.
void write_evaluation(const fs::path& folder, OrderedJson about, const TagSheet& sheet, const Task& task,
                      const fs::path& data);

/// Bytes of the weight files in a model's folder.
uint64_t weight_bytes(const fs::path& model);

}  // namespace funicular::eval
