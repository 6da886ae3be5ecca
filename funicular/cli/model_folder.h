#pragma once
// Hugging Face model folders as the commands open and write them.

#include <string>
#include <string_view>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/data/token_store.h"
#include "funicular/format/bert_config.h"
#include "funicular/nn/bert.h"
#include "funicular/nn/pretrained.h"
#include "funicular/text/word_piece.h"

namespace funicular::cli {

/// What to do with the name of a model on a hub, such as bert-base-uncased; "" for what looks like a path.
std::string hub_hint(const fs::path& folder);

/// Throws InputError unless `folder` is one that holds a config.json; `option` names it in the message.
void require_model(const fs::path& folder, const char* option);

/// A tokeniser whose ids fit the model. Throws InputError otherwise.
text::WordPiece load_tokenizer_for(const format::BertConfig& config, const fs::path& folder);

/// Tells weights apart; "none" where the folder has none.
std::string describe_weights(const fs::path& folder);

/// Throws InputError unless sequences of `max_length` fit the model's positions.
void check_max_length(int64_t max_length, const format::BertConfig& config);

/// Tells how many rows were too long to be read whole, if any.
void report_truncated(int64_t truncated, int64_t rows, std::string_view of, int64_t max_length);
/// The same of a store that was made for a model's sequences.
void report_truncated(const data::TokenStore& store, std::string_view of, int64_t max_length);

/// Throws InputError for two text columns where the model has a single segment embedding.
void check_columns(int columns, const format::BertConfig& config, const fs::path& folder);

/// The fields that decide what a model computes and how it trains, in words: a run resumes only where they
/// are equal.
std::string describe_model(const format::BertConfig& config);

/// Whether the folder holds weights in any format, those that load_weights refuses included.
bool has_weights(const fs::path& folder);

/// Copies the weights of `folder` into the model and says what is new and what is left out. Throws InputError
/// for weights that are not finite. What is new is not said of a run that goes on from a checkpoint
/// (`starts_anew` false). `replaceable` as in nn::load_pretrained.
nn::LoadReport load_weights(Model& model, const fs::path& folder, bool starts_anew,
                            const std::string& replaceable = "");

/// load_weights for a model that is to be used as it is: a missing weight is an InputError.
void load_all_weights(Model& model, const fs::path& folder, nn::Head head);

/// The values of --precision where a model is only used: fp32, bf16, fp16 and int8 (8-bit products in the
/// encoder's layers, 16 bits elsewhere).
const std::vector<std::string>& inference_precisions();

/// Brings a model with all its weights to one of them, or to fp64. Afterwards it can neither be trained nor
/// saved.
void prepare_inference(Model& model, const std::string& precision);

/// Writes weights, config.json and the tokeniser's files.
void save_model_folder(const Model& model, const format::BertConfig& config, nn::Head head,
                       const text::WordPiece& tokenizer, const fs::path& folder);

/// The values of --truncation.
const std::vector<std::string>& truncation_names();

/// What fine-tuning notes in config.json for evaluate and predict (key "funicular"; transformers ignores it).
struct TaskNote {
  std::string task;
  int text_columns = 1;
  int64_t max_length = 0;                    ///< 0: unknown
  std::string truncation = "longest_first";  ///< of pairs, as --truncation

  static TaskNote from(const format::BertConfig& config);
  void store_in(format::BertConfig& config) const;
  /// `truncation` as the objective takes it. Throws InputError for an unknown name.
  text::Truncation pair_truncation() const;
};

/// The names of a classifier's classes: those of config.json, or LABEL_0 … as transformers calls nameless
/// ones.
std::vector<std::string> class_names(const format::BertConfig& config);

}  // namespace funicular::cli
