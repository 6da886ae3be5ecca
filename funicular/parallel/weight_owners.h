#pragma once
// The weights and buffers of a model that each rank of a pipeline has.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/flat_layout.h"
#include "funicular/core/model.h"
#include "funicular/parallel/stages.h"
#include "funicular/pipeline/placement.h"

namespace funicular::parallel {

/// A weight that stages on different ranks use.
struct SharedWeight {
  Parameter* parameter = nullptr;
  int owner = 0;             ///< the first rank of the owning stage, in the pipeline
  std::vector<int> users{};  ///< the first ranks of other stages that use it, ascending
  bool used_by(int home) const;
};

/// A weight belongs to the first stage that uses it; frozen weights are on all ranks. A constant neither trains nor is
/// saved, such as a teacher's weight. It is only on ranks that compute with it.
class WeightOwners {
 public:
  struct Weight {
    Parameter* parameter = nullptr;
    int owner = 0;      ///< first rank of the owning stage; for a constant, the first that computes with it
    bool here = false;  ///< this rank computes with it
    bool trains = true;
    std::vector<int64_t> shape{};
  };

  /// `home`: the first rank with this one's stages. Throws InputError for a buffer that stages on several ranks write,
  /// or that no segment names.
  WeightOwners(const Model& model, const FlatLayout& layout, const std::vector<Stage>& stages,
               const pipeline::Placement& placement, int home);

  /// Weights that train, in the layout's order; then, in the model's order, constants that not all ranks compute with.
  const std::vector<Weight>& weights() const { return weights_; }
  /// In the layout's order.
  const std::vector<SharedWeight>& shared() const { return shared_; }
  int owner_of(const Parameter& trained) const { return owner_of_.at(&trained); }
  /// The first rank of the first pipeline with the buffer's stage; 0 for other buffers.
  int home_of(const Buffer& buffer) const;
  /// Releases weights that this rank does not compute with. `compute`: the type of matrices, if it is not their
  /// masters'.
  void release_unused(std::optional<at::ScalarType> compute) const;

 private:
  void find_weights(const Model& model, const FlatLayout& layout, const std::vector<int>& home_of_segment,
                    int home);
  void find_homes(const Model& model, const std::vector<int>& home_of_segment);

  std::vector<Weight> weights_;
  std::vector<SharedWeight> shared_;
  std::map<const Parameter*, int> owner_of_;
  std::map<std::string, int> homes_;  ///< of buffers
};

}  // namespace funicular::parallel
