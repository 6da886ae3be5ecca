#include "funicular/task/row_share.h"

#include <fmt/format.h>

#include <string_view>

#include "funicular/base/json_text.h"
#include "funicular/comm/together.h"

namespace funicular::task {

std::string RowShare::in_turn(const std::function<std::string()>& make, size_t record) const {
  if (!exchange) return make();
  const std::vector<std::string> texts = exchange(make);
  std::vector<std::string_view> left(texts.begin(), texts.end());
  std::string lines;
  for (size_t turn = 0; !left[turn].empty(); turn = (turn + 1) % left.size()) {
    const size_t size = record > 0 ? record : left[turn].find('\n') + 1;
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

data::CutRows RowShare::sum(const data::CutRows& own) const {
  return {.rows = sum(own.rows),
          .cut = sum(own.cut),
          .tokens = sum(own.tokens),
          .tokens_left_out = sum(own.tokens_left_out),
          .words = sum(own.words),
          .words_left_out = sum(own.words_left_out)};
}

RemarkedRows RowShare::sum(const RemarkedRows& own) const {
  return {.count = sum(own.count), .first_line = least(own.first_line)};
}

int64_t RowShare::least(int64_t own) const {
  if (!exchange) return own;
  int64_t all = -1;
  for (const std::string& part : exchange([own] { return std::to_string(own); }))
    if (const int64_t found = std::stoll(part); found >= 0 && (all < 0 || found < all)) all = found;
  return all;
}

RowShare share_of(const comm::Group& group) {
  if (group.size() == 1) return {};
  return {group.rank(), group.size(), [&group](const std::function<std::string()>& make) {
            std::string own;
            comm::together(group, [&] { own = make(); });
            return group.gather_texts(own);
          }};
}

std::string error_json(const std::string& problem) {
  // The name of a file need not be UTF-8.
  return fmt::format("{{\"error\": {}}}", json_text(Json(problem)));
}

}  // namespace funicular::task
