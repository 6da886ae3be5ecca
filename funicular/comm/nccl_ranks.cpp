#include "funicular/comm/nccl_ranks.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/comm/checked_tensors.h"
#include "funicular/comm/collective_sequence.h"
#include "funicular/comm/device_ranks.h"
#include "funicular/comm/nccl_communicator.h"
#include "funicular/comm/nccl_library.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/streams.h"

namespace funicular::comm {

namespace {

using nccl::Communicator;
using nccl::Flight;
using nccl::Library;
using nccl::Result;

nccl::DataType data_type(const at::Tensor& tensor) {
  switch (element_of(tensor)) {
    case Element::float32:
      return nccl::DataType::float32;
    case Element::float64:
      return nccl::DataType::float64;
    case Element::bfloat16:
      return nccl::DataType::bfloat16;
    case Element::float16:
      return nccl::DataType::float16;
    default:
      return nccl::DataType::int64;
  }
}

/// Throws InputError for what NCCL computes otherwise than Group promises.
nccl::Operation operation(const at::Tensor& tensor, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return nccl::Operation::sum;
    case Reduction::average:
      return nccl::Operation::average;
    case Reduction::product:
      return nccl::Operation::product;
    default:
      if (tensor.is_floating_point())
        throw InputError(launch::kRanks,
                         "NCCL's {} of floating-point numbers loses a NaN; copy the tensor to the CPU first",
                         name_of(reduction));
      return reduction == Reduction::minimum ? nccl::Operation::minimum : nccl::Operation::maximum;
  }
}

size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}
std::byte* at_piece(const at::Tensor& tensor, const Shard& piece) {
  return bytes(tensor) + piece.begin * static_cast<int64_t>(tensor.element_size());
}

/// NCCL's own reduce-scatter and all-gather take equal pieces only.
bool are_equal(const std::vector<Shard>& pieces) {
  for (const Shard& piece : pieces)
    if (piece.size != pieces.front().size) return false;
  return true;
}

/// NCCL's operations of all pieces that are not empty, started together: `start` gives one per rank.
template <class Start>
Result grouped(const Library& library, const std::vector<Shard>& pieces, const Start& start) {
  Result result = library.group_start();
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    if (pieces[rank].size == 0) continue;
    const Result one = start(pieces[rank], static_cast<int>(rank));
    if (one != Result::success && one != Result::in_progress) result = one;
  }
  const Result end = library.group_end();
  return result == Result::success ? end : result;
}

/// A call under way: first in the channel's thread, then on its stream.
class DeviceWork final : public Pending {
 public:
  /// `holder` keeps the tensors.
  DeviceWork(std::shared_ptr<nccl::Watchdog> watchdog, const at::Device& device, std::function<void()> holder)
      : watchdog_(std::move(watchdog)),
        device_(device),
        holder_(std::make_shared<std::function<void()>>(std::move(holder))) {}

  void set_queued(std::shared_ptr<Pending> queued) { queued_ = std::move(queued); }
  /// In the channel's thread.
  void set_flight(std::optional<Flight> flight) { flight_ = std::move(flight); }
  const std::shared_ptr<std::function<void()>>& holder() const { return holder_; }

  void wait() override {
    const std::lock_guard lock(mutex_);
    queued_->wait();
    if (flight_) {
      device::current_stream(device_)->wait_for(flight_->done);
      watchdog_->require_sound(flight_->what);
    }
    *holder_ = nullptr;
  }
  bool done() override { return queued_->done() && (!flight_ || flight_->done->done()); }

 private:
  const std::shared_ptr<nccl::Watchdog> watchdog_;
  const at::Device device_;
  const std::shared_ptr<std::function<void()>> holder_;
  std::mutex mutex_;
  std::shared_ptr<Pending> queued_;
  std::optional<Flight> flight_;
};

/// A communicator, and the thread that makes it and hands it operations. start() waits for no other rank. The first
/// operation's wait() lasts until all ranks have come, since the thread makes the communicator then.
class Channel {
 public:
  /// `rank` of `size` is this rank in its group, for messages.
  Channel(nccl::Place place, std::shared_ptr<nccl::Watchdog> watchdog, int rank, int size, bool compare_all)
      : place_(std::move(place)), watchdog_(std::move(watchdog)) {
    sequence_.emplace(place_.meeting.within("calls"), place_.watch, rank, size,
                      CollectiveSequence::Options{place_.timeout, compare_all});
  }
  ~Channel() {
    sequence_.reset();
    if (communicator_) communicator_->settle();
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Queues `action`, which calls launch(). By all ranks of the group, or two alone.
  std::shared_ptr<Pending> start(std::string what, bool by_all, std::function<void()> action) {
    watchdog_->require_sound(what);
    auto work = std::make_shared<DeviceWork>(watchdog_, place_.device, std::move(action));
    auto queued = [this, work, what, ready = device::current_stream(place_.device)->record()] {
      next_ = {what, ready, work->holder()};
      flight_.reset();
      try {
        (*work->holder())();
      } catch (const InputError&) {
        throw;  // on all ranks, before NCCL is called
      } catch (const std::exception& error) {
        watchdog_->fail(error);
        throw;
      }
      work->set_flight(std::move(flight_));
    };
    work->set_queued(by_all ? sequence_->start(std::move(what), std::move(queued))
                            : sequence_->start_between_two(std::move(what), std::move(queued)));
    return work;
  }

  /// In the channel's thread.
  void launch(const Communicator::Call& call) {
    if (!communicator_) {
      communicator_ = std::make_shared<Communicator>(place_);
      watchdog_->add(communicator_);
    }
    flight_ = communicator_->launch(next_, call);
  }

 private:
  const nccl::Place place_;
  const std::shared_ptr<nccl::Watchdog> watchdog_;
  std::shared_ptr<Communicator> communicator_;
  Flight next_;                                 ///< what launch() begins
  std::optional<Flight> flight_;                ///< what it has begun
  std::optional<CollectiveSequence> sequence_;  ///< ends before what its actions use
};

class NcclRanks final : public DeviceRanks {
 public:
  NcclRanks(std::shared_ptr<Transport> host, const GroupOptions& options,
            std::shared_ptr<nccl::Watchdog> watchdog)
      : DeviceRanks(std::move(host), options.device),
        options_(options),
        watchdog_(std::move(watchdog)),
        collectives_(place("collectives", rank(), size()), watchdog_, rank(), size(),
                     options.check_collectives) {}

  std::string name() const override { return "NCCL"; }
  /// Throws RunError after a fault, whatever the device. A wait() before the fault did not throw, and tensors of the
  /// host may depend on its result.
  Transport* carrier(const at::Device& device) override {
    watchdog_->require_sound("an exchange of tensors on " + device.str());
    return DeviceRanks::carrier(device);
  }
  std::shared_ptr<Transport> subgroup(const std::vector<int>& ranks, int rank) override {
    return std::make_shared<NcclRanks>(host().subgroup(ranks, rank), options_, watchdog_);
  }

  std::shared_ptr<Pending> start_send(std::string what, const at::Tensor& tensor, int to) override {
    Channel& way = messages(rank(), to);
    return way.start(std::move(what), false, [&way, tensor] {
      way.launch([&](const Library& library, nccl::Comm communicator, nccl::StreamHandle stream) {
        return library.send(bytes(tensor), count_of(tensor), data_type(tensor), kReceiver, communicator,
                            stream);
      });
    });
  }
  std::shared_ptr<Pending> start_receive(std::string what, const at::Tensor& tensor, int from) override {
    Channel& way = messages(from, rank());
    return way.start(std::move(what), false, [&way, tensor] {
      way.launch([&](const Library& library, nccl::Comm communicator, nccl::StreamHandle stream) {
        return library.receive(bytes(tensor), count_of(tensor), data_type(tensor), kSender, communicator,
                               stream);
      });
    });
  }

  void all_reduce(const at::Tensor& tensor, Reduction reduction) override {
    const nccl::Operation how = operation(tensor, reduction);
    if (tensor.numel() == 0) return;
    launch([&](const Library& library, nccl::Comm communicator, nccl::StreamHandle stream) {
      return library.all_reduce(bytes(tensor), bytes(tensor), count_of(tensor), data_type(tensor), how,
                                communicator, stream);
    });
  }
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) override {
    reduce_pieces(input, shards_of(input.numel(), size()), bytes(output), reduction);
  }
  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                      Reduction reduction) override {
    reduce_pieces(tensor, pieces, at_piece(tensor, pieces[size_t(rank())]), reduction);
  }
  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) override {
    if (tensor.numel() == 0) return;
    launch([&](const Library& library, nccl::Comm communicator, nccl::StreamHandle stream) {
      const nccl::DataType type = data_type(tensor);
      if (are_equal(pieces))
        return library.all_gather(at_piece(tensor, pieces[size_t(rank())]), bytes(tensor),
                                  size_t(pieces.front().size), type, communicator, stream);
      return grouped(library, pieces, [&](const Shard& piece, int root) {
        return library.broadcast(at_piece(tensor, piece), at_piece(tensor, piece), size_t(piece.size), type,
                                 root, communicator, stream);
      });
    });
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    if (tensor.numel() == 0) return;
    launch([&](const Library& library, nccl::Comm communicator, nccl::StreamHandle stream) {
      return library.broadcast(bytes(tensor), bytes(tensor), count_of(tensor), data_type(tensor), root,
                               communicator, stream);
    });
  }

 protected:
  std::shared_ptr<Pending> start_collective(std::string what, std::function<void()> action) override {
    return collectives_.start(std::move(what), true, std::move(action));
  }

 private:
  /// The two ranks of a communicator for messages.
  static constexpr int kSender = 0, kReceiver = 1;

  nccl::Place place(const std::string& key, int rank, int size) const {
    return {nccl::library(), meeting()->within("nccl/" + key), watch(), rank, size, device(),
            options_.timeout};
  }

  void launch(const Communicator::Call& call) { collectives_.launch(call); }

  /// The messages from one rank to another.
  Channel& messages(int from, int to) {
    std::unique_ptr<Channel>& way = messages_[{from, to}];
    if (!way)
      way = std::make_unique<Channel>(
          place(fmt::format("{}-{}", from, to), rank() == from ? kSender : kReceiver, 2), watchdog_, rank(),
          size(), false);
    return *way;
  }

  /// Own pieces of the reduction go to `own`, which may be this rank's piece of the tensor.
  void reduce_pieces(const at::Tensor& tensor, const std::vector<Shard>& pieces, std::byte* own,
                     Reduction reduction) {
    const nccl::Operation how = operation(tensor, reduction);
    if (tensor.numel() == 0) return;
    launch([&](const Library& library, nccl::Comm communicator, nccl::StreamHandle stream) {
      const nccl::DataType type = data_type(tensor);
      if (are_equal(pieces))
        return library.reduce_scatter(bytes(tensor), own, size_t(pieces.front().size), type, how,
                                      communicator, stream);
      return grouped(library, pieces, [&](const Shard& piece, int root) {
        std::byte* const from = at_piece(tensor, piece);
        return library.reduce(from, root == rank() ? own : from, size_t(piece.size), type, how, root,
                              communicator, stream);
      });
    });
  }

  const GroupOptions options_;
  const std::shared_ptr<nccl::Watchdog> watchdog_;
  Channel collectives_;
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> messages_;  ///< by {from, to}
};

}  // namespace

std::shared_ptr<Transport> make_nccl_ranks(std::shared_ptr<Transport> host, const GroupOptions& options) {
  const Library& library = nccl::library();
  if (library.on_host != device::runs_on_host(options.device))
    throw InputError(launch::kRanks, "the transport nccl cannot carry tensors on {} by {}; expected a GPU{}",
                     options.device.str(), library.path, library.on_host ? ", and FUNICULAR_NCCL unset" : "");
  if (options.fixed_order)
    throw InputError(launch::kRanks,
                     "the transport nccl adds in an order of NCCL's own; expected the transport staged for "
                     "--deterministic");
  if (!host->meeting())
    throw InputError(launch::kRanks, "the transport nccl needs ranks that are processes, found {}",
                     host->name());
  if (!options.interface.empty()) nccl::use_interface(options.interface);
  auto watchdog = std::make_shared<nccl::Watchdog>(host->watch());
  return std::make_shared<NcclRanks>(std::move(host), options, std::move(watchdog));
}

}  // namespace funicular::comm
