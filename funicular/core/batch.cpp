#include "funicular/core/batch.h"

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"

namespace funicular {

void add_counts(Counts& a, const Counts& b) {
  for (const auto& [name, count] : b) a[name] += count;
}

double count_of(const Counts& counts, const std::string& term) {
  auto found = counts.find(term);
  if (found == counts.end()) found = counts.find("samples");
  if (found != counts.end()) return found->second;
  std::string names;
  for (const auto& [name, count] : counts) names += (names.empty() ? "" : ", ") + name;
  throw InputError("loss", "the batch has no count for the loss term {}; it has: {}", term,
                   names.empty() ? "none" : names);
}

int64_t Packing::longest() const {
  int64_t longest = 0;
  for (size_t s = 1; s < host_offsets.size(); ++s)
    longest = std::max<int64_t>(longest, host_offsets[s] - host_offsets[s - 1]);
  return longest;
}

Packing Packing::from_lengths(const std::vector<int32_t>& lengths, const std::vector<int64_t>& sample_ids,
                              const std::vector<int64_t>& draw_ids, RandomState random) {
  if (lengths.size() != draw_ids.size() || lengths.size() != sample_ids.size())
    throw InputError("packing", "expected as many draws and sample ids as lengths ({}), found {} and {}",
                     lengths.size(), draw_ids.size(), sample_ids.size());
  Packing packing;
  packing.random = random;
  packing.host_offsets.assign(1, 0);
  int64_t total = 0;
  for (const int32_t length : lengths) {
    if (length < 1)
      throw InputError("packing", "expected sequences of at least one token, found one of {}", length);
    total += length;
    if (total > INT32_MAX)
      throw InputError("packing", "a micro-batch holds more than {} tokens; make it smaller", INT32_MAX);
    packing.host_offsets.push_back(static_cast<int32_t>(total));
  }
  std::vector<int32_t> positions(static_cast<size_t>(total));
  std::vector<int64_t> token_draws(static_cast<size_t>(total));
  for (size_t s = 0; s < lengths.size(); ++s)
    for (int32_t i = 0; i < lengths[s]; ++i) {
      const size_t token = static_cast<size_t>(packing.host_offsets[s] + i);
      positions[token] = i;
      token_draws[token] = draw_ids[s];
    }
  packing.positions = at::tensor(positions, at::kInt);
  packing.token_draws = at::tensor(token_draws, at::kLong);
  packing.host_draw_ids = draw_ids;
  packing.offsets = at::tensor(packing.host_offsets, at::kInt);
  packing.sample_ids = at::tensor(sample_ids, at::kLong);
  packing.draw_ids = at::tensor(draw_ids, at::kLong);
  return packing;
}

namespace {

std::vector<at::Tensor*> tensors_of(Packing& packing) {
  return {&packing.offsets, &packing.sample_ids, &packing.draw_ids, &packing.positions, &packing.token_draws};
}

/// Moves tensors to a device. A GPU gets the dense tensors of the host together.
void move_tensors(const std::vector<at::Tensor*>& tensors, const at::Device& device) {
  std::vector<at::Tensor*> together;
  std::vector<at::Tensor> host;
  for (at::Tensor* const tensor : tensors) {
    if (!tensor->defined()) continue;
    if (!joins_copies(*tensor, device)) {
      *tensor = tensor->to(device);
      continue;
    }
    together.push_back(tensor);
    host.push_back(*tensor);
  }
  if (together.empty()) return;
  const std::vector<at::Tensor> copies = copy_together(host, device);
  for (size_t i = 0; i < together.size(); ++i) *together[i] = copies[i];
}

}  // namespace

Packing Packing::to(const at::Device& device) const {
  Packing moved = *this;
  move_tensors(tensors_of(moved), device);
  return moved;
}

MicroBatch MicroBatch::to(const at::Device& device) const {
  MicroBatch moved = *this;
  std::vector<at::Tensor*> all = tensors_of(moved.packing);
  for (auto& [name, tensor] : moved.tensors) {
    if (tensor.is_cpu()) moved.host_tensors.emplace(name, tensor);
    all.push_back(&tensor);
  }
  move_tensors(all, device);
  return moved;
}

at::Tensor MicroBatch::on_host(const std::string& name) const {
  const auto found = host_tensors.find(name);
  return found != host_tensors.end() ? found->second : (*this)[name].cpu();
}

const at::Tensor& MicroBatch::operator[](const std::string& name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string names;
  for (const auto& [key, value] : tensors) names += (names.empty() ? "" : ", ") + key;
  throw InputError("batch", "no tensor named {}; the batch holds: {}", name,
                   names.empty() ? "nothing" : names);
}

void LossSink::add(std::string name, at::Tensor sum, double weight) {
  if (!sum.defined() || sum.numel() != 1)
    throw InputError("loss",
                     "the term {}: expected one number, the sum over the samples of the batch, found {} "
                     "numbers; a loss function "
                     "with at::Reduction::Sum gives it",
                     name, sum.defined() ? sum.numel() : 0);
  terms_.push_back({std::move(name), std::move(sum), weight});
}

void LossSink::output(const std::string& name, const at::Tensor& value) {
  if (keep_outputs) outputs_[name] = value.detach();
}

at::Tensor LossSink::total(const Counts& counts) const {
  at::Tensor total;
  for (const Term& term : terms_) {
    const double count = count_of(counts, term.name);
    if (count == 0) continue;  // nothing of this kind in the whole global batch: its sum is empty
    const at::Tensor part = term.sum * (term.weight / count);
    total = total.defined() ? total + part : part;
  }
  return total;
}

}  // namespace funicular
