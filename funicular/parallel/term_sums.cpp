#include "funicular/parallel/term_sums.h"

#include <cstdlib>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

[[noreturn]] void refuse_weights(const std::string& name, double first, double second) {
  throw InputError("loss",
                   "the loss term {} has the weight {} and the weight {}; give the terms different names",
                   name, first, second);
}

// One term: sum and weight as hexadecimal floating-point numbers (exact, infinities and NaN too), the length
// of the name, the name.
std::string encode(const std::map<std::string, TermSums::Total>& totals) {
  std::string text;
  for (const auto& [name, total] : totals)
    text += fmt::format("{:a} {:a} {} {}", total.sum, total.weight, name.size(), name);
  return text;
}

std::map<std::string, TermSums::Total> decode(const std::string& text) {
  std::map<std::string, TermSums::Total> totals;
  const char* at = text.c_str();
  const char* const end = at + text.size();
  while (at < end) {
    char* next = nullptr;
    const double sum = std::strtod(at, &next), weight = std::strtod(next, &next);
    const size_t length = std::strtoul(next, &next, 10);
    totals[std::string(next + 1, length)] = {sum, weight};
    at = next + 1 + length;
  }
  return totals;
}

}  // namespace

void TermSums::add(const LossSink& sink) {
  for (const LossSink::Term& term : sink.terms()) {
    const auto [found, added] = sums_.try_emplace(term.name);
    Sum& sum = found->second;
    if (!added && sum.weight != term.weight) refuse_weights(term.name, sum.weight, term.weight);
    const at::Tensor value = term.sum.detach().to(at::kDouble);
    sum.value = sum.value.defined() ? sum.value + value : value;
    sum.weight = term.weight;
  }
}

std::map<std::string, TermSums::Total> TermSums::totals() const {
  std::map<std::string, Total> totals;
  for (const auto& [name, sum] : sums_) totals[name] = {sum.value.item<double>(), sum.weight};
  return totals;
}

std::map<std::string, TermSums::Total> add_over_ranks(const comm::Group& group,
                                                      const std::map<std::string, TermSums::Total>& own) {
  if (group.size() == 1) return own;
  std::map<std::string, TermSums::Total> all;
  for (const std::string& text : group.gather_texts(encode(own)))
    for (const auto& [name, total] : decode(text)) {
      const auto [found, added] = all.try_emplace(name, TermSums::Total{0, total.weight});
      if (found->second.weight != total.weight) refuse_weights(name, found->second.weight, total.weight);
      found->second.sum += total.sum;
    }
  return all;
}

}  // namespace funicular::parallel
