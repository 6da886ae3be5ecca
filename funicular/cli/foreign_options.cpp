#include "funicular/cli/foreign_options.h"

#include <utility>

namespace funicular::cli {

namespace {

constexpr std::string_view kEvaluation =
    "finetune evaluates where --eval is given (pretrain: --eval-data or --eval-fraction), at the end of each "
    "epoch "
    "or every --eval-steps N";
constexpr std::string_view kCommands =
    "each is a command: funicular pretrain and finetune train, evaluate measures, predict answers";
constexpr std::string_view kRecords =
    "every run writes metrics.jsonl and TensorBoard events into --output, and nothing to other services; "
    "leave it "
    "out";
constexpr std::string_view kSharding =
    "several processes share the state with --strategy zero1, zero2 or zero3, started by funicular launch -n "
    "N -- …";

constexpr std::string_view kProcesses =
    "funicular launch -n N -- funicular … starts N processes, and torchrun or srun do too; --devices N is of "
    "--strategy dp and of pipelines";

constexpr std::pair<std::string_view, std::string_view> kAnswers[] = {
    {"eval-strategy", kEvaluation},
    {"evaluation-strategy", kEvaluation},
    {"do-train", kCommands},
    {"do-eval", kCommands},
    {"do-predict", kCommands},
    {"report-to", kRecords},
    {"logging-dir", kRecords},
    {"logging-strategy", "--logging-steps N sets how often; 0: never"},
    {"save-strategy", "--save-steps N saves every N steps and at the end; 0: only when interrupted"},
    {"load-best-model-at-end",
     "it always is: OUTPUT/model is that of the best evaluation, by --metric-for-best-model; leave it out"},
    {"greater-is-better", "it follows from --metric-for-best-model; leave it out"},
    {"overwrite-output-dir",
     "a run goes on where it stopped; to begin anew give another --output, or remove that one"},
    {"deepspeed", kSharding},
    {"fsdp", kSharding},
    {"zero-stage", "write --zero 1, 2 or 3, with pipelines and slices too"},
    {"tensor-model-parallel-size", "write --tensor-parallel N"},
    {"pipeline-model-parallel-size", "write --pipeline-parallel N"},
    {"gpus", "--device cuda computes on one GPU; leave it out for processors"},
    {"accelerator", "write --device cpu or --device cuda"},
    {"world-size", kProcesses},
    {"nproc-per-node", kProcesses},
    {"num-processes", kProcesses},
    {"nnodes", kProcesses},
    {"group-by-length", "no padding is computed, so that rows need no grouping; leave it out"},
    {"torch-compile", "the kernels are compiled already; leave it out"},
    {"tf32", "--precision says what is computed in"},
    {"fp16-full-eval", "--precision says what is computed in"},
    {"bf16-full-eval", "--precision says what is computed in"},
    {"dataset-name", "data are files: give them with --train and --eval (pretrain: --data)"},
    {"push-to-hub", "OUTPUT/model is a folder that transformers loads; upload it with hf upload"},
    {"label-names", "--label-column says where the labels are"},
    {"local-rank", "funicular launch, torchrun, srun and mpirun tell each process its rank; leave it out"},
    {"no-cuda", "--device cpu is the default"},
    {"fp32", "write --precision fp32"},
    {"line-by-line", "tokenize --format lines makes each line a document"},
    {"preprocessing-num-workers", "tokenize --threads N"},
};

}  // namespace

std::string_view answer_to_foreign_option(std::string_view name) {
  for (const auto& [foreign, answer] : kAnswers)
    if (name == foreign) return answer;
  return {};
}

}  // namespace funicular::cli
