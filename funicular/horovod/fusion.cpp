#include "funicular/horovod/fusion.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "funicular/launch/environment.h"
#include "funicular/runtime/gpu_cards.h"

namespace funicular::horovod {

namespace {

int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t bytes_of(at::ScalarType type, int64_t elements) {
  return elements * static_cast<int64_t>(c10::elementSize(type));
}

/// Fills the tensor with the reduction's neutral element.
void fill_neutral(const at::Tensor& tensor, comm::Reduction reduction) {
  if (reduction == comm::Reduction::product) return void(tensor.fill_(1));
  if (reduction != comm::Reduction::minimum && reduction != comm::Reduction::maximum)
    return void(tensor.zero_());
  const bool least = reduction == comm::Reduction::maximum;
  if (tensor.scalar_type() == at::kLong) {
    tensor.fill_(least ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max());
  } else {
    tensor.fill_(least ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
  }
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr();
}

/// Whole numbers are scaled in double; the caller's copy truncates them.
at::Tensor scaled(const at::Tensor& tensor, double scale) {
  return at::isFloatingType(tensor.scalar_type()) ? tensor.mul(scale) : tensor.to(at::kDouble).mul_(scale);
}

/// Copies this rank's values of one tensor of a job into `travelling` [elements].
void load(const at::Tensor& travelling, const Job& job, size_t index) {
  const Signature& signature = job.agreed.signature;
  if (!job.operands) return fill_neutral(travelling, signature.reduction);
  const at::Tensor& input = job.operands->inputs[index];
  if (signature.prescale != 1) {
    travelling.view(input.sizes()).copy_(scaled(input, signature.prescale));
  } else if (!same_memory(travelling, input)) {
    travelling.view(input.sizes()).copy_(input);
  }
}

/// Copies the result out of `travelling`.
void store(const at::Tensor& travelling, const Job& job, size_t index, int ranks) {
  if (!job.operands) return;
  const Signature& signature = job.agreed.signature;
  const at::Tensor& output = job.operands->outputs[index];
  if (travelling.scalar_type() == at::kLong && signature.reduction == comm::Reduction::average)
    travelling.div_(ranks, "floor");
  const bool floating = at::isFloatingType(output.scalar_type());
  if (!floating && signature.postscale != 1) {
    output.copy_(scaled(travelling, signature.postscale).view(output.sizes()));
  } else if (!same_memory(travelling, output)) {
    output.copy_(travelling.view(output.sizes()));
  }
  if (floating && signature.postscale != 1) output.mul_(signature.postscale);
}

/// The communication layer divides floating-point numbers only, so store() divides averages of whole numbers.
comm::Reduction reduction_of(const Signature& signature, at::ScalarType wire) {
  const bool whole = wire == at::kLong && signature.reduction == comm::Reduction::average;
  return whole ? comm::Reduction::sum : signature.reduction;
}

bool travels_as_it_is(const at::Tensor& tensor) {
  return tensor.is_contiguous() && wire_type(tensor.scalar_type(), Compression::none) == tensor.scalar_type();
}

}  // namespace

at::ScalarType wire_type(at::ScalarType type, Compression compression) {
  if (!at::isFloatingType(type)) return at::kLong;
  if (compression == Compression::none || c10::elementSize(type) <= 2) return type;
  return compression == Compression::fp16 ? at::kHalf : at::kBFloat16;
}

std::vector<Batch> plan_batches(const std::vector<Job>& jobs, int64_t threshold, int64_t alone) {
  std::vector<Batch> batches;
  std::map<std::tuple<at::DeviceType, at::ScalarType, comm::Reduction>, size_t> open;
  for (size_t job = 0; job < jobs.size(); ++job) {
    const Signature& signature = jobs[job].agreed.signature;
    if (!jobs[job].agreed.error.empty()) continue;
    if (signature.collective != Collective::all_reduce) {
      batches.push_back({.parts = {{job, 0}}});
      continue;
    }
    std::map<at::ScalarType, int64_t> needed;  // bytes of this job
    for (const auto& [type, shape] : signature.tensors) {
      const at::ScalarType wire = wire_type(type, signature.compression);
      needed[wire] += bytes_of(wire, count(shape));
    }
    for (const auto& [wire, bytes] : needed) {
      size_t place = batches.size();
      if (bytes <= alone) {
        const auto [shared, is_new] = open.try_emplace({signature.device, wire, signature.reduction}, place);
        if (!is_new && bytes_of(wire, batches[shared->second].elements) + bytes > threshold)
          shared->second = place;
        place = shared->second;
      }
      if (place == batches.size()) batches.push_back({.parts = {}, .wire = wire});
      Batch& batch = batches[place];
      for (size_t tensor = 0; tensor < signature.tensors.size(); ++tensor) {
        const auto& [type, shape] = signature.tensors[tensor];
        if (wire_type(type, signature.compression) != wire) continue;
        batch.parts.push_back({job, tensor});
        batch.elements += count(shape);
      }
    }
  }
  return batches;
}

void gather_bytes(const comm::Group& group, const void* own, const std::vector<int64_t>& sizes, void* all) {
  constexpr int64_t kWord = 8;
  const auto words = [](int64_t bytes) { return (bytes + kWord - 1) / kWord; };
  const auto ranks = static_cast<int64_t>(sizes.size());
  const int64_t each = words(*std::max_element(sizes.begin(), sizes.end()));
  const int64_t total = words(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  const auto me = static_cast<size_t>(group.rank());
  auto* out = static_cast<std::byte*>(all);
  const auto copy = [](void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  // Shards of one size are gathered at once. If most of that would be padding, each rank broadcasts in turn.
  const bool even = each * ranks <= 2 * total + 512 * ranks;
  const at::Tensor room = at::empty({even ? each * ranks : each}, at::kLong);
  auto* data = static_cast<std::byte*>(room.data_ptr());
  if (even) {
    copy(data + static_cast<int64_t>(me) * each * kWord, own, sizes[me]);
    group.all_gather(room);
  }
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const std::byte* from = even ? data + static_cast<int64_t>(rank) * each * kWord : data;
    if (!even && sizes[rank] > 0) {
      if (rank == me) copy(data, own, sizes[rank]);
      group.broadcast(room.narrow(0, 0, words(sizes[rank])), static_cast<int>(rank));
    }
    copy(out, from, sizes[rank]);
    out += sizes[rank];
  }
}

// Measured with 200 tensors of each size: in shared memory, the buffer gains nothing above 4 KiB.
JobRunner::JobRunner(comm::Group group, int64_t threshold)
    : group_(std::move(group)), threshold_(threshold), alone_(group_.shares_memory() ? 4 << 10 : 1 << 20) {}

void JobRunner::run(const std::vector<Job>& jobs, const std::function<void(size_t)>& done) {
  const std::vector<Batch> batches = plan_batches(jobs, threshold_, alone_);
  std::vector<size_t> open(jobs.size());
  for (const Batch& batch : batches)
    for (const Batch::Part& part : batch.parts) ++open[part.job];
  for (const Batch& batch : batches) {
    carry_out(batch, jobs);
    for (const Batch::Part& part : batch.parts) {
      if (--open[part.job] > 0) continue;
      if (Operands* const own = jobs[part.job].operands; own && !device_.is_cpu())
        own->done = device::current_stream(device_)->record();
      done(part.job);
    }
  }
}

/// Makes the batch's device this thread's, and waits there for the inputs.
void JobRunner::use_device_of(const Batch& batch, const std::vector<Job>& jobs) {
  device_ = at::kCPU;
  if (jobs[batch.parts[0].job].agreed.signature.device == at::kCPU) return;
  for (const Batch::Part& part : batch.parts) {
    const Operands* const own = jobs[part.job].operands;
    if (own && !own->inputs.empty()) device_ = own->inputs.front().device();
  }
  if (device_.is_cpu()) device_ = gpu_;  // this rank has joined
  if (device_.is_cpu()) {
    const launch::Environment place = launch::read_environment();
    const auto cards = static_cast<int>(device::cards().size());
    device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device::card_of_rank(
                                        place.local_rank, place.local_size, cards, true)));
  }
  device::use_card(device_.index());
  if (gpu_.is_cpu()) {
    gpu_ = device_;
    // A subgroup has a part of the store for itself: an earlier init() may have used the group's.
    std::vector<int> all(static_cast<size_t>(group_.size()));
    std::iota(all.begin(), all.end(), 0);
    on_device_ = comm::with_device(group_.subgroup(all), {.device = gpu_});
  }
  for (const Batch::Part& part : batch.parts)
    if (const Operands* const own = jobs[part.job].operands; own && own->ready)
      device::current_stream(device_)->wait_for(own->ready);
}

/// NCCL's least and greatest numbers lose a NaN, so these go through the host.
void JobRunner::reduce(const at::Tensor& tensor, comm::Reduction reduction) const {
  const bool compares = reduction == comm::Reduction::minimum || reduction == comm::Reduction::maximum;
  if (device_.is_cpu() || !compares || !tensor.is_floating_point())
    return group().all_reduce(tensor, reduction);
  const at::Tensor host = tensor.cpu();
  group_.all_reduce(host, reduction);
  tensor.copy_(host);
}

void JobRunner::carry_out(const Batch& batch, const std::vector<Job>& jobs) {
  use_device_of(batch, jobs);
  const Job& first = jobs[batch.parts[0].job];
  switch (first.agreed.signature.collective) {
    case Collective::all_reduce:
      all_reduce(batch, jobs);
      break;
    case Collective::all_gather:
      all_gather(first);
      break;
    case Collective::broadcast:
      broadcast(first);
      break;
    case Collective::reduce_scatter:
      reduce_scatter(first);
      break;
    case Collective::barrier:
      return;  // the agreement of all ranks is the barrier
  }
  ++collectives_;
  tensors_ += static_cast<int64_t>(batch.parts.size());
}

at::Tensor JobRunner::buffer(at::ScalarType type, int64_t elements) {
  const int64_t bytes = bytes_of(type, elements);
  if (bytes > threshold_) return at::empty({elements}, options(type));
  at::Tensor& memory = memory_[device_.type()];
  if (!memory.defined() || memory.numel() < bytes)
    memory = at::empty({std::min(threshold_, 2 * bytes + 1024)}, options(at::kByte));
  return memory.narrow(0, 0, bytes).view(type);
}

void JobRunner::all_reduce(const Batch& batch, const std::vector<Job>& jobs) {
  const auto [job, tensor] = batch.parts[0];
  const Signature& signature = jobs[job].agreed.signature;
  at::Tensor travelling;
  if (batch.parts.size() == 1 && jobs[job].operands) {
    const at::Tensor& output = jobs[job].operands->outputs[tensor];
    if (output.is_contiguous() && output.scalar_type() == batch.wire) travelling = output.view({-1});
  }
  if (!travelling.defined()) travelling = buffer(batch.wire, batch.elements);
  const auto each = [&](const auto& action) {
    int64_t at = 0;
    for (const Batch::Part& part : batch.parts) {
      const int64_t size = count(jobs[part.job].agreed.signature.tensors[part.tensor].shape);
      action(travelling.narrow(0, at, size), jobs[part.job], part.tensor);
      at += size;
    }
  };
  each([](const at::Tensor& slice, const Job& one, size_t index) { load(slice, one, index); });
  reduce(travelling, reduction_of(signature, batch.wire));
  each([this](const at::Tensor& slice, const Job& one, size_t index) {
    store(slice, one, index, group_.size());
  });
}

void JobRunner::all_gather(const Job& job) {
  const auto& [type, shape] = job.agreed.signature.tensors[0];
  std::vector<int64_t> out_shape = shape.empty() ? std::vector<int64_t>{1} : shape;
  out_shape[0] = 1;
  const int64_t row_bytes = bytes_of(type, count(out_shape));
  std::vector<int64_t> sizes;
  for (const int64_t rows : job.agreed.rows) sizes.push_back(rows * row_bytes);
  out_shape[0] = std::accumulate(job.agreed.rows.begin(), job.agreed.rows.end(), int64_t{0});
  if (!device_.is_cpu() && wire_type(type, Compression::none) == type) {
    const at::Tensor all = at::empty(out_shape, options(type));
    std::vector<comm::Shard> pieces;
    int64_t begin = 0;
    for (const int64_t bytes : sizes) {
      const int64_t size = bytes / static_cast<int64_t>(c10::elementSize(type));
      pieces.push_back({begin, size});
      begin += size;
    }
    const comm::Shard& piece = pieces[static_cast<size_t>(group_.rank())];
    if (job.operands)
      all.view({-1}).narrow(0, piece.begin, piece.size).copy_(job.operands->inputs[0].reshape({-1}));
    group().all_gather(all.view({-1}), pieces);
    if (job.operands) job.operands->outputs = {all};
    return;
  }
  const at::Tensor all = at::empty(out_shape, type);
  const at::Tensor own = job.operands ? job.operands->inputs[0].contiguous().cpu() : at::Tensor();
  gather_bytes(group_, own.defined() ? own.const_data_ptr() : nullptr, sizes, all.data_ptr());
  if (job.operands) job.operands->outputs = {all.to(device_)};
}

void JobRunner::broadcast(const Job& job) {
  const Signature& signature = job.agreed.signature;
  const auto& [type, shape] = signature.tensors[0];
  const bool tells = group_.rank() == signature.root;
  const at::Tensor output = job.operands ? job.operands->outputs[0] : at::empty(shape, options(type));
  if (tells && !same_memory(output, job.operands->inputs[0])) output.copy_(job.operands->inputs[0]);
  if (travels_as_it_is(output)) return group().broadcast(output, signature.root);
  const at::Tensor whole = output.contiguous().cpu();
  const auto bytes = static_cast<size_t>(whole.nbytes());
  const at::Tensor words = at::empty({static_cast<int64_t>(bytes + 7) / 8}, at::kLong);
  if (tells && bytes > 0) std::memcpy(words.data_ptr(), whole.const_data_ptr(), bytes);
  group_.broadcast(words, signature.root);
  if (bytes > 0) std::memcpy(whole.data_ptr(), words.const_data_ptr(), bytes);
  if (!same_memory(whole, output)) output.copy_(whole);
}

void JobRunner::reduce_scatter(const Job& job) {
  const Signature& signature = job.agreed.signature;
  const auto& [type, shape] = signature.tensors[0];
  const at::ScalarType wire = wire_type(type, signature.compression);
  const comm::Reduction reduction = reduction_of(signature, wire);
  const int64_t row = count({shape.begin() + 1, shape.end()});
  const comm::Shard own = group_.shard(shape[0]);
  const at::Tensor whole = at::empty({shape[0] * row}, options(wire));
  load(whole, job, 0);
  at::Tensor part = at::empty({own.size * row}, options(wire));
  const bool compares = reduction == comm::Reduction::minimum || reduction == comm::Reduction::maximum;
  if (shape[0] % group_.size() == 0 && (device_.is_cpu() || !compares)) {
    group().reduce_scatter(whole, part, reduction);
  } else {  // the group would cut within a row
    reduce(whole, reduction);
    part = whole.narrow(0, own.begin * row, own.size * row);
  }
  store(part, job, 0, group_.size());
}

}  // namespace funicular::horovod
