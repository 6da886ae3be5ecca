#include "funicular/task/kept_vectors.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/made_record.h"

namespace funicular::task {

namespace {

constexpr size_t kEmbeddedAtOnce = 1024;  // texts

std::string_view bytes_of_numbers(const float* numbers, size_t count) {
  return {reinterpret_cast<const char*>(numbers), count * sizeof(float)};
}

}  // namespace

format::NpyFile kept_vectors(const fs::path& file, const Json& identity, const Embedder& embedder,
                             const std::vector<std::string>& texts, const char* command) {
  if (!counts_if_made_of(file, identity).is_null()) {
    log::info("{}: the vectors are there already", file.string());
    return format::NpyFile(file);
  }
  std::error_code none;
  if (fs::exists(file, none))
    log::warning(
        "{} holds vectors of other texts, another model or other options; the texts are embedded again",
        file.string());
  VectorOutput output({.path = file, .width = embedder.width(), .identity = identity});
  const auto all = static_cast<size_t>(texts.size());
  for (auto begin = static_cast<size_t>(output.rows()); begin < all; begin += kEmbeddedAtOnce) {
    stop_if_interrupted(command, "what is embedded is kept; run the same command again to resume");
    const auto first = texts.begin() + static_cast<ptrdiff_t>(begin);
    const auto last = texts.begin() + static_cast<ptrdiff_t>(std::min(begin + kEmbeddedAtOnce, all));
    const at::Tensor vectors = embedder.embed({first, last}).contiguous();
    output.write(bytes_of_numbers(vectors.const_data_ptr<float>(), static_cast<size_t>(vectors.numel())));
  }
  output.finish([&](const fs::path& written) {
    write_made_record(file, hash_of_output(written), identity, {{"vectors", output.rows()}});
  });
  return format::NpyFile(file);
}

at::Tensor rows_of(const format::NpyFile& table, int64_t begin, int64_t end) {
  const at::Tensor rows = at::empty({end - begin, table.columns()}, at::kFloat);
  if (end > begin) std::memcpy(rows.data_ptr<float>(), table.row(begin).data(), rows.nbytes());
  return rows;
}

KeptNumbers::KeptNumbers(const fs::path& file, Json identity)
    : output_({.path = file, .width = 1, .records = "numbers", .identity = std::move(identity)}),
      kept_(output_.records()) {}

std::vector<float> KeptNumbers::next(size_t count, const std::function<std::vector<float>()>& compute) {
  std::vector<float> numbers(kept_.begin() + static_cast<ptrdiff_t>(next_),
                             kept_.begin() + static_cast<ptrdiff_t>(std::min(next_ + count, kept_.size())));
  next_ += numbers.size();
  if (numbers.size() == count) return numbers;
  const size_t known = numbers.size();  // a run may have been killed while it wrote the others
  numbers = compute();
  output_.write(bytes_of_numbers(numbers.data() + known, numbers.size() - known));
  return numbers;
}

}  // namespace funicular::task
