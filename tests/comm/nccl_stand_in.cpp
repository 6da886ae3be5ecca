// A stand-in for NCCL on processors: a library with its functions, which FUNICULAR_NCCL names in tests. Ranks are processes or
// threads of one host, memory is the host's, and streams are device::HostStream.
//
// It is strict where NCCL would hang or give wrong numbers. Ranks of a communicator must call the same operations in one order,
// with the same counts, types and roots. A message waits for its counterpart; on one stream two ranks that both send first
// wait for ever, unless the calls are in a group. One communicator must not be used on a second stream while the first is busy.
// A rank that dies is not noticed, as on NVLink: only ncclCommAbort wakes those who wait for it.
//
// FUNICULAR_STAND_IN, words with commas between, makes it do more:
//   delay=N    each operation begins N milliseconds late, so that a result that is not awaited is seen to be missing;
//   fail=N     the N-th operation of a process becomes an asynchronous ncclRemoteError.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "funicular/comm/combine.h"
#include "funicular/comm/nccl_library.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/host_stream.h"

namespace {

using funicular::comm::Element;
using funicular::comm::Reduction;
using funicular::comm::nccl::Config;
using funicular::comm::nccl::UniqueId;
using funicular::device::HostStream;
using funicular::device::run_kernel_on_host;

enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

constexpr int kMostRanks = 8;
constexpr size_t kChunk = 1 << 16;

enum class Kind : int { all_reduce, reduce, reduce_scatter, all_gather, broadcast };

/// What all ranks must say alike of a collective.
struct Header {
  int64_t number = 0;
  Kind kind{};
  uint64_t count = 0;
  int type = 0, operation = 0, root = 0;
  bool operator==(const Header&) const = default;
};

/// One message on its way from one rank to another, a chunk at a time.
struct Mailbox {
  std::atomic<uint64_t> written, read;  ///< chunks
  uint64_t count;
  int type;
  std::byte chunk[kChunk];
};

/// The memory that the ranks of a communicator map; a new file is zero.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<uint64_t> steps[kMostRanks];  ///< barriers that each rank has come to
  Header headers[kMostRanks];
  std::byte chunks[kMostRanks][kChunk];
  Mailbox mail[kMostRanks][kMostRanks];  ///< [from][to]
};

/// The number behind NAME= in FUNICULAR_STAND_IN; 0 without it.
int64_t setting(const std::string& name) {
  const char* const words = std::getenv("FUNICULAR_STAND_IN");
  const std::string text = words ? words : "";
  const size_t at = text.find(name + "=");
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + name.size() + 1);
}

size_t width_of(int type) {
  return type == 4 || type == 8 ? 8 : type == 7 ? 4 : 2;
}

Element element_of(int type) {
  if (type == 4) return Element::int64;
  if (type == 8) return Element::float64;
  if (type == 7) return Element::float32;
  return type == 9 ? Element::bfloat16 : Element::float16;
}

Reduction reduction_of(int operation) {
  constexpr Reduction kAll[] = {Reduction::sum, Reduction::product, Reduction::maximum, Reduction::minimum,
                                Reduction::average};
  return kAll[operation];
}

/// Thrown within a stream's thread where an operation cannot go on.
struct Stop {};

}  // namespace

/// The stand-in's communicator.
struct ncclComm {
  Shared* shared = nullptr;
  std::string name;
  int rank = 0, ranks = 1;
  std::atomic<bool> aborted{false};
  std::atomic<int> error{kInProgress};
  std::thread meets;  ///< waits for the ranks, since ncclCommInitRankConfig does not

  std::mutex mutex;  ///< of the following
  std::string text;  ///< what is wrong
  HostStream* stream = nullptr;
  int64_t under_way = 0;  ///< operations on it
  int64_t number = 0;     ///< of the next collective
  uint64_t barriers = 0;  ///< by the stream's thread alone

  void fail(int result, const std::string& why) {
    const std::lock_guard lock(mutex);
    text = why;
    error = result;
  }

  /// Returns once `there` is true. After an abort there is no way on.
  template <class Condition>
  void await(const Condition& there) const {
    for (int looks = 0; !there(); ++looks) {
      if (aborted) throw Stop();
      if (looks > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void barrier() {
    ++barriers;
    shared->steps[rank] = barriers;
    for (int other = 0; other < ranks; ++other) await([&] { return shared->steps[other] >= barriers; });
  }
};

namespace {

using Comm = ncclComm*;

thread_local std::string thread_error;
std::atomic<int64_t> operations{0};

/// One side of a message.
struct Message {
  bool sends = false;
  std::byte* data = nullptr;
  uint64_t count = 0;
  int type = 0, peer = 0;
  uint64_t bytes_done = 0;
  bool told = false;  ///< a sender waits until its last chunk was read

  uint64_t bytes() const { return count * width_of(type); }
};

struct Collective {
  Header header;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

/// What one call, or one group of calls, puts on a stream.
struct Launch {
  Comm comm = nullptr;
  HostStream* stream = nullptr;
  std::vector<Collective> collectives;
  std::vector<Message> messages;
};

/// Stops unless all ranks have come with the same header.
void compare_headers(Comm comm, const Header& own) {
  Shared& shared = *comm->shared;
  shared.headers[comm->rank] = own;
  comm->barrier();
  bool same = true;
  for (int other = 0; other < comm->ranks; ++other) same = same && shared.headers[other] == own;
  comm->barrier();
  if (same) return;
  comm->fail(kInvalidUsage, "the ranks of a communicator call different collectives");
  throw Stop();
}

/// Every rank shows its `own_bytes` to the others, chunk by chunk. `take` reads the shared chunks, which begin at `offset`.
void exchange(Comm comm, const std::byte* own, uint64_t own_bytes, uint64_t bytes,
              const std::function<void(uint64_t offset, uint64_t size)>& take) {
  for (uint64_t offset = 0; offset < bytes; offset += kChunk) {
    const uint64_t size = std::min<uint64_t>(kChunk, bytes - offset);
    run_kernel_on_host([&] {
      if (offset < own_bytes) std::memcpy(comm->shared->chunks[comm->rank], own + offset, size);
    });
    comm->barrier();
    run_kernel_on_host([&] { take(offset, size); });
    comm->barrier();
  }
}

/// Writes the reduction of all ranks' chunks, in the same order as comm::combine's.
void combine_chunks(Comm comm, const Header& header, std::byte* to, uint64_t bytes) {
  std::vector<const void*> inputs;
  for (int rank = 0; rank < comm->ranks; ++rank) inputs.push_back(comm->shared->chunks[rank]);
  const Reduction reduction = reduction_of(header.operation);
  funicular::comm::combine(element_of(header.type), reduction, to, inputs.data(), comm->ranks,
                           static_cast<int64_t>(bytes / width_of(header.type)),
                           reduction == Reduction::average ? comm->ranks : 1);
}

void run_collective(Comm comm, const Collective& call) {
  const Header& header = call.header;
  compare_headers(comm, header);
  const uint64_t bytes = header.count * width_of(header.type);
  const auto rank = static_cast<uint64_t>(comm->rank), ranks = static_cast<uint64_t>(comm->ranks);
  switch (header.kind) {
    case Kind::all_reduce:
      return exchange(comm, call.from, bytes, bytes, [&](uint64_t offset, uint64_t size) {
        combine_chunks(comm, header, call.to + offset, size);
      });
    case Kind::reduce:
      return exchange(comm, call.from, bytes, bytes, [&](uint64_t offset, uint64_t size) {
        if (comm->rank == header.root) combine_chunks(comm, header, call.to + offset, size);
      });
    case Kind::reduce_scatter:
      for (uint64_t piece = 0; piece < ranks; ++piece)
        exchange(comm, call.from + piece * bytes, bytes, bytes, [&](uint64_t offset, uint64_t size) {
          if (piece == rank) combine_chunks(comm, header, call.to + offset, size);
        });
      return;
    case Kind::all_gather:
      return exchange(comm, call.from, bytes, bytes, [&](uint64_t offset, uint64_t size) {
        for (uint64_t other = 0; other < ranks; ++other)
          std::memcpy(call.to + other * bytes + offset, comm->shared->chunks[other], size);
      });
    case Kind::broadcast:
      return exchange(comm, call.from, comm->rank == header.root ? bytes : 0, bytes,
                      [&](uint64_t offset, uint64_t size) {
                        std::memcpy(call.to + offset, comm->shared->chunks[header.root], size);
                      });
  }
}

/// Moves a chunk, if it can. Whether it did.
bool advance(Comm comm, Message& message) {
  Mailbox& box = message.sends ? comm->shared->mail[comm->rank][message.peer]
                               : comm->shared->mail[message.peer][comm->rank];
  const bool full = box.written > box.read;
  if (message.sends ? full : !full) return false;
  if (message.sends && message.bytes_done == message.bytes()) return message.told = true;
  const uint64_t size = std::min<uint64_t>(kChunk, message.bytes() - message.bytes_done);
  if (message.sends) {
    box.count = message.count;
    box.type = message.type;
    run_kernel_on_host([&] { std::memcpy(box.chunk, message.data + message.bytes_done, size); });
    ++box.written;
  } else {
    if (box.count != message.count || box.type != message.type) {
      comm->fail(kInvalidUsage, "a message and its receiver differ in count or type");
      throw Stop();
    }
    run_kernel_on_host([&] { std::memcpy(message.data + message.bytes_done, box.chunk, size); });
    ++box.read;
  }
  message.bytes_done += size;
  return true;
}

bool is_done(const Message& message) {
  return message.sends ? message.told : message.bytes_done == message.bytes();
}

/// All messages of a group advance together; of two between the same ranks the second waits for the first.
void run_messages(Comm comm, std::vector<Message>& messages) {
  const auto step = [&] {
    bool moved = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      const auto same_way = [&](const Message& one) {
        return one.sends == messages[i].sends && one.peer == messages[i].peer && !is_done(one);
      };
      if (is_done(messages[i]) ||
          std::any_of(messages.begin(), messages.begin() + static_cast<long>(i), same_way))
        continue;
      moved = advance(comm, messages[i]) || moved;
    }
    return moved;
  };
  while (!std::all_of(messages.begin(), messages.end(), is_done)) comm->await(step);
}

void run(Launch& launch) {
  static const int64_t delay = setting("delay"), failing = setting("fail");
  const Comm comm = launch.comm;
  try {
    comm->await([until = std::chrono::steady_clock::now() + std::chrono::milliseconds(delay)] {
      return std::chrono::steady_clock::now() >= until;
    });
    if (++operations == failing) {
      comm->fail(kRemoteError, "this operation was to fail");
      comm->await([] { return false; });
    }
    for (const Collective& one : launch.collectives) run_collective(comm, one);
    run_messages(comm, launch.messages);
  } catch (const Stop&) {
    if (!comm->aborted) try {
        comm->await([] { return false; });  // as on a card: what has failed is not over
      } catch (const Stop&) {
      }
  }
  const std::lock_guard lock(comm->mutex);
  --comm->under_way;
}

Result refuse(Comm comm, const std::string& why) {
  thread_error = why;
  comm->fail(kInvalidUsage, why);
  return kInvalidUsage;
}

Result put(Launch launch) {
  const Comm comm = launch.comm;
  if (comm->error != kSuccess) return static_cast<Result>(comm->error.load());
  if (!launch.stream) return refuse(comm, "no stream");
  bool busy = false;
  {
    const std::lock_guard lock(comm->mutex);
    busy = comm->under_way > 0 && comm->stream != launch.stream;
    if (!busy) comm->stream = launch.stream, ++comm->under_way;
  }
  if (busy) return refuse(comm, "one communicator is used on two streams at once");
  launch.stream->queue([shared = std::make_shared<Launch>(std::move(launch))] { run(*shared); });
  return kSuccess;
}

// ---- groups, one per thread

thread_local int depth = 0;
thread_local std::vector<Launch> grouped;

Result add(Launch launch) {
  if (depth == 0) return put(std::move(launch));
  for (Launch& one : grouped) {
    if (one.comm != launch.comm) continue;
    if (one.stream != launch.stream)
      return refuse(launch.comm, "one communicator is used on two streams at once");
    one.collectives.insert(one.collectives.end(), launch.collectives.begin(), launch.collectives.end());
    one.messages.insert(one.messages.end(), launch.messages.begin(), launch.messages.end());
    return kSuccess;
  }
  grouped.push_back(std::move(launch));
  return kSuccess;
}

Result collective(Kind kind, const void* from, void* to, size_t count, int type, int operation, int root,
                  Comm comm, void* stream) {
  if (root < 0 || root >= comm->ranks) return refuse(comm, "the root is no rank of the communicator");
  Collective call{{0, kind, count, type, operation, root},
                  static_cast<const std::byte*>(from),
                  static_cast<std::byte*>(to)};
  {
    const std::lock_guard lock(comm->mutex);
    call.header.number = comm->number++;
  }
  return add({comm, static_cast<HostStream*>(stream), {call}, {}});
}

Result message(bool sends, void* data, size_t count, int type, int peer, Comm comm, void* stream) {
  if (peer < 0 || peer >= comm->ranks || peer == comm->rank)
    return refuse(comm, "the other side of a message is no other rank of the communicator");
  return add({comm,
              static_cast<HostStream*>(stream),
              {},
              {{sends, static_cast<std::byte*>(data), count, type, peer}}});
}

/// Ends the process if NCCL is used behind its own end, which a handler of atexit() makes.
void require_library() {
  static std::atomic<bool> ended = false;
  [[maybe_unused]] static const int registered = std::atexit([] { ended = true; });
  if (!ended) return;
  std::fputs("NCCL is used although it has ended with the process\n", stderr);
  std::_Exit(70);
}

Shared* map(const char* name) {
  const int file = ::shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (::ftruncate(file, sizeof(Shared)) == 0)
    memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

/// Until all ranks have come. The last one removes the name.
void meet(Comm comm) {
  try {
    if (++comm->shared->arrived == comm->ranks) ::shm_unlink(comm->name.c_str());
    comm->await([comm] { return comm->shared->arrived >= comm->ranks; });
    comm->error = kSuccess;
  } catch (const Stop&) {
  }
}

Result release(Comm comm) {
  require_library();
  comm->aborted = true;
  comm->meets.join();
  HostStream* stream;
  {
    const std::lock_guard lock(comm->mutex);
    stream = comm->stream;
  }
  if (stream) stream->record()->wait();
  ::munmap(comm->shared, sizeof(Shared));
  delete comm;
  return kSuccess;
}

}  // namespace

#define FUNICULAR_EXPORT extern "C" __attribute__((visibility("default")))

/// By this name the loader knows that memory and streams are the host's.
FUNICULAR_EXPORT void funicular_nccl_stand_in() {}

FUNICULAR_EXPORT Result ncclGetVersion(int* version) {
  const int64_t other = setting("version");
  *version = other > 0 ? static_cast<int>(other) : 22809;
  return kSuccess;
}

FUNICULAR_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  *id = {};
  const std::string name = "/funicular_stand_in_" + std::to_string(::getpid()) + "_" + std::to_string(++made);
  name.copy(id->bytes, sizeof id->bytes - 1);
  return kSuccess;
}

FUNICULAR_EXPORT Result ncclCommInitRankConfig(Comm* made, int ranks, UniqueId id, int rank,
                                               const Config* config) {
  require_library();
  const bool fits =
      config->magic == Config().magic && config->size >= sizeof(Config) && config->blocking == 0;
  if (!fits || ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) return kInvalidArgument;
  Shared* const shared = map(id.bytes);
  if (!shared) return kSystemError;
  const Comm comm = new ncclComm;
  comm->shared = shared;
  comm->name = id.bytes;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->meets = std::thread(meet, comm);
  *made = comm;
  return kInProgress;
}

FUNICULAR_EXPORT Result ncclCommFinalize(Comm) {
  return kSuccess;
}

FUNICULAR_EXPORT Result ncclCommDestroy(Comm comm) {
  return release(comm);
}

FUNICULAR_EXPORT Result ncclCommAbort(Comm comm) {
  return release(comm);
}

FUNICULAR_EXPORT Result ncclCommGetAsyncError(Comm comm, Result* error) {
  *error = static_cast<Result>(comm->error.load());
  return kSuccess;
}

FUNICULAR_EXPORT const char* ncclGetErrorString(Result result) {
  if (result == kInvalidUsage) return "invalid usage";
  return result == kRemoteError ? "remote error" : result == kSuccess ? "no error" : "another error";
}

FUNICULAR_EXPORT const char* ncclGetLastError(Comm comm) {
  if (comm) {
    const std::lock_guard lock(comm->mutex);
    thread_error = comm->text;
  }
  return thread_error.c_str();
}

FUNICULAR_EXPORT Result ncclGroupStart() {
  ++depth;
  return kSuccess;
}

FUNICULAR_EXPORT Result ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  Result result = kSuccess;
  for (Launch& one : grouped)
    if (const Result put_there = put(std::move(one)); put_there != kSuccess) result = put_there;
  grouped.clear();
  return result;
}

FUNICULAR_EXPORT Result ncclAllReduce(const void* from, void* to, size_t count, int type, int operation,
                                      Comm comm, void* stream) {
  return collective(Kind::all_reduce, from, to, count, type, operation, 0, comm, stream);
}

FUNICULAR_EXPORT Result ncclReduce(const void* from, void* to, size_t count, int type, int operation,
                                   int root, Comm comm, void* stream) {
  return collective(Kind::reduce, from, to, count, type, operation, root, comm, stream);
}

FUNICULAR_EXPORT Result ncclReduceScatter(const void* from, void* to, size_t count, int type, int operation,
                                          Comm comm, void* stream) {
  return collective(Kind::reduce_scatter, from, to, count, type, operation, 0, comm, stream);
}

FUNICULAR_EXPORT Result ncclAllGather(const void* from, void* to, size_t count, int type, Comm comm,
                                      void* stream) {
  return collective(Kind::all_gather, from, to, count, type, 0, 0, comm, stream);
}

FUNICULAR_EXPORT Result ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm comm,
                                      void* stream) {
  return collective(Kind::broadcast, from, to, count, type, 0, root, comm, stream);
}

FUNICULAR_EXPORT Result ncclSend(const void* from, size_t count, int type, int peer, Comm comm,
                                 void* stream) {
  return message(true, const_cast<void*>(from), count, type, peer, comm, stream);
}

FUNICULAR_EXPORT Result ncclRecv(void* to, size_t count, int type, int peer, Comm comm, void* stream) {
  return message(false, to, count, type, peer, comm, stream);
}
