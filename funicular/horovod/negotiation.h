#pragma once
// Finds out which named collectives all ranks have asked for, and whether they agree about them.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/comm/combine.h"

namespace funicular::horovod {

/// The component name in errors of the Horovod interface.
inline constexpr const char* kHorovod = "horovod";

enum class Collective : uint8_t { all_reduce, all_gather, broadcast, reduce_scatter, barrier };

/// The type in which wider floating-point tensors are sent.
enum class Compression : uint8_t { none, fp16, bf16 };

struct TensorType {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape{};
  bool operator==(const TensorType&) const = default;
};

/// A request's properties, which all ranks must give alike under one name. Only the first dimensions of all_gather may
/// differ.
struct Signature {
  Collective collective = Collective::all_reduce;
  std::vector<TensorType> tensors{};  ///< several: a group, which is carried out as one
  comm::Reduction reduction = comm::Reduction::sum;
  int root = 0;
  double prescale = 1, postscale = 1;
  Compression compression = Compression::none;
  at::DeviceType device = at::kCPU;  ///< of the tensors
  bool returns = true;               ///< the name will come again, and is worth remembering
  bool operator==(const Signature&) const = default;
};

/// "allreduce".
const char* name_of(Collective collective);
/// "allreduce of Float [2, 3], average".
std::string describe(const Signature& signature);

/// A message from one rank to all ranks.
struct Message {
  enum class Kind : uint8_t { request, join, abandon };
  Kind kind = Kind::request;
  std::string name{};
  Signature signature{};             ///< of a request
  std::chrono::milliseconds age{0};  ///< of a request: how long ago it was made
};

/// Converts messages to bytes, and back. Both sides are the same program.
std::string encode(const std::vector<Message>& messages);
std::vector<Message> decode(const std::string& bytes);

/// A collective that all ranks have asked for.
struct Agreed {
  std::string name;
  Signature signature;        ///< this rank's own, or another rank's if this one has joined
  std::vector<int64_t> rows;  ///< each rank's first dimension, for all_gather
  std::string error{};        ///< why it cannot be carried out; empty: it can
};

/// A name that only some ranks have asked for.
struct Stalled {
  std::string name;
  std::vector<int> asked, missing;  ///< ranks
  std::chrono::steady_clock::duration age;
};

/// The state of the negotiation. Every rank hears the same messages in the same order, so all have the same state, and
/// no rank decides for all.
///
/// Requests that were agreed on are remembered in numbered slots. If there is no room, the least recently used slot is
/// given up. To repeat a remembered request, a rank only names its slot. As soon as one rank sends a message about a
/// remembered name, all ranks forget it. Ranks that had named the slot then send a message too.
class Negotiation {
 public:
  Negotiation(int rank, int ranks, int64_t capacity);

  /// The slot of this rank's request, if exactly this request is remembered.
  std::optional<size_t> slot_of(const std::string& name, const Signature& signature) const;
  size_t slots() const { return cache_.size(); }
  /// The request in a slot that all ranks have named.
  Agreed recall(size_t slot);

  /// Takes the messages of a round, by rank. Returns all that every rank that has not joined now asks for, in an order
  /// that is equal on all ranks.
  std::vector<Agreed> hear(const std::vector<std::vector<Message>>& messages);

  /// The number of ranks that have joined and still wait for others.
  int joined() const;
  /// The last rank to join, once all have joined; then the count starts again.
  std::optional<int> take_last_joined();
  /// A name that a rank has given up waiting for.
  const std::optional<Stalled>& abandoned() const { return abandoned_; }

  /// Names that a rank first asked for at least this long ago.
  std::vector<Stalled> stalled(std::chrono::steady_clock::duration age) const;

 private:
  struct Row {
    std::vector<std::optional<Signature>> asked;  ///< by rank
    std::chrono::steady_clock::time_point since;
  };
  struct Slot {
    Agreed agreed;  ///< an empty name: free
    int64_t used = 0;
  };

  void note(int rank, const Message& message);
  bool complete(const Row& row) const;
  Agreed conclude(const std::string& name, const Row& row) const;
  void remember(const Agreed& agreed);
  void forget(const std::string& name);
  void mark_joined(Agreed& agreed) const;
  Stalled describe_row(const std::string& name, const Row& row) const;

  const size_t rank_, ranks_, capacity_;
  std::map<std::string, Row> table_;
  std::vector<std::string> order_;  ///< names of the table, in the order of their arrival
  std::vector<Slot> cache_;
  std::map<std::string, size_t> slot_of_name_;
  int64_t uses_ = 0;
  std::vector<bool> joined_;
  int last_joined_ = -1;
  std::optional<Stalled> abandoned_;
};

}  // namespace funicular::horovod
