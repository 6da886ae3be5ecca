#include "funicular/task/static_vectors.h"

#include <torch/types.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/temporary.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/objective/text_rows.h"

namespace funicular::task {

namespace {

/// The ids of tokens that get a vector, ascending.
std::vector<uint32_t> kept_tokens(const text::Tokenizer& tokenizer) {
  std::vector<uint32_t> kept;
  const std::vector<std::string>& vocabulary = tokenizer.vocabulary();
  for (size_t id = 0; id < vocabulary.size(); ++id)
    if (!vocabulary[id].starts_with("[unused")) kept.push_back(static_cast<uint32_t>(id));
  return kept;
}

/// [tokens, H]: the mean of the hidden states of each token and the special tokens around it.
at::Tensor embed_tokens(const StaticVectorOptions& options, const std::vector<uint32_t>& tokens,
                        const text::Tokenizer& tokenizer, const model::Pretrained& encoder) {
  const model::Head head = model::sentence_head(format::SentenceFolder());
  model::ModelOptions made = encoder.options(at::kFloat, options.device);
  made.head = head;
  Model model = build_model(made);
  encoder.load_all(model, head);
  model::prepare_inference(model, "fp32");
  const objective::TextRows rows(tokenizer.sequence(), {}, head);
  const auto each = static_cast<size_t>(tokenizer.sequence().special_count(1) + 1);
  const size_t count = std::max<size_t>(static_cast<size_t>(options.batch_tokens) / each, 1);
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> blocks;
  for (size_t begin = 0; begin < tokens.size(); begin += count) {
    stop_if_interrupted("vectors", "nothing was written");
    std::vector<data::Sample> samples(std::min(count, tokens.size() - begin));
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i].columns.push_back({data::TokenSpan(&tokens[begin + i], 1), {}});
    LossSink sink;
    const Activations found = model.forward({}, rows.collate(samples, {}), Taps{}, sink);
    blocks.push_back(found.at(model::kVectors).to(at::kCPU, at::kDouble));
  }
  return at::cat(blocks);
}

/// Projects the rows to their principal components, with signs that make each component's largest number positive.
at::Tensor principal_components(const at::Tensor& rows, int64_t width) {
  const at::Tensor centred = rows - rows.mean(0, true);
  const at::Tensor covariance = centred.t().matmul(centred) / (rows.size(0) - 1);
  const at::Tensor vectors = std::get<1>(at::linalg_eigh(covariance)).flip(1).narrow(1, 0, width);
  const at::Tensor scores = centred.matmul(vectors);
  const at::Tensor largest = scores.gather(0, scores.abs().argmax(0, true));
  return scores * largest.sign();
}

at::Tensor frequency_weights(int64_t tokens, double a) {
  const at::Tensor inverse = 1 / (at::arange(tokens, at::kDouble) + 2);
  return (a / (a + inverse / inverse.sum())).unsqueeze(1);
}

}  // namespace

int64_t make_static_vectors(const StaticVectorOptions& options, const fs::path& output) {
  const model::SentenceEncoder source(options.from, {}, "--from");
  if (source.is_static())
    throw InputError("usage", "--from {}: the model is a table of static embeddings already",
                     options.from.string());
  const int64_t width = source.encoder().config().encoder.width;
  if (options.width > width)
    throw InputError("usage", "--size {}: the encoder's vectors have {} numbers; expected at most as many",
                     options.width, width);
  const InterruptGuard guard;
  const auto tokenizer = source.tokenizer();
  const std::vector<uint32_t> tokens = kept_tokens(*tokenizer);
  const auto count = std::ssize(tokens);
  if (count <= options.width)
    throw InputError("usage", "--size {}: the vocabulary has {} tokens; expected fewer numbers than tokens",
                     options.width, count);
  const at::Tensor rows =
      principal_components(embed_tokens(options, tokens, *tokenizer, source.encoder()), options.width) *
      frequency_weights(count, options.frequency);
  const at::Tensor table = at::zeros({tokenizer->id_limit(), options.width}, at::kDouble);
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  table.index_copy_(0, at::tensor(ids, at::kLong), rows);
  const text::SpecialTokens& special = tokenizer->special();
  for (const int32_t id : {special.pad, special.unknown, special.cls, special.sep, special.mask})
    if (id >= 0) table[id].zero_();
  format::SentenceFolder modules;
  modules.is_static = true;
  modules.poolings.clear();
  modules.steps = {format::SentenceStep::normalisation()};
  modules.similarity = source.modules().similarity;
  const fs::path place = (fs::absolute(output) / "").lexically_normal().parent_path();
  make_directories(place.parent_path());
  const Temporary folder(place, Temporary::Kind::folder);
  model::save_table(table, *tokenizer, modules, folder.path());
  std::error_code ignored;
  fs::remove_all(put_in_place(folder.path(), place), ignored);
  return count;
}

}  // namespace funicular::task
