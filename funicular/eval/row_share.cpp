#include "funicular/eval/row_share.h"

#include <fmt/format.h>

#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json.h"

namespace funicular::eval {

std::string RowShare::in_turn(const std::function<std::string()>& make) const {
  if (!exchange) return make();
  const std::vector<std::string> texts = exchange(make);
  std::vector<std::string_view> left(texts.begin(), texts.end());
  std::string lines;
  for (size_t turn = 0; !left[turn].empty(); turn = (turn + 1) % left.size()) {
    const size_t size = left[turn].find('\n') + 1;
    lines += left[turn].substr(0, size);
    left[turn].remove_prefix(size);
  }
  return lines;
}

int64_t RowShare::sum(int64_t own) const {
  if (!exchange) return own;
  int64_t all = 0;
  for (const std::string& part : exchange([own] { return std::to_string(own); })) all += std::stoll(part);
  return all;
}

int64_t RowShare::least(int64_t own) const {
  if (!exchange) return own;
  int64_t all = -1;
  for (const std::string& part : exchange([own] { return std::to_string(own); }))
    if (const int64_t found = std::stoll(part); found >= 0 && (all < 0 || found < all)) all = found;
  return all;
}

void stop_if_interrupted() {
  if (interrupt_requested()) throw RunError("predict", "interrupted; the answers are not complete");
}

std::string error_json(const std::string& problem) {
  // The name of a file need not be UTF-8.
  return fmt::format("{{\"error\": {}}}", Json(problem).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace funicular::eval
