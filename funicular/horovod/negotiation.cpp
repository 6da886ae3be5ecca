#include "funicular/horovod/negotiation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/bytes.h"
#include "funicular/base/error.h"
#include "funicular/comm/checked_tensors.h"

namespace funicular::horovod {

namespace {

std::string describe(const TensorType& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.type), fmt::join(tensor.shape, ", "));
}

void put_signature(ByteWriter& writer, const Signature& signature) {
  writer.put(signature.collective);
  writer.put(signature.reduction);
  writer.put(signature.root);
  writer.put(signature.prescale);
  writer.put(signature.postscale);
  writer.put(signature.compression);
  writer.put(signature.device);
  writer.put(signature.returns);
  writer.put(signature.tensors.size());
  for (const TensorType& tensor : signature.tensors) {
    writer.put(tensor.type);
    writer.put(tensor.shape.size());
    for (const int64_t size : tensor.shape) writer.put(size);
  }
}

Signature get_signature(ByteReader& reader) {
  Signature signature;
  signature.collective = reader.get<Collective>();
  signature.reduction = reader.get<comm::Reduction>();
  signature.root = reader.get<int>();
  signature.prescale = reader.get<double>();
  signature.postscale = reader.get<double>();
  signature.compression = reader.get<Compression>();
  signature.device = reader.get<at::DeviceType>();
  signature.returns = reader.get<bool>();
  signature.tensors.resize(reader.get<size_t>());
  for (TensorType& tensor : signature.tensors) {
    tensor.type = reader.get<at::ScalarType>();
    tensor.shape.resize(reader.get<size_t>());
    for (int64_t& size : tensor.shape) size = reader.get<int64_t>();
  }
  return signature;
}

/// The signature without the parts in which ranks may differ.
Signature comparable(Signature signature) {
  if (signature.collective == Collective::all_gather)
    for (TensorType& tensor : signature.tensors)
      if (!tensor.shape.empty()) tensor.shape[0] = 0;
  return signature;
}

int64_t first_dimension(const Signature& signature) {
  const std::vector<int64_t>& shape = signature.tensors.at(0).shape;
  return shape.empty() ? 1 : shape[0];
}

}  // namespace

const char* name_of(Collective collective) {
  static constexpr const char* kNames[] = {"allreduce", "allgather", "broadcast", "reducescatter", "barrier"};
  return kNames[static_cast<int>(collective)];
}

std::string describe(const Signature& signature) {
  std::vector<std::string> tensors;
  for (const TensorType& tensor : signature.tensors) tensors.push_back(describe(tensor));
  std::string text = name_of(signature.collective);
  if (!tensors.empty()) text += fmt::format(" of {}", fmt::join(tensors, " and "));
  if (signature.device != at::kCPU) text += " on a GPU";
  if (signature.collective == Collective::all_reduce || signature.collective == Collective::reduce_scatter)
    text += fmt::format(", {}", comm::name_of(signature.reduction));
  if (signature.collective == Collective::broadcast) text += fmt::format(" from rank {}", signature.root);
  if (signature.prescale != 1 || signature.postscale != 1)
    text += fmt::format(", scaled by {} and {}", signature.prescale, signature.postscale);
  if (signature.compression != Compression::none)
    text += signature.compression == Compression::fp16 ? ", sent as fp16" : ", sent as bf16";
  return text;
}

std::string encode(const std::vector<Message>& messages) {
  ByteWriter writer;
  for (const Message& message : messages) {
    writer.put(message.kind);
    writer.put_text(message.name);
    if (message.kind != Message::Kind::request) continue;
    put_signature(writer, message.signature);
    writer.put(message.age.count());
  }
  return writer.take();
}

std::vector<Message> decode(const std::string& bytes) {
  std::vector<Message> messages;
  for (ByteReader reader(bytes); !reader.done();) {
    Message& message = messages.emplace_back();
    message.kind = reader.get<Message::Kind>();
    message.name = reader.get_text();
    if (message.kind != Message::Kind::request) continue;
    message.signature = get_signature(reader);
    message.age = std::chrono::milliseconds(reader.get<std::chrono::milliseconds::rep>());
  }
  return messages;
}

Negotiation::Negotiation(int rank, int ranks, int64_t capacity)
    : rank_(static_cast<size_t>(rank)),
      ranks_(static_cast<size_t>(ranks)),
      capacity_(static_cast<size_t>(capacity)),
      joined_(ranks_) {}

std::optional<size_t> Negotiation::slot_of(const std::string& name, const Signature& signature) const {
  const auto found = slot_of_name_.find(name);
  if (found == slot_of_name_.end() || cache_[found->second].agreed.signature != signature)
    return std::nullopt;
  return found->second;
}

Agreed Negotiation::recall(size_t slot) {
  cache_[slot].used = ++uses_;
  Agreed agreed = cache_[slot].agreed;
  mark_joined(agreed);
  return agreed;
}

/// A rank that has joined has no rows to gather, and no tensor to broadcast.
void Negotiation::mark_joined(Agreed& agreed) const {
  for (size_t rank = 0; rank < agreed.rows.size(); ++rank)
    if (joined_[rank]) agreed.rows[rank] = 0;
  if (agreed.signature.collective == Collective::broadcast && joined_[size_t(agreed.signature.root)])
    agreed.error = fmt::format("{}: {}, which has joined and has nothing to tell", agreed.name,
                               describe(agreed.signature));
}

std::vector<Agreed> Negotiation::hear(const std::vector<std::vector<Message>>& messages) {
  for (size_t rank = 0; rank < messages.size(); ++rank)
    for (const Message& message : messages[rank]) note(static_cast<int>(rank), message);
  std::vector<Agreed> ready;
  std::vector<std::string> still_open;
  for (std::string& name : order_) {
    const auto row = table_.find(name);
    if (!complete(row->second)) {
      still_open.push_back(std::move(name));
      continue;
    }
    ready.push_back(conclude(name, row->second));
    table_.erase(row);
  }
  order_ = std::move(still_open);
  // All ranks remember in the same order, after all have been heard. So slots are equal on all ranks, except for the
  // own shape of an all_gather.
  for (Agreed& agreed : ready) {
    if (agreed.error.empty() && agreed.signature.returns && joined() == 0) remember(agreed);
    if (agreed.error.empty()) mark_joined(agreed);
  }
  return ready;
}

void Negotiation::note(int rank, const Message& message) {
  if (message.kind == Message::Kind::join) {
    joined_[size_t(rank)] = true;
    last_joined_ = rank;
    return;
  }
  if (message.kind == Message::Kind::abandon) {
    const auto row = table_.find(message.name);
    if (row != table_.end() && !abandoned_) abandoned_ = describe_row(row->first, row->second);
    return;
  }
  forget(message.name);
  auto [row, is_new] = table_.try_emplace(message.name);
  if (is_new) {
    row->second.asked.resize(ranks_);
    row->second.since = std::chrono::steady_clock::now() - message.age;
    order_.push_back(message.name);
  }
  row->second.asked[size_t(rank)] = message.signature;
}

bool Negotiation::complete(const Row& row) const {
  for (size_t rank = 0; rank < ranks_; ++rank)
    if (!row.asked[rank] && !joined_[rank]) return false;
  return true;
}

Agreed Negotiation::conclude(const std::string& name, const Row& row) const {
  const auto any = std::find_if(row.asked.begin(), row.asked.end(), [](const auto& one) { return !!one; });
  Agreed agreed{name, row.asked[rank_] ? *row.asked[rank_] : **any, {}};
  const Signature wanted = comparable(**any);
  bool same = true;
  std::vector<std::string> each;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (!row.asked[rank]) continue;
    same = same && comparable(*row.asked[rank]) == wanted;
    each.push_back(fmt::format("rank {}: {}", rank, describe(*row.asked[rank])));
  }
  if (!same) {
    agreed.error = fmt::format("{}: the ranks ask for different things under this name: {}", name,
                               fmt::join(each, "; "));
  } else if (wanted.collective == Collective::all_gather) {
    for (const auto& one : row.asked) agreed.rows.push_back(one ? first_dimension(*one) : 0);
  }
  return agreed;
}

void Negotiation::remember(const Agreed& agreed) {
  if (capacity_ == 0) return;
  const auto oldest = [](const Slot& a, const Slot& b) {
    return std::pair(!a.agreed.name.empty(), a.used) < std::pair(!b.agreed.name.empty(), b.used);
  };
  auto slot = std::min_element(cache_.begin(), cache_.end(), oldest);
  if ((slot == cache_.end() || !slot->agreed.name.empty()) && cache_.size() < capacity_)
    slot = cache_.emplace(cache_.end());
  slot_of_name_.erase(slot->agreed.name);
  *slot = {agreed, ++uses_};
  slot_of_name_[agreed.name] = static_cast<size_t>(slot - cache_.begin());
}

void Negotiation::forget(const std::string& name) {
  const auto found = slot_of_name_.find(name);
  if (found == slot_of_name_.end()) return;
  cache_[found->second] = {};
  slot_of_name_.erase(found);
}

int Negotiation::joined() const {
  return static_cast<int>(std::count(joined_.begin(), joined_.end(), true));
}

std::optional<int> Negotiation::take_last_joined() {
  if (joined() < static_cast<int>(ranks_)) return std::nullopt;
  joined_.assign(ranks_, false);
  return last_joined_;
}

std::vector<Stalled> Negotiation::stalled(std::chrono::steady_clock::duration age) const {
  std::vector<Stalled> found;
  for (const std::string& name : order_) {
    const Row& row = table_.at(name);
    if (std::chrono::steady_clock::now() - row.since >= age) found.push_back(describe_row(name, row));
  }
  return found;
}

Stalled Negotiation::describe_row(const std::string& name, const Row& row) const {
  Stalled stalled{name, {}, {}, std::chrono::steady_clock::now() - row.since};
  for (size_t rank = 0; rank < ranks_; ++rank)
    if (row.asked[rank] || !joined_[rank])
      (row.asked[rank] ? stalled.asked : stalled.missing).push_back(static_cast<int>(rank));
  return stalled;
}

}  // namespace funicular::horovod
