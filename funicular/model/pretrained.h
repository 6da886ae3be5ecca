#pragma once
// Opens, loads and writes Hugging Face model folders.

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

/// The note that fine-tuning leaves in config.json for evaluate and predict (key "funicular"; transformers ignores
/// it).
struct TaskNote {
  std::string task;
  int text_columns = 1;
  int64_t max_length = 0;                    ///< 0: unknown
  std::string truncation = "longest_first";  ///< of pairs, as --truncation
  Json source = Json::object();              ///< the whole object, including the objectives' entries

  static TaskNote from(const format::ModelConfig& config);
  void store_in(format::ModelConfig& config) const;
  /// `truncation` as a value for the objective. Throws InputError for an unknown name.
  text::Truncation pair_truncation() const;
};

/// Loads a tokeniser whose ids fit the model, see require_own_tokenizer. Warns of doubtful settings.
std::unique_ptr<text::Tokenizer> load_tokenizer(const format::ModelConfig& config, const fs::path& folder);

/// Throws InputError unless sequences of `max_length` fit the model's positions.
void check_positions(int64_t max_length, const format::ModelConfig& config);

/// Checks a length that the user has `given`, as check_positions does. Shortens a default if the model has fewer
/// positions.
void fit_positions(int64_t& max_length, bool given, const format::ModelConfig& config);

/// Bases of rotary positions; none: keeps the model's own.
struct RotaryBases {
  static constexpr double kMost = 1e12;
  std::optional<double> full{};   ///< for layers with global attention, from 1 to kMost
  std::optional<double> local{};  ///< for layers with local attention
  bool any() const { return full || local; }
};

/// A model folder, or a config.json alone. The configuration is read at once, weights and tokeniser on demand.
class Pretrained {
 public:
  enum class Expect { folder, folder_or_config };

  /// Throws InputError unless there is a configuration; `option` names it in the message.
  explicit Pretrained(fs::path path, Expect expect = Expect::folder, const char* option = "--model");

  /// Opens a table of static embeddings (model/static_embedding.h), which has no config.json. It is described as an
  /// encoder without layers.
  static Pretrained of_table(const fs::path& folder);
  bool is_table() const { return is_table_; }

  const fs::path& path() const { return path_; }
  const format::ModelConfig& config() const { return config_; }
  TaskNote note() const { return TaskNote::from(config_); }
  /// Reads a BERT's folder as an ELECTRA whose embeddings are as wide as its layers. The encoder computes the same.
  /// The head for masked tokens keeps its weights, but always computes gelu, whatever the BERT's activation. Other
  /// heads are left out. Has no effect on other families and on a folder without weights.
  void read_as_electra();
  /// Gives layers other rotary bases, for a stage with longer sequences (Warner et al., arXiv:2412.13663). The model
  /// then has positions for at least `longest` tokens. Throws InputError if the model has no layers for one of the
  /// bases.
  void set_rotary(const RotaryBases& bases, int64_t longest);
  /// Whether the folder has weights in any format, including formats that cannot be loaded.
  bool has_weights() const { return has_weights_; }
  /// A hash that identifies the weights; "none" without weights.
  std::string weights_hash() const;
  /// Loads the tokeniser. Throws InputError unless its ids fit the model. `elsewhere`: another folder to load it
  /// from; empty: this folder.
  std::unique_ptr<text::Tokenizer> tokenizer(const fs::path& elsewhere = {}) const;

  void check_max_length(int64_t max_length) const { check_positions(max_length, config_); }
  void fit_max_length(int64_t& max_length, bool given) const { fit_positions(max_length, given, config_); }
  /// Throws InputError if a sequence of `columns` texts needs a token type that the model has no embedding for.
  void check_columns(int columns, const text::SequenceTemplate& sequence) const;

  /// The options to build a model of this folder. Throws InputError if the sizes of existing weights differ from the
  /// configuration's. `replaceable`: see load_pretrained.
  ModelOptions options(at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU,
                       const std::string& replaceable = "") const;
  /// Copies the weights into the model, and logs which weights are new and which are not used. Throws InputError for
  /// weights that are not finite. A run that resumes from a checkpoint (`starts_anew` false) logs no new weights.
  /// Weights of another head with the same names as `head`'s are not copied.
  ///
  /// Missing weights whose names begin with `elsewhere` are not logged, as they come from another folder. The
  /// folder's weights whose names begin with `read_by_caller` are not logged either. For a table nothing is copied:
  /// load_table does it.
  LoadReport load(Model& model, bool starts_anew, const std::string& replaceable = "",
                  const Head& head = Head::classification, const std::string& elsewhere = "",
                  const std::string& read_by_caller = "") const;
  /// Loads a model for inference: throws InputError if a weight that `head` needs is missing. As in load(), missing
  /// weights whose names begin with `elsewhere` are ignored.
  void load_all(Model& model, const Head& head, const std::string& elsewhere = "") const;

 private:
  fs::path path_;
  format::ModelConfig config_;
  bool has_weights_ = false, is_table_ = false;

  Pretrained() = default;
};

/// Throws InputError unless `folder` is a folder with a config.json; `option` names it in the message.
void require_folder(const fs::path& folder, const char* option);

/// Throws InputError if weights of the encoder are named as another family's and none has the model's prefix, for config.json is
/// then another model's. `missing`: the model's weights that the folder lacks.
void refuse_other_family(const format::ModelConfig& config, const fs::path& folder,
                         std::vector<std::string> missing);

/// Describes the fields that decide what a model computes and how it trains. A run resumes only if they are equal.
std::string describe_model(const format::ModelConfig& config);

/// The values of --precision in inference: fp32, bf16, fp16, tf32 (on GPUs) and int8 (on the CPU: 8-bit products in the
/// encoder's layers, 16 bits elsewhere).
const std::vector<std::string>& inference_precisions();

/// Converts a model with all its weights to one of these precisions, or to fp64. Afterwards it can neither be trained
/// nor saved. Throws InputError if the model's device does not compute in this precision.
void prepare_inference(Model& model, const std::string& precision);

/// Writes weights, config.json and the tokeniser's files.
void save_folder(const Model& model, const format::ModelConfig& config, const Head& head,
                 const text::Tokenizer& tokenizer, const fs::path& folder);

/// Writes only the tokeniser's files.
void save_tokenizer(const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                    const fs::path& folder);

/// Reorders the rows of the classifier's last layer (`layer`, see classes_layer) from the class order `from` to the
/// order `to`. Both have the same names.
void reorder_classes(Model& model, const std::string& layer, const std::vector<std::string>& from,
                     const std::vector<std::string>& to);

/// The prefix of the weights' names in a classifier's last layer, whose rows are the classes.
std::string classes_layer(const format::ModelConfig& config);
/// As above, for this head.
std::string classes_layer(const format::ModelConfig& config, const Head& head);

/// The names of a classifier's classes from config.json, or LABEL_0 … as in transformers if it has none.
std::vector<std::string> class_names(const format::ModelConfig& config);

}  // namespace funicular::model
