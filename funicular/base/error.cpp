#include "funicular/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "funicular/base/visible.h"

namespace funicular {

Error::Error(ExitCode code, std::string_view component, fmt::string_view format, fmt::format_args arguments)
    : std::runtime_error(visible(fmt::format("[{}] {}", component, fmt::vformat(format, arguments)))),
      code_(code) {}

std::string errno_text(int error) {
  return std::strerror(error);
}

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::string* first, const std::string* last) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (; first != last; ++first) {
    const size_t distance = edit_distance(word, *first);
    if (distance < best_distance) {
      best_distance = distance;
      best = *first;
    }
  }
  return best;
}

}  // namespace funicular
