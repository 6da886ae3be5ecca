// Writes the files that compare_layouts reads: runs a layout or the reference.
#include <algorithm>
#include <map>
#include <memory>

#include "funicular/base/error.h"
#include "funicular/objective/distillation_terms.h"
#include "funicular/parallel/stages.h"
#include "funicular/pipeline/recipes.h"
#include "funicular/prove/proof.h"
#include "funicular/prove/proof_text.h"
#include "funicular/prove/reference_step.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/trainer.h"

namespace funicular::prove {

namespace {

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

/// Visits only a strategy's optimiser state, or everything else.
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
  ProofText text = open_text(task, config);
  Model model = build_model(task, *text.objective, config, repeats_attention(layout, config));
  text.objective = with_fault(std::move(text.objective), layout.fault);
  train::Trainer trainer(
      options_of(task, layout),
      [&] {
        const parallel::StrategyOptions options{.deterministic = layout.deterministic,
                                                .compare_every = 0,
                                                .device = task.device,
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

/// Returns the trainable weights, or with `learn` false the frozen ones.
NamedTensors weights_of(const Model& model, bool learn) {
  NamedTensors weights;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices)
      if (parameter->trainable == learn)
        weights[slice.name] = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
  return weights;
}

/// The rows of `all` where `places`, ascending rows of a packed batch, lie within a sequence.
struct OwnRows {
  at::Tensor own;
  int64_t begin = 0;
  OwnRows(const at::Tensor& places, int64_t first, int64_t end)
      : own(places.ge(first).logical_and(places.lt(end))), begin(first) {}
  at::Tensor of(const at::Tensor& all) const { return all.masked_select(own); }
};

/// Unpacks the sequences of a batch of these draws.
std::vector<ReferenceRow> unpack(const MicroBatch& batch, std::span<const data::Draw> draws) {
  std::vector<ReferenceRow> rows;
  const std::vector<int32_t>& offsets = batch.packing.host_offsets;
  const auto has = [&](const char* name) { return batch.tensors.contains(name); };
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t begin = offsets[s], end = offsets[s + 1], number = static_cast<int64_t>(s);
    ReferenceRow& row = rows.emplace_back();
    row.token_ids = batch["token_ids"].slice(0, begin, end);
    row.token_type_ids = batch["token_type_ids"].slice(0, begin, end);
    // A row with several texts is as many sequences, whose draws are counted apart.
    const bool lists = has("list_places");
    const auto texts =
        lists ? objective::kMostListTexts : static_cast<int64_t>((offsets.size() - 1) / draws.size());
    const int64_t place = lists ? batch["list_places"][number].item<int64_t>() : number;
    row.draw =
        static_cast<uint64_t>(draws[static_cast<size_t>(place / texts)].draw_id * texts + place % texts);
    if (has("sentence_order_labels")) row.order = batch["sentence_order_labels"].narrow(0, number, 1);
    if (has("mlm_rows")) {
      const OwnRows masked(batch["mlm_rows"], begin, end);
      row.masked_positions = masked.of(batch["mlm_rows"]) - begin;
      row.original_tokens = masked.of(batch["mlm_labels"]);
      if (has("sampling_bits")) row.sampling_bits = masked.of(batch["sampling_bits"]);
    }
    if (has("tag_rows")) {
      const OwnRows words(batch["tag_rows"], begin, end);
      row.tag_positions = words.of(batch["tag_rows"]) - begin;
      row.labels = words.of(batch["labels"]).to(at::kDouble);
    } else if (has("labels")) {
      row.labels = batch["labels"][lists ? number : number / texts].to(at::kDouble).reshape({-1});
    }
    if (has(objective::kShares)) row.labels = batch[objective::kShares][number];
    if (has(objective::kRowWeights)) row.weight = batch[objective::kRowWeights][number].item<double>();
  }
  return rows;
}

ReferenceKind kind_of(const ProofTask& task) {
  if (task.objective == kElectra) return ReferenceKind::electra;
  if (task.objective == kMacBert) return ReferenceKind::sentence_order;
  if (task.texts() > 0)
    return task.objective == kScoredTexts ? ReferenceKind::scored_texts : ReferenceKind::related_texts;
  if (task.ranks()) return ReferenceKind::ranked_texts;
  if (task.objective == kTags) return ReferenceKind::tags;
  if (task.objective == kMultiLabel) return ReferenceKind::several_labels;
  if (task.objective == kSoftLabels || task.objective == kLongTexts) return ReferenceKind::shares;
  if (task.objective == kSoftMultiLabel) return ReferenceKind::several_shares;
  if (task.distils()) return ReferenceKind::distillation;
  return task.head == model::Head::classification ? ReferenceKind::classes : ReferenceKind::masked_lm;
}

ReferenceLossSettings loss_of(const ProofTask& task, const format::ModelConfig& config) {
  ReferenceLossSettings loss{.kind = kind_of(task), .config = config, .seed = task.seed};
  if (task.objective == kElectra) loss.generator = generator_of(config);
  loss.temperature = soft_labels_of(task).temperature;
  loss.smoothing = kSoftSmoothing;
  if (task.objective == kRelatedTexts) {
    const objective::VectorLossOptions options = vector_loss_of(task, config);
    loss.vector_sizes = options.matryoshka;
    loss.scale = options.scale;
    loss.hardness = options.hardness;
    loss.batch_hardness = options.batch_hardness;
  }
  if (task.ranks()) {
    const objective::RankingLossOptions options = ranking_loss_of_proof();
    loss.list_draws = objective::kMostListTexts;
    loss.sigma = options.sigma;
    loss.top_k = options.top_k.value();
  }
  if (!task.distils()) return loss;
  const objective::DistillationOptions options = distillation_of(task, config);
  loss.teacher = options.teacher;
  loss.temperature = options.temperature;
  loss.relation_heads = options.relation_heads;
  for (const objective::DistillationTerm& term : options.terms)
    loss.terms[objective::distillation_names()[static_cast<size_t>(term.kind)]] = term.weight;
  for (const objective::LayerPair& pair : options.layers)
    loss.layers.emplace_back(pair.student, pair.teacher);
  return loss;
}

ReferenceSettings settings_of(const ProofTask& task, const format::ModelConfig& config) {
  const auto& adamw = *task.optimizer.as<optim::AdamW>();
  return {.loss = loss_of(task, config),
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

/// The stage of an asynchronous pipeline that first uses each of the reference's weights, and the weights' age in a
/// step.
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
  /// In updates. Limited by the last synchronisation, which the trainer does at the end of an epoch and every hundred
  /// steps.
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

OrderedJson run_reference(ProofTask task, const Layout& layout, const comm::Group& group,
                          const fs::path& folder, const format::ModelConfig& config) {
  task.device = at::kCPU;
  if (const std::string reason = reference_refuses(task); !reason.empty())
    throw InputError("prove", "{}", reason);
  const ProofText text = open_text(task, config);
  const train::DatasetSource source(*text.objective, *text.rows);
  const data::Sampler sampler(source.size(), {.seed = task.seed, .batch_size = task.batch_size});
  const Model model = build_model(task, *text.objective, config);
  ReferenceStep reference(settings_of(task, config), weights_of(model, true), weights_of(model, false));
  const Recurrence recurrence(layout, model, sampler.batches_per_epoch());
  OrderedJson losses = OrderedJson::array();
  for (int64_t step = 1; step <= task.steps; ++step) {
    const std::vector<data::Draw> draws = sampler.batch(step - 1);
    const MicroBatch batch = source.collate(draws, {.seed = task.seed, .training = true});
    losses.emplace_back(OrderedJson(reference.differentiate(
        unpack(batch, draws), [&](const std::string& name) { return recurrence.age(step - 1, name); })));
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
  const auto* const adamw = task.optimizer.as<optim::AdamW>();
  if (!adamw || !adamw->bias_correction)
    return "the reference updates weights by AdamW with its correction of bias alone; expected --optim adamw";
  // AdamW turns even a tiny gradient into a full step, so a sign that 16-bit rounding flips looks like an error of
  // the weight.
  if (task.precision != Precision::fp64 && task.precision != Precision::fp32)
    return "the reference computes in float64, from which rounded products differ too much to tell a fault; "
           "expected --precision fp64 or fp32";
  return "";
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
