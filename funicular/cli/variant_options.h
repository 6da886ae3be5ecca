#pragma once
// The options of variants of a text, of augment.

#include <cstdint>
#include <optional>
#include <string>

#include "funicular/augment/augmenter.h"
#include "funicular/base/json.h"
#include "funicular/cli/arguments.h"
#include "funicular/cli/word_options.h"
#include "funicular/model/pretrained.h"

namespace funicular::cli {

struct VariantOptions {
  augment::AugmenterOptions chosen;
  std::optional<int64_t> variants, max_length;
  fs::path stop_words;
  WordOptions words;
  std::string compat = "none";

  void declare(Arguments& arguments);
  /// Completes what is chosen: the variants as published for the task, the model's longest sequence, the files' words.
  /// Throws InputError for a file that cannot be read, and for a length that the model does not have.
  void complete(const std::string& task, const model::Pretrained& pretrained);
  /// Notes what decides the output, but for the hashes of files.
  void note(Json& identity) const;
};

}  // namespace funicular::cli
