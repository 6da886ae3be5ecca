// What compare_layouts reads: a run under one layout, or under the reference.
#include <algorithm>
#include <map>
#include <memory>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/bench/generated_text.h"
#include "funicular/data/datasets.h"
#include "funicular/data/token_store.h"
#include "funicular/format/model_config.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/launch/environment.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/weights.h"
#include "funicular/objective/classification.h"
#include "funicular/objective/electra.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/registry.h"
#include "funicular/objective/regression.h"
#include "funicular/parallel/stages.h"
#include "funicular/pipeline/recipes.h"
#include "funicular/prove/proof.h"
#include "funicular/prove/reference_step.h"
#include "funicular/text/input_tokens.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/trainer.h"

namespace funicular::prove {

namespace {

constexpr int64_t kVocabulary = 997;  // a prime: no piece of it divides evenly

constexpr double kGeneratorSize = 0.8;

format::ModelConfig small_config(const std::string& objective, int64_t layers) {
  const bool electra = objective == kElectra;
  format::ModelConfig config = electra ? format::default_config("electra") : format::ModelConfig();
  if (electra) config.encoder.embedding_size = 20;
  // So wide that ELECTRA's generator has two heads, by which it can be cut into slices.
  config.encoder.width = electra ? 160 : 48;
  config.encoder.vocabulary = kVocabulary;
  config.encoder.layers = layers;
  config.encoder.heads = 4;
  config.encoder.feed_forward.width = 200;
  config.encoder.positions.rows = 128;
  config.num_labels = 3;
  return config;
}

format::ModelConfig config_of(const ProofTask& task) {
  if (task.model.empty()) return small_config(task.objective, task.layers);
  format::ModelConfig config = format::read_model_config(task.model);
  config.tie_word_embeddings = config.tie_word_embeddings && !model::has_own_decoder(config, task.model);
  return config;
}

/// Generated rows with labels, which mean nothing; every other row is a pair of texts.
class LabelledText final : public data::Dataset {
 public:
  LabelledText(std::shared_ptr<const data::Dataset> text, const format::ModelConfig& config)
      : text_(std::move(text)), labels_(config.num_labels), pairs_(config.encoder.token_types > 1) {}
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    // A regression's single label has values of its own.
    sample.label = labels_ == 1 ? static_cast<double>(index % 7) / 4 : static_cast<double>(index % labels_);
    if (!pairs_ || index % 2 == 0) return sample;
    const data::TokenSpan whole = sample.columns[0].tokens;
    const size_t first = whole.size() / 3;
    sample.columns[0].tokens = whole.first(first);
    sample.columns.push_back({whole.subspan(first, whole.size() - first), {}});
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 1; }

 private:
  std::shared_ptr<const data::Dataset> text_;
  int64_t labels_;
  bool pairs_;
};

/// Generated rows with words: most tokens begin one.
class WordedText final : public data::Dataset {
 public:
  explicit WordedText(std::shared_ptr<const data::Dataset> text) : text_(std::move(text)) {
    for (int64_t row = 0; row < text_->size(); ++row) {
      const data::TokenSpan tokens = text_->get(row).columns[0].tokens;
      bounds_.push_back(words_.size());
      for (size_t i = 0; i < tokens.size(); ++i) words_.push_back(i == 0 || tokens[i] % 4 != 0);
    }
    bits_.resize((words_.size() + 7) / 8);
    for (size_t i = 0; i < words_.size(); ++i) bits_[i / 8] |= static_cast<uint8_t>(words_[i] << (i % 8));
  }
  int64_t size() const override { return text_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = text_->get(index);
    sample.columns[0].word_starts = {.bits = bits_.data(), .begin = bounds_.at(static_cast<size_t>(index))};
    return sample;
  }
  uint64_t fingerprint() const override { return text_->fingerprint() + 2; }

 private:
  std::shared_ptr<const data::Dataset> text_;
  std::vector<uint8_t> words_, bits_;  ///< 1 where a token begins a word; the same, eight a byte
  std::vector<uint64_t> bounds_;
};

/// What is trained: rows, and how they become batches. Keeps alive what the objective refers to.
struct Text {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<const data::Dataset> rows;
  std::unique_ptr<objective::Objective> objective;
};

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

std::unique_ptr<objective::Objective> objective_of(const ProofTask& task, const format::ModelConfig& config,
                                                   const text::Tokenizer& tokenizer) {
  const objective::SequenceOptions sequence{.max_length = static_cast<int32_t>(task.max_length)};
  if (task.objective == kElectra)
    return objective::make_pretraining("electra", tokenizer, {.sequence = sequence},
                                       {.generator_size = kGeneratorSize});
  if (task.objective == kMacBert) return macbert(tokenizer, sequence);
  if (task.head == model::Head::classification && model::is_regression(config))
    return std::make_unique<objective::Regression>(tokenizer,
                                                   objective::RegressionOptions{.sequence = sequence});
  if (task.head == model::Head::classification)
    return std::make_unique<objective::Classification>(
        tokenizer, objective::ClassificationOptions{.sequence = sequence, .num_labels = config.num_labels});
  return std::make_unique<objective::MaskedLm>(tokenizer, objective::MaskedLmOptions{.sequence = sequence});
}

std::shared_ptr<const data::Dataset> rows_of_store(const ProofTask& task, const text::Tokenizer& tokenizer,
                                                   const objective::Objective& objective) {
  const launch::Environment place = launch::read_environment();  // of a host's ranks each verifies its blocks
  const auto store = data::TokenStore::open(task.data, {.part = place.local_rank, .parts = place.local_size});
  store->require_tokenizer(tokenizer);
  if (task.head == model::Head::classification && store->meta().labels == data::LabelKind::none)
    throw InputError("prove", "{} has no labels; expected a store of labelled rows, as finetune makes it",
                     task.data.string());
  return objective.samples(store);
}

Text open_text(const ProofTask& task, const format::ModelConfig& config) {
  Text text;
  if (task.data.empty()) {
    const bench::RowsRule rule{.longest = task.max_length,
                               .batch_size = task.batch_size,
                               .vocabulary = config.encoder.vocabulary,
                               .seed = task.seed};
    text.tokenizer = std::make_unique<text::WordPiece>(bench::generated_tokenizer(config.encoder.vocabulary));
    text.rows = std::make_shared<bench::GeneratedText>(rule, task.steps);
    if (task.head == model::Head::classification)
      text.rows = std::make_shared<LabelledText>(text.rows, config);
    if (task.objective == kMacBert) text.rows = std::make_shared<WordedText>(text.rows);
    text.objective = objective_of(task, config, *text.tokenizer);
    return text;
  }
  if (fs::is_regular_file(task.model) || task.model.empty())
    throw InputError("prove",
                     "rows of a token store need the tokeniser of a model folder; give one with --model");
  text.tokenizer = format::load_tokenizer(task.model);
  text.objective = objective_of(task, config, *text.tokenizer);
  text.rows = rows_of_store(task, *text.tokenizer, *text.objective);
  return text;
}

Model build_model(const ProofTask& task, const objective::Objective& objective,
                  const format::ModelConfig& config) {
  const bool loads = fs::is_directory(task.model);
  if (loads) model::check_sizes(config, task.model);
  Model model = objective.build({.config = config,
                                 .dtype = task.precision == Precision::fp64 ? at::kDouble : at::kFloat,
                                 .seed = task.seed,
                                 .loaded = loads ? model::weights_in(task.model) : nullptr});
  if (loads) model::load_pretrained(model, task.model);
  return model;
}

// ---- under a layout

train::TrainerOptions options_of(const ProofTask& task, const Layout& layout) {
  train::TrainerOptions options;
  options.max_steps = task.steps;
  options.batch_size = task.batch_size;
  options.micro_batch_size = std::min(layout.micro_batch_size, task.batch_size);
  options.precision = task.precision;
  options.recompute = layout.recompute;
  options.max_grad_norm = task.max_grad_norm;
  options.seed = task.seed;
  options.schedule = {.kind = optim::ScheduleKind::constant};
  options.progress = false;
  return options;
}

/// Shows the visitor a strategy's optimiser state, or all but that.
std::function<void(parallel::StateVisitor&)> part_of(parallel::Strategy& strategy, bool optimizer) {
  return [&strategy, optimizer](parallel::StateVisitor& visitor) {
    struct Filter final : parallel::StateVisitor {
      Filter(parallel::StateVisitor& to, bool keeps) : next(to), optimizer(keeps) {}
      void visit(const parallel::StateSlice& slice) override {
        if ((slice.kind == parallel::StateSlice::Kind::optimizer) == optimizer) next.visit(slice);
      }
      parallel::StateVisitor& next;
      bool optimizer;
    } filter(visitor, optimizer);
    strategy.visit_state(filter);
  };
}

OrderedJson run_strategy(const ProofTask& task, const Layout& layout, const comm::Group& group,
                         const fs::path& folder, const format::ModelConfig& config) {
  Text text = open_text(task, config);
  Model model = build_model(task, *text.objective, config);
  text.objective = with_fault(std::move(text.objective), layout.fault);
  train::Trainer trainer(
      options_of(task, layout),
      [&] {
        const parallel::StrategyOptions options{.deterministic = layout.deterministic,
                                                .compare_every = 0,
                                                .reduction = {.bucket_bytes = 1},  // one for each segment
                                                .servers = {.count = layout.servers}};
        return with_fault(parallel::make_strategy(layout.shared, group, options), layout.fault);
      },
      task.optimizer);
  OrderedJson losses = OrderedJson::array();
  trainer.callbacks.on_step = [&](int64_t, const parallel::StepResult& result) {
    losses.push_back({{"total", result.loss}});
    for (const auto& [name, loss] : result.losses) losses.back()[name] = loss;
  };
  HeldBytesProbe held(model);
  trainer.callbacks.inspect = [&](int64_t step, bool updated, parallel::Strategy& strategy) {
    const auto keep = [&](const char* kind, const std::function<void(parallel::StateVisitor&)>& visit) {
      train::write_slices(group, folder / step_file(kind, step), visit);
    };
    if (!updated) {
      held.look_at_gradients(strategy);
      return keep("gradient", [&](parallel::StateVisitor& visitor) { strategy.visit_gradients(visitor); });
    }
    held.look_at_weights(strategy);
    keep("weight", part_of(strategy, false));
    keep("state", part_of(strategy, true));
  };
  trainer.fit(model, *text.objective, *text.rows);
  held.write(group, folder);
  return losses;
}

// ---- under the reference

NamedTensors weights_of(const Model& model) {
  NamedTensors weights;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices)
      weights[slice.name] = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
  return weights;
}

/// The sequences of a packed batch, each alone.
std::vector<ReferenceRow> unpack(const MicroBatch& batch) {
  std::vector<ReferenceRow> rows;
  const std::vector<int32_t>& offsets = batch.packing.host_offsets;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t begin = offsets[s], end = offsets[s + 1];
    ReferenceRow& row = rows.emplace_back();
    row.token_ids = batch["token_ids"].slice(0, begin, end);
    row.token_type_ids = batch["token_type_ids"].slice(0, begin, end);
    row.draw = static_cast<uint64_t>(batch.packing.host_draw_ids[s]);
    if (batch.tensors.contains("labels")) {
      row.label = batch["labels"][static_cast<int64_t>(s)].item<double>();
      continue;
    }
    const at::Tensor masked = batch["mlm_rows"];
    const at::Tensor own = masked.ge(begin).logical_and(masked.lt(end));
    row.masked_positions = masked.masked_select(own) - begin;
    row.original_tokens = batch["mlm_labels"].masked_select(own);
  }
  return rows;
}

ReferenceSettings settings_of(const ProofTask& task, const format::ModelConfig& config) {
  const auto& adamw = *task.optimizer.as<optim::AdamW>();
  return {.config = config,
          .classifies = task.head == model::Head::classification,
          .seed = task.seed,
          .max_grad_norm = task.max_grad_norm,
          .learning_rate = adamw.learning_rate,
          .beta1 = adamw.beta1,
          .beta2 = adamw.beta2,
          .epsilon = adamw.epsilon,
          .weight_decay = adamw.weight_decay};
}

void write(const comm::Group& group, const fs::path& path,
           const std::vector<std::pair<const char*, const NamedTensors*>>& states) {
  train::write_slices(group, path, [&](parallel::StateVisitor& visitor) {
    using Kind = parallel::StateSlice::Kind;
    for (const auto& [state, tensors] : states)
      for (const auto& [name, value] : *tensors)
        visitor.visit({.kind = *state ? Kind::optimizer : Kind::model,
                       .name = name,
                       .shape = value.sizes().vec(),
                       .local = value.contiguous().flatten(),
                       .state = state});
  });
}

/// On which stage of an asynchronous pipeline the reference's weights are first used, and how old they are in a step.
class Recurrence {
 public:
  Recurrence(const Layout& layout, const Model& model, int64_t steps_between_meetings)
      : layout_(layout), between_(steps_between_meetings) {
    if (layout.recurrence().empty()) return;
    const std::vector<size_t> begins = parallel::balanced_begins(model, layout.stages());
    for (size_t segment = 0; segment < model.segments.size(); ++segment) {
      const auto after = std::upper_bound(begins.begin(), begins.end(), segment);
      for (const Parameter* parameter : model.segments[segment].parameters)
        for (const Parameter::Slice& slice : parameter->slices)
          stage_of_.try_emplace(slice.name, static_cast<int>(after - begins.begin()) - 1);
    }
  }
  int stage_of(const std::string& name) const { return stage_of_.empty() ? 0 : stage_of_.at(name); }
  /// In updates; no older than the meeting before (the trainer's: at epochs' ends, and every hundred steps).
  int64_t age(int64_t step, const std::string& name) const {
    if (stage_of_.empty()) return 0;
    const int behind = layout_.stages() - 1 - stage_of(name);
    const int64_t age = pipeline::recipe_of(layout_.shared.schedule).stale->age(behind, layout_.stages());
    return std::min(age, std::min(step % between_, step % 100));
  }

 private:
  const Layout& layout_;
  const int64_t between_;
  std::map<std::string, int> stage_of_;
};

OrderedJson run_reference(const ProofTask& task, const Layout& layout, const comm::Group& group,
                          const fs::path& folder, const format::ModelConfig& config) {
  if (const std::string reason = reference_refuses(task); !reason.empty())
    throw InputError("prove", "{}", reason);
  const Text text = open_text(task, config);
  const train::DatasetSource source(*text.objective, *text.rows);
  const data::Sampler sampler(source.size(), {.seed = task.seed, .batch_size = task.batch_size});
  const Model model = build_model(task, *text.objective, config);
  ReferenceStep reference(settings_of(task, config), weights_of(model));
  const Recurrence recurrence(layout, model, sampler.batches_per_epoch());
  const char* const term = task.head == model::Head::masked_lm ? "mlm"
                           : model::is_regression(config)      ? "regression"
                                                               : "classification";
  OrderedJson losses = OrderedJson::array();
  for (int64_t step = 1; step <= task.steps; ++step) {
    const MicroBatch batch = source.collate(sampler.batch(step - 1), {.seed = task.seed, .training = true});
    const double loss = reference.differentiate(
        unpack(batch), [&](const std::string& name) { return recurrence.age(step - 1, name); });
    losses.push_back({{"total", loss}, {term, loss}});
    write(group, folder / step_file("gradient", step), {{"", &reference.gradients()}});
    reference.update([&](const std::string& name) { return recurrence.stage_of(name); });
    write(group, folder / step_file("weight", step), {{"", &reference.weights()}});
    write(group, folder / step_file("state", step),
          {{"exp_avg", &reference.first_moments()}, {"exp_avg_sq", &reference.second_moments()}});
  }
  return losses;
}

}  // namespace

std::string reference_refuses(const ProofTask& task) {
  if (!task.objective.empty())
    return "the reference knows hidden words and classes alone; expected --objective masked-lm or "
           "classification";
  const auto* const adamw = task.optimizer.as<optim::AdamW>();
  if (!adamw || !adamw->bias_correction)
    return "the reference updates weights by AdamW with its correction of bias alone; expected --optim adamw";
  // Of a small gradient AdamW makes a whole step, so 16 bits that turn its sign show in the weight as an
  // error.
  if (task.precision != Precision::fp64 && task.precision != Precision::fp32)
    return "the reference computes in float64, from which 16-bit products differ too much to tell a fault; "
           "expected --precision fp64 or fp32";
  return "";
}

int64_t most_slices(const ProofTask& task) {
  const format::ModelConfig config = config_of(task);
  const int64_t heads = config.encoder.heads;
  if (task.objective != kElectra) return heads;
  return std::min(heads, objective::generator_config(config, kGeneratorSize).encoder.heads);
}

void run_layout(const ProofTask& task, const Layout& layout, const comm::Group& group,
                const fs::path& folder) {
  const format::ModelConfig config = config_of(task);
  const OrderedJson losses = layout.is_reference() ? run_reference(task, layout, group, folder, config)
                                                   : run_strategy(task, layout, group, folder, config);
  if (group.rank() == 0) write_file_atomically(folder / "losses.json", losses.dump() + "\n");
  group.barrier();
}

}  // namespace funicular::prove
