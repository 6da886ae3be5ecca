#pragma once
// Embeds texts: makes one vector per text with a sentence encoder.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/task/predictor.h"
#include "funicular/task/row_input.h"

namespace funicular::task {

/// Purpose of a text. Models may have a prompt for each.
enum class TextRole { any, query, document };
/// The names of TextRole, in its order.
const std::vector<std::string>& text_role_names();

/// Options of an Embedder.
struct EmbedderOptions {
  std::vector<format::Pooling> poolings{};  ///< for a folder without modules; empty: the mean
  /// The text before each text. None: the prompt of `prompt_name` or of `role`, else the model's default prompt.
  std::optional<std::string> prompt{};
  std::string prompt_name{};              ///< one of the model's prompts
  TextRole role = TextRole::any;          ///< what the texts are for
  std::optional<int64_t> truncate_dim{};  ///< none: as the model says
  bool normalise = false;                 ///< to length 1, after truncation
  std::optional<int64_t> max_length{};    ///< none: as the model says
  std::string precision = "fp32";         ///< one of model::inference_precisions(), or fp64
  int64_t batch_tokens = 4096;            ///< see PredictorOptions
  int64_t window = 1024;                  ///< see PredictorOptions
  at::Device device = at::kCPU;           ///< where the model computes
  bool cuda_graphs = false;  ///< see PredictorOptions; refused for static embeddings, which have no pass
  const char* option = "--model";  ///< names the folder in messages
};

/// Model, tokeniser and predictor of one folder. Keep it, as opening a folder takes far longer than embedding a text.
class Embedder {
 public:
  /// Throws InputError for a folder that has no sentence encoder, and for options that do not fit it.
  explicit Embedder(const fs::path& folder, const EmbedderOptions& options = {});
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  /// [texts, width] of float32.
  at::Tensor embed(const std::vector<std::string>& texts) const;
  /// Numbers of a vector.
  int64_t width() const { return predictor_->answers().width(); }
  /// Tokens of a text at most; 0: any number.
  int64_t max_length() const { return max_length_; }
  /// The text before each text; may be empty.
  const std::string& prompt() const { return prompt_; }
  /// The folder.
  const model::SentenceEncoder& encoder() const { return encoder_; }
  /// For many rows at once.
  const Predictor& predictor() const { return *predictor_; }
  /// Describes how a text becomes a vector: "mean of all tokens, normalised".
  std::string description() const;

 private:
  std::string choose_prompt(const EmbedderOptions& options) const;
  int64_t prompt_tokens() const;

  const model::SentenceEncoder encoder_;
  const std::unique_ptr<text::Tokenizer> tokenizer_;
  std::string prompt_;
  int64_t max_length_ = 0;
  Model model_;
  std::unique_ptr<const Predictor> predictor_;
};

/// Calls use(vectors) for the vectors of the texts, some at a time. If an interrupt is requested, throws Error with
/// ExitCode::interrupted in the name of `command`.
void for_each_block(const Embedder& embedder, const std::vector<std::string>& texts, const char* command,
                    const std::function<void(const at::Tensor& vectors)>& use);
/// The vectors of all texts at once.
at::Tensor all_vectors(const Embedder& embedder, const std::vector<std::string>& texts, const char* command);

/// The rows that embed() reads.
struct EmbedOptions {
  InputOptions input{};  ///< tables: the column "text" unless `text` is given; several columns are joined
  int64_t skip = 0;      ///< rows at the beginning to skip
  comm::Group group{};   ///< ranks that share the rows of a file
  std::map<std::string, std::string> identity{};  ///< what else must be the same on all ranks, by name
};

/// Outputs the vectors of the rows of a file, in order, on rank 0 only: whole records of width() float32 numbers.
/// Warns of doubtful rows. All ranks must call it with the same options. Throws as predict() does.
StreamCounts embed(const Embedder& embedder, const EmbedOptions& options,
                   const std::function<void(std::string_view)>& write);

/// The rows of one text that embed() reads.
std::unique_ptr<RowInput> open_texts(const InputOptions& options);

}  // namespace funicular::task
