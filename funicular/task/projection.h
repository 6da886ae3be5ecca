#pragma once
// The projection that maps a student's hidden states to a teacher's width. It is saved beside the student's model, so
// that the next stage of the distillation continues it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/model/pretrained.h"

namespace funicular::task {

/// The file in the student's folder. Its tensors have the names of TinyBERT's program: fit_dense.weight [teacher's
/// width, student's width] and fit_dense.bias.
inline constexpr const char* kProjectionFile = "fit_dense.safetensors";
/// The prefix of these names.
inline constexpr const char* kPublishedProjection = "fit_dense.";

/// The projection in a folder: in kProjectionFile, or among the model's weights, where TinyBERT's program leaves it.
class KeptProjection {
 public:
  /// Throws InputError for a file that cannot be read.
  explicit KeptProjection(const fs::path& folder);
  /// Adds the hash of kProjectionFile, if there is one, to the properties that a resumed run must share.
  void note(std::map<std::string, std::string>& identity) const;
  /// Copies the weights of the student's folder into the model, as Pretrained::load does. If the run is new
  /// (`starts_anew`) and the projection has the model's sizes, copies the projection, too. A message tells whether it
  /// is continued or a new one is learnt.
  void load_student(const model::Pretrained& folder, Model& model, bool starts_anew) const;

 private:
  bool found() const { return !file_.empty(); }
  void load(Model& model) const;
  fs::path file_;  ///< the file with the projection; empty: none
  bool own_file_ = false;
  std::vector<int64_t> shape_;  ///< shape of the weight
};

/// Writes the model's projection to the student's folder; does nothing for a model without one.
void save_projection(const Model& model, const fs::path& folder);

}  // namespace funicular::task
