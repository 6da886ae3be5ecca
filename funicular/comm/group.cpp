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
#include "funicular/comm/imagined_ranks.h"
#include "funicular/comm/ranks.h"
#include "funicular/comm/thread_ranks.h"

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
Group::Group(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}

Group Group::join(const launch::Environment& place, const GroupOptions& options) {
  return place.size == 1 ? Group() : Group(connect_ranks(place, options));
}

Group Group::imagined(int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size)
    throw InputError(launch::kRanks, "rank {} of {} cannot be imagined; expected one from 0 to {}", rank,
                     size, size - 1);
  return size == 1 ? Group() : Group(imagine_ranks(rank, size));
}

std::vector<Group> Group::in_threads(int size) {
  if (size < 1) throw InputError(launch::kRanks, "{} ranks in threads; expected at least one", size);
  if (size == 1) return {Group()};
  std::vector<Group> groups;
  for (std::shared_ptr<Ranks>& ranks : make_thread_ranks(size)) groups.push_back(Group(std::move(ranks)));
  return groups;
}

void Group::leave(const std::string& why) const {
  if (ranks_) ranks_->leave(why);
}

Group Group::from_environment(const GroupOptions& options) {
  const launch::Environment place = launch::read_environment();
  if (place.size == 1) {
    log::debug("[ranks] one process; the ranks were named by {}", place.source);
    return {};
  }
  Group group = join(place, options);
  log_meeting(place, group.shares_memory());
  return group;
}

int Group::rank() const {
  return ranks_ ? ranks_->rank() : 0;
}
int Group::size() const {
  return ranks_ ? ranks_->size() : 1;
}
bool Group::shares_memory() const {
  return ranks_ && ranks_->shares_memory();
}

std::vector<int> Group::hosts() const {
  return number_hosts(size(), [this](int rank) { return ranks_ ? ranks_->host_of(rank) : std::string(); });
}

bool Group::in_one_process() const {
  return ranks_ && ranks_->in_threads();
}

Group Group::subgroup(const std::vector<int>& ranks) const {
  check_different(ranks, size());
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end())
    throw InputError(launch::kRanks, "rank {} asks for a subgroup of {} to which it does not belong", rank(),
                     fmt::join(ranks, ", "));
  if (ranks.size() == 1) return {};
  std::shared_ptr<Ranks> part = ranks_->subgroup(ranks, static_cast<int>(own - ranks.begin()));
  part->count_with(*ranks_);
  return Group(std::move(part));
}

Traffic Group::traffic() const {
  return ranks_ ? ranks_->counter().read() : Traffic();
}

namespace {

/// A collective that was checked: its description, and what it does to the ranks.
struct Call {
  std::string what;
  Traffic::Sum Traffic::*kind;
  int64_t bytes = 0;
  std::function<void(Ranks&)> action;
};

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

Call all_reduce_call(const at::Tensor& tensor, Reduction reduction) {
  check_reduction("all_reduce", check_tensor("all_reduce", tensor), reduction);
  return {describe("all_reduce", tensor, fmt::format(", {}", name_of(reduction))), &Traffic::all_reduce,
          bytes_of(tensor), [=](Ranks& ranks) { ranks.all_reduce(tensor, reduction); }};
}

Call reduce_scatter_call(const at::Tensor& input, const at::Tensor& output, Reduction reduction,
                         int64_t shard) {
  const Element element = check_tensor("reduce_scatter", input);
  check_tensor("reduce_scatter", output);
  check_reduction("reduce_scatter", element, reduction);
  if (output.scalar_type() != input.scalar_type() || output.numel() != shard)
    throw InputError(launch::kRanks, "{}: this rank gets {}, found an output of {} {}",
                     describe("reduce_scatter", input), shard, output.numel(), output.dtype().name());
  return {describe("reduce_scatter", input, fmt::format(", {}", name_of(reduction))),
          &Traffic::reduce_scatter, bytes_of(input),
          [=](Ranks& ranks) { ranks.reduce_scatter(input, output, reduction); }};
}

Call reduce_scatter_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, Reduction reduction,
                         int size) {
  check_reduction("reduce_scatter", check_tensor("reduce_scatter", tensor), reduction);
  check_pieces("reduce_scatter", tensor, pieces, size);
  return {
      describe("reduce_scatter", tensor, fmt::format("{}, {}", describe_pieces(pieces), name_of(reduction))),
      &Traffic::reduce_scatter, bytes_of(tensor),
      [=](Ranks& ranks) { ranks.reduce_scatter(tensor, pieces, reduction); }};
}

Call all_gather_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, int size) {
  check_tensor("all_gather", tensor);
  check_pieces("all_gather", tensor, pieces, size);
  return {describe("all_gather", tensor, describe_pieces(pieces)), &Traffic::all_gather, bytes_of(tensor),
          [=](Ranks& ranks) { ranks.all_gather(tensor, pieces); }};
}

/// The whole tensor is the root's piece.
Call reduce_call(const at::Tensor& tensor, int root, Reduction reduction, int size) {
  check_reduction("reduce", check_tensor("reduce", tensor), reduction);
  check_rank("reduce", root, size);
  std::vector<Shard> pieces;
  for (int rank = 0; rank < size; ++rank)
    pieces.push_back({rank <= root ? 0 : tensor.numel(), rank == root ? tensor.numel() : 0});
  return {describe("reduce", tensor, fmt::format(", {}, to rank {}", name_of(reduction), root)),
          &Traffic::reduce_scatter, bytes_of(tensor),
          [=](Ranks& ranks) { ranks.reduce_scatter(tensor, pieces, reduction); }};
}

Call gather_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, int root, int size) {
  check_tensor("gather", tensor);
  check_pieces("gather", tensor, pieces, size);
  check_rank("gather", root, size);
  return {describe("gather", tensor, fmt::format("{} to rank {}", describe_pieces(pieces), root)),
          &Traffic::all_gather, bytes_of(tensor), [=](Ranks& ranks) { ranks.gather(tensor, pieces, root); }};
}

Call broadcast_call(const at::Tensor& tensor, int root, int size) {
  check_tensor("broadcast", tensor);
  check_rank("broadcast", root, size);
  return {describe("broadcast", tensor, fmt::format(" from rank {}", root)), &Traffic::broadcast,
          bytes_of(tensor), [=](Ranks& ranks) { ranks.broadcast(tensor, root); }};
}

/// The texts of at least two ranks. Short texts, which are almost all there are, travel in one exchange: their lengths and
/// their first bytes.
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

/// Of a message to or from another rank; what it is.
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
  if (!ranks_) return;
  ranks_->counter().add(call.kind, call.bytes);
  ranks_->run(call.what, [&] { call.action(*ranks_); });
}

template <class Call>
Work Group::start(const Call& call) const {
  Work work;
  if (!ranks_) return work;
  ranks_->counter().add(call.kind, call.bytes);
  work.pending_ = ranks_->start(call.what, [action = call.action, ranks = ranks_.get()] { action(*ranks); });
  return work;
}

void Group::all_reduce(const at::Tensor& tensor, Reduction reduction) const {
  run(all_reduce_call(tensor, reduction));
}

void Group::reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) const {
  run(reduce_scatter_call(input, output, reduction, shard(input.numel()).size));
  if (!ranks_) output.copy_(input.view(output.sizes()));
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
  if (ranks_) ranks_->run("barrier", [&] { ranks_->barrier(); });
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
  return ranks_ ? gathered_texts(*this, text) : std::vector{text};
}

// One rank alone is refused as a message to itself.
void Group::send(const at::Tensor& tensor, int to) const {
  const std::string what = check_message("send", "to", tensor, to, *this);
  ranks_->counter().add(&Traffic::sent, bytes_of(tensor));
  ranks_->run_between_two(what, [&] { ranks_->send(tensor, to); });
}

void Group::receive(const at::Tensor& tensor, int from) const {
  const std::string what = check_message("receive", "from", tensor, from, *this);
  ranks_->counter().add(&Traffic::received, bytes_of(tensor));
  ranks_->run_between_two(what, [&] { ranks_->receive(tensor, from); });
}

Work Group::start_send(const at::Tensor& tensor, int to) const {
  std::string what = check_message("send", "to", tensor, to, *this);
  Work work;
  if (tensor.numel() == 0) return work;
  ranks_->counter().add(&Traffic::sent, bytes_of(tensor));
  work.pending_ = ranks_->start_send(std::move(what), tensor, to);
  return work;
}

Work Group::start_receive(const at::Tensor& tensor, int from) const {
  std::string what = check_message("receive", "from", tensor, from, *this);
  Work work;
  if (tensor.numel() == 0) return work;
  ranks_->counter().add(&Traffic::received, bytes_of(tensor));
  work.pending_ = ranks_->start_receive(std::move(what), tensor, from);
  return work;
}

}  // namespace funicular::comm
