#include "funicular/prove/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "funicular/pipeline/recipes.h"

namespace funicular::prove {

namespace {

using pipeline::Recipe;

bool with_flush(const Recipe& recipe) {
  return !recipe.asynchronous();
}
bool with_one_stage(const Recipe& recipe) {
  return with_flush(recipe) && recipe.most_chunks == 1;
}
bool with_several_stages(const Recipe& recipe) {
  return with_flush(recipe) && recipe.most_chunks > 1;
}
bool without_flush(const Recipe& recipe) {
  return recipe.asynchronous();
}

std::vector<std::string> schedules(bool (*wanted)(const Recipe&)) {
  return pipeline::recipe_names(wanted);
}

/// Layouts of a loss that compares the rows of a batch.
std::vector<Pair> cuts_of_batches(ProofTask task, const std::string& objective) {
  set_objective(task, objective);
  std::vector<Pair> pairs;
  const auto add = [&](const std::string& a, const std::string& b = "single") {
    pairs.push_back({objective, task.layers, task.batch_size, a, b});
  };
  for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3"})
    for (int ranks = 1; ranks <= 4; ++ranks)
      add(fmt::format("{} -n {} --micro-batch-size {}", strategy, ranks, ranks));
  for (const char* layout :
       {"ddp -n 2", "ddp -n 3 --micro-batch-size 2 --recompute full", "zero3 -n 2 --recompute sqrt",
        "dp -n 3 --micro-batch-size 3", "ps-sync -n 3 --micro-batch-size 3",
        "pipeline -n 2 --micro-batch-size 3", "pipeline -n 3 --schedule zb-h1 --micro-batch-size 2",
        "pipeline -n 2 --schedule zb-v --micro-batch-size 2 --recompute sqrt",
        "pipeline --devices 2 --micro-batch-size 3", "pipeline -n 3 --stages 0,2x2 --micro-batch-size 3",
        "pipeline-zero3 -n 4 --pipeline-parallel 2 --micro-batch-size 2"})
    add(layout);
  if (most_slices(task) >= 2)
    for (const char* layout : {"tensor -n 2 --micro-batch-size 3", "tensor -n 2 --sequence-parallel",
                               "pipeline -n 4 --tensor-parallel 2 --micro-batch-size 2",
                               "zero2 -n 4 --tensor-parallel 2 --micro-batch-size 3"})
      add(layout);
  for (const char* layout : {"ddp -n 2", "zero3 -n 4"})
    add(fmt::format("{} --micro-batch-size 4 --deterministic", layout),
        "single --micro-batch-size 4 --deterministic");
  task.batch_size = 64;
  for (const int size : {1, 7, 32, 64})
    for (const int ranks : {1, 2, 4}) add(fmt::format("ddp -n {} --micro-batch-size {}", ranks, size));
  return pairs;
}

/// Whether the objective has its own labels or layers.
bool has_own_rows(const ProofTask& task, const std::string& objective) {
  return objective == kTags || objective == kMultiLabel || objective == kSoftLabels ||
         objective == kSoftMultiLabel || objective == kLongTexts || task.distils() || task.texts() > 0 ||
         task.ranks();
}

/// Collects the pairs.
class Pairs {
 public:
  Pairs(const ProofTask& task, std::string objective) : task_(task), objective_(std::move(objective)) {}

  std::vector<Pair> collect() {
    add_strategies();
    add_objectives();
    add_vectors();
    add_pipelines();
    add_slices();
    add_products();
    return std::move(pairs_);
  }

 private:
  void add(const std::string& a, const std::string& b) {
    Pair pair{objective_, task_.layers, task_.batch_size, a, b};
    if (std::find(pairs_.begin(), pairs_.end(), pair) == pairs_.end()) pairs_.push_back(std::move(pair));
  }
  void set_objective(const std::string& name) {
    objective_ = name;
    prove::set_objective(task_, name);
  }

  /// Calls `add_all` for masked tokens and for classes; with the user's data only for its own objective.
  void for_both(const std::function<void()>& add_all) {
    const std::string objective = objective_;
    for (const char* each : {kMaskedLm, kClassification}) {
      if (!task_.data.empty() && each != objective) continue;
      set_objective(each);
      add_all();
    }
    set_objective(objective);
  }

  /// Compares each objective with the reference. An objective with its own labels or layers is also compared on
  /// several ranks.
  void add_references() {
    if (!reference_refuses(task_).empty()) return;
    const std::string objective = objective_;
    for (const std::string& each : objective_names()) {
      if (!task_.data.empty() && each != objective) continue;
      if (!task_.model.empty() && (each == kElectra || each == kMacBert) && each != objective) continue;
      set_objective(each);
      add("reference", "single");
      if (!has_own_rows(task_, each)) continue;
      for (const char* layout : {"ddp -n 2 --micro-batch-size 3", "zero3 -n 2 --recompute full",
                                 "pipeline -n 2 --micro-batch-size 3"})
        add(layout, "reference");
      if (most_slices(task_) >= 2) add("tensor -n 2", "reference");
    }
    set_objective(objective);
  }

  void add_strategies() {
    add_references();
    for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      for (int ranks = 1; ranks <= 4; ++ranks)
        for (const char* variant : {"", " --micro-batch-size 3", " --micro-batch-size 3 --recompute full"})
          add(fmt::format("{} -n {}{}", strategy, ranks, variant), "single");
      add(strategy + " -n 2 --micro-batch-size 2 --recompute sqrt", "single");
      add(strategy + " -n 2 --micro-batch-size 2 --recompute selective", "single");
      for (const int ranks : {1, 2, 3, 4}) {
        if (ranks == 3 && (strategy == "zero2" || strategy == "zero3")) continue;
        add(fmt::format("{} -n {} --micro-batch-size 4 --deterministic", strategy, ranks),
            "single --micro-batch-size 4 --deterministic");
      }
    }
    for (const int devices : {2, 3, 4}) {
      add(fmt::format("dp -n {}", devices), "single");
      add(fmt::format("dp -n {} --micro-batch-size 3 --recompute full", devices), "single");
      add(fmt::format("dp -n {} --micro-batch-size 4 --deterministic", devices),
          "single --micro-batch-size 4 --deterministic");
    }
    for (int ranks = 2; ranks <= 4; ++ranks) {
      add(fmt::format("ps-sync -n {}", ranks), "single");
      add(fmt::format("ps-sync -n {} --micro-batch-size 3 --recompute full", ranks), "single");
      add(fmt::format("ps-sync -n {} --micro-batch-size 4 --deterministic", ranks),
          "single --micro-batch-size 4 --deterministic");
    }
    add("ps-sync -n 4 --servers 2", "single");
  }

  /// Adds pairs for ELECTRA (two encoders trained together) and MacBERT (two losses with different counts).
  void add_objectives() {
    const std::string objective = objective_;
    for (const char* each : {kElectra, kMacBert}) {
      if ((!task_.data.empty() || !task_.model.empty()) && each != objective) continue;
      set_objective(each);
      for (const char* layout :
           {"single --micro-batch-size 3", "single --micro-batch-size 2 --recompute full", "ddp -n 2",
            "ddp -n 3 --micro-batch-size 2 --recompute sqrt", "zero1 -n 2 --micro-batch-size 3",
            "zero2 -n 3 --micro-batch-size 2", "zero3 -n 2 --recompute full",
            "zero3 -n 4 --micro-batch-size 1", "pipeline -n 2 --schedule naive --micro-batch-size 3",
            "pipeline -n 3 --schedule gpipe --micro-batch-size 2 --recompute full",
            "pipeline -n 4 --micro-batch-size 1", "pipeline -n 3 --schedule zb-h1 --micro-batch-size 2",
            "pipeline -n 2 --schedule interleaved --micro-batch-size 2",
            "pipeline -n 2 --schedule zb-v --micro-batch-size 2 --recompute sqrt",
            "pipeline -n 4 --pipeline-parallel 2 --micro-batch-size 3",
            "pipeline -n 3 --stages 0x2,2 --micro-batch-size 2",
            "pipeline-zero1 -n 4 --pipeline-parallel 2 --micro-batch-size 2",
            "pipeline-zero3 -n 4 --pipeline-parallel 2 --micro-batch-size 2"})
        add(layout, "single");
      if (most_slices(task_) >= 2)
        for (const char* layout : {"tensor -n 2", "tensor -n 2 --sequence-parallel --micro-batch-size 3",
                                   "pipeline -n 4 --tensor-parallel 2 --micro-batch-size 2",
                                   "zero3 -n 4 --tensor-parallel 2 --micro-batch-size 3"})
          add(layout, "single");
      if (most_slices(task_) >= 3) add("tensor -n 3 --sequence-parallel --micro-batch-size 3", "single");
      for (const char* layout : {"ddp -n 2", "zero3 -n 2"})
        add(fmt::format("{} --micro-batch-size 4 --deterministic", layout),
            "single --micro-batch-size 4 --deterministic");
    }
    set_objective(objective);
  }

  /// Adds pairs for losses that compare all rows of a batch, with dropout and all ways to split the batch.
  void add_vectors() {
    for (const char* each : {kRelatedTexts, kScoredTexts, kRankedTexts}) {
      if (!task_.data.empty() && each != objective_) continue;
      for (Pair& pair : cuts_of_batches(task_, each)) pairs_.push_back(std::move(pair));
    }
  }

  /// Runs both objectives, as masked language modelling uses the embeddings in the first and the last stage.
  void add_pipelines() {
    for_both([&] {
      // A smaller last micro-batch; several stages per rank; recomputation; replicas.
      for (const std::string& schedule : schedules(with_one_stage))
        add(fmt::format("pipeline -n 3 --schedule {} --micro-batch-size 3", schedule), "single");
      for (const std::string& schedule : schedules(with_several_stages))
        add(fmt::format("pipeline -n 2 --schedule {} --micro-batch-size 3", schedule), "single");
      for (const char* recompute : {"full", "sqrt", "selective"})
        add(fmt::format("pipeline -n 3 --micro-batch-size 3 --recompute {}", recompute), "single");
      add("pipeline -n 4 --pipeline-parallel 2 --micro-batch-size 3", "single");
      add("pipeline -n 4 --pipeline-parallel 2 --schedule interleaved --micro-batch-size 2", "single");
      for (const char* schedule : {"1f1b", "interleaved", "zb-h1"})
        add(fmt::format("pipeline-zero1 -n 4 --pipeline-parallel 2 --schedule {} --micro-batch-size 2",
                        schedule),
            "single");
      // Stages on several ranks, as owner and as user of the table, beside slices and beside replicas' state.
      for (const std::string& schedule : schedules(with_one_stage))
        for (const char* stages : {"-n 3 --stages 0x2,2", "-n 3 --stages 0,2x2", "-n 4 --stages 0,1x2,3"})
          add(fmt::format("pipeline {} --schedule {} --micro-batch-size 3", stages, schedule), "single");
      add("pipeline -n 4 --stages 0x3,3 --recompute full", "single");
      // On devices of one process.
      for (const char* schedule : {"naive", "gpipe", "zb-v"})
        add(fmt::format("pipeline --devices 2 --schedule {} --micro-batch-size 3", schedule), "single");
      add("pipeline --devices 3 --micro-batch-size 3 --recompute full", "single");
      add("pipeline-zero1 -n 4 --stages 0,2x3 --micro-batch-size 2", "single");
      // Schedules that update weights while the pipeline is full need a reference with the same recurrence.
      if (!reference_refuses(task_).empty()) return;
      for (const std::string& schedule : schedules(without_flush)) {
        const auto reference = [&](int stages) {
          return fmt::format("reference --schedule {} --pipeline-parallel {}", schedule, stages);
        };
        for (int ranks = 2; ranks <= 4; ++ranks)
          add(fmt::format("pipeline -n {} --schedule {}", ranks, schedule), reference(ranks));
        for (const char* strategy : {"pipeline", "pipeline-zero1", "pipeline-zero2", "pipeline-zero3"})
          add(fmt::format("{} -n 4 --pipeline-parallel 2 --schedule {} --recompute full", strategy, schedule),
              reference(2));
        if (most_slices(task_) < 2) continue;
        for (const char* rows : {"", " --sequence-parallel --recompute full"})
          add(fmt::format("pipeline -n 4 --tensor-parallel 2 --schedule {}{}", schedule, rows), reference(2));
      }
    });
    add_every_schedule();
  }

  /// Every schedule on 2 to 4 ranks with 1 to 8 micro-batches. On two ranks also with tensor parallelism, and with
  /// replicas under every stage of ZeRO.
  void add_every_schedule() {
    if (!task_.model.empty() || !task_.data.empty() || objective_ != kMaskedLm) return;
    const int64_t layers =
        std::exchange(task_.layers, 6);  // with embeddings and head eight segments: two on each of 4 ranks
    const int64_t batch_size = task_.batch_size;
    const bool slices = most_slices(task_) >= 2;
    for (int64_t count = 1; count <= 8; ++count) {  // micro-batches of a pipeline, of two rows
      const auto add_each = [&](const std::string& schedule, const std::function<std::string(int)>& other) {
        const std::string rest = fmt::format(" --schedule {} --micro-batch-size 2", schedule);
        task_.batch_size = 2 * count;
        for (int ranks = 2; ranks <= 4; ++ranks)
          add(fmt::format("pipeline -n {}{}", ranks, rest), other(ranks));
        if (slices) add("pipeline -n 4 --tensor-parallel 2" + rest, other(2));
        task_.batch_size = 4 * count;
        for (int zero = 0; zero <= 3; ++zero)
          add(fmt::format("pipeline -n 4 --pipeline-parallel 2 --zero {}{}", zero, rest), other(2));
      };
      for (const std::string& schedule : schedules(with_flush))
        add_each(schedule, [](int) { return "single"; });
      task_.batch_size = 2 * count;
      for (const std::string& schedule : schedules([](const Recipe& recipe) { return recipe.any_chunks(); }))
        for (const int stages : {3, 4})
          add(fmt::format("pipeline -n 2 --schedule {} --stages-per-rank {} --micro-batch-size 2", schedule,
                          stages),
              "single");
      for (const std::string& schedule : schedules(without_flush))
        if (count == 1 ||
            !pipeline::recipe_of(schedule).stale->every_micro_batch)  // else a step is one micro-batch
          add_each(schedule, [&](int stages) {
            return fmt::format("reference --schedule {} --pipeline-parallel {}", schedule, stages);
          });
    }
    task_.layers = layers;
    task_.batch_size = batch_size;
  }

  void add_slices() {
    for_both([&] {
      if (most_slices(task_) < 2) return;
      for (int ranks = 2; ranks <= std::min<int64_t>(4, most_slices(task_)); ++ranks) {
        add(fmt::format("tensor -n {}", ranks), "single");
        add(fmt::format("tensor -n {} --sequence-parallel --micro-batch-size 3", ranks), "single");
      }
      for (const char* recompute : {"full", "sqrt", "selective"})
        for (const char* rows : {"", " --sequence-parallel"})
          add(fmt::format("tensor -n 2 --micro-batch-size 3 --recompute {}{}", recompute, rows), "single");
      for (const char* strategy : {"tensor", "zero1", "zero2", "zero3"})
        for (const char* rows : {"", " --sequence-parallel"})
          add(fmt::format("{} -n 4 --tensor-parallel 2 --micro-batch-size 3{}", strategy, rows), "single");
      for (const char* strategy : {"tensor", "zero1", "zero2", "zero3"})
        add(fmt::format("{} -n 4 --tensor-parallel 2 --micro-batch-size 4 --deterministic", strategy),
            "tensor -n 2 --micro-batch-size 4 --deterministic");
    });
  }

  /// Pipelines with tensor parallelism, and with replicas under ZeRO: every schedule with a flush on four ranks, with
  /// one, some and many micro-batches.
  void add_products() {
    for_both([&] {
      for (const std::string& schedule : schedules(with_flush)) {
        const std::string stages = "pipeline -n 4 --pipeline-parallel 2 --schedule " + schedule;
        for (const char* size : {"16", "3", "2"})
          if (most_slices(task_) >= 2)
            add(fmt::format("{} --tensor-parallel 2 --micro-batch-size {}", stages, size), "single");
        if (most_slices(task_) >= 2)
          add(stages + " --tensor-parallel 2 --sequence-parallel --micro-batch-size 3 --recompute full",
              "single");
        for (const int zero : {2, 3})
          for (const char* variant : {"", " --micro-batch-size 3", " --micro-batch-size 2 --recompute sqrt"})
            add(fmt::format("{} --zero {}{}", stages, zero, variant), "single");
      }
    });
  }

  ProofTask task_;
  std::string objective_;
  std::vector<Pair> pairs_;
};

}  // namespace

const std::vector<std::string>& objective_names() {
  static const std::vector<std::string> names{kMaskedLm,
                                              kClassification,
                                              kElectra,
                                              kMacBert,
                                              kTags,
                                              kMultiLabel,
                                              kSoftLabels,
                                              kSoftMultiLabel,
                                              kLongTexts,
                                              kDistillation,
                                              kDistillationOfTokens,
                                              kDistillationOfAllTokens,
                                              kRelatedTexts,
                                              kScoredTexts,
                                              kRankedTexts};
  return names;
}

void set_objective(ProofTask& task, const std::string& name) {
  const bool plain = name == kMaskedLm || name == kClassification;
  task.objective = plain ? "" : name;
  const bool reads_classes = name == kClassification || name == kMultiLabel || name == kDistillation ||
                             name == kSoftLabels || name == kSoftMultiLabel || name == kLongTexts;
  task.head = reads_classes ? model::Head::classification : model::Head::masked_lm;
}

std::vector<Pair> all_pairs(const ProofTask& task, const std::string& objective) {
  return Pairs(task, objective).collect();
}

}  // namespace funicular::prove
