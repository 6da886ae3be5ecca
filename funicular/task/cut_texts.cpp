#include "funicular/task/cut_texts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "funicular/base/log.h"

namespace funicular::task {

namespace {

constexpr double kMuch = 0.05;

std::string part_of(int64_t part, int64_t all, double share, std::string_view what) {
  return fmt::format("{} of {} {} ({:.1f} %)", part, all, what, 100 * share);
}

}  // namespace

data::CutRows cut_rows(const data::TokenStore& store, SequenceLimit limit, const text::Tokenizer& tokenizer) {
  const auto room_of = [&](int texts) {
    return limit.max_length - (limit.no_special ? 0 : tokenizer.sequence().special_count(texts));
  };
  return limit.texts_apart ? data::count_cut_texts(store, room_of(1))
                           : data::count_cut_rows(store, room_of(store.meta().columns));
}

void report_cut(const data::CutRows& cut, std::string_view of, SequenceLimit limit,
                std::string_view consequence) {
  if (cut.cut == 0) return;
  std::vector<std::string> parts;
  if (cut.words > 0) parts.push_back(part_of(cut.words_left_out, cut.words, cut.word_share(), "words"));
  if (cut.tokens > 0) parts.push_back(part_of(cut.tokens_left_out, cut.tokens, cut.token_share(), "tokens"));
  const std::string longer =
      limit.longest < std::numeric_limits<int32_t>::max()
          ? fmt::format("raise --max-length, up to the model's longest, {}, or divide these texts",
                        limit.longest)
          : "raise --max-length or divide these texts";
  const std::string text = fmt::format(
      "{}: {} of {} rows {} longer than {} tokens: {} are not read, and {}; {}", of, cut.cut, cut.rows,
      limit.texts_apart ? "have a text that is" : "are", limit.max_length, fmt::join(parts, " and "),
      consequence,
      limit.max_length < limit.longest ? longer : "the model takes no more tokens: divide these texts");
  if (std::max(cut.word_share(), cut.token_share()) > kMuch)
    log::warning("{}", text);
  else
    log::info("{}", text);
}

OrderedJson with_cut(OrderedJson json, const data::CutRows& cut) {
  if (cut.cut == 0) return json;
  OrderedJson& found = json["cut"] = {{"rows", cut.cut},
                                      {"rows_share", cut.row_share()},
                                      {"tokens", cut.tokens_left_out},
                                      {"tokens_share", cut.token_share()}};
  if (cut.words > 0) {
    found["words"] = cut.words_left_out;
    found["words_share"] = cut.word_share();
  }
  return json;
}

}  // namespace funicular::task
