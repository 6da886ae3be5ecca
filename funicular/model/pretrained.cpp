#include "funicular/model/pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/core/precision.h"
#include "funicular/format/config_keys.h"
#include "funicular/format/family.h"
#include "funicular/format/hub_hint.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/own_tokenizer.h"
#include "funicular/model/static_embedding.h"
#include "funicular/model/token_classifier.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/nn/quantized.h"

namespace funicular::model {

namespace {

constexpr size_t kNamesShown = 8;

/// Lists weights by the names in files. Parts of one weight are listed once.
std::string list(const std::vector<std::string>& parts) {
  std::vector<std::string> names;
  for (const std::string& part : parts) {
    const std::string whole = format::joint_of_part(part);
    const std::string& name = whole.empty() ? part : whole;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

void require_finite(const Model& model, const fs::path& folder) {
  const at::NoGradGuard no_gradient;
  for (const auto& parameter : model.parameters)
    if (!at::isfinite(parameter->master).all().item<bool>())
      throw InputError("weights",
                       "{}: {} holds NaN or infinite values; the weights are damaged, take another copy",
                       folder.string(), parameter->name);
}

/// Whether the name begins with the prefix of the family's encoder, or with that of its older files.
bool has_prefix_of(const format::Family& family, const std::string& name) {
  const auto& older = family.older_names;
  return name.starts_with(family.prefix) || std::any_of(older.begin(), older.end(), [&](const auto& one) {
           return name.starts_with(one.prefix);
         });
}

/// A family other than the model's, and a weight that is named as in its files.
struct OtherFamily {
  const format::Family* family = nullptr;  ///< null: there is no such weight
  std::string weight;
};

/// The family that config.json names. It is not the model's where an ELECTRA begins with the weights of a BERT.
const format::Family& family_of_file(const format::ModelConfig& config) {
  const auto type = config.source.find("model_type");
  return type != config.source.end() && type->is_string() ? format::family_of(type->get<std::string>())
                                                          : format::family_of(config);
}

/// Finds a weight of an encoder that is named as another family's. There is none if a name begins with the own
/// family's prefix.
OtherFamily find_other_family(const format::Family& own, const fs::path& folder) {
  OtherFamily other;
  const format::WeightFiles files(folder);
  for (const format::TensorEntry* entry : files.entries()) {
    const std::string& name = entry->name;
    if (has_prefix_of(own, name)) return {};
    if (other.family || !is_encoder_weight(name) || format::names_layer_weight(own, name)) continue;
    for (const format::Family& family : format::families())
      if (!other.family && (has_prefix_of(family, name) || format::names_layer_weight(family, name)))
        other = {&family, list({name})};
  }
  return other;
}

/// The values of model_type whose files name weights so.
std::vector<std::string> types_that_name(const std::string& weight) {
  std::vector<std::string> types;
  for (const format::Family& family : format::families())
    if (has_prefix_of(family, weight) || format::names_layer_weight(family, weight))
      types.push_back(family.model_type);
  return types;
}

/// Logs which weights of the folder are not used. `warns`: the encoder's are logged as a warning.
void tell_of_unused(const std::vector<std::string>& unused, bool warns, const fs::path& folder) {
  std::vector<std::string> left, others;
  for (const std::string& name : unused) (warns && is_encoder_weight(name) ? left : others).push_back(name);
  if (!others.empty()) log::info("in {} and not used: {}", folder.string(), list(others));
  if (!left.empty())
    log::warning("in {} and not used, for its config.json has no place for them: {}", folder.string(),
                 list(left));
}

}  // namespace

void refuse_other_family(const format::ModelConfig& config, const fs::path& folder,
                         std::vector<std::string> missing) {
  const format::Family& own = family_of_file(config);
  const OtherFamily other = find_other_family(own, folder);
  if (!other.family) return;
  const std::string found =
      fmt::format("{}: {} is the name of a weight of {}, but config.json says \"model_type\" \"{}\"",
                  folder.string(), other.weight, other.family->title, own.model_type);
  std::erase_if(missing, [](const std::string& name) { return !is_encoder_weight(name); });
  if (!missing.empty())
    throw InputError("weights",
                     "{}, and these weights of {} are missing: {}; put the config.json of the {} model "
                     "into the folder",
                     found, own.title, list(missing), other.family->title);
  const std::vector<std::string> types = types_that_name(other.weight);
  throw InputError(
      "weights",
      "{}. {} may compute otherwise with the same weights. Put the config.json that belongs to the "
      "weights into the folder, or set \"model_type\" to {} if all else in it is right",
      found, own.title, fmt::join(types, " or "));
}

/// Returns the architecture in config.json with another head than `head` whose weights have the same names; "" if
/// there is none.
static std::string other_owner(const format::ModelConfig& config, const Head& head) {
  const std::string own = format::family_of(config).class_of(head.architecture);
  for (const std::string& name : config.architectures)
    for (const char* const kind :
         {"ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice"})
      if (name.ends_with(kind) && !own.ends_with(kind)) return name;
  return "";
}

/// The texts or words that a head classifies.
static const char* classified(const Head& head) {
  return head == Head::classification ? "whole texts" : "words";
}

/// Returns why a model may lack this head's weights, and what to do.
static std::string reason_of_missing(const format::ModelConfig& config, const Head& head,
                                     const fs::path& folder) {
  if (head == Head::masked_lm && !says_tied(config))
    return "tie_word_embeddings is false in config.json, so the head needs a decoder of its own; if the "
           "decoder is the "
           "word embeddings, set it to true";
  if (head == Head::masked_lm && fs::exists(folder / kGeneratorFolder / "config.json"))
    return fmt::format(
        "it is an ELECTRA's discriminator, which guesses no words; its generator does: give {}",
        (folder / kGeneratorFolder).string());
  if (const format::Family& family = format::family_of(config);
      head == Head::masked_lm && !family.replaced_tokens.dense.empty())
    return fmt::format(
        "the discriminator of an {} guesses no words, and pretrain keeps the generator only with "
        "--keep-generator; or was the model not {}?",
        family.title, head.purpose);
  return fmt::format("was the model {}?", head.purpose);
}

void require_folder(const fs::path& folder, const char* option) {
  if (!fs::exists(folder))
    throw InputError("model", "{} {}: no such folder{}", option, folder.string(), format::hub_hint(folder));
  if (!fs::is_directory(folder))
    throw InputError("model", "{} {}: expected a folder with config.json, found a file", option,
                     folder.string());
  if (!fs::exists(folder / "config.json") && fs::exists(folder / "model" / "config.json"))
    throw InputError("model", "{} {}: the folder of a run; its model is {}", option, folder.string(),
                     (folder / "model").string());
  if (!fs::exists(folder / "config.json") && fs::exists(folder / "run.json"))
    throw InputError("model",
                     "{} {}: this run has not finished and has no model yet; rerun its command to resume",
                     option, folder.string());
  if (!fs::exists(folder / "config.json"))
    throw InputError("model", "{} {}: the folder has no config.json; a Hugging Face model folder is expected",
                     option, folder.string());
}

namespace {

bool any_weights(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string(), ending = entry.path().extension().string();
    // Other .bin files of such folders are optimiser states and arguments.
    if (ending == ".safetensors" || ending == ".h5" || ending == ".msgpack" ||
        name.ends_with(".index.json") || (ending == ".bin" && name.starts_with("pytorch_model")))
      return true;
  }
  return false;
}

}  // namespace

Pretrained::Pretrained(fs::path path, Expect expect, const char* option) : path_(std::move(path)) {
  if (expect == Expect::folder || !fs::is_regular_file(path_)) require_folder(path_, option);
  config_ = format::read_model_config(path_);
  format::warn_of_doubtful_keys(config_.source, path_);
  has_weights_ = any_weights(path_);
  if (config_.tie_word_embeddings) config_.tie_word_embeddings = !has_own_decoder(config_, path_);
}

Pretrained Pretrained::of_table(const fs::path& folder) {
  const std::vector<int64_t> shape = static_table_shape(folder);
  Pretrained table;
  table.path_ = folder;
  table.has_weights_ = table.is_table_ = true;
  format::EncoderSpec& spec = table.config_.encoder;
  spec.vocabulary = shape[0];
  spec.width = shape[1];
  spec.layers = 0;
  spec.token_types = 0;
  spec.positions.rows = format::EncoderLimits::positions;
  return table;
}

void Pretrained::read_as_electra() {
  const format::ModelConfig bert = config_;
  if (!has_weights_ || bert.model_type != format::ModelConfig().model_type) return;
  config_.source["model_type"] = bert.model_type;
  config_.model_type = "electra";
  config_.encoder.embedding_size = bert.encoder.width;
  for (const char* const key : {"pooler_type", "pooler_fc_size", "position_embedding_type"})
    config_.source.erase(key);
}

void Pretrained::set_rotary(const RotaryBases& bases, int64_t longest) {
  format::EncoderSpec& encoder = config_.encoder;
  const auto set = [&](const std::optional<double>& base, bool local) {
    bool found = false;
    for (format::LayerAttention& layer : encoder.attention) {
      if (layer.rotary_base == 0 || layer.window.has_value() != local) continue;
      found = true;
      if (base) layer.rotary_base = *base;
    }
    if (base && !found)
      throw InputError("model",
                       "{} {:g}: {} is a {} without rotary positions in layers {}; expected a model such as "
                       "ModernBERT, or leave the option out",
                       local ? "--local-rope-theta" : "--rope-theta", *base, path_.string(),
                       format::family_of(config_).title, local ? "with a window" : "that see all tokens");
  };
  set(bases.full, false);
  set(bases.local, true);
  encoder.positions.rows = std::max(encoder.positions.rows, longest + encoder.first_position());
}

std::string Pretrained::weights_hash() const {
  if (fs::is_directory(path_) && format::has_weight_files(path_)) {
    const std::vector<fs::path> files = format::WeightFiles(path_).files();
    if (files.size() == 1) return hash_text(hash_file(files.front()));
    std::string all;
    for (const fs::path& file : files)
      all += fmt::format("{} {}\n", file.filename().string(), hash_file(file));
    return hash_text(hash_bytes(all));
  }
  return "none";
}

std::unique_ptr<text::Tokenizer> Pretrained::tokenizer(const fs::path& elsewhere) const {
  return load_tokenizer(config_, elsewhere.empty() ? path_ : elsewhere);
}

std::unique_ptr<text::Tokenizer> load_tokenizer(const format::ModelConfig& config, const fs::path& folder) {
  std::unique_ptr<text::Tokenizer> tokenizer = format::load_tokenizer(folder);
  require_own_tokenizer(config, *tokenizer, folder);
  for (const std::string& doubt : doubtful_special_tokens(config, *tokenizer))
    log::warning("{}: {}", folder.string(), doubt);
  return tokenizer;
}

void check_positions(int64_t max_length, const format::ModelConfig& config) {
  if (max_length > config.encoder.longest_sequence())
    throw InputError("usage", "--max-length {} is more than the model's {} positions", max_length,
                     config.encoder.longest_sequence());
}

void fit_positions(int64_t& max_length, bool given, const format::ModelConfig& config) {
  if (!given) max_length = std::min(max_length, config.encoder.longest_sequence());
  check_positions(max_length, config);
}

void Pretrained::check_columns(int columns, const text::SequenceTemplate& sequence) const {
  for (const text::SequenceTemplate::Step& step : sequence.steps(columns))
    if (config_.encoder.token_types > 0 && step.type >= config_.encoder.token_types)
      throw InputError("model",
                       "{}: {} is {}, so the model cannot tell the texts of a pair apart; expected "
                       "at least 2, or rows of one text",
                       path_.string(), token_types_key(config_), config_.encoder.token_types);
}

ModelOptions Pretrained::options(at::ScalarType dtype, at::Device device,
                                 const std::string& replaceable) const {
  if (is_table_)
    return {.config = config_,
            .dtype = dtype,
            .loaded = [](const std::string& name) { return name == kStaticTable; },
            .device = device};
  if (has_weights_) check_sizes(config_, path_);
  return {.config = config_,
          .dtype = dtype,
          .loaded = has_weights_ ? weights_in(path_, replaceable) : nullptr,
          .device = device};
}

LoadReport Pretrained::load(Model& model, bool starts_anew, const std::string& replaceable, const Head& head,
                            const std::string& elsewhere, const std::string& read_by_caller) const {
  if (is_table_) return {};
  const std::string other =
      !replaceable.empty() && replaceable == classes_layer(config_, head) ? other_owner(config_, head) : "";
  check_decoder(model, config_, path_);
  LoadReport report = load_pretrained(model, path_, replaceable, nullptr, other.empty() ? "" : replaceable);
  require_finite(model, path_);
  if (!elsewhere.empty())
    std::erase_if(report.missing, [&](const std::string& name) { return name.starts_with(elsewhere); });
  if (!read_by_caller.empty())
    std::erase_if(report.unexpected,
                  [&](const std::string& name) { return name.starts_with(read_by_caller); });
  if (starts_anew) refuse_other_family(config_, path_, report.missing);
  if (!other.empty() && starts_anew)
    log::warning("{} is a {}: its classifier is not one of {}, and a new one takes its place", path_.string(),
                 other, classified(head));
  if (!report.missing.empty() && starts_anew)
    log::info("new, randomly initialised: {}", list(report.missing));
  tell_of_unused(report.unexpected, starts_anew, path_);
  return report;
}

void Pretrained::load_all(Model& model, const Head& head, const std::string& elsewhere) const {
  const bool classifies = head == Head::classification || head == token_classifier();
  if (const std::string other = other_owner(config_, head); classifies && !other.empty())
    throw InputError("weights", "{} is a {}; expected a model that classifies {} ({})", path_.string(), other,
                     classified(head), head.purpose);
  refuse_unused_layers(config_, path_);
  check_decoder(model, config_, path_);
  LoadReport report = load_pretrained(model, path_);
  refuse_other_family(config_, path_, report.missing);
  require_finite(model, path_);
  if (!elsewhere.empty())
    std::erase_if(report.missing, [&](const std::string& name) { return name.starts_with(elsewhere); });
  if (!report.missing.empty())
    throw InputError("weights", "{} lacks weights that this command needs: {}; {}", path_.string(),
                     list(report.missing), reason_of_missing(config_, head, path_));
  tell_of_unused(report.unexpected, true, path_);
}

namespace {

/// Describes what only some families have; empty for a family without it, so that runs of older versions can be
/// resumed.
std::string describe_sharing(const format::EncoderSpec& encoder) {
  std::string text;
  if (const auto& relative = encoder.positions.relative)
    text += fmt::format(", distances in {} buckets up to {}", relative->buckets, relative->farthest);
  if (encoder.layer_groups) text += fmt::format(", {} groups of layers", *encoder.layer_groups);
  // Older versions described runs of ModernBERT without its bases.
  if (const double base = encoder.attention_of(0).rotary_base; base > 0 && !encoder.norm.first)
    text += fmt::format(", rotary base {}", base);
  return text;
}

}  // namespace

std::string describe_model(const format::ModelConfig& config) {
  const std::string family =
      config.model_type == format::ModelConfig().model_type
          ? ""
          : fmt::format("{} with embeddings of {}, ", config.model_type, config.encoder.embedding_width());
  return family +
         fmt::format(
             "{} layers of {} heads, sizes {} and {}, {} tokens, {} positions, {} segments, {}, "
             "normalisation "
             "epsilon {}, dropout {} (hidden), {} (attention), {} (classifier)",
             config.encoder.layers, config.encoder.heads, config.encoder.width,
             config.encoder.feed_forward.width, config.encoder.vocabulary, config.encoder.positions.rows,
             config.encoder.token_types, config.encoder.activation, config.encoder.norm.epsilon,
             config.encoder.dropouts.hidden, config.encoder.dropouts.attention,
             config.classifier_dropout_probability()) +
         describe_sharing(config.encoder);
}

const std::vector<std::string>& inference_precisions() {
  static const std::vector<std::string> names{"fp32", "bf16", "fp16", "tf32", "int8"};
  return names;
}

void prepare_inference(Model& model, const std::string& precision) {
  if (precision == "int8" && !model.device().is_cpu())
    throw InputError("precision", "int8 is for the CPU; on {} expected fp32, tf32, bf16 or fp16",
                     model.device().str());
  if (precision == "tf32") nn::require_tf32(model.device());
  if (precision == "int8") nn::quantize_layers(model);
  make_inference(model, parse_precision(precision == "int8" ? "bf16" : precision));
}

void save_folder(const Model& model, const format::ModelConfig& config, const Head& head,
                 const text::Tokenizer& tokenizer, const fs::path& folder) {
  save_pretrained(model, config, head, folder);
  save_tokenizer(config, tokenizer, folder);
}

namespace {

bool gives_types(const text::SequenceTemplate& sequence) {
  const auto has_type = [&](int columns) {
    const auto steps = sequence.steps(columns);
    return std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.type > 0; });
  };
  return has_type(1) || has_type(2);
}

/// Makes transformers' tokeniser give the token types that the encoder was trained with, and no others. The names in
/// the file were the tokeniser's own; a second list keeps them, since with pieces they are part of its fingerprint.
void write_input_names(const fs::path& file, bool with_types) {
  OrderedJson json = parse_json_or_null<OrderedJson>(read_file(file));
  const OrderedJson own = json.value("model_input_names", OrderedJson());
  // BertTokenizer and MPNetTokenizer have names of their own.
  if (own.is_null() && json["tokenizer_class"] != "PreTrainedTokenizerFast") return;
  OrderedJson names = {"input_ids", "token_type_ids", "attention_mask"};
  if (!with_types) names.erase(1);
  if (own == names) return;
  if (!own.is_null()) json["funicular"]["model_input_names"] = own;
  json["model_input_names"] = std::move(names);
  write_file_atomically(file, json_text(json, 2) + "\n");
}

}  // namespace

void save_tokenizer(const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                    const fs::path& folder) {
  format::save_tokenizer(folder, tokenizer, static_cast<int>(config.encoder.longest_sequence()));
  write_input_names(folder / "tokenizer_config.json",
                    config.encoder.token_types > 1 && gives_types(tokenizer.sequence()));
}

text::Truncation TaskNote::pair_truncation() const {
  return text::parse_truncation(truncation, "config.json (key \"funicular\")");
}

TaskNote TaskNote::from(const format::ModelConfig& config) {
  TaskNote note;
  const auto found = config.source.find("funicular");
  if (found == config.source.end() || !found->is_object()) return note;
  constexpr const char* kOrigin = "config.json (key \"funicular\")";
  note.task = json_get_or<std::string>(*found, "task", "", kOrigin);
  note.text_columns = json_get_or<int>(*found, "text_columns", 1, kOrigin);
  note.max_length = json_get_or<int64_t>(*found, "max_length", 0, kOrigin);
  note.truncation = json_get_or<std::string>(*found, "truncation", note.truncation, kOrigin);
  note.source = *found;
  return note;
}

void TaskNote::store_in(format::ModelConfig& config) const {
  Json& note = config.source["funicular"] = source;
  note["task"] = task;
  note["text_columns"] = text_columns;
  note["max_length"] = max_length;
  note["truncation"] = truncation;
}

std::string classes_layer(const format::ModelConfig& config) {
  return format::family_of(config).classifier.output + ".";
}

std::string classes_layer(const format::ModelConfig& config, const Head& head) {
  return head == token_classifier() ? kTokenClassifier : classes_layer(config);
}

void reorder_classes(Model& model, const std::string& layer, const std::vector<std::string>& from,
                     const std::vector<std::string>& to) {
  std::vector<int64_t> rows;
  for (const std::string& name : to) rows.push_back(std::find(from.begin(), from.end(), name) - from.begin());
  const at::NoGradGuard no_gradient;
  const at::Tensor order = at::tensor(rows, at::TensorOptions().dtype(at::kLong)).to(model.device());
  for (const auto& parameter : model.parameters)
    if (parameter->name.starts_with(layer)) parameter->master.copy_(parameter->master.index_select(0, order));
}

std::vector<std::string> class_names(const format::ModelConfig& config) {
  if (!config.id2label.empty()) return config.id2label;
  std::vector<std::string> names;
  for (int id = 0; id < config.num_labels; ++id) names.push_back(fmt::format("LABEL_{}", id));
  return names;
}

}  // namespace funicular::model
