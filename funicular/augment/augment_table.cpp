#include "funicular/augment/augment_table.h"

#include <c10/core/DeviceGuard.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/made_record.h"
#include "funicular/base/temporary.h"
#include "funicular/train/prefetch.h"

namespace funicular::augment {

namespace {

/// The JSON keys of AugmentCounts.
constexpr std::pair<const char*, int64_t AugmentCounts::*> kCounts[] = {
    {"rows", &AugmentCounts::rows},
    {"variants", &AugmentCounts::variants},
    {"duplicates", &AugmentCounts::duplicates},
    {"guessed_words", &AugmentCounts::guessed},
    {"near_words", &AugmentCounts::looked_up},
    {"kept_words", &AugmentCounts::kept}};

}  // namespace

Json to_json(const AugmentCounts& counts) {
  Json json;
  for (const auto& [name, member] : kCounts) json[name] = counts.*member;
  return json;
}

AugmentCounts counts_from_json(const Json& json) {
  AugmentCounts counts;
  for (const auto& [name, member] : kCounts)
    counts.*member = json_get<int64_t>(json, name, "counts of an augmentation");
  return counts;
}

BlockTexts read_block(const Table& table, const Augmenter& augmenter, const RowBlock& block) {
  BlockTexts read{table.read(block)};
  std::vector<SourceText> sources;
  for (size_t row = 0; row < read.rows.size(); ++row)
    for (size_t column = 0; column < table.columns(); ++column)
      sources.push_back({read.rows[row].texts[column], static_cast<uint64_t>(block.first_row) + row,
                         static_cast<uint32_t>(column)});
  read.texts = augmenter.prepare(std::move(sources));
  return read;
}

std::string write_block(const Table& table, const Augmenter& augmenter, BlockTexts block, bool published,
                        AugmentCounts& counts) {
  const auto variants = augmenter.finish(std::move(block.texts), counts);
  std::string written;
  size_t source = 0;
  for (const TableRow& row : block.rows) {
    const auto put = [&](std::string_view line) { written.append(line).append(row.line_end); };
    std::vector<std::string> texts = row.texts;
    put(row.written);
    for (size_t column = 0; column < table.columns(); ++column, ++source) {
      if (published && column > 0) put(table.write(row.written, texts));
      for (const std::string& variant : variants[source]) {
        texts[column] = variant;
        put(table.write(row.written, texts));
      }
      if (!published) texts[column] = row.texts[column];
    }
  }
  counts.rows += static_cast<int64_t>(block.rows.size());
  return written;
}

std::vector<int64_t> own_blocks(const Journal& journal, const Table& table, int rank, int ranks) {
  std::vector<int64_t> own;
  int64_t missing = 0;
  for (int64_t block = 0; block < static_cast<int64_t>(table.blocks().size()); ++block)
    if (!journal.has(block) && missing++ % ranks == rank) own.push_back(block);
  return own;
}

bool vary_blocks(const std::vector<int64_t>& blocks, const Table& table, const Augmenter& augmenter,
                 bool published, Journal& journal, const std::function<void(int64_t rows)>& show) {
  // The processor computes in this thread, with the threads that it has here.
  const int threads = augmenter.device().is_cuda() ? 1 : 0;
  train::Prefetcher<BlockTexts> read(0, std::ssize(blocks), threads, /*ahead=*/1, [&](int64_t i) {
    const int64_t number = blocks[static_cast<size_t>(i)];
    return read_block(table, augmenter, table.blocks()[static_cast<size_t>(number)]);
  });
  train::Prefetcher<BlockTexts> started(0, std::ssize(blocks), threads, /*ahead=*/1, [&](int64_t) {
    const c10::DeviceGuard card(augmenter.device());
    BlockTexts next = read.next();
    augmenter.start(next.texts);
    return next;
  });
  int64_t rows = 0;
  for (const int64_t number : blocks) {
    if (interrupt_requested() != 0) return false;
    AugmentCounts counts;
    const std::string text = write_block(table, augmenter, started.next(), published, counts);
    journal.add(number, to_json(counts), text);
    rows += counts.rows;
    if (show) show(rows);
  }
  return true;
}

AugmentCounts put_together(const Table& table, const Journal& journal, const Json& identity,
                           const fs::path& output) {
  AugmentCounts all;
  StreamHash hash;
  Temporary temporary(output, Temporary::Kind::file);
  FileWriter writer(temporary.path(), Opening::replace, output);
  const auto write = [&](std::string_view text) {
    writer.write(text);
    hash.update(text.data(), text.size());
  };
  write(table.head());
  for (int64_t block = 0; block < static_cast<int64_t>(table.blocks().size()); ++block) {
    const Journal::Piece piece = journal.read(block);
    all.add(counts_from_json(piece.note));
    write(piece.text);
  }
  writer.close(/*sync=*/true);
  temporary.rename_file();
  write_made_record(output, hash_text(hash.digest()), identity, to_json(all));
  return all;
}

fs::path record_of(const fs::path& output) {
  return made_record_of(output);
}

std::optional<AugmentCounts> finished(const fs::path& output, const Json& identity) {
  std::error_code error;
  if (!fs::is_regular_file(output, error)) return std::nullopt;
  const Json counts = counts_if_made_of(output, identity);
  return counts.is_null() ? std::nullopt : std::optional(counts_from_json(counts));
}

}  // namespace funicular::augment
