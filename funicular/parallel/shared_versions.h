#pragma once
// Versions of weights that several stages use, in pipelines that update weights while they are full.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "funicular/parallel/sent_versions.h"
#include "funicular/parallel/shared_weights.h"
#include "funicular/parallel/version_plan.h"

namespace funicular::parallel {

/// The owner of a weight sends each version that it makes. The users send it their gradients, and nobody waits for an
/// answer. For a given micro-batch, users show the version that the owner uses.
class SharedVersions {
 public:
  /// Collective among the ranks of the pipeline. All that it refers to must outlive it. `wait` waits for a Work and
  /// counts the time.
  SharedVersions(const SharedWeights& weights, const PipelineRanks& ranks, SharedWeights::Wait wait);

  /// At a meeting: the current weights become version 0.
  void restart();
  /// Shows the versions that the owners use for this micro-batch.
  void show(const VersionPlan& plan, int micro_batch);
  /// Releases versions that nothing uses after the last backward pass of a micro-batch.
  void forget_unused(const VersionPlan& plan, int micro_batch);
  /// Called before the update of own weights that makes `version`: the owners add the users' gradients to their own.
  void add_gradients(int version);
  /// Sends the version that the update has made to the users.
  void send_newest();
  /// Notes that all users have received this version of own weights.
  void note_heard(int version) { heard_ = std::max(heard_, version); }
  /// At a meeting: shows the last version, and waits until all messages have arrived.
  void finish(int last);
  /// The bytes of versions older than the newest.
  int64_t kept_bytes() const;

 private:
  /// A copy of a weight that another rank owns.
  struct Copy {
    const SharedWeight* shared = nullptr;
    int giver = 0;                         ///< the owner's rank that sends to this one
    std::map<int, at::Tensor> versions{};  ///< whole, or pieces
    int shown = 0;
  };
  void show(Copy& copy, int version) const;
  void receive(int owner, int version);
  void send(const at::Tensor& tensor, int to, int owner);

  const SharedWeights& weights_;
  const PipelineRanks& ranks_;
  const SharedWeights::Wait wait_;
  comm::Group messages_;  ///< of this pipeline's ranks, only for these weights and gradients
  std::vector<Copy> copies_;
  std::map<int, int> received_;  ///< the newest version, by owner
  int making_ = 0;               ///< the newest version of own weights, or the one that is being made
  int heard_ = 0;                ///< the newest version of them that all users are known to have received
  SentVersions sent_;
};

}  // namespace funicular::parallel
