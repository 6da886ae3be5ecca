#include "funicular/horovod/coordinator.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <bit>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::horovod {

namespace {

using Clock = std::chrono::steady_clock;

/// Cycles without a pause while a thread waits; afterwards it is not worth the processor's time.
constexpr int kHastyCycles = 1000;
constexpr size_t kNamesInWarning = 10;

template <class Error>
std::exception_ptr make_error(const std::string& text) {
  return std::make_exception_ptr(Error(kHorovod, "{}", text));
}

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::string describe(const Stalled& stalled) {
  return fmt::format("{}: asked for by rank {}, not by rank {}, for {:.1f} s", stalled.name,
                     fmt::join(stalled.asked, ", "), fmt::join(stalled.missing, ", "), seconds(stalled.age));
}

}  // namespace

bool Request::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Request::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

void Request::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  if (error_) std::rethrow_exception(error_);
}

Coordinator::Coordinator(comm::Group group, const CoordinatorOptions& options)
    : group_(std::move(group)),
      options_(agree_on(group_, options)),
      negotiation_(group_.rank(), group_.size(), options_.cache_capacity),
      runner_(group_, options_.fusion_threshold),
      thread_([this] { run(); }) {}

Coordinator::~Coordinator() {
  stop();
}

/// What is fused, and what is remembered, must be the same on all ranks.
CoordinatorOptions Coordinator::agree_on(const comm::Group& group, const CoordinatorOptions& options) {
  const at::Tensor values = at::zeros({5}, at::kLong);
  auto* value = values.mutable_data_ptr<int64_t>();
  value[0] = options.fusion_threshold;
  value[1] = options.cycle_time.count();
  value[2] = options.cache_capacity;
  value[3] = options.stall_warning.count();
  value[4] = options.stall_failure.count();
  group.broadcast(values, 0);
  return {value[0], std::chrono::microseconds(value[1]), value[2], std::chrono::milliseconds(value[3]),
          std::chrono::milliseconds(value[4])};
}

std::shared_ptr<Request> Coordinator::submit(std::string name, Signature signature, Operands operands) {
  auto request = std::make_shared<Request>();
  signature.returns = !name.empty();
  request->signature_ = std::move(signature);
  request->operands_ = std::move(operands);
  request->since_ = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (ended_) std::rethrow_exception(ended_);
    if (join_)
      throw InputError(kHorovod, "{}: this rank has joined, and cannot ask for more until all have", name);
    const Collective collective = request->signature_.collective;
    if (name.empty()) name = fmt::format("{}.noname.{}", name_of(collective), ++unnamed_[collective]);
    if (!names_.insert(name).second)
      throw InputError(kHorovod,
                       "{}: this rank has asked for this name already, and it is not done; wait for it, or "
                       "use another name",
                       name);
    request->name_ = std::move(name);
    incoming_.push_back(request);
  }
  if (group_.size() == 1) changed_.notify_all();
  return request;
}

const std::vector<at::Tensor>& Coordinator::wait(Request& request) {
  const auto count_waiting = [this](int change) {
    const std::lock_guard lock(mutex_);
    waiting_ += change;
    idle_cycles_ = 0;
  };
  const auto leave = [&](void*) { count_waiting(-1); };
  std::unique_ptr<void, decltype(leave)> waiter(nullptr, leave);
  if (!request.done()) {
    count_waiting(1);
    waiter.reset(this);
    changed_.notify_all();
  }
  request.wait();
  return request.operands_.outputs;
}

int Coordinator::join() {
  auto request = std::make_shared<Request>();
  {
    const std::lock_guard lock(mutex_);
    if (ended_) std::rethrow_exception(ended_);
    if (join_) throw InputError(kHorovod, "join: another thread of this rank has joined already");
    join_ = request;
  }
  changed_.notify_all();
  wait(*request);
  return request->result_;
}

bool Coordinator::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return ended_together_;
}

CoordinatorCounters Coordinator::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Coordinator::run() {
  // A team of threads of its own would stand in the way of those that compute.
  at::get_num_threads();
  omp_set_num_threads(1);
  const at::NoGradGuard no_gradient;
  try {
    last_cycle_ = last_warning_ = Clock::now();
    while (cycle()) {
    }
    fail_all(make_error<RunError>("a rank has called shutdown(), or has ended"));
    group_.barrier();  // nobody leaves while another still reads
    ended_together_ = true;
  } catch (...) {
    fail_all(std::current_exception());
  }
}

bool Coordinator::cycle() {
  wait_for_cycle();
  bool leaves = false;
  {
    const std::lock_guard lock(mutex_);
    leaves = stopping_;
  }
  std::vector<size_t> slots;
  std::vector<Message> messages = collect(slots);
  look_for_stalled(messages);
  const std::vector<int64_t> counts = count(slots, !messages.empty(), leaves);
  const int64_t talking = counts[0], leaving = counts[1];
  if (leaving > 0) return false;
  std::vector<Agreed> agreed;
  const int present = group_.size() - negotiation_.joined();
  for (size_t slot = 0; slot + 2 < counts.size(); ++slot)
    if (present > 0 && counts[slot + 2] == present) agreed.push_back(negotiation_.recall(slot));
  const auto from_cache = static_cast<int64_t>(agreed.size());
  if (talking > 0) {
    std::vector<Agreed> heard = negotiation_.hear(tell(messages));
    std::move(heard.begin(), heard.end(), std::back_inserter(agreed));
  }
  {
    const std::lock_guard lock(mutex_);
    ++counters_.cycles;
    counters_.message_rounds += talking > 0;
    counters_.messages += static_cast<int64_t>(messages.size());
    counters_.from_cache += from_cache;
    idle_cycles_ = agreed.empty() ? idle_cycles_ + 1 : 0;
  }
  if (negotiation_.abandoned())
    throw RunError(kHorovod, "given up, since not all ranks ask for {}", describe(*negotiation_.abandoned()));
  if (!agreed.empty()) carry_out(std::move(agreed));
  finish_join();
  return true;
}

void Coordinator::wait_for_cycle() {
  std::unique_lock lock(mutex_);
  if (group_.size() == 1) {
    changed_.wait(lock, [&] { return stopping_ || !incoming_.empty() || (join_ && !join_told_); });
  } else {
    changed_.wait_until(lock, last_cycle_ + options_.cycle_time,
                        [&] { return stopping_ || (waiting_ > 0 && idle_cycles_ < kHastyCycles); });
  }
  last_cycle_ = Clock::now();
}

/// What this rank has to say: the slots of what is remembered, and messages about the rest.
std::vector<Message> Coordinator::collect(std::vector<size_t>& slots) {
  std::vector<std::shared_ptr<Request>> incoming;
  bool joins = false;
  {
    const std::lock_guard lock(mutex_);
    incoming.swap(incoming_);
    joins = join_ != nullptr;
  }
  for (std::shared_ptr<Request>& request : incoming) {
    silent_.push_back(request->name_);
    pending_[request->name_] = std::move(request);
  }
  std::vector<Message> messages;
  std::vector<std::string> still_silent;
  for (std::string& name : silent_) {
    const Request& request = *pending_.at(name);
    const auto slot = negotiation_.slot_of(name, request.signature_);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - request.since_);
    // Counters do not tell which rank is missing; messages do, and should be there before the warning.
    if (slot && (patience().count() == 0 || age < patience() * 3 / 4)) {
      slots.push_back(*slot);
      still_silent.push_back(std::move(name));
    } else {
      messages.push_back({Message::Kind::request, std::move(name), request.signature_, age});
    }
  }
  silent_ = std::move(still_silent);
  if (joins && !join_told_ && pending_.empty()) {
    messages.push_back({.kind = Message::Kind::join});
    join_told_ = true;
  }
  return messages;
}

/// How many ranks talk, leave, and ask for each slot. As many counters share a whole number as fit.
std::vector<int64_t> Coordinator::count(const std::vector<size_t>& slots, bool talks, bool leaves) {
  const int bits = std::bit_width(static_cast<unsigned>(group_.size())), each = 63 / bits;
  const auto fields = static_cast<int64_t>(negotiation_.slots()) + 2;
  const at::Tensor packed = at::zeros({(fields + each - 1) / each}, at::kLong);
  auto* words = packed.mutable_data_ptr<int64_t>();
  const auto add = [&](size_t field) {
    words[field / size_t(each)] += int64_t{1} << (field % size_t(each) * size_t(bits));
  };
  if (talks) add(0);
  if (leaves) add(1);
  for (const size_t slot : slots) add(slot + 2);
  group_.all_reduce(packed);
  std::vector<int64_t> counts;
  for (int64_t field = 0; field < fields; ++field)
    counts.push_back(words[field / each] >> (field % each * bits) & ((int64_t{1} << bits) - 1));
  return counts;
}

std::vector<std::vector<Message>> Coordinator::tell(const std::vector<Message>& own) {
  const std::string text = encode(own);
  const at::Tensor sizes = at::zeros({group_.size()}, at::kLong);
  auto* size = sizes.mutable_data_ptr<int64_t>();
  size[group_.rank()] = static_cast<int64_t>(text.size());
  group_.all_reduce(sizes);
  const std::vector<int64_t> each(size, size + group_.size());
  std::string all(static_cast<size_t>(sizes.sum().item<int64_t>()), '\0');
  gather_bytes(group_, text.data(), each, all.data());
  std::vector<std::vector<Message>> messages;
  size_t at = 0;
  for (const int64_t bytes : each) {
    messages.push_back(decode(all.substr(at, static_cast<size_t>(bytes))));
    at += static_cast<size_t>(bytes);
  }
  return messages;
}

void Coordinator::carry_out(std::vector<Agreed> agreed) {
  std::vector<Job> jobs;
  for (Agreed& one : agreed) {
    const auto own = pending_.find(one.name);
    jobs.push_back({std::move(one), own == pending_.end() ? nullptr : &own->second->operands_});
  }
  for (const Job& job : jobs)
    if (!job.agreed.error.empty()) finish(job.agreed.name, make_error<InputError>(job.agreed.error));
  runner_.run(jobs, [&](size_t job) {
    {
      const std::lock_guard lock(mutex_);
      counters_.collectives = runner_.collectives();
      counters_.tensors = runner_.tensors();
    }
    finish(jobs[job].agreed.name, nullptr);
  });
  std::erase_if(silent_, [&](const std::string& name) { return !pending_.contains(name); });
}

void Coordinator::finish(const std::string& name, std::exception_ptr error) {
  const auto own = pending_.find(name);
  if (own == pending_.end()) return;
  const std::shared_ptr<Request> request = std::move(own->second);
  pending_.erase(own);
  {
    const std::lock_guard lock(mutex_);
    names_.erase(name);  // first, so that who waited can ask for it again
  }
  request->finish(std::move(error));
}

void Coordinator::finish_join() {
  const std::optional<int> last = negotiation_.take_last_joined();
  if (!last) return;
  std::shared_ptr<Request> request;
  {
    const std::lock_guard lock(mutex_);
    request.swap(join_);
    join_told_ = false;
    unnamed_.clear();  // those with less data have made fewer calls
  }
  request->result_ = *last;
  request->finish(nullptr);
}

/// How long a name may be asked for by some ranks only, before something happens; 0: for ever.
std::chrono::milliseconds Coordinator::patience() const {
  const auto warning = options_.stall_warning, failure = options_.stall_failure;
  return warning.count() == 0 || (failure.count() > 0 && failure < warning) ? failure : warning;
}

/// Rank 0 warns, and gives up.
void Coordinator::look_for_stalled(std::vector<Message>& messages) {
  if (group_.rank() != 0) return;
  const auto warning = options_.stall_warning, failure = options_.stall_failure;
  if (failure.count() > 0)
    for (Stalled& stalled : negotiation_.stalled(failure))
      messages.push_back({.kind = Message::Kind::abandon, .name = std::move(stalled.name)});
  if (warning.count() == 0 || Clock::now() - last_warning_ < warning) return;
  const std::vector<Stalled> found = negotiation_.stalled(warning);
  if (found.empty()) return;
  last_warning_ = Clock::now();
  std::vector<std::string> lines;
  for (const Stalled& stalled : found)
    if (lines.size() < kNamesInWarning) lines.push_back(describe(stalled));
  if (found.size() > lines.size()) lines.push_back(fmt::format("and {} more", found.size() - lines.size()));
  log::warning("[{}] not all ranks ask for the same: {}", kHorovod, fmt::join(lines, "; "));
  const std::lock_guard lock(mutex_);
  ++counters_.stalls;
}

void Coordinator::fail_all(std::exception_ptr error) {
  std::vector<std::shared_ptr<Request>> open;
  {
    const std::lock_guard lock(mutex_);
    ended_ = error;
    open.swap(incoming_);
    if (join_) open.push_back(std::move(join_));
    names_.clear();
  }
  for (auto& [name, request] : pending_) open.push_back(request);
  pending_.clear();
  for (const std::shared_ptr<Request>& request : open) request->finish(error);
}

}  // namespace funicular::horovod
