#include "funicular/cli/training_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

/// The answer to a field of TrainingArguments.
enum class Verdict { same, ours, not_needed, missing };

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "the same name";
    case Verdict::ours:
      return "in another way";
    case Verdict::not_needed:
      return "not needed";
    case Verdict::missing:
      return "not there";
  }
  return "";
}

struct Row {
  std::string_view name;
  Verdict verdict;
  std::string_view answer;
};

constexpr std::string_view kRecords =
    "every run writes metrics.jsonl and TensorBoard events into --output, and nothing to "
    "other services; leave it out";
constexpr std::string_view kUpload =
    "RUN/model is a folder that transformers loads; upload it with hf upload";
constexpr std::string_view kCompiled = "the kernels are compiled already; leave it out";
constexpr std::string_view kPrecision = "--precision says what is computed in, in evaluations too";
constexpr std::string_view kCommands =
    "each is a command: funicular pretrain and finetune train, evaluate measures, predict "
    "answers";
constexpr std::string_view kThreads = "threads prepare the batches in order; --num-workers says how many";
constexpr std::string_view kSharding =
    "several processes share the state with --strategy zero1, zero2 or zero3, started by "
    "funicular launch -n N COMMAND";
constexpr std::string_view kMetrics = "metrics are computed from each batch as it comes; leave it out";
constexpr std::string_view kExchange = "the exchange of gradients needs no such setting; leave it out";
constexpr std::string_view kRankZero = "rank 0 alone writes; leave it out";
constexpr std::string_view kRecompute =
    "--recompute says what is computed again, and needs no more; leave it out";
constexpr std::string_view kPadding =
    "no padding is computed, so that rows need no grouping; leave it out, or give "
    "--no-shuffle for the order of the file";
constexpr std::string_view kEvaluation =
    "finetune evaluates where --eval or --eval-fraction gives rows (pretrain: "
    "token stores), at the end of each epoch or every --eval-steps N";

constexpr Row kRows[] = {
    {"overwrite-output-dir", Verdict::not_needed,
     "the folder of a run is never overwritten: a run is resumed, and a new one needs "
     "another --output"},
    {"lr-scheduler-kwargs", Verdict::ours,
     "the settings of a schedule are options: --lr-cycles, --lr-end, --lr-power, "
     "--decay-ratio"},
    {"optim-args", Verdict::ours,
     "the settings of an optimiser are options, such as --adam-beta1, --momentum and "
     "--trust-ratio"},
    {"optim-target-modules", Verdict::missing,
     "optimisers with projected gradients (GaLore, APOLLO) are not there"},
    {"average-tokens-across-devices", Verdict::not_needed,
     "the loss is always divided by the counts of the whole global batch; leave it out"},
    {"bf16-full-eval", Verdict::ours, kPrecision},
    {"fp16-full-eval", Verdict::ours, kPrecision},
    {"tf32", Verdict::ours, "write --precision tf32"},
    {"activation-checkpointing", Verdict::ours, "write --recompute full"},
    {"activation-checkpointing-kwargs", Verdict::not_needed, kRecompute},
    {"gradient-checkpointing-kwargs", Verdict::not_needed, kRecompute},
    {"torch-compile", Verdict::not_needed, kCompiled},
    {"torch-compile-backend", Verdict::not_needed, kCompiled},
    {"torch-compile-mode", Verdict::not_needed, kCompiled},
    {"use-liger-kernel", Verdict::not_needed, kCompiled},
    {"liger-kernel-config", Verdict::not_needed, kCompiled},
    {"use-cache", Verdict::not_needed, "encoders keep no keys and values for the next token; leave it out"},
    {"neftune-noise-alpha", Verdict::missing, "noise on embeddings is not there"},
    {"torch-empty-cache-steps", Verdict::not_needed, "the allocator needs no such call; leave it out"},
    {"auto-find-batch-size", Verdict::not_needed,
     "--micro-batch-tokens bounds the memory and does not change the result"},
    {"logging-strategy", Verdict::ours, "--logging-steps N sets how often; 0: never"},
    {"logging-first-step", Verdict::ours, "--logging-steps 1 records every step, and so the first one"},
    {"log-on-each-node", Verdict::not_needed, kRankZero},
    {"save-on-each-node", Verdict::not_needed, kRankZero},
    {"logging-nan-inf-filter", Verdict::not_needed,
     "a loss that is not finite ends the run with a message; it is never filtered"},
    {"include-num-input-tokens-seen", Verdict::not_needed,
     "metrics.jsonl has the tokens per second of each record; leave it out"},
    {"log-level", Verdict::ours, "FUNICULAR_LOG=debug, info, warning or error sets which messages are shown"},
    {"log-level-replica", Verdict::not_needed, "ranks above 0 show errors alone; leave it out"},
    {"disable-tqdm", Verdict::not_needed, "the progress line appears only at a terminal; leave it out"},
    {"report-to", Verdict::not_needed, kRecords},
    {"run-name", Verdict::not_needed, kRecords},
    {"project", Verdict::not_needed, kRecords},
    {"trackio-space-id", Verdict::not_needed, kRecords},
    {"trackio-bucket-id", Verdict::not_needed, kRecords},
    {"trackio-static-space-id", Verdict::not_needed, kRecords},
    {"logging-dir", Verdict::not_needed, kRecords},
    {"eval-strategy", Verdict::ours, kEvaluation},
    {"evaluation-strategy", Verdict::ours, kEvaluation},
    {"eval-delay", Verdict::missing,
     "the first evaluation cannot be put off; --eval-steps sets the distance"},
    {"eval-on-start", Verdict::ours, "funicular evaluate measures a model before its training"},
    {"prediction-loss-only", Verdict::not_needed, kMetrics},
    {"eval-do-concat-batches", Verdict::not_needed, kMetrics},
    {"eval-use-gather-object", Verdict::not_needed, kMetrics},
    {"eval-accumulation-steps", Verdict::not_needed, kMetrics},
    {"include-for-metrics", Verdict::not_needed, kMetrics},
    {"batch-eval-metrics", Verdict::not_needed, kMetrics},
    {"save-only-model", Verdict::ours,
     "--save-steps 0 saves a checkpoint only when the run is interrupted; RUN/model holds "
     "the model alone"},
    {"save-strategy", Verdict::ours,
     "--save-steps N saves every N steps and at the end; 0: only when interrupted"},
    {"enable-jit-checkpoint", Verdict::not_needed,
     "a signal always saves a checkpoint after the current step; leave it out"},
    {"push-to-hub", Verdict::not_needed, kUpload},
    {"hub-token", Verdict::not_needed, kUpload},
    {"hub-private-repo", Verdict::not_needed, kUpload},
    {"hub-model-id", Verdict::not_needed, kUpload},
    {"hub-strategy", Verdict::not_needed, kUpload},
    {"hub-always-push", Verdict::not_needed, kUpload},
    {"hub-revision", Verdict::not_needed, kUpload},
    {"load-best-model-at-end", Verdict::not_needed,
     "it always is: RUN/model is that of the best evaluation, by --metric-for-best-model; "
     "leave it out"},
    {"greater-is-better", Verdict::not_needed, "it follows from --metric-for-best-model; leave it out"},
    {"ignore-data-skip", Verdict::not_needed,
     "the order of the data is computed, so that resuming reads nothing twice; leave it "
     "out"},
    {"restore-callback-states-from-checkpoint", Verdict::not_needed,
     "a checkpoint holds everything that resuming needs; leave it out"},
    {"full-determinism", Verdict::ours, "write --deterministic"},
    {"data-seed", Verdict::missing, "--seed decides every random choice, that of the order too"},
    {"accelerator-config", Verdict::not_needed, "batches are dealt to the ranks exactly; leave it out"},
    {"parallelism-config", Verdict::ours,
     "write --pipeline-parallel, --tensor-parallel, --data-parallel and --zero"},
    {"dataloader-pin-memory", Verdict::not_needed, kThreads},
    {"dataloader-persistent-workers", Verdict::not_needed, kThreads},
    {"dataloader-prefetch-factor", Verdict::not_needed, kThreads},
    {"dataloader-multiprocessing-context", Verdict::not_needed, kThreads},
    {"dataloader-in-order", Verdict::not_needed, kThreads},
    {"remove-unused-columns", Verdict::not_needed,
     "only the columns of --text-column and --label-column are read; leave it out"},
    {"label-names", Verdict::ours, "--label-column says where the labels are"},
    {"train-sampling-strategy", Verdict::not_needed, kPadding},
    {"length-column-name", Verdict::not_needed, kPadding},
    {"group-by-length", Verdict::not_needed, kPadding},
    {"ddp-find-unused-parameters", Verdict::not_needed, kExchange},
    {"ddp-bucket-cap-mb", Verdict::not_needed, kExchange},
    {"ddp-broadcast-buffers", Verdict::not_needed, kExchange},
    {"ddp-static-graph", Verdict::not_needed, kExchange},
    {"ddp-backend", Verdict::not_needed,
     "ranks meet over their own connections, on one host through shared memory; leave it "
     "out"},
    {"ddp-timeout", Verdict::not_needed, "funicular launch ends all ranks when one dies; leave it out"},
    {"fsdp", Verdict::ours, kSharding},
    {"fsdp-config", Verdict::ours, kSharding},
    {"deepspeed", Verdict::ours, kSharding},
    {"debug", Verdict::ours, "--debug-collectives checks that all ranks call the same collectives"},
    {"skip-memory-metrics", Verdict::ours, "funicular bench memory measures the memory of a step"},
    {"do-train", Verdict::ours, kCommands},
    {"do-eval", Verdict::ours, kCommands},
    {"do-predict", Verdict::ours, kCommands},
    {"local-rank", Verdict::not_needed,
     "funicular launch, torchrun, srun and mpirun tell each process its rank; leave it out"},
};

/// Fields of older versions of transformers. They are answered, and the page leaves them out.
constexpr std::string_view kOlder[] = {"evaluation-strategy", "group-by-length", "logging-dir",
                                       "overwrite-output-dir"};

constexpr const char* kFieldsIntroduction = R"(# TrainingArguments

Every field of `TrainingArguments` of transformers 5, and what `funicular finetune` has for it. `funicular help --training-arguments`
prints this page, and a test compares the names with the installed class.

A field may be written with underscores or with dashes. If a field is no option, the program answers with what the table says.

)";

/// The option of finetune that has this name; null if there is none.
const Declaration* option_named(const std::vector<const Declaration*>& options, std::string_view name) {
  const auto has = [&](const Declaration* option) {
    return option->name == name ||
           std::find(option->aliases.begin(), option->aliases.end(), name) != option->aliases.end();
  };
  const auto found = std::find_if(options.begin(), options.end(), has);
  return found == options.end() ? nullptr : *found;
}

std::string cell_of(const Declaration& option) {
  const bool hidden = option.hidden;  // its help says what it stands for
  return hidden ? option.help : fmt::format("`--{}`: {}", option.name, option.help);
}

std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("|<", at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string with_underscores(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// The fields that are options of finetune under their own names, in the order of the class.
constexpr std::string_view kSame[] = {"output-dir",
                                      "per-device-train-batch-size",
                                      "num-train-epochs",
                                      "max-steps",
                                      "learning-rate",
                                      "lr-scheduler-type",
                                      "warmup-steps",
                                      "optim",
                                      "weight-decay",
                                      "adam-beta1",
                                      "adam-beta2",
                                      "adam-epsilon",
                                      "gradient-accumulation-steps",
                                      "max-grad-norm",
                                      "label-smoothing-factor",
                                      "bf16",
                                      "fp16",
                                      "gradient-checkpointing",
                                      "logging-steps",
                                      "eval-steps",
                                      "per-device-eval-batch-size",
                                      "save-steps",
                                      "save-total-limit",
                                      "metric-for-best-model",
                                      "seed",
                                      "use-cpu",
                                      "dataloader-drop-last",
                                      "dataloader-num-workers",
                                      "resume-from-checkpoint"};

}  // namespace

std::string_view answer_to_training_argument(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.answer;
  return {};
}

std::string training_arguments_page() {
  const std::unique_ptr<Command> finetune = make_command("finetune");
  const std::vector<const Declaration*> options = finetune->arguments.declarations();
  std::string text = kFieldsIntroduction;
  text += "| field | here | what to write, or why not |\n|---|---|---|\n";
  for (const std::string_view name : kSame) {
    const Declaration* const option = option_named(options, name);
    text += fmt::format("| `{}` | {} | {} |\n", with_underscores(name), name_of(Verdict::same),
                        option ? escaped(cell_of(*option)) : "");
  }
  for (const Row& row : kRows)
    if (std::find(std::begin(kOlder), std::end(kOlder), row.name) == std::end(kOlder))
      text += fmt::format("| `{}` | {} | {} |\n", with_underscores(row.name), name_of(row.verdict),
                          escaped(std::string(row.answer)));
  return text;
}

}  // namespace funicular::cli
