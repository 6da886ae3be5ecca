#include "funicular/task/embedder_modules.h"

#include <iterator>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/model/sentence_encoder.h"

namespace funicular::task {

namespace {

/// LEAF keeps the linear layer, so that the student's vectors can search the teacher's vectors.
void add_adapter(format::SentenceFolder& modules, int64_t hidden, int64_t wanted) {
  const int64_t width = modules.vector_width(hidden);
  if (width == wanted) return;
  auto place = modules.steps.end();
  if (place != modules.steps.begin() && std::prev(place)->kind == format::SentenceStep::Kind::normalise)
    --place;
  modules.steps.insert(place, format::SentenceStep::dense(width, wanted, /*bias=*/true, "identity"));
}

}  // namespace

std::shared_ptr<const format::NpyFile> open_teacher(const FileOptions& files, bool needed) {
  if (!files.teacher.empty()) return std::make_shared<const format::NpyFile>(files.teacher);
  if (!needed) return nullptr;
  throw InputError(
      "usage",
      "--task vectors learns a teacher's vectors; finetune expects --teacher with an embedder's folder or "
      "a .npy file. To measure a model without its teacher, give evaluate --task retrieval or similarity");
}

void take_modules(objective::SentenceVectorOptions& own, const text::Tokenizer& tokenizer,
                  const EmbeddingOptions& options, int64_t hidden) {
  if (!options.folder.empty()) {
    std::vector<format::Pooling> plain;
    if (!options.pooling.empty()) plain.push_back(format::parse_pooling(options.pooling, "--pooling"));
    const model::SentenceEncoder encoder(options.folder, std::move(plain));
    own.modules = encoder.modules();
    if (encoder.is_static()) own.no_token = static_cast<uint32_t>(encoder.static_rows());
    model::require_case(own.modules, tokenizer, options.folder);
    // LEAF's vectors have length 1. A folder with modules decides by itself.
    if (own.teacher && !encoder.has_modules())
      own.modules.steps.push_back(format::SentenceStep::normalisation());
  }
  if (!own.teacher) return;
  own.modules.truncate_dim.reset();  // the student's vectors have the teacher's size
  add_adapter(own.modules, hidden, own.teacher->columns());
}

}  // namespace funicular::task
