#include "funicular/cli/foreign_options.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <utility>

#include "funicular/cli/training_arguments.h"

namespace funicular::cli {

namespace {

constexpr std::string_view kProcesses =
    "funicular launch -n N starts N processes, and torchrun or srun do too. --devices N works only with "
    "--strategy dp and with pipelines";

constexpr std::string_view kWindows =
    "finetune, evaluate and predict read a long text in windows with --stride; it works only with --task "
    "custom, tags and spans";
constexpr std::string_view kAnswers =
    "write --task spans: answers that are spans of a context, from SQuAD's JSON";
constexpr std::string_view kAdapters =
    "adapters (LoRA) are not there yet: all weights are trained; leave it out, and --strategy zero2 or "
    "--recompute "
    "saves memory";
constexpr std::string_view kVectors =
    "funicular embed makes vectors of texts, search finds the nearest ones, and evaluate --task retrieval or "
    "--task similarity measures them";
constexpr std::string_view kRerankers =
    "funicular finetune --task reranker trains a reranker, and predict with it ranks the texts of each query";
constexpr std::string_view kPairs = "write --task custom with two columns: --text-column FIRST SECOND";
constexpr std::string_view kMasked =
    "funicular pretrain learns hidden tokens, from a token store that funicular tokenize makes";
constexpr std::string_view kGenerators = "encoders write no texts; a model of this kind is not there";
constexpr std::string_view kChoices = "choices among several texts are not there yet; write --task custom";
constexpr std::string_view kVocabularies = "write funicular vocabulary train";

using Answer = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kConnections =
    "ranks meet over their own connections, on one host through shared memory; leave it out";
constexpr std::string_view kStallChecks =
    "set HOROVOD_STALL_CHECK_TIME_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS or "
    "HOROVOD_STALL_CHECK_DISABLE=1";

constexpr Answer kOptions[] = {
    {"gloo", kConnections},
    {"mpi", kConnections},
    {"ssh-port", "write --remote-shell \"ssh -o BatchMode=yes -p PORT\""},
    {"ssh-identity-file", "write --remote-shell \"ssh -o BatchMode=yes -i FILE\""},
    {"fusion-threshold-mb", "set HOROVOD_FUSION_THRESHOLD, in bytes"},
    {"cycle-time-ms", "set HOROVOD_CYCLE_TIME, in milliseconds"},
    {"cache-capacity", "set HOROVOD_CACHE_CAPACITY"},
    {"no-stall-check", kStallChecks},
    {"stall-check-warning-time-seconds", kStallChecks},
    {"stall-check-shutdown-time-seconds", kStallChecks},
    {"min-np",
     "the number of ranks does not change in a run; --max-restarts K starts all again after a failure"},
    {"max-np",
     "the number of ranks does not change in a run; --max-restarts K starts all again after a failure"},
    {"zero-stage", "write --zero 1, 2 or 3, with pipelines and slices too"},
    {"tensor-model-parallel-size", "write --tensor-parallel N"},
    {"pipeline-model-parallel-size", "write --pipeline-parallel N"},
    {"gradient-clipping", "write --max-grad-norm NORM"},
    {"gradient-clip-val", "write --max-grad-norm NORM"},
    {"clip-grad-norm", "write --max-grad-norm NORM"},
    {"gpus", "--device cuda computes on one GPU; leave it out for processors"},
    {"accelerator", "write --device cpu or --device cuda"},
    {"world-size", kProcesses},
    {"nproc-per-node", kProcesses},
    {"num-processes", kProcesses},
    {"nnodes", kProcesses},
    {"pos-weight", "write --positive-weight X, with --task reranker and --loss bce"},
    {"weighting-scheme", "write --weighting NAME, with --task reranker and --loss lambda"},
    {"dataset-name", "data are files: give them with --train and --eval"},
    {"no-cuda", "--device cpu is the default"},
    {"fp32", "write --precision fp32"},
    {"stride", kWindows},
    {"doc-stride", kWindows},
    {"return-overflowing-tokens", kWindows},
    {"max-query-length", kAnswers},
    {"max-answer-length", kAnswers},
    {"n-best-size", kAnswers},
    {"null-score-diff-threshold", kAnswers},
    {"version-2-with-negative", kAnswers},
    {"pad-to-max-length", "no padding is computed; leave it out"},
    {"label-all-tokens",
     "a word is read at its first token alone, as transformers' examples do; leave it out"},
    {"return-entity-level-metrics", "evaluate --details gives the scores of each type of entity"},
    {"do-lower-case", "the model's tokeniser files say it (tokenizer_config.json); leave it out"},
    {"train-file",
     "write --train FILE, and --eval FILE for the rows to evaluate on; pretrain reads token stores"},
    {"config-name", "--model names the folder whose config.json is read"},
    {"lora", kAdapters},
    {"use-lora", kAdapters},
    {"peft", kAdapters},
    {"lora-r", kAdapters},
    {"lora-rank", kAdapters},
    {"adapter", kAdapters},
    {"load-in-8bit", "evaluate and predict have --precision int8; training in 8 bits is not there yet"},
    {"line-by-line", "tokenize --format lines makes each line a document"},
    {"preprocessing-num-workers", "tokenize --threads N"},
};

constexpr std::string_view kTrainings =
    "did you mean finetune, which learns from rows with labels, or pretrain, which learns from texts?";

constexpr Answer kCommandNames[] = {
    {"train", kTrainings},
    {"fit", kTrainings},
    {"train-tokenizer", kVocabularies},
    {"tokenizer", kVocabularies},
    {"encode", kVectors},
    {"embedding", kVectors},
    {"embeddings", kVectors},
    {"similarity", kVectors},
    {"index", kVectors},
    {"retrieve", kVectors},
    {"rerank", kRerankers},
    {"cluster", "texts are not clustered here; funicular embed writes vectors that other programs cluster"},
    {"test", "funicular evaluate measures a model on labelled rows"},
    {"eval", "write funicular evaluate"},
    {"score", "write funicular evaluate"},
    {"infer", "write funicular predict"},
    {"inference", "write funicular predict"},
    {"classify", "write funicular predict, with a model of funicular finetune"},
    {"ner", "write funicular finetune --task tags, then funicular predict"},
    {"qa", kAnswers},
    {"fill-mask",
     "funicular mask shows what would be hidden, and compare measures what models know of texts"},
    {"serve", "a server is not there yet; funicular predict answers lines as they come, from a pipe too"},
    {"deploy", "a server is not there yet; funicular predict answers lines as they come, from a pipe too"},
    {"export", "OUTPUT/model is a folder that transformers loads; other formats are not there yet"},
    {"convert", "OUTPUT/model is a folder that transformers loads; other formats are not there yet"},
    {"onnx", "OUTPUT/model is a folder that transformers loads; other formats are not there yet"},
    {"quantize", "evaluate and predict have --precision int8; a quantised model is not written yet"},
    {"prune", "pruning is not there yet; funicular distill trains a smaller model"},
    {"compress", "funicular distill trains a smaller model"},
    {"download", "run hf download NAME; then --model NAME finds it"},
    {"pull", "run hf download NAME; then --model NAME finds it"},
    {"push", "OUTPUT/model is a folder that transformers loads; upload it with hf upload"},
    {"upload", "OUTPUT/model is a folder that transformers loads; upload it with hf upload"},
    {"preprocess", "funicular tokenize makes a token store of texts; finetune reads its files as they are"},
    {"prepare", "funicular tokenize makes a token store of texts; finetune reads its files as they are"},
    {"resume", "to resume a run, repeat its command"},
    {"sweep", "a search of options is not there yet; funicular chain runs several commands"},
    {"tune", "a search of options is not there yet; funicular chain runs several commands"},
    {"summarize", kGenerators},
    {"translate", kGenerators},
    {"generate", kGenerators},
    {"profile", "write funicular bench"},
    {"benchmark", "write funicular bench"},
    {"run", "funicular chain runs the commands of a file, funicular launch a program as several ranks"},
    {"version", "write funicular --version"},
};

constexpr Answer kTasks[] = {
    {"mnli-mm", "write mnli, and give dev_mismatched.tsv as the file"},
    {"mnli-mismatched", "write mnli, and give dev_mismatched.tsv as the file"},
    {"snli", kPairs},
    {"xnli", kPairs},
    {"nli", kPairs},
    {"anli", kPairs},
    {"paws", kPairs},
    {"boolq", kPairs},
    {"entailment", kPairs},
    {"pair-classification", kPairs},
    {"sentence-pair", kPairs},
    {"glue", "write the name of one of its tasks, as cola, mrpc or mnli"},
    {"superglue", "write rte for RTE; use --task custom for SuperGLUE's tasks on one text or on pairs"},
    {"sts", "write stsb, or --task custom with --regression"},
    {"similarity", kVectors},
    {"sentence-similarity", kVectors},
    {"embedding", kVectors},
    {"embeddings", kVectors},
    {"feature-extraction", kVectors},
    {"retrieval", kVectors},
    {"ranking", kRerankers},
    {"multiple-choice", kChoices},
    {"swag", kChoices},
    {"race", kChoices},
    {"masked-lm", kMasked},
    {"mlm", kMasked},
    {"fill-mask", kMasked},
    {"language-modeling", kMasked},
    {"clm", kGenerators},
    {"causal-lm", kGenerators},
    {"text-generation", kGenerators},
    {"summarization", kGenerators},
    {"translation", kGenerators},
    {"seq2seq", kGenerators},
};

constexpr Answer kVocabularyActions[] = {
    {"learn", kVocabularies},
    {"build", kVocabularies},
    {"new", kVocabularies},
    {"create", kVocabularies},
    {"add", "write funicular vocabulary extend"},
};

std::string_view answer_of(std::span<const Answer> answers, std::string_view name) {
  for (const auto& [foreign, answer] : answers)
    if (name == foreign) return answer;
  return {};
}

}  // namespace

std::string foreign_spelling(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string_view answer_to_foreign_option(std::string_view name) {
  const std::string_view answer = answer_to_training_argument(name);
  return answer.empty() ? answer_of(kOptions, name) : answer;
}

std::string_view answer_to_foreign_command(std::string_view name) {
  return answer_of(kCommandNames, foreign_spelling(name));
}

std::string_view answer_to_foreign_value(std::string_view option, std::string_view value) {
  if (option == "vocabulary") return answer_of(kVocabularyActions, foreign_spelling(value));
  if (option == "words" && value.find_first_not_of("0123456789") == value.npos)
    return "it takes no number; vectors --max-words says how many words get a vector";
  return option == "task" ? answer_of(kTasks, foreign_spelling(value)) : std::string_view();
}

}  // namespace funicular::cli
