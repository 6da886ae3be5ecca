#include "funicular/task/embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/objective/text_rows.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/missing_values.h"
#include "funicular/task/registry.h"
#include "funicular/task/vector_answers.h"

namespace funicular::task {

namespace {

/// Texts to embed at a time, whose vectors are in memory.
constexpr size_t kTextsAtOnce = 4096;

/// No text is longer than this.
constexpr int32_t kAnyLength = std::numeric_limits<int32_t>::max();

/// The tokeniser's template, or for a table of static embeddings one without special tokens.
text::SequenceTemplate sequence_form(const model::SentenceEncoder& encoder,
                                     const text::Tokenizer& tokenizer) {
  return encoder.is_static() ? text::SequenceTemplate() : tokenizer.sequence();
}

/// The row of a table of static embeddings for texts without tokens.
std::optional<uint32_t> no_token(const model::SentenceEncoder& encoder) {
  if (!encoder.is_static()) return std::nullopt;
  return static_cast<uint32_t>(encoder.static_rows());
}

/// The special tokens of a sequence that texts for a table of static embeddings do not get.
int64_t unused_special(const model::SentenceEncoder& encoder, const text::Tokenizer& tokenizer) {
  return encoder.is_static() ? tokenizer.sequence().special_count(1) : 0;
}

int64_t length_of(const model::SentenceEncoder& encoder, std::optional<int64_t> wanted) {
  if (encoder.is_static()) return wanted.value_or(encoder.max_length());
  if (wanted) encoder.encoder().check_max_length(*wanted);
  return wanted.value_or(encoder.max_length());
}

/// Throws InputError for recordings of a model without an encoder.
bool records(const model::SentenceEncoder& encoder, const fs::path& folder, const EmbedderOptions& options) {
  if (options.cuda_graphs && encoder.is_static())
    throw InputError("usage",
                     "--cuda-graphs: {} holds static embeddings, which have no encoder's pass to record; "
                     "leave out --cuda-graphs",
                     folder.string());
  return options.cuda_graphs;
}

/// Leaves out rows at the beginning of another input.
class LaterRows final : public RowInput {
 public:
  LaterRows(std::unique_ptr<RowInput> inner, int64_t skip) : inner_(std::move(inner)), skip_(skip) {}
  std::optional<InputRow> next() override {
    for (; skip_ > 0; --skip_)
      if (!inner_->next()) return std::nullopt;
    return inner_->next();
  }
  void stop() override { inner_->stop(); }
  void report(int64_t rows) const override { inner_->report(rows); }

 private:
  std::unique_ptr<RowInput> inner_;
  int64_t skip_;
};

std::string text_of_step(const format::SentenceStep& step) {
  if (step.kind == format::SentenceStep::Kind::normalise) return "normalised";
  return fmt::format("a Dense layer to {} numbers ({})", step.outputs, step.activation);
}

}  // namespace

const std::vector<std::string>& text_role_names() {
  static const std::vector<std::string> names{"any", "query", "document"};
  return names;
}

std::string Embedder::choose_prompt(const EmbedderOptions& options) const {
  const format::SentenceFolder& modules = encoder_.modules();
  if (options.prompt) return *options.prompt;
  const auto named = [&](const std::string& name) { return modules.prompts.at(name); };
  if (!options.prompt_name.empty()) {
    if (modules.prompts.contains(options.prompt_name)) return named(options.prompt_name);
    std::vector<std::string> names;
    for (const auto& [name, prompt] : modules.prompts) names.push_back(name);
    throw InputError("usage", "--prompt-name {}: the model's prompts are {}", options.prompt_name,
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
  if (options.role == TextRole::any)
    return modules.default_prompt.empty() ? "" : named(modules.default_prompt);
  static const std::vector<std::string> kQuery{"query"}, kDocument{"document", "passage", "corpus"};
  for (const std::string& name : options.role == TextRole::query ? kQuery : kDocument)
    if (modules.prompts.contains(name)) return named(name);
  return "";
}

/// The number of tokens that poolings leave out: the prompt's, and special tokens before it.
int64_t Embedder::prompt_tokens() const {
  if (encoder_.is_static() || encoder_.modules().include_prompt || prompt_.empty()) return 0;
  int64_t before = 0;
  for (const text::SequenceTemplate::Step& step : tokenizer_->sequence().steps(1)) {
    if (step.column >= 0) break;
    ++before;
  }
  const auto own = std::ssize(tokenizer_->tokenize(prompt_).ids);
  return before + std::min<int64_t>(own, max_length_ - tokenizer_->sequence().special_count(1));
}

Embedder::Embedder(const fs::path& folder, const EmbedderOptions& options)
    : encoder_(folder, options.poolings, options.option),
      tokenizer_(encoder_.tokenizer()),
      prompt_(choose_prompt(options)),
      max_length_(length_of(encoder_, options.max_length)),
      model_(encoder_.load(options.precision == "fp64" ? at::kDouble : at::kFloat, options.device,
                           records(encoder_, folder, options))) {
  if (options.precision != "fp64") model::prepare_inference(model_, options.precision);
  const objective::SequenceOptions sequence{max_length_ > 0 ? static_cast<int32_t>(max_length_) : kAnyLength};
  const auto truncate = options.truncate_dim ? options.truncate_dim : encoder_.modules().truncate_dim;
  predictor_ = std::make_unique<Predictor>(
      model_, *tokenizer_,
      std::make_unique<objective::TextRows>(sequence_form(encoder_, *tokenizer_), sequence, model::Head::none,
                                            prompt_tokens()),
      std::make_unique<VectorAnswers>(VectorOptions{.width = encoder_.width(),
                                                    .truncate_dim = truncate,
                                                    .normalise = options.normalise,
                                                    .prompt = prompt_,
                                                    .no_token = no_token(encoder_),
                                                    .special_tokens = unused_special(encoder_, *tokenizer_)}),
      PredictorOptions{.sequence = sequence,
                       .batch_tokens = options.batch_tokens,
                       .window = options.window,
                       .cuda_graphs = options.cuda_graphs});
}

at::Tensor Embedder::embed(const std::vector<std::string>& texts) const {
  std::vector<InputRow> rows(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) rows[i].texts = {texts[i]};
  const at::Tensor vectors = at::empty({static_cast<int64_t>(texts.size()), width()}, at::kFloat);
  auto* into = reinterpret_cast<char*>(vectors.data_ptr<float>());
  for (const Answer& answer : predictor_->answer(std::move(rows))) {
    std::memcpy(into, answer.json.data(), answer.json.size());
    into += answer.json.size();
  }
  return vectors;
}

void for_each_block(const Embedder& embedder, const std::vector<std::string>& texts, const char* command,
                    const std::function<void(const at::Tensor& vectors)>& use) {
  for (size_t begin = 0; begin < texts.size(); begin += kTextsAtOnce) {
    stop_if_interrupted(command, "nothing was written");
    const size_t end = std::min(begin + kTextsAtOnce, texts.size());
    use(embedder.embed(
        {texts.begin() + static_cast<ptrdiff_t>(begin), texts.begin() + static_cast<ptrdiff_t>(end)}));
  }
}

at::Tensor all_vectors(const Embedder& embedder, const std::vector<std::string>& texts, const char* command) {
  std::vector<at::Tensor> blocks;
  for_each_block(embedder, texts, command, [&](const at::Tensor& block) { blocks.push_back(block); });
  return at::cat(blocks);
}

std::string Embedder::description() const {
  const format::SentenceFolder& modules = encoder_.modules();
  std::vector<std::string> parts;
  for (const format::Pooling pooling : modules.poolings) parts.push_back(format::pooling_name(pooling));
  std::string text =
      encoder_.is_static() ? "mean of static embeddings" : fmt::format("{}", fmt::join(parts, " + "));
  for (const format::SentenceStep& step : modules.steps) text += ", " + text_of_step(step);
  return text;
}

std::unique_ptr<RowInput> open_texts(const InputOptions& options) {
  return find_task("classes")->open_input(options);
}

StreamCounts embed(const Embedder& embedder, const EmbedOptions& options,
                   const std::function<void(std::string_view)>& write) {
  std::unique_ptr<RowInput> input;
  comm::together(options.group, [&] { input = open_texts(options.input); });
  comm::require_equal(options.group, "embed", [&] {
    std::map<std::string, std::string> all = options.identity;
    all["the data of --input"] = hash_text(hash_file(options.input.path));
    all["the weights of --model"] = embedder.encoder().weights_hash();
    return all;
  });
  LaterRows rows(std::move(input), options.skip);
  const bool leads = options.group.rank() == 0;
  const InterruptGuard guard;
  const StreamCounts done = embedder.predictor().stream(
      rows,
      [&](std::string_view records) {
        if (leads) write(records);
      },
      share_of(options.group));
  const std::string name = options.input.path.empty() ? "standard input" : options.input.path.string();
  const model::SentenceEncoder& encoder = embedder.encoder();
  report_cut(done.cut, name,
             {embedder.max_length(),
              encoder.is_static() ? kAnyLength : encoder.encoder().config().encoder.longest_sequence()},
             "the vectors come from the rest");
  if (done.textless.count > 0)
    log::warning("{}: {} of {} rows have no text, the first is line {}; their vectors mean nothing", name,
                 done.textless.count, done.rows, done.textless.first_line);
  warn_of_missing_texts(done.missing.count, done.rows, fmt::format("line {}", done.missing.first_line), name);
  rows.report(done.rows);
  return done;
}

}  // namespace funicular::task
