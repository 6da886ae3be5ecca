#include "funicular/parallel/term_sums.h"

#include <cstdint>
#include <cstring>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

[[noreturn]] void refuse_weights(const std::string& name, double first, double second) {
  throw InputError("loss",
                   "the loss term {} has the weight {} and the weight {}; give the terms different names",
                   name, first, second);
}

// One term: sum and weight as they lie in memory, the length of the name, the name.
std::string encode(const std::map<std::string, TermSums::Total>& totals) {
  std::string bytes;
  const auto append = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const auto& [name, total] : totals) {
    append(total.sum);
    append(total.weight);
    append(static_cast<uint64_t>(name.size()));
    bytes += name;
  }
  return bytes;
}

std::map<std::string, TermSums::Total> decode(const std::string& bytes) {
  std::map<std::string, TermSums::Total> totals;
  size_t at = 0;
  const auto take = [&](auto& value) {
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
  };
  while (at < bytes.size()) {
    TermSums::Total total;
    uint64_t length = 0;
    take(total.sum);
    take(total.weight);
    take(length);
    totals[bytes.substr(at, length)] = total;
    at += length;
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
