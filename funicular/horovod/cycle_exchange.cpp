#include "funicular/horovod/cycle_exchange.h"

#include <ATen/ops/zeros.h>

#include <bit>
#include <string>

#include "funicular/horovod/fusion.h"

namespace funicular::horovod {

/// Packs as many counters into one whole number as fit.
CycleCounts count_over_ranks(const comm::Group& group, size_t slots, const std::vector<size_t>& own_slots,
                             bool talks, bool leaves) {
  const int bits = std::bit_width(static_cast<unsigned>(group.size())), each = 63 / bits;
  const auto fields = static_cast<int64_t>(slots) + 2;
  const at::Tensor packed = at::zeros({(fields + each - 1) / each}, at::kLong);
  auto* words = packed.mutable_data_ptr<int64_t>();
  const auto add = [&](size_t field) {
    words[field / size_t(each)] += int64_t{1} << (field % size_t(each) * size_t(bits));
  };
  if (talks) add(0);
  if (leaves) add(1);
  for (const size_t slot : own_slots) add(slot + 2);
  group.all_reduce(packed);
  const auto count = [&](int64_t field) {
    return words[field / each] >> (field % each * bits) & ((int64_t{1} << bits) - 1);
  };
  CycleCounts counts{count(0), count(1)};
  for (int64_t field = 2; field < fields; ++field) counts.asking.push_back(count(field));
  return counts;
}

std::vector<std::vector<Message>> exchange_messages(const comm::Group& group,
                                                    const std::vector<Message>& own) {
  const std::string text = encode(own);
  const at::Tensor sizes = at::zeros({group.size()}, at::kLong);
  auto* size = sizes.mutable_data_ptr<int64_t>();
  size[group.rank()] = static_cast<int64_t>(text.size());
  group.all_reduce(sizes);
  const std::vector<int64_t> each(size, size + group.size());
  std::string all(static_cast<size_t>(sizes.sum().item<int64_t>()), '\0');
  gather_bytes(group, text.data(), each, all.data());
  std::vector<std::vector<Message>> messages;
  size_t at = 0;
  for (const int64_t bytes : each) {
    messages.push_back(decode(all.substr(at, static_cast<size_t>(bytes))));
    at += static_cast<size_t>(bytes);
  }
  return messages;
}

}  // namespace funicular::horovod
