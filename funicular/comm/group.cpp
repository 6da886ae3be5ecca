#include "funicular/comm/group.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/collective_sequence.h"
#include "funicular/comm/gloo_link.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/ring.h"
#include "funicular/comm/shared_memory.h"
#include "funicular/comm/watch.h"

namespace funicular::comm {

namespace {

/// Up to here Gloo's all-reduce takes fewer messages than a ring; more bytes go around the ring faster.
constexpr int64_t kGlooBytes = 8 << 20;

std::optional<Element> element_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::float32;
    case at::kDouble:
      return Element::float64;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kHalf:
      return Element::float16;
    case at::kLong:
      return Element::int64;
    default:
      return std::nullopt;
  }
}

const char* name_of(Element element) {
  static constexpr const char* kNames[] = {"float", "double", "bfloat16", "half", "int64"};
  return kNames[static_cast<int>(element)];
}

const char* name_of(Reduction reduction) {
  static constexpr const char* kNames[] = {"sum", "average", "minimum", "maximum"};
  return kNames[static_cast<int>(reduction)];
}

std::byte* bytes(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

Element check_tensor(const char* operation, const at::Tensor& tensor) {
  if (!tensor.defined()) throw InputError(launch::kRanks, "{}: the tensor is undefined", operation);
  const std::optional<Element> element = element_of(tensor);
  if (!element || !tensor.device().is_cpu() || !tensor.is_contiguous())
    throw InputError(launch::kRanks,
                     "{}: expected a contiguous tensor on the CPU of float, double, bfloat16, half or int64; "
                     "found {} on {}{}",
                     operation, tensor.dtype().name(), tensor.device().str(),
                     tensor.is_contiguous() ? "" : ", not contiguous (call contiguous() first)");
  return *element;
}

void check_reduction(const char* operation, Element element, Reduction reduction) {
  if (reduction == Reduction::average && element == Element::int64)
    throw InputError(launch::kRanks, "{}: there is no average of whole numbers; take the sum and divide",
                     operation);
}

/// A message between two ranks that is under way.
class PendingTransfer final : public Pending {
 public:
  PendingTransfer(std::string what, at::Tensor tensor, CollectiveSequence& sequence)
      : what_(std::move(what)), tensor_(std::move(tensor)), sequence_(sequence) {}

  const std::string& what() const { return what_; }
  void begin(Link::Transfer transfer) { transfer_ = std::move(transfer); }
  void wait() override {
    if (done_) return;
    done_ = true;  // also where it throws: there is nothing more to wait for
    sequence_.run_aside(what_, [this] { transfer_.wait(); });
    tensor_.reset();
  }
  bool done() override { return done_; }

 private:
  const std::string what_;
  at::Tensor tensor_;  ///< before the transfer, which goes first
  Link::Transfer transfer_;
  CollectiveSequence& sequence_;
  bool done_ = false;
};

}  // namespace

void Work::wait() const {
  if (pending_) pending_->wait();
}

bool Work::done() const {
  return !pending_ || pending_->done();
}

/// A group of several ranks.
class Group::Impl {
 public:
  /// `members` are the ranks of the world that belong to it, `rank` this one's place among them.
  Impl(const Meeting& meeting, std::shared_ptr<Watch> watch, std::vector<int> members, int rank,
       const GroupOptions& options)
      : meeting_(meeting),
        watch_(std::move(watch)),
        members_(std::move(members)),
        rank_(rank),
        options_(options),
        link_(meeting_, rank, size(), options.timeout, watch_),
        sequence_(meeting_, watch_, rank, size(), {options.timeout, options.check_collectives}) {
    if (options.shared_memory)
      memory_ = SharedMemory::open(meeting_, members_, rank, options.timeout, watch_);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  bool shares_memory() const { return memory_ != nullptr; }

  CollectiveSequence& sequence() { return sequence_; }

  void all_reduce(const at::Tensor& tensor, Element element, Reduction reduction) {
    const double divisor = reduction == Reduction::average ? size() : 1;
    const int64_t count = tensor.numel();
    if (count == 0) return;
    if (memory_) return memory_->all_reduce(bytes(tensor), count, element, reduction, divisor);
    if (count * bytes_of(element) <= kGlooBytes && !options_.fixed_order) {
      link_.all_reduce(bytes(tensor), count, element, reduction);
      return divide(tensor, {0, count}, divisor);
    }
    const std::vector<Shard> shards = shards_of(count, size());
    reduce_pieces(bytes(tensor), shards, element, reduction);
    divide(tensor, shards[size_t(rank_)], divisor);
    ring_all_gather(link_, bytes(tensor), shards, bytes_of(element));
  }

  void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Element element,
                      Reduction reduction) {
    const double divisor = reduction == Reduction::average ? size() : 1;
    const std::vector<Shard> shards = shards_of(input.numel(), size());
    if (input.numel() == 0) return;
    if (memory_)
      return memory_->reduce_scatter(bytes(input), bytes(output), shards, element, reduction, divisor);
    const at::Tensor spoilt = input.reshape({-1}).clone();
    reduce_scatter(spoilt, shards, element, reduction);
    const Shard own = shards[size_t(rank_)];
    output.reshape({-1}).copy_(spoilt.narrow(0, own.begin, own.size));
  }

  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces, Element element,
                      Reduction reduction) {
    const double divisor = reduction == Reduction::average ? size() : 1;
    const Shard own = pieces[size_t(rank_)];
    if (tensor.numel() == 0) return;
    if (memory_)
      return memory_->reduce_scatter(bytes(tensor), bytes(tensor) + own.begin * bytes_of(element), pieces,
                                     element, reduction, divisor);
    reduce_pieces(bytes(tensor), pieces, element, reduction);
    divide(tensor, own, divisor);
  }

  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces, int64_t element_bytes) {
    if (tensor.numel() == 0) return;
    if (memory_) return memory_->all_gather(bytes(tensor), pieces, element_bytes);
    ring_all_gather(link_, bytes(tensor), pieces, element_bytes);
  }

  void broadcast(const at::Tensor& tensor, int64_t element_bytes, int root) {
    const int64_t count = tensor.numel();
    if (count == 0) return;
    if (!memory_) return link_.broadcast(bytes(tensor), count * element_bytes, root);
    std::vector<Shard> shards(members_.size());  // the root has all of it
    shards[size_t(root)] = {0, count};
    memory_->all_gather(bytes(tensor), shards, element_bytes);
  }

  void barrier() {
    int64_t nothing = 0;
    auto* data = reinterpret_cast<std::byte*>(&nothing);
    if (memory_) return memory_->all_reduce(data, 1, Element::int64, Reduction::sum, 1);
    link_.all_reduce(data, 1, Element::int64, Reduction::sum);
  }

  void send(const at::Tensor& tensor, int64_t element_bytes, int to) {
    if (tensor.numel() > 0) link_.send(bytes(tensor), tensor.numel() * element_bytes, to).wait();
  }
  void receive(const at::Tensor& tensor, int64_t element_bytes, int from) {
    if (tensor.numel() > 0) link_.receive(bytes(tensor), tensor.numel() * element_bytes, from).wait();
  }

  /// `what` is for messages; `post` starts it.
  template <class Post>
  std::shared_ptr<Pending> start_transfer(std::string what, const at::Tensor& tensor, const Post& post) {
    auto transfer = std::make_shared<PendingTransfer>(std::move(what), tensor, sequence_);
    sequence_.run_aside(transfer->what(), [&] { transfer->begin(post(link_)); });
    return transfer;
  }

  std::shared_ptr<Impl> subgroup(const std::vector<int>& ranks, int rank) {
    std::vector<int> members;
    for (int one : ranks) members.push_back(members_[size_t(one)]);
    const std::string name = fmt::format("{}", fmt::join(members, ","));
    const int number = subgroups_[name]++;
    return std::make_shared<Impl>(meeting_.within(fmt::format("group/{}/{}", name, number)), watch_, members,
                                  rank, options_);
  }

 private:
  void reduce_pieces(std::byte* data, const std::vector<Shard>& pieces, Element element,
                     Reduction reduction) {
    if (options_.fixed_order)
      exchange_reduce_scatter(link_, data, pieces, element, reduction);
    else
      ring_reduce_scatter(link_, data, pieces, element, reduction);
  }

  static void divide(const at::Tensor& tensor, const Shard& shard, double divisor) {
    if (divisor != 1 && shard.size > 0) tensor.view({-1}).narrow(0, shard.begin, shard.size).div_(divisor);
  }

  const Meeting meeting_;
  const std::shared_ptr<Watch> watch_;
  const std::vector<int> members_;
  const int rank_;
  const GroupOptions options_;
  Link link_;
  std::unique_ptr<SharedMemory> memory_;
  std::map<std::string, int> subgroups_;
  CollectiveSequence sequence_;  ///< last: what it still carries out needs the others
};

Group::Group() = default;
Group::Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

/// Gloo writes to connections without MSG_NOSIGNAL: a peer that has died would end this process by SIGPIPE, and nobody
/// would hear why. Whoever handles the signal already keeps its handler.
static void ignore_broken_pipes() {
  struct sigaction now = {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

Group Group::join(const launch::Environment& place, const GroupOptions& options) {
  if (place.size == 1) return {};
  ignore_broken_pipes();
  const Meeting meeting(place, {.interface = options.interface, .patience = options.patience});
  auto watch = Watch::start(meeting.within("watch"), place.rank, place.size, options.silence);
  std::vector<int> members;
  for (int rank = 0; rank < place.size; ++rank) members.push_back(rank);
  return Group(std::make_shared<Impl>(meeting, watch, members, place.rank, options));
}

Group Group::from_environment(const GroupOptions& options) {
  const launch::Environment place = launch::read_environment();
  if (place.size == 1) {
    log::debug("[ranks] one process; the ranks were named by {}", place.source);
    return {};
  }
  Group group = join(place, options);
  const std::string text =
      fmt::format("[ranks] rank {} of {} by {}, met at {}, port {}; {}", place.rank, place.size, place.source,
                  place.address, place.port, group.shares_memory() ? "shared memory" : "connections only");
  if (place.rank == 0) {
    log::info("{}", text);
  } else {
    log::debug("{}", text);
  }
  return group;
}

int Group::rank() const {
  return impl_ ? impl_->rank() : 0;
}
int Group::size() const {
  return impl_ ? impl_->size() : 1;
}
bool Group::shares_memory() const {
  return impl_ && impl_->shares_memory();
}

Group Group::subgroup(const std::vector<int>& ranks) const {
  const std::set<int> different(ranks.begin(), ranks.end());
  if (ranks.empty() || different.size() != ranks.size() || *different.begin() < 0 ||
      *different.rbegin() >= size())
    throw InputError(launch::kRanks, "a subgroup needs different ranks from 0 to {}, found {}", size() - 1,
                     fmt::join(ranks, ", "));
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end())
    throw InputError(launch::kRanks, "rank {} asks for a subgroup of {} to which it does not belong", rank(),
                     fmt::join(ranks, ", "));
  if (ranks.size() == 1) return {};
  return Group(impl_->subgroup(ranks, static_cast<int>(own - ranks.begin())));
}

namespace {

/// A collective that was checked: its description, and what it does to a group.
template <class Impl>
struct Call {
  std::string what;
  std::function<void(Impl&)> action;
};

std::string describe(const char* operation, const at::Tensor& tensor, Element element,
                     const std::string& more) {
  return fmt::format("{} of {} {}{}", operation, tensor.numel(), name_of(element), more);
}

void check_rank(const char* operation, int rank, int size) {
  if (rank < 0 || rank >= size)
    throw InputError(launch::kRanks, "{}: expected a rank from 0 to {}, found {}", operation, size - 1, rank);
}

template <class Impl>
Call<Impl> all_reduce_call(const at::Tensor& tensor, Reduction reduction) {
  const Element element = check_tensor("all_reduce", tensor);
  check_reduction("all_reduce", element, reduction);
  return {describe("all_reduce", tensor, element, fmt::format(", {}", name_of(reduction))),
          [=](Impl& impl) { impl.all_reduce(tensor, element, reduction); }};
}

template <class Impl>
Call<Impl> reduce_scatter_call(const at::Tensor& input, const at::Tensor& output, Reduction reduction,
                               int64_t shard) {
  const Element element = check_tensor("reduce_scatter", input);
  check_tensor("reduce_scatter", output);
  check_reduction("reduce_scatter", element, reduction);
  if (output.scalar_type() != input.scalar_type() || output.numel() != shard)
    throw InputError(launch::kRanks, "reduce_scatter: of {} {} this rank gets {}, found an output of {} {}",
                     input.numel(), name_of(element), shard, output.numel(), output.dtype().name());
  return {describe("reduce_scatter", input, element, fmt::format(", {}", name_of(reduction))),
          [=](Impl& impl) { impl.reduce_scatter(input, output, element, reduction); }};
}

void check_pieces(const char* operation, const at::Tensor& tensor, const std::vector<Shard>& pieces,
                  int size) {
  int64_t covered = 0;
  bool whole = pieces.size() == static_cast<size_t>(size);
  for (const Shard& piece : pieces) {
    whole = whole && piece.begin == covered && piece.size >= 0;
    covered += piece.size;
  }
  if (!whole || covered != tensor.numel())
    throw InputError(launch::kRanks,
                     "{}: expected {} pieces that cover {} elements in order; found {} with {}", operation,
                     size, tensor.numel(), pieces.size(), covered);
}

/// The pieces may differ between ranks no more than the size may.
std::string describe_pieces(const std::vector<Shard>& pieces) {
  std::vector<int64_t> sizes;
  for (const Shard& piece : pieces) sizes.push_back(piece.size);
  return fmt::format(" in pieces of {}", fmt::join(sizes, ", "));
}

template <class Impl>
Call<Impl> reduce_scatter_call(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                               Reduction reduction, int size) {
  const Element element = check_tensor("reduce_scatter", tensor);
  check_reduction("reduce_scatter", element, reduction);
  check_pieces("reduce_scatter", tensor, pieces, size);
  return {describe("reduce_scatter", tensor, element,
                   fmt::format("{}, {}", describe_pieces(pieces), name_of(reduction))),
          [=](Impl& impl) { impl.reduce_scatter(tensor, pieces, element, reduction); }};
}

template <class Impl>
Call<Impl> all_gather_call(const at::Tensor& tensor, const std::vector<Shard>& pieces, int size) {
  const Element element = check_tensor("all_gather", tensor);
  check_pieces("all_gather", tensor, pieces, size);
  return {describe("all_gather", tensor, element, describe_pieces(pieces)),
          [=](Impl& impl) { impl.all_gather(tensor, pieces, bytes_of(element)); }};
}

template <class Impl>
Call<Impl> broadcast_call(const at::Tensor& tensor, int root, int size) {
  const Element element = check_tensor("broadcast", tensor);
  check_rank("broadcast", root, size);
  return {describe("broadcast", tensor, element, fmt::format(" from rank {}", root)),
          [=](Impl& impl) { impl.broadcast(tensor, bytes_of(element), root); }};
}

}  // namespace

template <class Call>
void Group::run(const Call& call) const {
  if (impl_) impl_->sequence().run(call.what, [&] { call.action(*impl_); });
}

template <class Call>
Work Group::start(const Call& call) const {
  Work work;
  if (impl_)
    work.pending_ =
        impl_->sequence().start(call.what, [action = call.action, impl = impl_.get()] { action(*impl); });
  return work;
}

void Group::all_reduce(const at::Tensor& tensor, Reduction reduction) const {
  run(all_reduce_call<Impl>(tensor, reduction));
}

void Group::reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) const {
  run(reduce_scatter_call<Impl>(input, output, reduction, shard(input.numel()).size));
  if (!impl_) output.copy_(input.view(output.sizes()));
}

void Group::reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                           Reduction reduction) const {
  run(reduce_scatter_call<Impl>(tensor, pieces, reduction, size()));
}

void Group::all_gather(const at::Tensor& tensor) const {
  all_gather(tensor, shards_of(tensor.defined() ? tensor.numel() : 0, size()));
}

void Group::all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) const {
  run(all_gather_call<Impl>(tensor, pieces, size()));
}

void Group::broadcast(const at::Tensor& tensor, int root) const {
  run(broadcast_call<Impl>(tensor, root, size()));
}

void Group::barrier() const {
  if (impl_) impl_->sequence().run("barrier", [&] { impl_->barrier(); });
}

Work Group::start_all_reduce(const at::Tensor& tensor, Reduction reduction) const {
  return start(all_reduce_call<Impl>(tensor, reduction));
}

Work Group::start_reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                                 Reduction reduction) const {
  return start(reduce_scatter_call<Impl>(tensor, pieces, reduction, size()));
}

Work Group::start_all_gather(const at::Tensor& tensor) const {
  return start_all_gather(tensor, shards_of(tensor.defined() ? tensor.numel() : 0, size()));
}

Work Group::start_all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) const {
  return start(all_gather_call<Impl>(tensor, pieces, size()));
}

Work Group::start_broadcast(const at::Tensor& tensor, int root) const {
  return start(broadcast_call<Impl>(tensor, root, size()));
}

// Short texts, which are almost all there are, travel in one exchange: their lengths and their first bytes.
std::vector<std::string> Group::gather_texts(const std::string& text) const {
  if (!impl_) return {text};
  constexpr int64_t kWord = 8, kFirst = 31;  // the first bytes, in words, behind the length
  const at::Tensor heads = at::zeros({size(), 1 + kFirst}, at::kLong);
  const auto head_of = [&](int rank) { return heads.data_ptr<int64_t>() + rank * (1 + kFirst); };
  *head_of(rank()) = static_cast<int64_t>(text.size());
  text.copy(reinterpret_cast<char*>(head_of(rank()) + 1), kFirst * kWord);
  all_gather(heads.view({-1}));
  std::vector<Shard> pieces;  // what is left, in words
  int64_t words = 0;
  for (int r = 0; r < size(); ++r) {
    pieces.push_back({words, std::max<int64_t>(0, (*head_of(r) + kWord - 1) / kWord - kFirst)});
    words += pieces.back().size;
  }
  const at::Tensor tails = at::zeros({words}, at::kLong);
  const auto tail_of = [&](int rank) {
    return reinterpret_cast<char*>(tails.data_ptr<int64_t>() + pieces[size_t(rank)].begin);
  };
  if (text.size() > kFirst * kWord) text.copy(tail_of(rank()), text.size(), kFirst * kWord);
  if (words > 0) all_gather(tails, pieces);
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r) {
    const auto length = static_cast<size_t>(*head_of(r)), first = std::min<size_t>(length, kFirst * kWord);
    texts.emplace_back(reinterpret_cast<const char*>(head_of(r) + 1), first);
    texts.back().append(tail_of(r), length - first);
  }
  return texts;
}

void Group::send(const at::Tensor& tensor, int to) const {
  const Element element = check_tensor("send", tensor);
  check_rank("send", to, size());
  if (to == rank()) throw InputError(launch::kRanks, "send: rank {} cannot send to itself", to);
  impl_->sequence().run_between_two(describe("send", tensor, element, fmt::format(" to rank {}", to)),
                                    [&] { impl_->send(tensor, bytes_of(element), to); });
}

void Group::receive(const at::Tensor& tensor, int from) const {
  const Element element = check_tensor("receive", tensor);
  check_rank("receive", from, size());
  if (from == rank()) throw InputError(launch::kRanks, "receive: rank {} cannot receive from itself", from);
  impl_->sequence().run_between_two(describe("receive", tensor, element, fmt::format(" from rank {}", from)),
                                    [&] { impl_->receive(tensor, bytes_of(element), from); });
}

Work Group::start_send(const at::Tensor& tensor, int to) const {
  const Element element = check_tensor("send", tensor);
  check_rank("send", to, size());
  if (to == rank()) throw InputError(launch::kRanks, "send: rank {} cannot send to itself", to);
  Work work;
  if (tensor.numel() == 0) return work;
  work.pending_ = impl_->start_transfer(
      describe("send", tensor, element, fmt::format(" to rank {}", to)), tensor,
      [&](Link& link) { return link.send(bytes(tensor), tensor.numel() * bytes_of(element), to); });
  return work;
}

Work Group::start_receive(const at::Tensor& tensor, int from) const {
  const Element element = check_tensor("receive", tensor);
  check_rank("receive", from, size());
  if (from == rank()) throw InputError(launch::kRanks, "receive: rank {} cannot receive from itself", from);
  Work work;
  if (tensor.numel() == 0) return work;
  work.pending_ = impl_->start_transfer(
      describe("receive", tensor, element, fmt::format(" from rank {}", from)), tensor,
      [&](Link& link) { return link.receive(bytes(tensor), tensor.numel() * bytes_of(element), from); });
  return work;
}

}  // namespace funicular::comm
