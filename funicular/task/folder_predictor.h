#pragma once
// A fine-tuned model folder, opened as `funicular predict` opens it.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/calibration.h"
#include "funicular/task/early_exit.h"
#include "funicular/task/predictor.h"
#include "funicular/task/task.h"

namespace funicular::task {

class FolderPredictor;

/// Options of a FolderPredictor.
struct FolderOptions {
  std::string precision = "fp32";       ///< one of model::inference_precisions()
  std::optional<int64_t> max_length{};  ///< none: as in fine-tuning, else the model's longest
  int64_t batch_tokens = 4096;          ///< see PredictorOptions
  int64_t window = 1024;                ///< see PredictorOptions
  at::Device device = at::kCPU;         ///< where the model computes
  int texts = 0;                        ///< text columns of the rows; 0: as in fine-tuning
  ExitChoice exits = {};  ///< rule by which rows leave a model with exits, or a cascade's small model
  /// A cascade's small model, which answers first. It must outlive this object. Null: no cascade.
  const FolderPredictor* small = nullptr;
  Decision decision = {};    ///< the user's decisions, such as thresholds
  bool cuda_graphs = false;  ///< see PredictorOptions; not with early exit or a cascade
};

/// Model, tokeniser, task and predictor of one folder. Keep it, as opening a folder takes far longer than an answer.
/// On the CPU several threads may call its functions at the same time; each gets the answers that it would get alone.
/// With a model on a GPU, let one thread at a time call them.
class FolderPredictor {
 public:
  /// Throws InputError if the folder has no model of a task, no tokeniser, or lacks a weight.
  explicit FolderPredictor(const fs::path& folder, const FolderOptions& options = {});
  /// As above, for an open folder. `task`: null for the folder's task, see task_of.
  FolderPredictor(model::Pretrained pretrained, std::shared_ptr<const Task> task,
                  const FolderOptions& options);
  FolderPredictor(const FolderPredictor&) = delete;
  FolderPredictor& operator=(const FolderPredictor&) = delete;

  /// The answer to a text or to a pair of texts. Throws InputError if the model was fine-tuned on something else.
  Answer predict(const std::string& text) const { return predict_row({text}); }
  /// The answer to a pair of texts.
  Answer predict(const std::string& first, const std::string& second) const {
    return predict_row({first, second});
  }
  /// A tag for each word. Throws InputError if the model was not fine-tuned on words.
  Answer tag(std::vector<std::string> words) const;

  /// For many rows at once.
  const Predictor& predictor() const { return *predictor_; }
  /// The classes by their numbers.
  const std::vector<std::string>& labels() const { return predictor_->answers().labels(); }
  /// The task of the folder, or the one given.
  const Task& task() const { return *task_; }
  /// The model with its weights.
  const Model& model() const { return model_; }
  /// The folder's configuration and files.
  const model::Pretrained& pretrained() const { return pretrained_; }
  /// The folder's tokeniser.
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The most tokens of a row, including special tokens.
  int64_t max_length() const { return sequence_.max_length; }

 private:
  Answer predict_row(std::vector<std::string> texts) const;
  const model::Pretrained pretrained_;
  const std::shared_ptr<const Task> task_;
  const std::unique_ptr<text::Tokenizer> tokenizer_;
  objective::SequenceOptions sequence_;
  Model model_;
  std::unique_ptr<const Predictor> predictor_;
};

/// Throws InputError unless the small model of a cascade has the classes and the tokeniser of the large one.
void require_cascade(const FolderPredictor& small, const model::Pretrained& large);

}  // namespace funicular::task
