#include "funicular/objective/sequence.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

namespace {

int column_count(const data::Sample& sample) {
  return static_cast<int>(sample.columns.size());
}

text::PairLengths kept_lengths(const data::Sample& sample, const text::SequenceTemplate& form,
                               const SequenceOptions& options) {
  const int columns = column_count(sample);
  const auto limit = static_cast<int32_t>(text_length(form, options, columns)) -
                     static_cast<int32_t>(sample.separators.size());
  const text::PairLengths full{static_cast<int32_t>(sample.columns[0].tokens.size()),
                               columns > 1 ? static_cast<int32_t>(sample.columns[1].tokens.size()) : 0};
  if (full.first + full.second <= limit) return full;
  // For a single text, "only the second" truncates that text.
  return text::truncate_pair(full, limit, columns > 1 ? options.truncation : text::Truncation::longest_first);
}

/// The special token that ends a single text.
int32_t separator_of(const text::SequenceTemplate& form) {
  const text::SequenceTemplate::Step& last = form.steps(1).back();
  if (last.column >= 0)
    throw InputError("objective",
                     "the tokenizer puts no special token behind a text; none can separate documents");
  return last.token;
}

const char* words_of(data::LabelKind kind) {
  switch (kind) {
    case data::LabelKind::classes:
      return "a class for each row";
    case data::LabelKind::values:
      return "a number for each row";
    case data::LabelKind::sets:
      return "any number of classes for each row";
    case data::LabelKind::tags:
      return "a tag for each word";
    case data::LabelKind::shares:
      return "a share of each class for each row";
    case data::LabelKind::set_shares:
      return "a share for each label of each row";
    case data::LabelKind::numbers:
      return "a list of numbers for each row";
    default:
      return "no labels";
  }
}

}  // namespace

OwnStores::OwnStores(const text::Tokenizer& tokenizer, std::vector<data::LabelKind> labels)
    : fingerprint_(tokenizer.fingerprint()),
      description_(tokenizer.description()),
      labels_(std::move(labels)) {}

void OwnStores::require(const data::TokenStore& store) const {
  store.require_tokenizer(fingerprint_, description_);
  const data::LabelKind found = store.meta().labels;
  if (labels_.empty() || std::find(labels_.begin(), labels_.end(), found) != labels_.end()) return;
  throw InputError("objective", "{}: the objective reads {}, and the rows have {}; make the store again",
                   store.folder().string(), words_of(labels_.front()), words_of(found));
}

int64_t text_length(const text::SequenceTemplate& form, const SequenceOptions& options, int columns) {
  return options.max_length - form.special_count(columns);
}

int64_t sequence_length(const data::Sample& sample, const text::SequenceTemplate& form,
                        const SequenceOptions& options) {
  const text::PairLengths kept = kept_lengths(sample, form, options);
  return kept.first + kept.second + form.special_count(column_count(sample)) +
         static_cast<int64_t>(sample.separators.size());
}

bool is_truncated(const data::Sample& sample, const text::SequenceTemplate& form,
                  const SequenceOptions& options) {
  size_t tokens = static_cast<size_t>(form.special_count(column_count(sample)));
  for (const data::Sample::Column& column : sample.columns) tokens += column.tokens.size();
  return tokens > static_cast<size_t>(options.max_length);
}

void PackedSequences::add(const data::Sample& sample, const text::SequenceTemplate& form,
                          const SequenceOptions& options) {
  const text::PairLengths kept = kept_lengths(sample, form, options);
  const size_t before = token_ids.size();
  const auto push = [&](int64_t token, int64_t type, uint8_t can_mask, uint8_t starts,
                        bool starts_row = false) {
    token_ids.push_back(token);
    token_type_ids.push_back(type);
    maskable.push_back(can_mask);
    word_starts.push_back(starts);
    row_starts.push_back(starts_row);
  };
  for (const text::SequenceTemplate::Step& step : form.steps(column_count(sample))) {
    if (step.column < 0) {
      push(step.token, step.type, 0, 1);
      continue;
    }
    const data::Sample::Column& source = sample.columns[static_cast<size_t>(step.column)];
    const int32_t count = step.column == 0 ? kept.first : kept.second;
    const auto& [rows, first] = source.row_starts;
    size_t separators = 0, row = 0;
    for (int32_t i = 0; i < count; ++i) {
      const auto place = static_cast<size_t>(i);
      bool starts_text = i == 0;
      if (separators < sample.separators.size() && sample.separators[separators] == i) {
        push(separator_of(form), step.type, 0, 1);
        starts_text = true;
        ++separators;
      }
      bool starts_row = false;
      // Rows without a token begin at the same place as the next row.
      for (; row < rows.size() && rows[row] == first + place; ++row) starts_row = true;
      // The first piece of a cut text begins a unit, even if the cut is inside a word.
      push(source.tokens[place], step.type, 1,
           starts_text || !source.word_starts.bits || source.word_starts[place], starts_row);
    }
  }
  lengths.push_back(static_cast<int32_t>(token_ids.size() - before));
  sample_ids.push_back(sample.sample_id);
  draw_ids.push_back(sample.draw_id);
}

MicroBatch PackedSequences::to_batch(const RandomState& random) const {
  MicroBatch batch;
  batch.tensors["token_ids"] = at::tensor(token_ids, at::kLong);
  batch.tensors["token_type_ids"] = at::tensor(token_type_ids, at::kLong);
  batch.packing = Packing::from_lengths(lengths, sample_ids, draw_ids, random);
  return batch;
}

void check_sequence_options(const text::SequenceTemplate& form, const SequenceOptions& options) {
  if (!form.missing().empty())
    throw InputError("objective", "the vocabulary has no {}, which sequences need", form.missing().front());
  const int32_t special = form.special_count(2);
  if (options.max_length <= special)
    throw InputError("objective",
                     "expected a maximum length of at least {} tokens ({} of them special), found {}",
                     special + 1, special, options.max_length);
}

}  // namespace funicular::objective
