#include "funicular/objective/row_objective.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/data/datasets.h"
#include "funicular/objective/text_windows.h"

namespace funicular::objective {

RowObjective::RowObjective(const text::Tokenizer& tokenizer, const SequenceOptions& sequence,
                           std::vector<data::LabelKind> labels)
    : RowObjective(tokenizer, sequence, std::move(labels), tokenizer.sequence()) {}

RowObjective::RowObjective(const text::Tokenizer& tokenizer, const SequenceOptions& sequence,
                           std::vector<data::LabelKind> labels, text::SequenceTemplate form)
    : sequence_(sequence), form_(std::move(form)), own_stores_(tokenizer, std::move(labels)) {
  check_sequence_options(form_, sequence);
  if (sequence.stride) window_cut(form_, sequence);  // refuses a stride that does not fit
}

int64_t RowObjective::length(const data::Sample& sample) const {
  return sequence_length(sample, form_, sequence_);
}

std::shared_ptr<const data::Dataset> RowObjective::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  own_stores_.require(*store);
  const bool tags = store->meta().labels == data::LabelKind::tags;
  auto rows = std::make_shared<data::RowDataset>(std::move(store));
  if (!sequence_.stride) return rows;
  return std::make_shared<TextWindows>(std::move(rows), window_cut(form_, sequence_), tags);
}

std::map<std::string, std::string> RowObjective::identity() const {
  const std::string sequence =
      fmt::format("at most {} tokens, {}", sequence_.max_length, text::truncation_name(sequence_.truncation));
  return {{"sequence", sequence_.stride
                           ? fmt::format("{}, windows that share {}", sequence, *sequence_.stride)
                           : sequence}};
}

PackedSequences RowObjective::pack(std::span<const data::Sample> samples) const {
  PackedSequences packed;
  for (const data::Sample& sample : samples) packed.add(sample, form_, sequence_);
  return packed;
}

}  // namespace funicular::objective
