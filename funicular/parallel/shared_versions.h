#pragma once
// Versions of the weights that several stages use, where the stages update while the pipeline is full.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "funicular/parallel/sent_versions.h"
#include "funicular/parallel/shared_weights.h"
#include "funicular/parallel/version_plan.h"

namespace funicular::parallel {

/// An owner sends each version that it makes, and the users send it their gradients; nobody waits to be heard. Users
/// show the version that the owner uses for the same micro-batch.
class SharedVersions {
 public:
  /// Collective among the ranks of the pipeline. Everything that it refers to must outlive it. `wait` counts the time
  /// of a wait.
  SharedVersions(const SharedWeights& weights, const PipelineRanks& ranks, SharedWeights::Wait wait);

  /// At a meeting: what is there is version 0.
  void restart();
  /// Shows the versions that their owners use for this micro-batch.
  void show(const VersionPlan& plan, int micro_batch);
  /// Lets go of versions that nothing uses after the last backward pass of a micro-batch.
  void forget_unused(const VersionPlan& plan, int micro_batch);
  /// Before the update of own weights that makes `version`: the owners add the users' gradients to theirs.
  void add_gradients(int version);
  /// The users get the version that the update has made.
  void send_newest();
  /// All users have received this version of own weights.
  void note_heard(int version) { heard_ = std::max(heard_, version); }
  /// At a meeting: the last version is shown, and all messages have arrived.
  void finish(int last);
  /// The bytes of versions older than the newest.
  int64_t kept_bytes() const;

 private:
  /// A copy of a weight that another rank owns.
  struct Copy {
    const SharedWeight* shared = nullptr;
    int giver = 0;                         ///< the rank of the owner's that this one hears
    std::map<int, at::Tensor> versions{};  ///< whole, or pieces
    int shown = 0;
  };
  void show(Copy& copy, int version) const;
  void receive(int owner, int version);
  void send(const at::Tensor& tensor, int to, int owner);

  const SharedWeights& weights_;
  const PipelineRanks& ranks_;
  const SharedWeights::Wait wait_;
  comm::Group messages_;  ///< of this pipeline, for these weights and gradients alone
  std::vector<Copy> copies_;
  std::map<int, int> received_;  ///< the newest version, by the owner
  int making_ = 0;               ///< the newest version of own weights, or the one that is being made
  int heard_ = 0;                ///< a version of them that all users have received
  SentVersions sent_;
};

}  // namespace funicular::parallel
