#include "funicular/parallel/term_sums.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

#include "funicular/base/bytes.h"
#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"

namespace funicular::parallel {

namespace {

[[noreturn]] void refuse_weights(const std::string& name, double first, double second) {
  throw InputError("loss",
                   "the loss term {} has the weight {} and the weight {}; give the terms different names",
                   name, first, second);
}

std::string encode(const std::map<std::string, TermSums::Total>& totals) {
  ByteWriter writer;
  for (const auto& [name, total] : totals) {
    writer.put_text(name);
    writer.put(total);
  }
  return writer.take();
}

}  // namespace

void TermSums::add(const LossSink& sink) {
  for (const LossSink::Term& term : sink.terms())
    add(term.name, term.sum.detach().to(at::kDouble), term.weight);
}

void TermSums::add(const TermSums& other) {
  for (const auto& [name, sum] : other.sums_) add(name, sum.value, sum.weight);
}

void TermSums::add(const std::string& name, const at::Tensor& value, double weight) {
  const auto [found, added] = sums_.try_emplace(name);
  Sum& sum = found->second;
  if (!added && sum.weight != weight) refuse_weights(name, sum.weight, weight);
  sum.value = added ? value : sum.value + value.to(sum.value.device());
  sum.weight = weight;
}

std::map<std::string, TermSums::Total> TermSums::totals() const {
  return sums_.empty() ? std::map<std::string, Total>() : totals(values().cpu());  // a GPU is waited for once
}

at::Tensor TermSums::values() const {
  std::vector<at::Tensor> values;
  for (const auto& [name, sum] : sums_) values.push_back(sum.value.reshape({}));
  return values.empty() ? at::Tensor() : at::stack(values);
}

TermSums TermSums::counted(const Counts& counts) const {
  TermSums counted = *this;
  for (auto& [name, sum] : counted.sums_)
    if (count_of(counts, name) == 0) sum.value = at::zeros_like(sum.value);
  return counted;
}

TermSums TermSums::over_ranks(const comm::Group& group, const at::Device& device) const {
  if (group.size() == 1) return *this;
  std::map<std::string, Total> weights;
  for (const auto& [name, sum] : sums_) weights[name] = {0, sum.weight};
  TermSums all;
  for (const auto& [name, total] : funicular::parallel::add_over_ranks(group, weights)) {
    const auto own = sums_.find(name);
    all.sums_[name] = {own == sums_.end() ? at::zeros({}, at::TensorOptions(at::kDouble).device(device))
                                          : to_device(own->second.value, device),
                       total.weight};
  }
  const at::Tensor values = all.values();
  if (!values.defined()) return all;
  group.all_reduce(values);
  int64_t number = 0;
  for (auto& [name, sum] : all.sums_) sum.value = values[number++];
  return all;
}

std::map<std::string, TermSums::Total> TermSums::totals(const at::Tensor& host) const {
  std::map<std::string, Total> totals;
  int64_t number = 0;
  for (const auto& [name, sum] : sums_) totals[name] = {host[number++].item<double>(), sum.weight};
  return totals;
}

std::map<std::string, TermSums::Total> add_over_ranks(const comm::Group& group,
                                                      const std::map<std::string, TermSums::Total>& own) {
  if (group.size() == 1) return own;
  std::map<std::string, TermSums::Total> all;
  for (const std::string& text : group.gather_texts(encode(own)))
    for (ByteReader reader(text); !reader.done();) {
      const std::string name(reader.get_text());
      const auto total = reader.get<TermSums::Total>();
      const auto [found, added] = all.try_emplace(name, TermSums::Total{0, total.weight});
      if (found->second.weight != total.weight) refuse_weights(name, found->second.weight, total.weight);
      found->second.sum += total.sum;
    }
  return all;
}

}  // namespace funicular::parallel
