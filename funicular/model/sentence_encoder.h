#pragma once
// Sentence encoders: an encoder, poolings, Dense layers and a normalisation, which give one vector for each text.
// Training and embedding share them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/format/sentence_folder.h"
#include "funicular/model/encoder.h"
#include "funicular/model/heads.h"
#include "funicular/model/pretrained.h"
#include "funicular/text/tokenizer.h"

namespace funicular::model {

/// The activation and the output of the head: [S, D], float32, or float64 for float64.
inline constexpr const char* kVectors = "vectors";
/// Begins the names of the weights of Dense steps: "sentence.0.weight". They are in no model.safetensors of the
/// encoder.
inline constexpr const char* kSentenceWeights = "sentence.";

/// x / max(‖x‖, 1e-12) for each row.
at::Tensor normalise_rows(const at::Tensor& rows);

/// Gets the vectors of a batch: a loss.
using VectorUse = std::function<void(const at::Tensor& vectors, const Pass& pass)>;

/// How sentence_head builds its head.
struct SentenceHeadOptions {
  /// Makes the encoder's pooler, which nothing reads, so that the folder that is written holds what transformers'
  /// BertModel expects.
  bool pooler = false;
  fs::path folder = {};  ///< where the modules were read; messages name it
  VectorUse use = {};    ///< null: there is none
};

/// The head that pools and applies the steps. Gives the activation and the output kVectors. The batch may hold
/// kPromptTokens (model/pooling.h). With one pooling of one token the last layer computes only that token's row.
Head sentence_head(const format::SentenceFolder& modules, SentenceHeadOptions options = {});

/// A folder of sentence-transformers, or a plain one of an encoder, whose configuration has been read.
class SentenceEncoder {
 public:
  /// A plain folder gets `plain`, or the mean of all tokens if that is empty. Throws InputError for a folder that
  /// cannot be read, and for `plain` together with a folder that has poolings of its own.
  explicit SentenceEncoder(const fs::path& folder, std::vector<format::Pooling> plain = {},
                           const char* option = "--model");

  /// The folder that was given.
  const fs::path& path() const { return path_; }
  /// Poolings, Dense steps, normalisation and prompts.
  const format::SentenceFolder& modules() const { return modules_; }
  /// Whether modules() were read from the folder.
  bool has_modules() const { return has_modules_; }
  /// Whether a table of vectors stands in place of an encoder.
  bool is_static() const { return modules_.is_static; }
  /// The encoder's folder; only where the model is not static.
  const Pretrained& encoder() const { return *encoder_; }
  /// Tokens of a text at most, special tokens included; 0: any number.
  int64_t max_length() const;
  /// Rows of the table of a static model. The model has one more, of zeros, which stands for a text without tokens.
  int64_t static_rows() const { return static_shape_[0]; }
  /// Numbers of a vector.
  int64_t width() const;
  /// Tells the weights apart, including the weights of Dense steps.
  std::string weights_hash() const;
  /// Throws InputError where the folder asks for lower case and the tokeniser tells upper case from lower case.
  std::unique_ptr<text::Tokenizer> tokenizer() const;
  /// The model with all its weights. It gives kVectors.
  Model load(at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU) const;

 private:
  fs::path encoder_folder() const { return path_ / modules_.encoder; }

  fs::path path_;
  bool has_modules_ = false;
  format::SentenceFolder modules_;
  std::optional<Pretrained> encoder_;
  std::vector<int64_t> static_shape_{};
};

/// The encoder of a folder that training starts from, which may lie below a sentence folder. `reads_modules`: false for
/// a task that needs the encoder alone; modules.json is then read only if `folder` has no config.json. A table of
/// static embeddings is Pretrained::of_table; such a task gets an InputError for it.
Pretrained open_encoder(const fs::path& folder, bool reads_modules);

/// Throws InputError if the folder asks for lower case and the tokeniser tells upper case from lower case.
void require_case(const format::SentenceFolder& modules, const text::Tokenizer& tokenizer,
                  const fs::path& folder);

/// Hashes of the weights of the Dense steps, joined; "" if no step is stored.
std::string hash_sentence_steps(const format::SentenceFolder& modules, const fs::path& folder);

/// Copies the weights of the Dense steps from `folder` into a model with sentence_head. Throws InputError if one is
/// missing or has another shape. Steps that are not stored keep their values.
void load_sentence_steps(Model& model, const format::SentenceFolder& modules, const fs::path& folder);

/// The model of a table of static embeddings and the steps behind it. `options`: of Pretrained::of_table. It has a row
/// more than the table, for texts without tokens: their vector is 0 before the steps, and the row does not learn.
Model build_table(const format::SentenceFolder& modules, const ModelOptions& options, VectorUse use = {});
/// Copies the table of `folder` into a model of build_table.
void load_table(Model& model, const fs::path& folder);
/// Writes a folder of static embeddings that sentence-transformers reads, but for the weights of the Dense steps.
void save_table(const at::Tensor& table, const text::Tokenizer& tokenizer, format::SentenceFolder& modules,
                const fs::path& folder);

/// Writes a folder that sentence-transformers reads. It holds the encoder with its configuration, or the table of static
/// embeddings, the tokeniser, the modules, and the weights of the Dense steps.
void save_sentence_encoder(const Model& model, const format::ModelConfig& config,
                           const text::Tokenizer& tokenizer, format::SentenceFolder modules,
                           const fs::path& folder);

}  // namespace funicular::model
