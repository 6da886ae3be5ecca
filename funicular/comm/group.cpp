#include "funicular/comm/group.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/checked_tensors.h"
#include "funicular/comm/connected_ranks.h"
#include "funicular/comm/device_transports.h"
#include "funicular/comm/imagined_ranks.h"
#include "funicular/comm/thread_ranks.h"
#include "funicular/comm/transport.h"

namespace funicular::comm {

void Work::wait() const {
  if (pending_) pending_->wait();
}

bool Work::done() const {
  return !pending_ || pending_->done();
}

namespace {

/// Says who named the ranks, and where they met.
void log_meeting(const launch::Environment& place, bool shares_memory) {
  if (place.size == 1) return log::debug("[ranks] one process; the ranks were named by {}", place.source);
  const std::string text =
      fmt::format("[ranks] rank {} of {} by {}, met at {}, port {}; {}", place.rank, place.size, place.source,
                  place.address, place.port, shares_memory ? "shared memory" : "connections only");
  if (place.rank == 0) {
    log::info("{}", text);
  } else {
    log::debug("{}", text);
  }
}

/// By rank the number of its host, from 0 in the order in which they come.
std::vector<int> number_hosts(int ranks, const std::function<std::string(int)>& host_of) {
  std::vector<int> numbers;
  std::map<std::string, int> known;
  for (int rank = 0; rank < ranks; ++rank)
    numbers.push_back(known.try_emplace(host_of(rank), static_cast<int>(known.size())).first->second);
  return numbers;
}

/// The options with the transport that the environment names, if they name none.
GroupOptions with_transport(GroupOptions options) {
  if (options.transport.empty())
    options.transport = launch::process_variable("FUNICULAR_TRANSPORT").value_or("");
  return options;
}

std::string name_of_carrier(const Transport* carrier, const at::Device& device) {
  if (!carrier) return {};
  if (!device.is_cpu() || carrier->in_threads()) return carrier->name();
  return carrier->shares_memory() ? "shared memory" : "connections";
}

void check_imagined(int rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return;
  throw InputError(launch::kRanks, "rank {} of {} cannot be imagined; expected one from 0 to {}", rank, size,
                   size - 1);
}

/// Throws InputError unless these are different ranks of `size`.
void check_different(const std::vector<int>& ranks, int size) {
  const std::set<int> different(ranks.begin(), ranks.end());
  if (ranks.empty() || different.size() != ranks.size() || *different.begin() < 0 ||
      *different.rbegin() >= size)
    throw InputError(launch::kRanks, "a subgroup needs different ranks from 0 to {}, found {}", size - 1,
                     fmt::join(ranks, ", "));
}

}  // namespace

Group::Group() = default;
Group::Group(std::shared_ptr<Transport> ranks) : transport_(std::move(ranks)) {}

Group Group::join(const launch::Environment& place, const GroupOptions& options) {
  return place.size == 1 ? Group() : Group(build_for_device(connect_ranks(place, options), options));
}

Group Group::imagined(int rank, int size) {
  check_imagined(rank, size);
  return size == 1 ? Group() : Group(imagine_ranks(rank, size));
}

std::vector<Group> Group::in_threads(int size) {
  if (size < 1) throw InputError(launch::kRanks, "{} ranks in threads; expected at least one", size);
  if (size == 1) return {Group()};
  std::vector<Group> groups;
  for (std::shared_ptr<Transport>& ranks : make_thread_ranks(size)) groups.push_back(Group(std::move(ranks)));
  return groups;
}

void Group::leave(const std::string& why) const {
  if (transport_) transport_->leave(why);
}

Group Group::from_environment(const GroupOptions& options) {
  const launch::Environment place = launch::read_environment();
  Group group = join(place, with_transport(options));
  log_meeting(place, group.shares_memory());
  return group;
}

Group with_device(const Group& group, const GroupOptions& options) {
  return group.transport_ ? Group(build_for_device(group.transport_, with_transport(options))) : Group();
}

int Group::rank() const {
  return transport_ ? transport_->rank() : 0;
}
int Group::size() const {
  return transport_ ? transport_->size() : 1;
}
bool Group::shares_memory() const {
  return transport_ && transport_->shares_memory();
}

std::vector<int> Group::hosts() const {
  return number_hosts(size(),
                      [this](int rank) { return transport_ ? transport_->host_of(rank) : std::string(); });
}

std::string Group::carrier_name(const at::Device& device) const {
  return name_of_carrier(transport_ ? transport_->carrier(device) : nullptr, device);
}

bool Group::carries(const at::Device& device) const {
  return !transport_ || transport_->carrier(device) != nullptr;
}

bool Group::in_one_process() const {
  return transport_ && transport_->in_threads();
}

Group Group::subgroup(const std::vector<int>& ranks) const {
  check_different(ranks, size());
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end())
    throw InputError(launch::kRanks, "rank {} is none of its subgroup {}", rank(), fmt::join(ranks, ", "));
  if (ranks.size() == 1) return {};
  std::shared_ptr<Transport> part = transport_->subgroup(ranks, static_cast<int>(own - ranks.begin()));
  part->count_with(*transport_);
  return Group(std::move(part));
}

Traffic Group::traffic() const {
  return transport_ ? transport_->counter().read() : Traffic();
}

namespace {

/// A collective that was checked: its description, and what it does to the ranks.
struct Call {
  std::string what;
  Traffic::Sum Traffic::*kind;
  at::Tensor tensor;  ///< whose device chooses the carrier
  std::function<void(Transport&)> action;
};

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

/// Returns the transport for this tensor, and counts the tensor. Throws InputError if the ranks carry none of its
/// device.
Transport& carrier_of(Transport& transport, const std::string& what, const at::Tensor& tensor,
                      Traffic::Sum Traffic::*kind) {
  Transport* const carrier = transport.carrier(tensor.device());
  if (!carrier)
    throw InputError(launch::kRanks,
                     "{}: the transport of these ranks ({}) carries no tensors on {}; copy the tensor to the "
                     "CPU, or join the ranks with GroupOptions::device",
                     what, transport.name(), tensor.device().str());
  transport.counter().add(kind, bytes_of(tensor));
  return *carrier;
}

Call all_reduce_call(const at::Tensor& tensor, Reduction reduction) {
  check_reduction("all_reduce", check_tensor("all_reduce", tensor), reduction);
  return {describe("all_reduce", tensor, fmt::format(", {}", name_of(reduction))), &Traffic::all_reduce,
          tensor, [=](Transport& transport) { transport.all_reduce(tensor, reduction); }};
}

Call reduce_scatter_call(const at::Tensor& input, const at::Tensor& output, Reduction reduction,
                         int64_t shard) {
  const Element element = check_tensor("reduce_scatter", input);
  check_tensor("reduce_scatter", output);
  check_reduction("reduce_scatter", element, reduction);
  if (output.scalar_type() != input.scalar_type() || output.numel() != shard ||
      output.device() != input.device())
    throw InputError(launch::kRanks, "{}: this rank gets {} on {}, found an output of {} {} on {}",
                     describe("reduce_scatter", input), shard, input.device().str(), output.numel(),
                     output.dtype().name(), output.device().str());
  return {describe("reduce_scatter", input, fmt::format(", {}", name_of(reduction))),
          &Traffic::reduce_scatter, input,
          [=](Transport& transport) { transport.reduce_scatter(input, output, reduction); }};
}

Call reduce_scatter_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, Reduction reduction,
                         int size) {
  check_reduction("reduce_scatter", check_tensor("reduce_scatter", tensor), reduction);
  check_pieces("reduce_scatter", tensor, pieces, size);
  return {
      describe("reduce_scatter", tensor, fmt::format("{}, {}", describe_pieces(pieces), name_of(reduction))),
      &Traffic::reduce_scatter, tensor,
      [=](Transport& transport) { transport.reduce_scatter(tensor, pieces, reduction); }};
}

Call all_gather_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, int size) {
  check_tensor("all_gather", tensor);
  check_pieces("all_gather", tensor, pieces, size);
  return {describe("all_gather", tensor, describe_pieces(pieces)), &Traffic::all_gather, tensor,
          [=](Transport& transport) { transport.all_gather(tensor, pieces); }};
}

/// The whole tensor is the root's piece.
Call reduce_call(const at::Tensor& tensor, int root, Reduction reduction, int size) {
  check_reduction("reduce", check_tensor("reduce", tensor), reduction);
  check_rank("reduce", root, size);
  std::vector<Shard> pieces;
  for (int rank = 0; rank < size; ++rank)
    pieces.push_back({rank <= root ? 0 : tensor.numel(), rank == root ? tensor.numel() : 0});
  return {describe("reduce", tensor, fmt::format(", {}, to rank {}", name_of(reduction), root)),
          &Traffic::reduce_scatter, tensor,
          [=](Transport& transport) { transport.reduce_scatter(tensor, pieces, reduction); }};
}

Call gather_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, int root, int size) {
  check_tensor("gather", tensor);
  check_pieces("gather", tensor, pieces, size);
  check_rank("gather", root, size);
  return {describe("gather", tensor, fmt::format("{} to rank {}", describe_pieces(pieces), root)),
          &Traffic::all_gather, tensor,
          [=](Transport& transport) { transport.gather(tensor, pieces, root); }};
}

Call broadcast_call(const at::Tensor& tensor, int root, int size) {
  check_tensor("broadcast", tensor);
  check_rank("broadcast", root, size);
  return {describe("broadcast", tensor, fmt::format(" from rank {}", root)), &Traffic::broadcast, tensor,
          [=](Transport& transport) { transport.broadcast(tensor, root); }};
}

/// The texts of at least two ranks. Short texts, which are almost all there are, travel in one exchange: their
/// lengths and their first bytes.
std::vector<std::string> gathered_texts(const Group& group, const std::string& text) {
  const int size = group.size(), rank = group.rank();
  constexpr int64_t kWord = 8, kFirst = 31;  // the first bytes, in words, behind the length
  const at::Tensor heads = at::zeros({size, 1 + kFirst}, at::kLong);
  const auto head_of = [&](int one) { return heads.data_ptr<int64_t>() + one * (1 + kFirst); };
  *head_of(rank) = static_cast<int64_t>(text.size());
  text.copy(reinterpret_cast<char*>(head_of(rank) + 1), kFirst * kWord);
  group.all_gather(heads.view({-1}));
  std::vector<Shard> pieces;  // what is left, in words
  int64_t words = 0;
  for (int r = 0; r < size; ++r) {
    pieces.push_back({words, std::max<int64_t>(0, (*head_of(r) + kWord - 1) / kWord - kFirst)});
    words += pieces.back().size;
  }
  const at::Tensor tails = at::zeros({words}, at::kLong);
  const auto tail_of = [&](int one) {
    return reinterpret_cast<char*>(tails.data_ptr<int64_t>() + pieces[size_t(one)].begin);
  };
  if (text.size() > kFirst * kWord) text.copy(tail_of(rank), text.size(), kFirst * kWord);
  if (words > 0) group.all_gather(tails, pieces);
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) {
    const auto length = static_cast<size_t>(*head_of(r)), first = std::min<size_t>(length, kFirst * kWord);
    texts.emplace_back(reinterpret_cast<const char*>(head_of(r) + 1), first);
    texts.back().append(tail_of(r), length - first);
  }
  return texts;
}

/// Checks a message to or from another rank, and describes it.
std::string check_message(const char* operation, const char* direction, const at::Tensor& tensor, int other,
                          const Group& group) {
  check_tensor(operation, tensor);
  check_rank(operation, other, group.size());
  if (other == group.rank())
    throw InputError(launch::kRanks, "{}: rank {} cannot {} {} itself", operation, other, operation,
                     direction);
  return describe(operation, tensor, fmt::format(" {} rank {}", direction, other));
}

}  // namespace

template <class Call>
void Group::run(const Call& call) const {
  if (!transport_) return;
  Transport& carrier = carrier_of(*transport_, call.what, call.tensor, call.kind);
  carrier.run(call.what, [&] { call.action(carrier); });
}

template <class Call>
Work Group::start(const Call& call) const {
  Work work;
  if (!transport_) return work;
  Transport& carrier = carrier_of(*transport_, call.what, call.tensor, call.kind);
  work.pending_ = carrier.start(call.what, [action = call.action, &carrier] { action(carrier); });
  return work;
}

void Group::all_reduce(const at::Tensor& tensor, Reduction reduction) const {
  run(all_reduce_call(tensor, reduction));
}

void Group::reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) const {
  run(reduce_scatter_call(input, output, reduction, shard(input.numel()).size));
  if (!transport_) output.copy_(input.view(output.sizes()));
}

void Group::reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                           Reduction reduction) const {
  run(reduce_scatter_call(tensor, pieces, reduction, size()));
}

void Group::all_gather(const at::Tensor& tensor) const {
  all_gather(tensor, shards_of(tensor.defined() ? tensor.numel() : 0, size()));
}

void Group::all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) const {
  run(all_gather_call(tensor, pieces, size()));
}

void Group::reduce(const at::Tensor& tensor, int root, Reduction reduction) const {
  run(reduce_call(tensor, root, reduction, size()));
}

void Group::gather(const at::Tensor& tensor, int root) const {
  gather(tensor, shards_of(tensor.defined() ? tensor.numel() : 0, size()), root);
}

void Group::gather(const at::Tensor& tensor, const std::vector<Shard>& pieces, int root) const {
  run(gather_call(tensor, pieces, root, size()));
}

void Group::broadcast(const at::Tensor& tensor, int root) const {
  run(broadcast_call(tensor, root, size()));
}

void Group::barrier() const {
  if (transport_) transport_->run("barrier", [&] { transport_->barrier(); });
}

Work Group::start_all_reduce(const at::Tensor& tensor, Reduction reduction) const {
  return start(all_reduce_call(tensor, reduction));
}

Work Group::start_reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                                 Reduction reduction) const {
  return start(reduce_scatter_call(tensor, pieces, reduction, size()));
}

Work Group::start_all_gather(const at::Tensor& tensor) const {
  return start_all_gather(tensor, shards_of(tensor.defined() ? tensor.numel() : 0, size()));
}

Work Group::start_all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) const {
  return start(all_gather_call(tensor, pieces, size()));
}

Work Group::start_broadcast(const at::Tensor& tensor, int root) const {
  return start(broadcast_call(tensor, root, size()));
}

std::vector<std::string> Group::gather_texts(const std::string& text) const {
  return transport_ ? gathered_texts(*this, text) : std::vector{text};
}

// One rank alone is refused as a message to itself.
void Group::send(const at::Tensor& tensor, int to) const {
  const std::string what = check_message("send", "to", tensor, to, *this);
  Transport& carrier = carrier_of(*transport_, what, tensor, &Traffic::sent);
  carrier.run_between_two(what, [&] { carrier.send(tensor, to); });
}

void Group::receive(const at::Tensor& tensor, int from) const {
  const std::string what = check_message("receive", "from", tensor, from, *this);
  Transport& carrier = carrier_of(*transport_, what, tensor, &Traffic::received);
  carrier.run_between_two(what, [&] { carrier.receive(tensor, from); });
}

Work Group::start_send(const at::Tensor& tensor, int to) const {
  std::string what = check_message("send", "to", tensor, to, *this);
  Work work;
  if (tensor.numel() == 0) return work;
  Transport& carrier = carrier_of(*transport_, what, tensor, &Traffic::sent);
  work.pending_ = carrier.start_send(std::move(what), tensor, to);
  return work;
}

Work Group::start_receive(const at::Tensor& tensor, int from) const {
  std::string what = check_message("receive", "from", tensor, from, *this);
  Work work;
  if (tensor.numel() == 0) return work;
  Transport& carrier = carrier_of(*transport_, what, tensor, &Traffic::received);
  work.pending_ = carrier.start_receive(std::move(what), tensor, from);
  return work;
}

}  // namespace funicular::comm
