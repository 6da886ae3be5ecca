#pragma once
// Which ranks of a pipeline have which of a model's weights and buffers.

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

/// A weight that is first used by a stage of other ranks than a later one.
struct SharedWeight {
  Parameter* parameter = nullptr;
  int owner = 0;             ///< the first rank with the owning stage, in the pipeline
  std::vector<int> users{};  ///< the first ranks with other stages that use it, ascending
  bool used_by(int home) const;
};

/// A weight belongs to the first stage that uses it; frozen ones are everywhere. A constant, such as a teacher's
/// weight, which does not train and is not saved, is where it is computed with.
class WeightOwners {
 public:
  struct Weight {
    Parameter* parameter = nullptr;
    int owner = 0;      ///< the first rank of a pipeline that has it: of a constant, that computes with it
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
  /// The first rank of the first pipeline with the buffer's stage; 0 for others.
  int home_of(const Buffer& buffer) const;
  /// Lets go of weights that this rank does not compute with. `compute`: the type of matrices, where it is another than
  /// their masters'.
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
