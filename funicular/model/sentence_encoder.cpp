#include "funicular/model/sentence_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/builder.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/pooling.h"
#include "funicular/model/static_embedding.h"
#include "funicular/model/tensor_file.h"
#include "funicular/nn/functional.h"

namespace funicular::model {

namespace {

using format::SentenceFolder;
using format::SentenceStep;

/// The weights of a step. A normalisation has none.
struct StepWeights {
  LinearWeights linear = {};
  bool has_activation = false;
  nn::Activation activation = nn::Activation::none;

  at::Tensor operator()(const at::Tensor& rows) const {
    if (!linear.weight) return normalise_rows(rows);
    const at::Tensor& weight = linear.weight->compute;
    const at::Tensor product = nn::linear(rows.to(weight.scalar_type()), weight).to(rows.scalar_type());
    const at::Tensor& bias = linear.bias ? linear.bias->compute : linear.no_bias;
    return has_activation ? nn::bias_activation(product, bias, activation) : product + bias;
  }
};

std::string step_weights(size_t step) {
  return kSentenceWeights + std::to_string(step);
}

/// `add`: makes a linear layer, as Builder::add_linear does.
template <class Add>
std::vector<StepWeights> add_steps(const SentenceFolder& modules, const Add& add) {
  std::vector<StepWeights> all;
  for (size_t at = 0; at < modules.steps.size(); ++at) {
    const SentenceStep& step = modules.steps[at];
    StepWeights& made = all.emplace_back();
    if (step.kind != SentenceStep::Kind::dense) continue;
    made.linear = add(step_weights(at), step);
    made.has_activation = step.activation != "identity";
    if (made.has_activation) made.activation = activation_named(step.activation);
    for (Parameter* const parameter : {made.linear.weight, made.linear.bias})
      if (parameter) parameter->exported = false;
  }
  return all;
}

/// Applies the steps to the pooled rows and outputs the vectors.
Activations finish(at::Tensor rows, const std::vector<StepWeights>& steps, const Pass& pass,
                   const VectorUse& use) {
  for (const StepWeights& step : steps) rows = step(rows);
  pass.taps(kVectors, rows);
  pass.loss.output(kVectors, rows);
  if (use) use(rows, pass);
  return {{kVectors, rows}};
}

Port vectors_port(int64_t width, at::ScalarType type) {
  return {kVectors,
          [width](const MicroBatch& batch) {
            return std::vector<int64_t>{batch.packing.sequences(), width};
          },
          type};
}

bool reads_one_row(const SentenceFolder& modules) {
  return modules.poolings.size() == 1 &&
         (modules.poolings[0] == format::Pooling::cls || modules.poolings[0] == format::Pooling::last_token);
}

void add_sentence_head(Builder& builder, const SentenceFolder& modules, const SentenceHeadOptions& options) {
  if (options.pooler) Head::none.add(builder);
  const std::vector<StepWeights> steps =
      add_steps(modules, [&](const std::string& name, const SentenceStep& step) {
        return builder.add_linear(name, step.outputs, step.inputs, step.bias);
      });
  const bool whole = !reads_one_row(modules);
  builder.add_segment(
      "sentence", {hidden_of_head(builder.options())},
      {vectors_port(modules.vector_width(builder.config().encoder.width), builder.options().dtype)},
      [=, poolings = modules.poolings, use = options.use](Activations in, const Pass& pass) {
        const at::Tensor& hidden = in.at(kHidden);
        std::vector<at::Tensor> rows;
        for (const format::Pooling pooling : poolings)
          rows.push_back(whole ? pool_tokens(hidden, pass.batch, pooling)
                               : hidden.to(at::promote_types(hidden.scalar_type(), at::kFloat)));
        return finish(rows.size() == 1 ? rows.front() : at::cat(rows, 1), steps, pass, use);
      });
}

int64_t count_step_parameters(const SentenceFolder& modules) {
  int64_t count = 0;
  for (const SentenceStep& step : modules.steps)
    if (step.kind == SentenceStep::Kind::dense) count += step.outputs * (step.inputs + (step.bias ? 1 : 0));
  return count;
}

void check_sentence(const SentenceFolder& modules, const format::ModelConfig& config,
                    const fs::path& folder) {
  const std::string where = folder.empty() ? "" : folder.string() + ": ";
  const int64_t width = config.encoder.width;
  if (modules.width > 0 && modules.width != width)
    throw InputError(
        "sentence-transformers",
        "{}the pooling reads hidden states of {} numbers, and the encoder gives {}; do the folder's files "
        "belong together?",
        where, modules.width, width);
  int64_t found = width * std::ssize(modules.poolings);
  for (const SentenceStep& step : modules.steps) {
    if (step.kind != SentenceStep::Kind::dense) continue;
    if (step.inputs != found)
      throw InputError("sentence-transformers", "{}a Dense module reads {} numbers, and gets {}", where,
                       step.inputs, found);
    found = step.outputs;
  }
}

bool has_pooler(const Pretrained& pretrained) {
  const std::string& name = format::family_of(pretrained.config()).names.pooler;
  return !name.empty() && weights_in(pretrained.path())(name + ".weight");
}

/// The tensors of a Dense step as its file names them.
std::map<std::string, at::Tensor> tensors_of_step(const Model& model, size_t step) {
  std::map<std::string, at::Tensor> tensors;
  for (const char* const part : {".weight", ".bias"})
    if (const Parameter* const found = model.find(step_weights(step) + part))
      tensors[std::string("linear") + part] = found->master.detach();
  return tensors;
}

void load_step(Model& model, size_t step, const fs::path& folder) {
  const at::NoGradGuard no_gradient;
  const format::WeightFiles files(folder);
  for (const auto& [name, target] : tensors_of_step(model, step)) {
    const auto found = std::ranges::find_if(
        files.entries(),
        [&, &wanted = name](const format::TensorEntry* entry) { return entry->name == wanted; });
    const std::string file = files.path().string();
    if (found == files.entries().end())
      throw InputError("weights", "{}: expected the tensor {} of a Dense module", file, name);
    const auto type = scalar_type((*found)->dtype);
    if (!type || (*found)->shape != target.sizes().vec())
      throw InputError("weights",
                       "{}: {} has the shape [{}]; its config.json says [{}] of floating-point numbers", file,
                       name, fmt::join((*found)->shape, ", "), fmt::join(target.sizes(), ", "));
    const at::Tensor value = tensor_of(**found, *type);
    if (!at::isfinite(value).all().item<bool>())
      throw InputError("weights",
                       "{}: {} holds NaN or infinite values; the weights are damaged, take another copy",
                       file, name);
    target.copy_(value);
  }
}

/// Whether texts that differ only in case get the same tokens.
bool keeps_no_case(const text::Tokenizer& tokenizer) {
  return tokenizer.tokenize("AN UPPER Case").ids == tokenizer.tokenize("an upper case").ids;
}

}  // namespace

at::Tensor normalise_rows(const at::Tensor& rows) {
  return rows / rows.norm(2, 1, /*keepdim=*/true).clamp_min(1e-12);
}

Head sentence_head(const SentenceFolder& modules, SentenceHeadOptions options) {
  Head head{"sentence",
            Head::none.architecture,
            "trained to give vectors of texts",
            {},
            [=](Builder& builder) { add_sentence_head(builder, modules, options); },
            [=](const format::ModelConfig& config) {
              return count_step_parameters(modules) + (options.pooler ? Head::none.parameters(config) : 0);
            },
            [=](const format::ModelConfig& config) { check_sentence(modules, config, options.folder); }};
  if (reads_one_row(modules))
    head.rows = [pooling = modules.poolings[0]](const MicroBatch& batch) {
      return pooled_rows(batch, pooling);
    };
  return head;
}

// ---- a folder

SentenceEncoder::SentenceEncoder(const fs::path& folder, std::vector<format::Pooling> plain,
                                 const char* option)
    : path_(folder), has_modules_(format::is_sentence_folder(folder)) {
  if (has_modules_) {
    modules_ = format::read_sentence_folder(path_);
    if (!plain.empty())
      throw InputError(
          "usage", "{} {}: the folder's own modules.json says how to pool ({}); leave out --pooling", option,
          path_.string(), modules_.poolings.empty() ? "static" : format::pooling_name(modules_.poolings[0]));
  } else if (!plain.empty()) {
    modules_.poolings = std::move(plain);
  }
  if (is_static())
    static_shape_ = static_table_shape(encoder_folder());
  else
    encoder_.emplace(modules_.encoder.empty() ? path_ : encoder_folder(), Pretrained::Expect::folder, option);
}

int64_t SentenceEncoder::max_length() const {
  if (is_static()) return modules_.max_length;
  const int64_t longest = encoder_->config().encoder.longest_sequence();
  return modules_.max_length > 0 ? std::min(modules_.max_length, longest) : longest;
}

int64_t SentenceEncoder::width() const {
  return modules_.vector_width(is_static() ? static_shape_[1] : encoder_->config().encoder.width);
}

std::string SentenceEncoder::weights_hash() const {
  std::string all = is_static() ? hash_text(hash_file(format::WeightFiles(encoder_folder()).path()))
                                : encoder_->weights_hash();
  return hash_text(hash_bytes(all + hash_sentence_steps(modules_, path_)));
}

std::unique_ptr<text::Tokenizer> SentenceEncoder::tokenizer() const {
  std::unique_ptr<text::Tokenizer> tokenizer =
      is_static() ? format::load_tokenizer(encoder_folder()) : encoder_->tokenizer();
  if (is_static() && tokenizer->id_limit() > static_rows())
    throw InputError("sentence-transformers",
                     "{}: the tokeniser has {} tokens, and the table {} rows; do the files belong together?",
                     path_.string(), tokenizer->id_limit(), static_rows());
  require_case(modules_, *tokenizer, path_);
  return tokenizer;
}

Model SentenceEncoder::load(at::ScalarType dtype, at::Device device, bool repeatable) const {
  Model model;
  if (is_static()) {
    model = build_table(modules_, Pretrained::of_table(encoder_folder()).options(dtype, device));
    load_table(model, encoder_folder());
  } else {
    ModelOptions options = encoder_->options(dtype, device);
    options.head = sentence_head(modules_, {.pooler = has_pooler(*encoder_), .folder = path_});
    options.repeatable = repeatable;
    model = build_model(options);
    encoder_->load_all(model, options.head, kSentenceWeights);
  }
  load_sentence_steps(model, modules_, path_);
  return model;
}

Pretrained open_encoder(const fs::path& folder, bool reads_modules) {
  if (!format::is_sentence_folder(folder) || (!reads_modules && fs::exists(folder / "config.json")))
    return Pretrained(folder);
  const SentenceFolder modules = format::read_sentence_folder(folder);
  const fs::path place = modules.encoder.empty() ? folder : folder / modules.encoder;
  if (!modules.is_static) return Pretrained(place);
  if (!reads_modules)
    throw InputError("model",
                     "--model {}: a table of static embeddings learns only --task pairs, triplets, scores or "
                     "vectors. To measure it, give evaluate --task retrieval or similarity",
                     folder.string());
  return Pretrained::of_table(place);
}

void require_case(const SentenceFolder& modules, const text::Tokenizer& tokenizer, const fs::path& folder) {
  if (modules.lower_case && !keeps_no_case(tokenizer))
    throw InputError("sentence-transformers",
                     "{}: do_lower_case is true, and the tokeniser keeps upper case; set lowercase in its "
                     "tokenizer.json",
                     folder.string());
}

std::string hash_sentence_steps(const SentenceFolder& modules, const fs::path& folder) {
  std::string all;
  for (const SentenceStep& step : modules.steps)
    if (!step.folder.empty())
      for (const fs::path& file : format::WeightFiles(folder / step.folder).files())
        all += hash_text(hash_file(file));
  return all;
}

void load_sentence_steps(Model& model, const SentenceFolder& modules, const fs::path& folder) {
  for (size_t step = 0; step < modules.steps.size(); ++step)
    if (!modules.steps[step].folder.empty() && modules.steps[step].kind == SentenceStep::Kind::dense)
      load_step(model, step, folder / modules.steps[step].folder);
}

Model build_table(const SentenceFolder& modules, const ModelOptions& options, VectorUse use) {
  Builder builder(options);
  const int64_t rows = options.config.encoder.vocabulary, width = options.config.encoder.width;
  Parameter* const table = builder.add_weight(kStaticTable, rows + 1, width);
  table->kind = ParameterKind::vector;  // low precision would round all its numbers
  table->weight_decay = true;
  const std::vector<StepWeights> steps =
      add_steps(modules, [&](const std::string& name, const SentenceStep& step) {
        return builder.add_linear(name, step.outputs, step.inputs, step.bias);
      });
  builder.add_segment(
      "sentence", {of_tokens("token_ids")}, {vectors_port(modules.vector_width(width), options.dtype)},
      [=](Activations in, const Pass& pass) {
        return finish(static_means(table->compute, in.at("token_ids"), pass.batch.packing, rows), steps, pass,
                      use);
      });
  Model model = builder.finish();
  model.low_precision = true;
  return model;
}

void load_table(Model& model, const fs::path& folder) {
  const at::NoGradGuard no_gradient;
  const at::Tensor stored = read_static_table(folder), target = model.find(kStaticTable)->master;
  target.narrow(0, 0, stored.size(0)).copy_(stored);
  target.narrow(0, stored.size(0), 1).zero_();
}

namespace {

/// A folder with a table can store the length of its texts only here.
void write_truncation(const fs::path& file, int64_t max_length) {
  OrderedJson json = parse_json_or_null<OrderedJson>(read_file(file));
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", max_length}, {"strategy", "LongestFirst"}, {"stride", 0}};
  write_file_atomically(file, json_text(json, 2) + "\n");
}

}  // namespace

void save_table(const at::Tensor& table, const text::Tokenizer& tokenizer, SentenceFolder& modules,
                const fs::path& folder) {
  format::write_sentence_folder(modules, folder);
  const fs::path place = folder / modules.encoder;
  write_tensors({{kStaticTable, table}}, place / "model.safetensors");
  format::save_tokenizer(place, tokenizer);
  if (modules.max_length > 0) write_truncation(place / "tokenizer.json", modules.max_length);
}

void save_sentence_steps(const Model& model, const SentenceFolder& modules, const fs::path& folder) {
  for (size_t step = 0; step < modules.steps.size(); ++step)
    if (modules.steps[step].kind == SentenceStep::Kind::dense)
      write_tensors(tensors_of_step(model, step), folder / modules.steps[step].folder / "model.safetensors");
}

void save_sentence_encoder(const Model& model, const format::ModelConfig& config,
                           const text::Tokenizer& tokenizer, SentenceFolder modules, const fs::path& folder) {
  if (modules.is_static) {
    const at::Tensor table = model.find(kStaticTable)->master.detach();
    save_table(table.narrow(0, 0, table.size(0) - 1), tokenizer, modules, folder);
    return save_sentence_steps(model, modules, folder);
  }
  modules.width = config.encoder.width;
  save_folder(model, config, sentence_head(modules), tokenizer, folder);
  format::write_sentence_folder(modules, folder);
  save_sentence_steps(model, modules, folder);
}

}  // namespace funicular::model
