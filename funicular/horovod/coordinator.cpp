#include "funicular/horovod/coordinator.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <iterator>

#include "funicular/base/error.h"
#include "funicular/horovod/cycle_exchange.h"

namespace funicular::horovod {

namespace {

using Clock = std::chrono::steady_clock;

template <class Error>
std::exception_ptr make_error(const std::string& text) {
  return std::make_exception_ptr(Error(kHorovod, "{}", text));
}

/// Takes rank 0's options on all ranks, because all must fuse and remember the same requests.
CoordinatorOptions agree_on(const comm::Group& group, const CoordinatorOptions& options) {
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

}  // namespace

Coordinator::Coordinator(comm::Group group, const CoordinatorOptions& options)
    : group_(std::move(group)),
      options_(agree_on(group_, options)),
      negotiation_(group_.rank(), group_.size(), options_.cache_capacity),
      runner_(group_, options_.fusion_threshold),
      stalls_(options_.stall_warning, options_.stall_failure),
      inbox_(group_.size() == 1),
      thread_([this] { run(); }) {}

Coordinator::~Coordinator() {
  stop();
}

std::shared_ptr<Request> Coordinator::submit(std::string name, Signature signature, Operands operands) {
  return inbox_.submit(std::move(name), std::move(signature), std::move(operands));
}

const std::vector<at::Tensor>& Coordinator::wait(Request& request) {
  inbox_.wait(request);
  return request.operands.outputs;
}

int Coordinator::join() {
  const std::shared_ptr<Request> request = inbox_.join();
  inbox_.wait(*request);
  return request->last_joined;
}

bool Coordinator::stop() {
  inbox_.stop();
  if (thread_.joinable()) thread_.join();
  return ended_together_;
}

CoordinatorCounters Coordinator::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Coordinator::run() {
  // With OpenMP threads of its own, this thread would compete with the threads that compute.
  at::get_num_threads();
  omp_set_num_threads(1);
  const at::NoGradGuard no_gradient;
  try {
    last_cycle_ = Clock::now();
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
  inbox_.wait_for_cycle(last_cycle_ + options_.cycle_time, join_told_);
  last_cycle_ = Clock::now();
  RequestInbox::Taken taken = inbox_.take();
  pending_.add(std::move(taken.requests));
  std::vector<size_t> slots;
  std::vector<Message> messages = pending_.collect(negotiation_, stalls_.patience(), slots);
  if (taken.joins && !join_told_ && pending_.empty()) {
    messages.push_back({.kind = Message::Kind::join});
    join_told_ = true;
  }
  if (group_.rank() == 0) look_for_stalled(messages);
  const CycleCounts counts =
      count_over_ranks(group_, negotiation_.slots(), slots, !messages.empty(), taken.stops);
  if (counts.leaving > 0) return false;
  std::vector<Agreed> agreed;
  const int present = group_.size() - negotiation_.joined();
  for (size_t slot = 0; slot < counts.asking.size(); ++slot)
    if (present > 0 && counts.asking[slot] == present) agreed.push_back(negotiation_.recall(slot));
  const auto from_cache = static_cast<int64_t>(agreed.size());
  if (counts.talking > 0) {
    std::vector<Agreed> heard = negotiation_.hear(exchange_messages(group_, messages));
    std::move(heard.begin(), heard.end(), std::back_inserter(agreed));
  }
  {
    const std::lock_guard lock(mutex_);
    ++counters_.cycles;
    counters_.message_rounds += counts.talking > 0;
    counters_.messages += static_cast<int64_t>(messages.size());
    counters_.from_cache += from_cache;
  }
  inbox_.note_cycle(agreed.empty());
  if (negotiation_.abandoned())
    throw RunError(kHorovod, "given up, since not all ranks ask for {}", describe(*negotiation_.abandoned()));
  if (!agreed.empty()) carry_out(std::move(agreed));
  finish_join();
  return true;
}

void Coordinator::carry_out(std::vector<Agreed> agreed) {
  std::vector<Job> jobs;
  for (Agreed& one : agreed) {
    Request* const own = pending_.find(one.name);
    jobs.push_back({std::move(one), own ? &own->operands : nullptr});
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
}

void Coordinator::finish(const std::string& name, std::exception_ptr error) {
  const std::shared_ptr<Request> request = pending_.take(name);
  if (!request) return;
  inbox_.release(name);  // first, so that a waiting thread can ask for the name again
  request->finish(std::move(error));
}

void Coordinator::finish_join() {
  const std::optional<int> last = negotiation_.take_last_joined();
  if (!last) return;
  const std::shared_ptr<Request> request = inbox_.take_join();
  join_told_ = false;
  request->last_joined = *last;
  request->finish(nullptr);
}

/// On rank 0, warns about names that only some ranks ask for, and gives them up after a while.
void Coordinator::look_for_stalled(std::vector<Message>& messages) {
  for (Message& message : stalls_.give_up(negotiation_)) messages.push_back(std::move(message));
  if (!stalls_.warn(negotiation_)) return;
  const std::lock_guard lock(mutex_);
  ++counters_.stalls;
}

void Coordinator::fail_all(std::exception_ptr error) {
  std::vector<std::shared_ptr<Request>> open = inbox_.end(error);
  for (std::shared_ptr<Request>& request : pending_.take_all()) open.push_back(std::move(request));
  for (const std::shared_ptr<Request>& request : open) request->finish(error);
}

}  // namespace funicular::horovod
