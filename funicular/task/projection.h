#pragma once
// The projection that a student's hidden states go through to be compared with a teacher's, kept beside the student's
// model, so that the next stage continues it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/model/pretrained.h"

namespace funicular::task {

/// In the student's folder. Its tensors have the names of TinyBERT's program: fit_dense.weight [teacher's width,
/// student's] and fit_dense.bias.
inline constexpr const char* kProjectionFile = "fit_dense.safetensors";
/// Begins these names.
inline constexpr const char* kPublishedProjection = "fit_dense.";

/// The projection of a folder: a file of its own, or of what TinyBERT's program leaves among the weights of the model.
class KeptProjection {
 public:
  /// Throws InputError for a file that cannot be read.
  explicit KeptProjection(const fs::path& folder);
  /// Adds the hash of its file, if it has one, to the properties that a resumed run must share.
  void note(std::map<std::string, std::string>& identity) const;
  /// Copies the weights of the student's folder into the model, as Pretrained::load does. Of a run that begins
  /// (`starts_anew`) the projection is copied, too, if it has the sizes of the model's, and a message says so, or
  /// says that a new one is learnt.
  void load_student(const model::Pretrained& folder, Model& model, bool starts_anew) const;

 private:
  bool found() const { return !file_.empty(); }
  void load(Model& model) const;
  fs::path file_;  ///< that it was found in; empty: there is none
  bool own_file_ = false;
  std::vector<int64_t> shape_;  ///< of its weight
};

/// Writes the model's projection into the folder of the student; nothing for a model without one.
void save_projection(const Model& model, const fs::path& folder);

}  // namespace funicular::task
