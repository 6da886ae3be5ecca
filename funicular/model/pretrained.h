#pragma once
// Hugging Face model folders: opened, loaded from and written.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/model_config.h"
#include "funicular/model/encoder.h"
#include "funicular/model/weights.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/truncation.h"

namespace funicular::model {

/// Folder of an ELECTRA's generator within its discriminator's folder, if it was kept.
inline constexpr const char* kGeneratorFolder = "generator";

/// Note of fine-tuning in config.json for evaluate and predict (key "funicular"; transformers ignores it).
struct TaskNote {
  std::string task;
  int text_columns = 1;
  int64_t max_length = 0;                    ///< 0: unknown
  std::string truncation = "longest_first";  ///< of pairs, as --truncation
  Json source = Json::object();              ///< the whole object, with what objectives keep there

  static TaskNote from(const format::ModelConfig& config);
  void store_in(format::ModelConfig& config) const;
  /// `truncation` as the objective takes it. Throws InputError for an unknown name.
  text::Truncation pair_truncation() const;
};

/// A tokeniser whose ids fit the model, see require_own_tokenizer. Warns of what is doubtful.
std::unique_ptr<text::Tokenizer> load_tokenizer(const format::ModelConfig& config, const fs::path& folder);

/// Throws InputError unless sequences of `max_length` fit the model's positions.
void check_positions(int64_t max_length, const format::ModelConfig& config);

/// A length that the user has `given` is checked as check_positions does; a default becomes shorter where the model has
/// fewer positions.
void fit_positions(int64_t& max_length, bool given, const format::ModelConfig& config);

/// Bases of rotary positions; none: a model's own stays.
struct RotaryBases {
  static constexpr double kMost = 1e12;
  std::optional<double> full{};   ///< of layers that see all tokens, from 1 to kMost
  std::optional<double> local{};  ///< of layers that see a window
  bool any() const { return full || local; }
};

/// A model folder, or a config.json alone, whose configuration has been read; weights and tokeniser are read
/// when they are asked for.
class Pretrained {
 public:
  enum class Expect { folder, folder_or_config };

  /// Throws InputError unless there is a configuration; `option` names it in the message.
  explicit Pretrained(fs::path path, Expect expect = Expect::folder, const char* option = "--model");

  /// A table of static embeddings (model/static_embedding.h), which has no config.json. It is described as an encoder
  /// without layers.
  static Pretrained of_table(const fs::path& folder);
  bool is_table() const { return is_table_; }

  const fs::path& path() const { return path_; }
  const format::ModelConfig& config() const { return config_; }
  TaskNote note() const { return TaskNote::from(config_); }
  /// Reads a BERT's folder as an ELECTRA's with embeddings as wide as its layers. The encoder computes the same. The head
  /// for masked tokens keeps its weights and computes gelu, whatever activation the BERT has. Other heads are left out.
  /// Other families stay as they are, and so does a folder without weights.
  void read_as_electra();
  /// Gives layers other rotary bases, for a stage with longer sequences (Warner et al., arXiv:2412.13663). The model
  /// then has positions for `longest` tokens at least. Throws InputError unless the model has layers that each
  /// base is for.
  void set_rotary(const RotaryBases& bases, int64_t longest);
  /// Whether there are weights in any format, including formats that cannot be loaded.
  bool has_weights() const { return has_weights_; }
  /// Tells weights apart; "none" where there are none.
  std::string weights_hash() const;
  /// Throws InputError unless its ids fit the model. `elsewhere`: another folder's tokeniser; empty: its own.
  std::unique_ptr<text::Tokenizer> tokenizer(const fs::path& elsewhere = {}) const;

  void check_max_length(int64_t max_length) const { check_positions(max_length, config_); }
  void fit_max_length(int64_t& max_length, bool given) const { fit_positions(max_length, given, config_); }
  /// Throws InputError where a sequence of so many texts has token types that the model has no embedding of.
  void check_columns(int columns, const text::SequenceTemplate& sequence) const;

  /// The options to build a model of this folder. Throws InputError where the weights that are there do not
  /// have the configuration's sizes. `replaceable`: see load_pretrained.
  ModelOptions options(at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU,
                       const std::string& replaceable = "") const;
  /// Copies the weights into the model and says what is new and what is left out. Throws InputError for
  /// weights that are not finite. What is new is not said of a run that goes on from a checkpoint
  /// (`starts_anew` false).
  /// Weights that are called as `head`'s and are another head's are not taken. Of those whose names begin with
  /// `elsewhere` nothing is said, for they are another folder's; nor of what the folder has under names that begin with
  /// `read_by_caller`. A table is left as it is: load_table copies it.
  LoadReport load(Model& model, bool starts_anew, const std::string& replaceable = "",
                  const Head& head = Head::classification, const std::string& elsewhere = "",
                  const std::string& read_by_caller = "") const;
  /// The same for a model that is to be used as it is: a weight that `head` needs and that is missing is an
  /// InputError. Nothing is said of weights whose names begin with `elsewhere`, as in load().
  void load_all(Model& model, const Head& head, const std::string& elsewhere = "") const;

 private:
  fs::path path_;
  format::ModelConfig config_;
  bool has_weights_ = false, is_table_ = false;

  Pretrained() = default;
};

/// Throws InputError unless `folder` is one that holds a config.json; `option` names it in the message.
void require_folder(const fs::path& folder, const char* option);

/// The fields that decide what a model computes and how it trains, in words: a run resumes only where they
/// are equal.
std::string describe_model(const format::ModelConfig& config);

/// The values of --precision where a model is only used: fp32, bf16, fp16 and int8 (8-bit products in the
/// encoder's layers, 16 bits elsewhere).
const std::vector<std::string>& inference_precisions();

/// Brings a model with all its weights to one of them, or to fp64. Afterwards it can neither be trained nor
/// saved.
void prepare_inference(Model& model, const std::string& precision);

/// Writes weights, config.json and the tokeniser's files.
void save_folder(const Model& model, const format::ModelConfig& config, const Head& head,
                 const text::Tokenizer& tokenizer, const fs::path& folder);

/// The tokeniser's files alone.
void save_tokenizer(const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                    const fs::path& folder);

/// Brings the rows of the classifier's last layer (`layer`, see classes_layer) from the order of the classes
/// `from` into that of `to`, the same names.
void reorder_classes(Model& model, const std::string& layer, const std::vector<std::string>& from,
                     const std::vector<std::string>& to);

/// Begins the names of the weights of a classifier's last layer, whose rows are the classes.
std::string classes_layer(const format::ModelConfig& config);
/// The same of this head.
std::string classes_layer(const format::ModelConfig& config, const Head& head);

/// The names of a classifier's classes: those of config.json, or LABEL_0 … as transformers calls nameless
/// ones.
std::vector<std::string> class_names(const format::ModelConfig& config);

}  // namespace funicular::model
