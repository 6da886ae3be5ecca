#include "funicular/task/store.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/format/text_format.h"

namespace funicular::task {

namespace {

/// Everything that determines the store's contents. Its text must not change, or existing stores would be made again.
uint64_t store_key(const Task& task, const fs::path& file, const text::Tokenizer& tokenizer,
                   const StoreOptions& options) {
  const data::TextFileSourceOptions columns = task.columns();
  std::string text = fmt::format("2 {} {} {} {}", hash_file(file), tokenizer.fingerprint(), columns.header,
                                 columns.format ? static_cast<int>(*columns.format) : -1);
  text += file.extension().string();  // determines the format if none is given
  if (format::unpacked_name(file) != file) text += format::text_ending_of(file);
  const auto add = [&text](const format::Column& column) {
    text += std::holds_alternative<size_t>(column) ? fmt::format(" #{}", std::get<size_t>(column))
                                                   : fmt::format(" \"{}\"", std::get<std::string>(column));
  };
  for (const format::Column& column : columns.text_columns) add(column);
  if (columns.label_column && options.labelled) add(*columns.label_column);
  if (options.labelled) text += task.files().shares.key();
  for (const auto* list : {&task.spellings(), &task.label_names(), &options.labels})
    for (const std::string& label : *list) text += fmt::format(" {}:{}", label.size(), label);
  std::string style;
  if (!columns.style.encoding.empty()) style += " in " + columns.style.encoding;
  if (columns.style.quotes != format::Quotes::automatic)
    style += fmt::format(" quotes {}", format::quotes_name(columns.style.quotes));
  if (task.files().split)
    text += fmt::format(" {} of {}", task.files().held_out ? "held out" : "kept", task.files().split->key());
  text += task.row_key(options.bad_rows && options.bad_rows->skip() ? " without bad rows" : "", style);
  return hash_bytes(text);
}

void remove_older(const fs::path& folder, const std::string& name, const fs::path& keep) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (entry.path() != keep && file.rfind(name + "-", 0) == 0 && entry.path().extension() == ".tokens")
      fs::remove_all(entry.path(), ignored);
  }
}

data::StoreBuildOptions build_options(const Task& task, const data::RowSource& source,
                                      const StoreOptions& options) {
  data::StoreBuildOptions build;
  if (source.has_labels()) {
    build.labels = task.label_kind();
    build.label_names = options.labels;
  }
  build.label_separator = task.files().separator();
  build.stop = [] { return interrupt_requested() != 0; };
  return build;
}

void build(const text::Tokenizer& tokenizer, const data::RowSource& source, const fs::path& file,
           const fs::path& path, const data::StoreBuildOptions& build, const StoreOptions& options) {
  const InterruptGuard guard;
  const auto result = data::build_token_store(tokenizer, source, path, build);
  log::info("tokenised {}: {} rows, {} tokens", file.string(), result.meta.rows, result.meta.tokens);
  if (result.skipped_rows > 0) log::warning("{}", options.bad_rows->summary("left out", file.string()));
  stop_if_interrupted("task", "the rows are tokenised, and no more was done");
}

void require_rows(const data::TokenStore& store, const Task& task, const fs::path& file,
                  const StoreOptions& options) {
  if (store.rows() > 0) return;
  const bool bad = options.bad_rows && options.bad_rows->count(file.string()) > 0;
  throw InputError("task", "{}: no rows{}; expected at least one{}", file.string(),
                   bad ? " that can be read" : "", task.columns().header ? " after the header" : "");
}

}  // namespace

std::shared_ptr<const data::TokenStore> open_store(const Task& task, const fs::path& file,
                                                   const std::string& name, const text::Tokenizer& tokenizer,
                                                   const fs::path& folder, const StoreOptions& options) {
  const auto source = task.open_rows(
      file, {.labelled = options.labelled, .labels = options.labels, .bad_rows = options.bad_rows});
  const std::string key = hash_text(store_key(task, file, tokenizer, options));
  const fs::path path = folder / fmt::format("{}-{}.tokens", name, key);
  // Verifies it completely before use, as only then it can be made again.
  const auto open = [&] {
    return data::TokenStore::open(path, {.verify_first = UINT64_MAX, .verify = options.verify});
  };
  std::shared_ptr<const data::TokenStore> store;
  data::StoreBuildOptions building = build_options(task, *source, options);
  if (!fs::exists(path)) {
    build(tokenizer, *source, file, path, building, options);
    store = open();
  } else {
    try {
      store = open();
    } catch (const InputError& error) {
      log::warning("{}; it is made again from {}", error.what(), file.string());
      building.overwrite = true;
      build(tokenizer, *source, file, path, building, options);
      store = open();
    }
  }
  remove_older(folder, name, path);
  require_rows(*store, task, file, options);
  return store;
}

}  // namespace funicular::task
