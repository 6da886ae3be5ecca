#include "funicular/task/teacher_vectors.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/base/made_record.h"
#include "funicular/comm/together.h"
#include "funicular/format/npy.h"
#include "funicular/task/embed.h"
#include "funicular/task/kept_vectors.h"
#include "funicular/task/registry.h"

namespace funicular::task {

namespace {

/// Rows of a table to check at a time.
constexpr int64_t kRowsChecked = 4096;

/// Appends the texts of the file's rows. Returns how many there are.
int64_t append_texts(const FinetuneOptions& options, const fs::path& file, std::vector<std::string>& texts) {
  const size_t before = texts.size();
  const auto rows = options.task->open_rows(file, {.labelled = false, .bad_rows = options.bad_rows});
  for (size_t piece = 0; piece < rows->pieces(); ++piece)
    rows->read(piece, [&](const data::SourceRow& row) { texts.emplace_back(row.columns.front()); });
  return std::ssize(texts) - static_cast<int64_t>(before);
}

std::string hash_of_texts(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += hash_text(hash_bytes(text));
  return hash_text(hash_bytes(all));
}

/// Returns the file of the vectors, in `place`. Its name is a key of everything that determines them, as the names of
/// stores.
fs::path make_table(const fs::path& place, const fs::path& folder, const FinetuneOptions& options,
                    const std::vector<std::string>& texts) {
  const InterruptGuard guard;
  const EmbedderOptions embedding{.precision = options.dtype == at::kDouble ? "fp64" : "fp32",
                                  .device = options.device,
                                  .option = "--teacher"};
  make_directories(place);
  const Embedder teacher(folder, embedding);
  const Json identity{{"version", 1},
                      {"teacher", hash_of_output(folder)},
                      {"precision", embedding.precision},
                      {"texts", hash_of_texts(texts)}};
  const fs::path file = place / fmt::format("teacher-{}.npy", hash_text(hash_bytes(identity.dump())));
  const format::NpyFile table = kept_vectors(file, identity, teacher, texts, "finetune");
  log::info("the teacher {} gives vectors of {} numbers ({}) to {} texts", folder.string(), table.columns(),
            teacher.description(), table.rows());
  return file;
}

/// Throws InputError unless the table has a vector of finite numbers for each row.
void check_table(const fs::path& file, int64_t rows, const fs::path& of) {
  const format::NpyFile table(file);
  if (table.type() != format::NpyType::float32)
    throw InputError("teacher",
                     "--teacher {}: the vectors are quantised; expected float32, as embed writes them",
                     file.string());
  if (table.rows() != rows)
    throw InputError(
        "teacher",
        "--teacher {} has {} vectors, and {} has {} rows that are read; expected a vector per row, in "
        "their order. Embed the same file, without rows that are left out",
        file.string(), table.rows(), of.string(), rows);
  for (int64_t begin = 0; begin < rows; begin += kRowsChecked) {
    const at::Tensor good = at::isfinite(rows_of(table, begin, std::min(begin + kRowsChecked, rows))).all(1);
    if (!good.all().item<bool>())
      throw InputError("teacher",
                       "--teacher {}: vector {} holds NaN or infinite numbers; embed the texts again",
                       file.string(), begin + good.to(at::kInt).argmin().item<int64_t>() + 1);
  }
}

std::shared_ptr<const Task> with_table(const Task& task, const fs::path& table, int64_t first) {
  FileOptions files = task.files();
  files.teacher = table;
  files.first_vector = first;
  return with_files(task, std::move(files));
}

}  // namespace

void take_teacher(FinetuneOptions& options) {
  if (options.teacher.empty()) return;
  const fs::path teacher = std::exchange(options.teacher, {});
  const bool is_table = fs::is_regular_file(teacher);
  if (is_table && !options.eval_file.empty())
    throw InputError(
        "usage",
        "--teacher {} holds the vectors of --train, and --eval has other rows; expected --eval-fraction, "
        "or a teacher's folder",
        teacher.string());
  // Only rank 0 reads the texts, which are all in memory.
  const Json made = parse_json(
      comm::from_first(options.group,
                       [&] {
                         std::vector<std::string> texts;
                         const int64_t rows = append_texts(options, options.train_file, texts);
                         if (is_table) check_table(teacher, rows, options.train_file);
                         if (!options.eval_file.empty()) append_texts(options, options.eval_file, texts);
                         const fs::path table =
                             is_table ? teacher
                                      : make_table(options.trainer.output / "data", teacher, options, texts);
                         return Json{{"table", table.string()}, {"trained", rows}}.dump();
                       }),
      "the teacher's vectors");
  const fs::path table = made.at("table").get<std::string>();
  const auto trained = made.at("trained").get<int64_t>();
  options.task = with_table(*options.task, table, 0);
  if (!options.eval_file.empty()) options.eval_task = with_table(*options.task, table, trained);
}

}  // namespace funicular::task
