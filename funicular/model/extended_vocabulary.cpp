#include "funicular/model/extended_vocabulary.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/base/made_record.h"
#include "funicular/base/temporary.h"
#include "funicular/format/family.h"
#include "funicular/format/model_config.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/pretrained.h"

namespace funicular::model {

namespace {

/// The weights of a folder, and which of them have one row per token.
class TokenRows {
 public:
  TokenRows(const format::ModelConfig& config, const fs::path& folder)
      : files_(folder), rows_(config.encoder.vocabulary) {
    const format::Family::MaskedLm& head = format::family_of(config).masked_lm;
    const std::string& words = format::family_of(config).names.words;
    names_ = {format::family_of(config).word_embeddings(), words + ".weight", head.bias, head.decoder_weight,
              head.decoder_bias};
    bool any = false;
    for (const format::TensorEntry* entry : files_.entries()) any = any || has(*entry);
    if (!any)
      throw InputError("vocabulary", "{}: expected the embeddings of {} tokens, found none",
                       files_.path().string(), rows_);
  }

  bool has(const format::TensorEntry& entry) const {
    const bool named = std::find(names_.begin(), names_.end(), entry.name) != names_.end();
    if (!named) return false;
    if (!entry.shape.empty() && entry.shape[0] == rows_) return true;
    throw InputError("vocabulary", "{}: expected {} rows of {}, one a token as config.json says, found {}",
                     files_.path_of(entry).string(), rows_, entry.name,
                     entry.shape.empty() ? 0 : entry.shape[0]);
  }

  const format::WeightFiles& files() const { return files_; }

 private:
  format::WeightFiles files_;
  int64_t rows_;
  std::vector<std::string> names_;
};

/// Returns the first `tokens` rows of an entry and, for each new word, the mean of its pieces' rows.
at::Tensor with_rows(const format::TensorEntry& entry, int64_t tokens,
                     const std::vector<text::NewWord>& words, const fs::path& file) {
  const std::optional<at::ScalarType> type = scalar_type(entry.dtype);
  if (!type)
    throw InputError("vocabulary", "{}: expected {} as numbers of 16, 32 or 64 bits, found {}", file.string(),
                     entry.name, format::dtype_name(entry.dtype));
  const at::Tensor old = at::empty(entry.shape, *type);
  std::memcpy(old.data_ptr(), entry.data.data(), entry.data.size());
  std::vector<at::Tensor> means;
  for (const text::NewWord& next : words) {
    const at::Tensor pieces =
        at::tensor(std::vector<int64_t>(next.pieces.begin(), next.pieces.end()), at::kLong);
    means.push_back(old.index_select(0, pieces).to(at::kDouble).mean(0));
  }
  return at::cat({old.narrow(0, 0, tokens), at::stack(means).to(*type)}).contiguous();
}

void write_weights(const TokenRows& rows, const fs::path& path, int64_t tokens,
                   const std::vector<text::NewWord>& words) {
  std::vector<format::TensorDeclaration> declared;
  for (const format::TensorEntry* entry : rows.files().entries()) {
    declared.push_back({entry->name, entry->dtype, entry->shape});
    if (rows.has(*entry)) declared.back().shape[0] = tokens + static_cast<int64_t>(words.size());
  }
  format::SafetensorsWriter writer(path, declared);
  for (const format::TensorEntry* entry : rows.files().entries()) {
    if (!rows.has(*entry)) {
      writer.write(entry->name, entry->data);
      continue;
    }
    const at::Tensor all = with_rows(*entry, tokens, words, rows.files().path_of(*entry));
    writer.write(entry->name, {static_cast<const std::byte*>(all.const_data_ptr()), all.nbytes()});
  }
  writer.close();
}

int64_t count_unknown(const std::vector<text::NewWord>& words, int32_t unknown) {
  return std::count_if(words.begin(), words.end(), [&](const text::NewWord& next) {
    return std::find(next.pieces.begin(), next.pieces.end(), unknown) != next.pieces.end();
  });
}

/// Writes a model's folder with the new words.
void write_extended(format::ModelConfig config, const TokenRows& rows, const text::WordPiece& tokenizer,
                    const std::vector<text::NewWord>& words, const fs::path& folder) {
  const text::WordPiece extended = text::with_new_words(tokenizer, words);
  config.encoder.vocabulary = extended.size();
  config.tie_word_embeddings = says_tied(config);  // all weights are copied under the names that they have
  format::check_model_config(config, folder.string());
  write_weights(rows, folder / "model.safetensors", tokenizer.size(), words);
  format::save_tokenizer(folder, extended, static_cast<int>(config.encoder.longest_sequence()));
  format::write_model_config(folder, config);
}

/// Everything that determines the extended model; null if the words cannot be read twice.
Json identity_of(const Pretrained& source, const text::Tokenizer& tokenizer, const fs::path& words,
                 bool leave_out) {
  if (!fs::is_regular_file(words)) return {};  // a pipe can be read once
  const fs::path generator = source.path() / kGeneratorFolder;
  const bool with_generator = fs::exists(generator / "config.json");
  return {{"version", 1},
          {"config", source.config().source},
          {"weights", source.weights_hash()},
          {"generator", with_generator ? Json(Pretrained(generator).weights_hash()) : Json()},
          {"tokenizer", hash_text(tokenizer.fingerprint())},
          {"words", hash_text(hash_file(words))},
          {"skip_bad_words", leave_out}};
}

Json to_json(const VocabularyExtension& done) {
  return {{"before", done.before},
          {"added", done.added},
          {"left_out", done.left_out},
          {"unknown", done.unknown},
          {"of_generator", done.of_generator},
          {"without_piece", done.without_piece}};
}

VocabularyExtension from_json(const Json& json) {
  using Texts = std::vector<std::string>;
  const char* const origin = "the record of the output";
  return {.before = json_get<int64_t>(json, "before", origin),
          .added = json_get<int64_t>(json, "added", origin),
          .left_out = json_get<Texts>(json, "left_out", origin),
          .unknown = json_get<int64_t>(json, "unknown", origin),
          .of_generator = json_get<bool>(json, "of_generator", origin),
          .without_piece = json_get<Texts>(json, "without_piece", origin),
          .was_complete = true};
}

/// Whether there is a generator in the folder. Throws InputError if it has another tokenizer.
bool has_generator(const fs::path& folder, const text::Tokenizer& tokenizer) {
  const fs::path generator = folder / kGeneratorFolder;
  if (!fs::exists(generator / "config.json")) return false;
  if (Pretrained(generator).tokenizer()->fingerprint() != tokenizer.fingerprint())
    throw InputError(
        "vocabulary",
        "{}: expected the tokeniser of {}, since both read one table of embeddings, found another; "
        "move the generator elsewhere, and only the model is extended",
        generator.string(), folder.string());
  return true;
}

}  // namespace

VocabularyExtension extend_vocabulary(const fs::path& folder, const fs::path& words, bool leave_out,
                                      const fs::path& output) {
  const Pretrained source(folder);
  const std::unique_ptr<text::Tokenizer> loaded = source.tokenizer();
  const text::WordPiece& tokenizer = text::require_word_piece(*loaded, folder);
  const Json made_of = identity_of(source, *loaded, words, leave_out);
  if (fs::exists(output)) {
    if (const Json counts = counts_if_made_of(output, made_of); !counts.is_null()) return from_json(counts);
    throw InputError("vocabulary", "--output {} exists; choose another folder, or remove it",
                     output.string());
  }
  const TokenRows rows(source.config(), folder);
  const bool with_generator = has_generator(folder, tokenizer);
  const text::NewWords found = text::read_new_words(tokenizer, words, leave_out);
  if (output.has_parent_path()) make_directories(fs::absolute(output).parent_path());
  Temporary making(output, Temporary::Kind::folder);
  write_extended(source.config(), rows, tokenizer, found.words, making.path());
  if (with_generator) {
    const Pretrained generator(folder / kGeneratorFolder);
    make_directories(making.path() / kGeneratorFolder);
    write_extended(generator.config(), TokenRows(generator.config(), generator.path()), tokenizer,
                   found.words, making.path() / kGeneratorFolder);
  }
  VocabularyExtension done{.before = tokenizer.size(),
                           .added = static_cast<int64_t>(found.words.size()),
                           .left_out = found.left_out,
                           .unknown = count_unknown(found.words, tokenizer.special().unknown),
                           .of_generator = with_generator,
                           .without_piece = text::characters_without_piece(tokenizer)};
  write_made_record(output, hash_of_output(making.path()), made_of, to_json(done));
  making.rename_folder();
  return done;
}

}  // namespace funicular::model
