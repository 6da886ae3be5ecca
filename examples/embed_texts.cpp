// Turns texts into vectors and finds for each text the one that is nearest in meaning.
//
// usage: example_embed_texts [MODEL]
// MODEL is a folder of sentence-transformers, or of an encoder, whose tokens are then averaged. Without it: a toy model.

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "examples/toy_bert.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/task/embed.h"

using namespace funicular;

namespace {

void run_example(int count, char** words) {
  const TemporaryFolder folder;
  const fs::path model = count < 2 ? folder.path() / "bert" : fs::path(words[1]);
  if (count < 2) write_toy_bert(model);

  const task::Embedder embedder(model, {.normalise = true});
  std::printf("%s; %lld numbers a text\n", embedder.description().c_str(),
              static_cast<long long>(embedder.width()));

  const std::vector<std::string> texts{"a good film", "a film", "a bad film", "good", "bad"};
  const at::Tensor vectors = embedder.embed(texts);       // [texts, width]
  at::Tensor cosines = vectors.matmul(vectors.t());       // of vectors of length 1
  cosines.fill_diagonal_(-1);                             // a text is no neighbour of itself
  const auto [values, nearest] = cosines.max(/*dim=*/1);  // [texts]
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    std::printf("%-12s → %-12s %.3f\n", texts[i].c_str(),
                texts[static_cast<size_t>(nearest[at].item<int64_t>())].c_str(), values[at].item<double>());
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    run_example(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
