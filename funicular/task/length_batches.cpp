#include "funicular/task/length_batches.h"

#include <algorithm>
#include <numeric>

namespace funicular::task {

void for_length_batches(std::span<const int64_t> lengths, int64_t most_tokens,
                        const std::function<void(std::span<const size_t> rows)>& use) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    int64_t tokens = 0;
    for (end = begin; end < order.size() && (end == begin || tokens + lengths[order[end]] <= most_tokens);
         ++end)
      tokens += lengths[order[end]];
    use(std::span(order).subspan(begin, end - begin));
  }
}

}  // namespace funicular::task
