#include "funicular/prove/proof_text.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/random.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/bench/generated_text.h"
#include "funicular/data/token_store.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/launch/environment.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/weights.h"
#include "funicular/objective/classification.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"
#include "funicular/objective/regression.h"
#include "funicular/objective/reranking.h"
#include "funicular/objective/sentence_vectors.h"
#include "funicular/objective/tags.h"
#include "funicular/objective/text_windows.h"
#include "funicular/prove/proof_rows.h"
#include "funicular/text/input_tokens.h"

namespace funicular::prove {

namespace {

constexpr int64_t kVocabulary = 997;  // a prime, so that no number of slices divides it

constexpr double kGeneratorSize = 0.8;

format::ModelConfig small_config(const std::string& objective, int64_t layers) {
  const bool electra = objective == kElectra;
  format::ModelConfig config = electra ? format::default_config("electra") : format::ModelConfig();
  if (electra) config.encoder.embedding_size = 20;
  // This width gives ELECTRA's generator two heads, so that tensor parallelism can split it.
  config.encoder.width = electra ? 160 : 48;
  config.encoder.vocabulary = kVocabulary;
  config.encoder.set_layers(layers);
  config.encoder.heads = 4;
  config.encoder.feed_forward.width = 200;
  config.encoder.positions.rows = 128;
  config.num_labels = objective == kRankedTexts ? 1 : 3;
  return config;
}

/// Each word of one token is similar to the next two of the vocabulary.
std::unique_ptr<objective::Objective> macbert(const text::Tokenizer& tokenizer,
                                              const objective::SequenceOptions& sequence) {
  std::vector<std::string> words;
  for (const int32_t id : text::input_tokens(tokenizer))
    if (tokenizer.token_text(id) == tokenizer.vocabulary()[static_cast<size_t>(id)])
      words.push_back(tokenizer.token_text(id));
  std::string lines;
  for (size_t i = 0; i + 2 < words.size(); ++i)
    lines += words[i] + "\t" + words[i + 1] + " " + words[i + 2] + "\n";
  objective::MaskedLmOptions options{.sequence = sequence};
  options.masking = objective::Masking::ngram;
  options.replacement = objective::Replacement::similar;
  const TemporaryFolder folder;
  options.similar_words = folder.path() / "similar.txt";
  write_file_atomically(options.similar_words, lines);
  return objective::make_pretraining("mlm-sop", tokenizer, options);
}

std::unique_ptr<objective::Objective> distillation(const ProofTask& task, const format::ModelConfig& config,
                                                   const text::Tokenizer& tokenizer,
                                                   const objective::SequenceOptions& sequence) {
  objective::DistillationOptions options = distillation_of(task, config);
  options.sequence = sequence;
  const auto make = [&](const objective::DistillationOptions& o, std::function<Model()> teacher) {
    return std::make_unique<objective::Distillation>(tokenizer, o, std::move(teacher));
  };
  const at::ScalarType dtype = task.precision == Precision::fp64 ? at::kDouble : at::kFloat;
  const model::ModelOptions teacher{
      .config = options.teacher, .dtype = dtype, .seed = task.seed + 1, .device = task.device};
  const std::shared_ptr<objective::Distillation> builder = make(options, [] { return Model(); });
  return make(options, [builder, teacher] { return builder->build_teacher(teacher); });
}

std::unique_ptr<objective::Objective> classification(const ProofTask& task, const format::ModelConfig& config,
                                                     const text::Tokenizer& tokenizer,
                                                     const objective::SequenceOptions& sequence) {
  const int32_t classes = config.num_labels;
  const objective::SoftLabels soft = soft_labels_of(task);
  if (task.objective == kMultiLabel || task.objective == kSoftMultiLabel)
    return std::make_unique<objective::MultiLabel>(
        tokenizer, objective::MultiLabelOptions{.sequence = sequence, .num_labels = classes, .soft = soft});
  if (task.objective == kSoftLabels || task.objective == kLongTexts)
    return std::make_unique<objective::Classification>(
        tokenizer, objective::ClassificationOptions{.sequence = sequence,
                                                    .num_labels = classes,
                                                    .loss = {.smoothing = kSoftSmoothing},
                                                    .soft = soft});
  if (model::is_regression(config))
    return std::make_unique<objective::Regression>(tokenizer,
                                                   objective::RegressionOptions{.sequence = sequence});
  return std::make_unique<objective::Classification>(
      tokenizer, objective::ClassificationOptions{.sequence = sequence, .num_labels = classes});
}

/// The classes' names, or numbers where the configuration has no names.
std::vector<std::string> tag_names(const format::ModelConfig& config) {
  std::vector<std::string> names = config.id2label;
  for (int tag = static_cast<int>(names.size()); tag < config.num_labels; ++tag)
    names.push_back(std::to_string(tag));
  return names;
}

/// Long texts have windows of a third of a row, which share some tokens.
objective::SequenceOptions sequence_of(const ProofTask& task) {
  objective::SequenceOptions sequence{.max_length = static_cast<int32_t>(task.max_length)};
  if (task.objective != kLongTexts) return sequence;
  sequence.max_length /= 3;
  sequence.stride = 3;
  return sequence;
}

std::unique_ptr<objective::Objective> objective_of(const ProofTask& task, const format::ModelConfig& config,
                                                   const text::Tokenizer& tokenizer) {
  const objective::SequenceOptions sequence = sequence_of(task);
  if (task.objective == kElectra)
    return objective::make_pretraining("electra", tokenizer, {.sequence = sequence},
                                       {.generator_size = kGeneratorSize});
  if (task.objective == kMacBert) return macbert(tokenizer, sequence);
  if (task.distils()) return distillation(task, config, tokenizer, sequence);
  if (task.texts() > 0)
    return std::make_unique<objective::SentenceVectors>(
        tokenizer, objective::SentenceVectorOptions{.sequence = sequence,
                                                    .loss = vector_loss_of(task, config),
                                                    .scored = task.objective == kScoredTexts,
                                                    .pooler = false});
  if (task.ranks())
    return std::make_unique<objective::Reranking>(
        tokenizer, objective::RerankingOptions{.sequence = sequence, .loss = ranking_loss_of_proof()});
  if (task.objective == kTags)
    return std::make_unique<objective::Tags>(
        tokenizer, objective::TagOptions{.sequence = sequence, .tags = tag_names(config)});
  if (task.head == model::Head::classification) return classification(task, config, tokenizer, sequence);
  return std::make_unique<objective::MaskedLm>(tokenizer, objective::MaskedLmOptions{.sequence = sequence});
}

/// Generated rows with what the task's objective reads.
Rows asked_for(const ProofTask& task, const format::ModelConfig& config, const text::Tokenizer& tokenizer,
               Rows text) {
  if (task.objective == kLongTexts)
    return std::make_shared<objective::TextWindows>(
        with_shares(std::move(text), config.num_labels, false),
        objective::window_cut(tokenizer.sequence(), sequence_of(task)), /*tags=*/false);
  if (task.objective == kMacBert) return with_words(std::move(text));
  if (task.texts() > 0) return with_groups(std::move(text), task.texts());
  if (task.ranks()) return with_ranked_texts(std::move(text));
  if (task.objective == kTags) return with_tags(with_words(std::move(text)), config.num_labels);
  if (task.objective == kMultiLabel) return with_label_sets(std::move(text), config.num_labels);
  if (task.objective == kSoftLabels || task.objective == kSoftMultiLabel)
    return with_shares(std::move(text), config.num_labels, task.objective == kSoftMultiLabel);
  if (task.head == model::Head::classification) return with_labels(std::move(text), config);
  return text;
}

/// The tokeniser of the task's folder, or the one beside its config.json: a token store does not have special tokens.
std::unique_ptr<text::Tokenizer> tokenizer_of_store(const ProofTask& task) {
  if (task.model.empty())
    throw InputError(
        "prove",
        "{}: a token store needs the special tokens of its tokeniser; give with --model the folder that "
        "was its --tokenizer",
        task.data.string());
  if (!fs::is_regular_file(task.model)) return format::load_tokenizer(task.model);
  try {
    return format::load_tokenizer(fs::absolute(task.model).parent_path());
  } catch (const InputError& error) {
    throw InputError(
        "prove",
        "{}; a token store needs the special tokens of its tokeniser: copy the tokeniser's files beside "
        "{}, or give a model folder with --model",
        error.what(), task.model.string());
  }
}

std::shared_ptr<const data::Dataset> rows_of_store(const ProofTask& task, const text::Tokenizer& tokenizer,
                                                   const objective::Objective& objective) {
  const launch::Environment place =
      launch::read_environment();  // each rank of a host verifies its own blocks
  const auto store = data::TokenStore::open(task.data, {.part = place.local_rank, .parts = place.local_size});
  store->require_tokenizer(tokenizer);
  if (task.head == model::Head::classification && store->meta().labels == data::LabelKind::none)
    throw InputError("prove", "{} has no labels; expected a store of labelled rows, as finetune makes it",
                     task.data.string());
  return objective.samples(store);
}

/// Adds up to ± 0.1 to every element of the model's vectors, keyed by their names, as biases would be 0 and scales 1.
void vary_vectors(const Model& model, uint64_t seed) {
  const at::NoGradGuard no_gradient;
  for (const auto& parameter : model.parameters) {
    if (parameter->kind != ParameterKind::vector) continue;
    const RandomKey key = make_key(hash_bytes(parameter->name) ^ seed, Purpose::user);
    const at::Tensor noise = at::empty({parameter->master.numel()}, at::kDouble);
    for (int64_t i = 0; i < noise.numel(); ++i)
      noise.data_ptr<double>()[i] =
          0.2 * uniform(philox(key, make_counter(static_cast<uint32_t>(i), 0, 0))) - 0.1;
    parameter->master.add_(noise.view(parameter->master.sizes()).to(parameter->master.device()));
    if (!parameter->compute.is_same(parameter->master)) parameter->compute.copy_(parameter->master);
  }
}

}  // namespace

format::ModelConfig config_of(const ProofTask& task) {
  if (task.model.empty()) return small_config(task.objective, task.layers);
  format::ModelConfig config = format::read_model_config(task.model);
  config.tie_word_embeddings = config.tie_word_embeddings && !model::has_own_decoder(config, task.model);
  return config;
}

format::ModelConfig generator_of(const format::ModelConfig& discriminator) {
  return objective::generator_config(discriminator, kGeneratorSize);
}

objective::DistillationOptions distillation_of(const ProofTask& task, const format::ModelConfig& student) {
  objective::DistillationOptions options;
  options.student = options.teacher = student;
  options.teacher.encoder.set_layers(2 * student.encoder.layers);
  std::vector<std::string> terms = {"mlm", "tokens=2"};
  if (task.objective == kDistillationOfAllTokens) terms = {"mlm", "all-tokens=2"};
  if (task.objective == kDistillation)
    terms = {"attention", "hidden=0.5", "soft=2", "hard", "patient=3", "relations=0.25", "cosine=1.5"};
  options.terms = objective::parse_distillation_terms(terms);
  std::erase_if(options.terms, [&](const objective::DistillationTerm& term) {
    return !objective::can_compare(student.encoder, term.kind);
  });
  options.layers =
      objective::make_layer_map("uniform", student.encoder.layers, options.teacher.encoder.layers);
  options.temperature = 2;
  options.relation_heads = student.encoder.heads % 2 == 0 ? student.encoder.heads / 2 : student.encoder.heads;
  return options;
}

objective::SoftLabels soft_labels_of(const ProofTask& task) {
  if (task.objective == kLongTexts) return {.shares = true, .weights = true};
  if (task.objective != kSoftLabels && task.objective != kSoftMultiLabel) return {};
  return {.shares = true, .weights = true, .temperature = 2};
}

objective::VectorLossOptions vector_loss_of(const ProofTask& task, const format::ModelConfig& config) {
  if (task.objective == kScoredTexts) return {.loss = objective::VectorLoss::cosent};
  const int64_t width = config.encoder.width;
  return {.comparison = objective::Comparison::joint,
          .hardness = 5,
          .batch_hardness = 2,
          .matryoshka = {width, width / 3}};
}

objective::RankingLossOptions ranking_loss_of_proof() {
  return {.loss = objective::RankingLoss::lambda, .sigma = 0.5, .top_k = 2};
}

int64_t most_slices(const ProofTask& task) {
  const format::ModelConfig config = config_of(task);
  const int64_t heads = config.encoder.heads;
  return task.objective == kElectra ? std::min(heads, generator_of(config).encoder.heads) : heads;
}

ProofText open_text(const ProofTask& task, const format::ModelConfig& config) {
  ProofText text;
  if (task.data.empty()) {
    const bench::RowsRule rule{.shortest = std::min<int64_t>(32, (task.max_length + 8) / 2),
                               .longest = task.max_length,
                               .batch_size = task.batch_size,
                               .vocabulary = config.encoder.vocabulary,
                               .seed = task.seed};
    text.tokenizer = std::make_unique<text::WordPiece>(bench::generated_tokenizer(config.encoder.vocabulary));
    text.rows =
        asked_for(task, config, *text.tokenizer, std::make_shared<bench::GeneratedText>(rule, task.steps));
    text.objective = objective_of(task, config, *text.tokenizer);
    return text;
  }
  text.tokenizer = tokenizer_of_store(task);
  text.objective = objective_of(task, config, *text.tokenizer);
  text.rows = rows_of_store(task, *text.tokenizer, *text.objective);
  return text;
}

Model build_model(const ProofTask& task, const objective::Objective& objective,
                  const format::ModelConfig& config, bool repeatable) {
  const bool loads = fs::is_directory(task.model);
  if (loads) model::check_sizes(config, task.model);
  Model model = objective.build({.config = config,
                                 .dtype = task.precision == Precision::fp64 ? at::kDouble : at::kFloat,
                                 .seed = task.seed,
                                 .loaded = loads ? model::weights_in(task.model) : nullptr,
                                 .device = task.device,
                                 .repeatable = repeatable});
  if (loads)
    model::load_pretrained(model, task.model);
  else
    vary_vectors(model, task.seed);
  return model;
}

}  // namespace funicular::prove
