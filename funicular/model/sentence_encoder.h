#pragma once
// Sentence encoders: an encoder, poolings, Dense layers and a normalisation, which make one vector per text. Training
// and embedding share them.

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
/// Prefix of the names of the weights of Dense steps: "sentence.0.weight". The encoder's model.safetensors does not
/// have them.
inline constexpr const char* kSentenceWeights = "sentence.";

/// x / max(‖x‖, 1e-12) for each row.
at::Tensor normalise_rows(const at::Tensor& rows);

/// Consumes the vectors of a batch, such as a loss.
using VectorUse = std::function<void(const at::Tensor& vectors, const Pass& pass)>;

/// Options of sentence_head.
struct SentenceHeadOptions {
  /// Makes the encoder's pooler, although it is unused, so that the saved folder has the weights that transformers'
  /// BertModel expects.
  bool pooler = false;
  fs::path folder = {};  ///< folder of the modules, for messages
  VectorUse use = {};    ///< null: there is none
};

/// The head that pools and applies the steps. Provides the activation and the output kVectors. The batch may have
/// kPromptTokens (model/pooling.h). With a single pooling of one token, the last layer computes only that token's
/// row.
Head sentence_head(const format::SentenceFolder& modules, SentenceHeadOptions options = {});

/// An opened folder of sentence-transformers, or a plain folder of an encoder.
class SentenceEncoder {
 public:
  /// For a plain folder it uses the poolings `plain`, or the mean of all tokens if `plain` is empty. Throws
  /// InputError for a folder that cannot be read, and for `plain` with a folder that has its own poolings.
  explicit SentenceEncoder(const fs::path& folder, std::vector<format::Pooling> plain = {},
                           const char* option = "--model");

  /// The folder that was given.
  const fs::path& path() const { return path_; }
  /// Poolings, Dense steps, normalisation and prompts.
  const format::SentenceFolder& modules() const { return modules_; }
  /// Whether modules() were read from the folder.
  bool has_modules() const { return has_modules_; }
  /// Whether a table of vectors replaces the encoder.
  bool is_static() const { return modules_.is_static; }
  /// The encoder's folder; only if the model is not static.
  const Pretrained& encoder() const { return *encoder_; }
  /// The most tokens of a text, including special tokens; 0: no limit.
  int64_t max_length() const;
  /// Rows of the table of a static model. The model has an extra row of zeros for texts without tokens.
  int64_t static_rows() const { return static_shape_[0]; }
  /// The width of a vector.
  int64_t width() const;
  /// A hash that identifies the weights, including Dense steps.
  std::string weights_hash() const;
  /// Throws InputError if the folder requires lower case but the tokeniser distinguishes case.
  std::unique_ptr<text::Tokenizer> tokenizer() const;
  /// Builds the model with all its weights, which outputs kVectors. `repeatable`: see ModelOptions.
  Model load(at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU, bool repeatable = false) const;

 private:
  fs::path encoder_folder() const { return path_ / modules_.encoder; }

  fs::path path_;
  bool has_modules_ = false;
  format::SentenceFolder modules_;
  std::optional<Pretrained> encoder_;
  std::vector<int64_t> static_shape_{};
};

/// The encoder of a folder from which training starts, which may be a subfolder of a sentence folder.
/// `reads_modules`: false for a task that needs the encoder alone; modules.json is then read only if `folder` has no
/// config.json. A table of static embeddings is Pretrained::of_table; such a task gets an InputError for it.
Pretrained open_encoder(const fs::path& folder, bool reads_modules);

/// Throws InputError if the folder requires lower case but the tokeniser distinguishes case.
void require_case(const format::SentenceFolder& modules, const text::Tokenizer& tokenizer,
                  const fs::path& folder);

/// Hashes of the weights of the Dense steps, joined; "" if no step is stored.
std::string hash_sentence_steps(const format::SentenceFolder& modules, const fs::path& folder);

/// Copies the weights of the Dense steps from `folder` into a model with sentence_head. Throws InputError if one is
/// missing or has another shape. Steps that are not stored keep their values.
void load_sentence_steps(Model& model, const format::SentenceFolder& modules, const fs::path& folder);

/// Builds the model of a table of static embeddings and the steps behind it. `options`: from Pretrained::of_table.
/// The model has an extra row of zeros for texts without tokens, which is not trained.
Model build_table(const format::SentenceFolder& modules, const ModelOptions& options, VectorUse use = {});
/// Copies the table of `folder` into a model of build_table.
void load_table(Model& model, const fs::path& folder);
/// Writes a folder of static embeddings for sentence-transformers, without the weights of the Dense steps.
void save_table(const at::Tensor& table, const text::Tokenizer& tokenizer, format::SentenceFolder& modules,
                const fs::path& folder);

/// Writes a folder for sentence-transformers: the encoder with its configuration, the tokeniser, the modules, and the
/// weights of the Dense steps. For a static model, the table replaces the encoder.
void save_sentence_encoder(const Model& model, const format::ModelConfig& config,
                           const text::Tokenizer& tokenizer, format::SentenceFolder modules,
                           const fs::path& folder);

}  // namespace funicular::model
