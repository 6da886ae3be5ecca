#pragma once
// Id columns of a task's file ("id", "idx", "guid", "#1 ID", "review_id"), by which a person finds a row again.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/data/row_source.h"

namespace funicular::task {

class Task;

/// Whether a column's name, or the first or the last part of it, is id, ids, idx, index, guid, uuid or uid.
bool is_id_name(std::string_view name);

/// Looks ids up for some rows of a file.
class RowIds {
 public:
  /// Finds the id columns: names of the header, or keys of the first JSON line, that are neither texts nor labels.
  /// Files without column names have none.
  RowIds(const Task& task, const fs::path& file);
  /// Asks for the ids of the row that begins at `offset`; read() puts them into `place`, an object, as "ids".
  /// `place` must outlive read().
  void want(uint64_t offset, OrderedJson& place);
  /// Reads the file once more if there are id columns and requested rows, and sets their ids: {"id": "17", …}. A row
  /// without ids gets none.
  void read();

 private:
  fs::path file_;
  data::TextFileSourceOptions layout_;
  std::vector<std::string> names_;
  std::multimap<uint64_t, OrderedJson*> wanted_;
};

}  // namespace funicular::task
