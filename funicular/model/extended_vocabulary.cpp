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
#include "funicular/base/temporary.h"
#include "funicular/format/bert_config.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/family.h"
#include "funicular/model/pretrained.h"

namespace funicular::model {

namespace {

std::optional<at::ScalarType> scalar_type_of(format::DType dtype) {
  switch (dtype) {
    case format::DType::F64:
      return at::kDouble;
    case format::DType::F32:
      return at::kFloat;
    case format::DType::F16:
      return at::kHalf;
    case format::DType::BF16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

/// The weights of a folder, and which of them have a row a token.
class TokenRows {
 public:
  TokenRows(const format::BertConfig& config, const fs::path& folder)
      : files_(folder), rows_(config.vocab_size) {
    const Family& family = family_of(config);
    names_ = {family.prefix + "embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight",
              family.masked_lm.bias, family.masked_lm.decoder_weight, family.masked_lm.decoder_bias};
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

/// The first `tokens` rows of an entry, and for each new word the mean of its pieces' rows.
at::Tensor with_rows(const format::TensorEntry& entry, int64_t tokens,
                     const std::vector<text::NewWord>& words, const fs::path& file) {
  const std::optional<at::ScalarType> type = scalar_type_of(entry.dtype);
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
void write_extended(format::BertConfig config, const TokenRows& rows, const text::WordPiece& tokenizer,
                    const std::vector<text::NewWord>& words, const fs::path& folder) {
  const text::WordPiece extended = text::with_new_words(tokenizer, words);
  config.vocab_size = extended.size();
  format::check_bert_config(config, folder.string());
  write_weights(rows, folder / "model.safetensors", tokenizer.size(), words);
  format::save_tokenizer(folder, extended, static_cast<int>(config.longest_sequence()));
  format::write_bert_config(folder, config);
}

/// Whether there is a generator in the folder. Throws InputError where it has another tokenizer.
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
  if (fs::exists(output))
    throw InputError("vocabulary", "--output {} exists; choose another folder, or remove it",
                     output.string());
  const TokenRows rows(source.config(), folder);
  const bool with_generator = has_generator(folder, tokenizer);
  const text::NewWords found = text::read_new_words(tokenizer, words, leave_out);
  if (output.has_parent_path()) make_directories(fs::absolute(output).parent_path());
  const fs::path making = make_temporary_folder(output);
  try {
    write_extended(source.config(), rows, tokenizer, found.words, making);
    if (with_generator) {
      const Pretrained generator(folder / kGeneratorFolder);
      make_directories(making / kGeneratorFolder);
      write_extended(generator.config(), TokenRows(generator.config(), generator.path()), tokenizer,
                     found.words, making / kGeneratorFolder);
    }
    put_in_place(making, output);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(making, ignored);
    throw;
  }
  return {.before = tokenizer.size(),
          .added = static_cast<int64_t>(found.words.size()),
          .left_out = found.left_out,
          .unknown = count_unknown(found.words, tokenizer.special().unknown),
          .of_generator = with_generator,
          .without_piece = text::characters_without_piece(tokenizer)};
}

}  // namespace funicular::model
