#include "funicular/parallel/async_parameter_server.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/clipping.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/interleaving.h"
#include "funicular/parallel/served_model.h"

namespace funicular::parallel {

namespace {

constexpr const char* kName = "ps-async";

/// The scalars that a worker sends ahead of its gradients.
struct PushHeader {
  double learning_rate = 0, gradient_scale = 1;
  bool has_gradient = false;  ///< false: the worker had no data in this step

  at::Tensor encode() const {
    return at::tensor({learning_rate, gradient_scale, double(has_gradient)}, at::kDouble);
  }
  static PushHeader decode(const at::Tensor& tensor) {
    const double* values = tensor.const_data_ptr<double>();
    return {values[0], values[1], values[2] != 0};
  }
};

/// Throws InputError for options about the order of pushes that contradict each other.
void check_order(const StrategyOptions& options) {
  if (options.deterministic)
    throw InputError("strategy",
                     "ps-async takes gradients in the order in which they arrive; --deterministic needs "
                     "another strategy, or a recording: --replay-interleaving DIR");
  if (!options.servers.record.empty() && !options.servers.replay.empty())
    throw InputError("strategy",
                     "--record-interleaving and --replay-interleaving are both given; give one of them");
  if (options.servers.staleness < 0)
    throw InputError("strategy", "expected a staleness of at least 0 steps, found {}",
                     options.servers.staleness);
}

/// Throws InputError for fp16, and for an optimiser that needs the norms of whole layers with several servers.
void check_training(const MatrixTypes& types, const optim::Optimizer& optimizer, int servers) {
  if (types.compute == at::kHalf)
    throw InputError(
        "strategy",
        "ps-async has no loss scale that all workers share, which fp16 needs; expected --precision "
        "bf16 or fp32");
  if (optimizer.needs_layer_norms() && servers > 1)
    throw InputError("strategy",
                     "LAMB, LARS and StableAdamW need the norms of whole layers, and each asynchronous "
                     "server holds a part of "
                     "them; expected another optimiser, or --servers 1");
}

/// The first parameter whose gradient is not finite; "" if there is none.
std::string first_non_finite_of(const Model& model) {
  for (const auto& parameter : model.parameters)
    if (parameter->trainable && !std::isfinite(optim::global_norm(parameter->gradient.reshape({-1}))))
      return parameter->name;
  return "";
}

class AsyncParameterServer final : public ServedModel, public Asynchronous {
 public:
  AsyncParameterServer(comm::Group group, const StrategyOptions& options)
      : ServedModel(std::move(group), options, kName) {
    check_order(options);
  }
  ~AsyncParameterServer() override { end_lanes(); }

  std::string name() const override { return kName; }
  Counts global_counts(const Counts& own) const override { return own; }
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& counts,
                  const StepSettings& settings) override {
    return serves() ? serve(settings) : work(micro_batches, counts, settings);
  }
  Asynchronous* asynchronous() override { return this; }
  void meet() override;
  void detach() override;
  std::vector<int64_t> staleness() const override { return histogram_; }

 private:
  /// The connection of one worker and one server, with the server's record of that worker.
  struct Lane {
    int worker = 0, server = 0;
    comm::Group pair;          ///< rank 0 is the worker
    int64_t clock = 0;         ///< the worker's last step whose gradient was applied
    int64_t read_version = 0;  ///< the version of the weights that the worker computes with
    std::thread thread;        ///< only on the server
  };
  static constexpr int kWorker = 0, kServer = 1;

  void allocate(Model& model, const MatrixTypes& types) override;
  void open_lanes();

  StepResult work(std::span<const MicroBatch> micro_batches, const Counts& counts,
                  const StepSettings& settings);
  void exchange(const PushHeader& header);

  StepResult serve(const StepSettings& settings);
  void start_lanes(int64_t done);
  void end_lanes();
  void run_lane(Lane& lane);
  void serve_once(Lane& lane);
  void apply(Lane& lane, const PushHeader& header, const at::Tensor& matrices, const at::Tensor& vectors);
  bool may_read(const Lane& lane) const;
  struct Ended {};
  /// Waits until `condition` holds. Rethrows the error of another lane; throws Ended when all lanes are to end.
  template <class Condition>
  void wait_until(std::unique_lock<std::mutex>& lock, const Condition& condition);

  std::vector<Lane> lanes_;  ///< this rank's
  std::vector<int64_t> histogram_;

  at::TensorOptions matrix_gradient_, vector_gradient_;  ///< type and device of pushed gradients

  // Only for servers. The mutex also guards the masters, the optimiser state and the target's gradients.
  std::mutex mutex_;
  std::condition_variable changed_;
  Interleaving interleaving_;
  int64_t version_ = 0;     ///< number of pushes applied so far
  int64_t open_until_ = 0;  ///< the last step whose pushes the lanes may wait for now
  int64_t meeting_ = 0;     ///< the step after which all ranks meet next
  bool ending_ = false;
  std::exception_ptr error_;
};

void AsyncParameterServer::allocate(Model& model, const MatrixTypes& types) {
  check_training(types, optimizer(), options().servers.count);
  ServedModel::allocate(model, types);
  target().add_over_ranks = {};  // servers update independently of each other
  matrix_gradient_ = target().matrix_gradient.options();
  vector_gradient_ = target().vector_gradient.options();
  if (serves()) holding().gradients().let_go();  // each push brings its own buffers
  open_lanes();
}

/// All ranks make their groups in the same order, because both members of a pair must call subgroup().
void AsyncParameterServer::open_lanes() {
  for (int worker = 0; worker < workers(); ++worker)
    for (int server = workers(); server < group().size(); ++server) {
      if (group().rank() != worker && group().rank() != server) continue;
      Lane lane;
      lane.worker = worker;
      lane.server = server;
      lane.pair = group().subgroup({worker, server});
      lanes_.push_back(std::move(lane));
    }
}

// ---- workers

StepResult AsyncParameterServer::work(std::span<const MicroBatch> micro_batches, const Counts& counts,
                                      const StepSettings& settings) {
  holding().gradients().start();
  TermSums sums;
  for (const MicroBatch& batch : micro_batches) run(model(), batch, counts, settings, sums);
  StepResult result;
  add_losses(result, sums.totals(), counts);
  result.gradient_norm = std::hypot(optim::global_norm(gradients()[0]), optim::global_norm(gradients()[1]));
  result.finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  if (!result.finite) {
    result.non_finite_gradient = first_non_finite_of(model());
    return result;
  }
  count_wait([&] {
    exchange({settings.learning_rate, optim::clip_factor(result.gradient_norm, settings.max_gradient_norm),
              !micro_batches.empty()});
  });
  return result;
}

void AsyncParameterServer::exchange(const PushHeader& header) {
  constexpr ParameterKind kKinds[] = {ParameterKind::matrix, ParameterKind::vector};
  const auto served = [&](const Lane& lane, ParameterKind kind, const at::Tensor& flat) {
    const comm::Shard piece = slice(kind, lane.server);
    return flat.narrow(0, piece.begin, piece.size);
  };
  for (const Lane& lane : lanes_) {
    lane.pair.broadcast(header.encode(), kWorker);
    if (!header.has_gradient) continue;
    for (const ParameterKind kind : kKinds)
      lane.pair.broadcast(served(lane, kind, holding().gradients(kind)), kWorker);
  }
  for (const Lane& lane : lanes_)
    for (const ParameterKind kind : kKinds) lane.pair.broadcast(served(lane, kind, weights(kind)), kServer);
}

// ---- servers

/// Returns once all workers have pushed this step. Workers that are ahead are served too, up to the next meeting. No
/// lane may wait for a push while the ranks meet.
StepResult AsyncParameterServer::serve(const StepSettings& settings) {
  if (!lanes_.front().thread.joinable()) start_lanes(settings.update - 1);
  std::unique_lock lock(mutex_);
  meeting_ = std::max(settings.meeting, settings.update);
  open_until_ = std::min(settings.update + options().servers.staleness, meeting_);
  changed_.notify_all();
  wait_until(lock, [&] {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [&](const Lane& lane) { return lane.clock >= settings.update; });
  });
  return {};
}

void AsyncParameterServer::start_lanes(int64_t done) {
  const int server = group().rank() - workers();
  const std::string file = fmt::format("server-{}.txt", server);
  if (!options().servers.replay.empty())
    interleaving_ = Interleaving::replay(options().servers.replay / file, server, workers(),
                                         options().servers.staleness, done);
  else if (!options().servers.record.empty())
    interleaving_ = Interleaving::record(options().servers.record / file, server, workers(),
                                         options().servers.staleness, done);
  version_ = done * workers();
  for (Lane& lane : lanes_) {
    lane.clock = done;
    lane.read_version = version_;
  }
  for (Lane& lane : lanes_)
    lane.thread = std::thread([this, &lane, threads = at::get_num_threads()] {
      at::set_num_threads(threads);
      run_lane(lane);
    });
}

void AsyncParameterServer::end_lanes() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (Lane& lane : lanes_)
    if (lane.thread.joinable()) lane.thread.join();
}

void AsyncParameterServer::run_lane(Lane& lane) {
  try {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wait_until(lock, [&] { return lane.clock < open_until_; });
      }
      serve_once(lane);
    }
  } catch (const Ended&) {
    return;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  changed_.notify_all();
}

/// Receives and applies one push, then sends the weights for the worker's next step.
void AsyncParameterServer::serve_once(Lane& lane) {
  const at::Tensor head = at::empty({3}, at::kDouble);
  lane.pair.broadcast(head, kWorker);
  const PushHeader header = PushHeader::decode(head);
  at::Tensor matrices, vectors;
  if (header.has_gradient) {
    // New buffers, because another lane may be using the target's.
    matrices = at::empty({target().matrix_master.numel()}, matrix_gradient_);
    vectors = at::empty({target().vector_master.numel()}, vector_gradient_);
    lane.pair.broadcast(matrices, kWorker);
    lane.pair.broadcast(vectors, kWorker);
  }
  at::Tensor read_matrices, read_vectors;
  {
    std::unique_lock lock(mutex_);
    const ServerEvent push{ServerEvent::Kind::push, lane.worker, lane.clock + 1};
    wait_until(lock, [&] { return interleaving_.allows(push, meeting_); });
    apply(lane, header, matrices, vectors);
    interleaving_.take(push);
    changed_.notify_all();
    wait_until(lock, [&] { return may_read(lane); });
    read_matrices = weights(ParameterKind::matrix).clone();
    read_vectors = weights(ParameterKind::vector).clone();
    lane.read_version = version_;
    interleaving_.take({ServerEvent::Kind::read, lane.worker, lane.clock});
  }
  changed_.notify_all();
  lane.pair.broadcast(read_matrices, kServer);
  lane.pair.broadcast(read_vectors, kServer);
}

void AsyncParameterServer::apply(Lane& lane, const PushHeader& header, const at::Tensor& matrices,
                                 const at::Tensor& vectors) {
  if (header.has_gradient) {
    target().matrix_gradient = matrices;
    target().vector_gradient = vectors;
    optimizer().step({.learning_rate = header.learning_rate,
                      .gradient_scale = header.gradient_scale,
                      .step = version_ + 1});
    const auto age = static_cast<size_t>(version_ - lane.read_version);
    if (histogram_.size() <= age) histogram_.resize(age + 1);
    ++histogram_[age];
  }
  ++version_;
  ++lane.clock;
}

bool AsyncParameterServer::may_read(const Lane& lane) const {
  const auto in_bound = [&](const Lane& other) {
    return other.clock >= lane.clock - options().servers.staleness;
  };
  return std::all_of(lanes_.begin(), lanes_.end(), in_bound) &&
         interleaving_.allows({ServerEvent::Kind::read, lane.worker, lane.clock}, meeting_);
}

template <class Condition>
void AsyncParameterServer::wait_until(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  bool holds = false;
  changed_.wait(lock, [&] { return (holds = !error_ && condition()) || error_ || ending_; });
  if (error_) std::rethrow_exception(error_);
  if (!holds) throw Ended{};
}

void AsyncParameterServer::meet() {
  spread_weights();
  if (!serves()) return;
  const std::lock_guard lock(mutex_);
  for (Lane& lane : lanes_) lane.read_version = version_;
  const ServerEvent meeting{ServerEvent::Kind::meet, 0, lanes_.front().clock};
  if (interleaving_.allows(meeting, meeting.step)) interleaving_.take(meeting);
}

void AsyncParameterServer::detach() {
  end_lanes();
  ServedModel::detach();
  const std::vector<std::string> all = group().gather_texts(fmt::format("{}", fmt::join(histogram_, " ")));
  std::istringstream first(all[static_cast<size_t>(workers())]);
  histogram_.clear();
  for (int64_t count = 0; first >> count;) histogram_.push_back(count);
}

}  // namespace

std::unique_ptr<Strategy> make_async_parameter_server(comm::Group group, const StrategyOptions& options) {
  return std::make_unique<AsyncParameterServer>(std::move(group), options);
}

}  // namespace funicular::parallel
